package program

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shell returns a program that runs scripts.
func shell(t *testing.T, change func(*Config)) *Program {
	t.Helper()
	cfg := Config{Name: "sh"}
	if change != nil {
		change(&cfg)
	}
	p, err := Find(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRunPassesInputAndOutput(t *testing.T) {
	var out bytes.Buffer
	if err := shell(t, nil).Run(t.Context(), []string{"-c", "tr a-z A-Z"}, strings.NewReader("hello"), &out, 5); err != nil {
		t.Fatal(err)
	}
	if out.String() != "HELLO" {
		t.Errorf("printed %q", out.String())
	}
}

func TestTheEnvironmentHoldsNoKeys(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-secret")
	t.Setenv("LANG", "C.UTF-8")
	var out bytes.Buffer
	p := shell(t, func(c *Config) { c.Env = []string{"OWN=yes"} })
	if err := p.Run(t.Context(), []string{"-c", "env"}, nil, &out, 1<<16); err != nil {
		t.Fatal(err)
	}
	env := out.String()
	if strings.Contains(env, "sk-secret") || !strings.Contains(env, "OWN=yes") || !strings.Contains(env, "LANG=C.UTF-8") {
		t.Errorf("environment:\n%s", env)
	}
}

func TestFailuresSayWhy(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"last words": {"echo first >&2; echo 'no such voice' >&2; exit 3", "sh failed: exit status 3: no such voice"},
		"silent":     {"exit 3", "sh failed: exit status 3"},
		"too much":   {"yes", "sh was stopped: it writes too much: more than 100 bytes"},
		"too long":   {"exec sleep 60", "sh was stopped after 100ms, see timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			p := shell(t, func(c *Config) {
				if name == "too long" {
					c.Timeout = 100 * time.Millisecond
				}
			})
			err := p.Run(t.Context(), []string{"-c", c.script}, nil, new(bytes.Buffer), 100)
			if err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if name == "too much" && !errors.Is(err, ErrTooMuch) {
				t.Error("the error does not wrap ErrTooMuch")
			}
		})
	}
}

// TestTheGroupDiesWithItsLeader has a program leave a child behind that would
// write a file later.
func TestTheGroupDiesWithItsLeader(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "alive")
	script := "(trap '' HUP TERM; while :; do echo x >> " + fifo + "; sleep 0.01; done) >/dev/null 2>&1 & while [ ! -s " + fifo + " ]; do sleep 0.01; done"
	if err := shell(t, nil).Run(t.Context(), []string{"-c", script}, nil, new(bytes.Buffer), 100); err != nil {
		t.Fatal(err)
	}
	// The kernel needs a moment for a process that nobody waits for.
	for deadline := time.Now().Add(10 * time.Second); ; {
		before, err := os.ReadFile(fifo)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(200 * time.Millisecond)
		after, err := os.ReadFile(fifo)
		if err != nil {
			t.Fatal(err)
		}
		if len(before) == len(after) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the child is still alive")
		}
	}
}

func TestCancel(t *testing.T) {
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	p := shell(t, func(c *Config) { c.Concurrent = 1 })
	started, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- p.Run(ctx, []string{"-c", "echo; exec sleep 60"}, nil, writerFunc(func(b []byte) (int, error) {
			close(started)
			return len(b), nil
		}), 100)
	}()
	<-started
	waiting := make(chan error, 1)
	go func() { waiting <- p.Run(ctx, []string{"-c", "true"}, nil, new(bytes.Buffer), 1) }() // its turn never comes
	cancel(gone)
	for _, c := range []chan error{done, waiting} {
		if err := <-c; !errors.Is(err, gone) {
			t.Errorf("ended with %v", err)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestFindNamesTheFault(t *testing.T) {
	for want, c := range map[string]Config{
		"no-such-program": {Name: "no-such-program"},
		"timeout is -1s":  {Name: "sh", Timeout: -time.Second},
		"parallel is -1":  {Name: "sh", Concurrent: -1},
	} {
		if _, err := Find(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
