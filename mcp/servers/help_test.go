package servers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"parley/mcp"
)

// patience is how long a test waits for what must happen. Nothing depends on it
// but how long a failure takes.
const patience = 60 * time.Second

// self returns the configuration of a server that is this binary.
func self(role string) Config {
	return Config{Name: role, Command: os.Args[0], Env: map[string]string{roleKey: role}}
}

// A fixture is a server that runs, and what it logs.
type fixture struct {
	*Server
	t       *testing.T
	log     *logbook
	changes chan struct{}
	stop    func() // ends Run and waits for it; may be called twice
}

// run makes a server and runs it until the test ends.
func run(t *testing.T, cfg Config, opts Options) *fixture {
	t.Helper()
	f := &fixture{t: t, log: new(logbook), changes: make(chan struct{}, 1)}
	opts.OnChange = func() {
		select {
		case f.changes <- struct{}{}:
		default:
		}
	}
	s, err := New(cfg, opts, f.log.logger())
	if err != nil {
		t.Fatal(err)
	}
	f.Server = s
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	f.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(f.stop)
	return f
}

// waitState waits until the server is in a state.
func (f *fixture) waitState(state string) Health {
	f.t.Helper()
	var h Health
	if !eventually(func() bool { h = f.Health(); return h.State == state }) {
		f.t.Fatalf("state is %s (%v), want %s; log:\n%s", h.State, h.Err, state, f.log)
	}
	return h
}

// call makes a call that must have a result.
func (f *fixture) call(name, args string) mcp.Result {
	f.t.Helper()
	r, err := f.Call(f.t.Context(), name, json.RawMessage(args))
	if err != nil {
		f.t.Fatalf("%s: %v; log:\n%s", name, err, f.log)
	}
	return r
}

// about asks a good server about itself.
func (f *fixture) about() about {
	f.t.Helper()
	var a about
	if err := json.Unmarshal([]byte(f.call("about", "").Text), &a); err != nil {
		f.t.Fatal(err)
	}
	return a
}

// eventually waits for what another process or goroutine does.
func eventually(ok func() bool) bool {
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			return false
		}
		<-time.After(5 * time.Millisecond)
	}
	return true
}

// gone reports whether no process of this number runs. One that has ended and
// that its parent has not asked about does not run.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, _ := bytes.Cut(stat, []byte(") "))
	return len(after) == 0 || after[0] == 'Z' || after[0] == 'X'
}

func mustGo(t *testing.T, what string, pid int) {
	t.Helper()
	if pid <= 1 {
		t.Fatalf("%s has process number %d", what, pid)
	}
	if !eventually(func() bool { return gone(pid) }) {
		t.Errorf("%s (%d) still runs", what, pid)
	}
}

// A logbook keeps what is logged.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logbook) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (l *logbook) count(s string) int { return strings.Count(l.String(), s) }

// pid finds the process number a server has told.
func (l *logbook) pid() (pid int) {
	_, after, _ := strings.Cut(l.String(), `line="pid `)
	_, _ = fmt.Sscan(after, &pid)
	return pid
}
