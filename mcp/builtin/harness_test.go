package builtin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"parley/internal/protocol"
	"parley/mcp"
	"parley/mcp/builtin"
)

const (
	kitchen = protocol.DeviceID("a0:85:e3:f4:49:34")
	bedroom = protocol.DeviceID("a0:85:e3:f4:49:35")
)

// A delivery is one attempt that a house has seen.
type delivery struct {
	at     time.Time
	device protocol.DeviceID
	builtin.Notice
}

// A house is one with devices that do as a test says.
type house struct {
	mu         sync.Mutex
	deliveries []delivery
	answer     func(d delivery) (builtin.Way, error) // to Deliver; nil: spoken
	ended      []protocol.DeviceID
	roles      []string
	role       string
	tools      map[string]func(args map[string]any) (mcp.Result, error)
}

func (h *house) Deliver(_ context.Context, device protocol.DeviceID, n builtin.Notice) (builtin.Way, error) {
	d := delivery{time.Now().UTC(), device, n}
	h.mu.Lock()
	h.deliveries = append(h.deliveries, d)
	answer := h.answer
	h.mu.Unlock()
	if answer != nil {
		return answer(d)
	}
	return builtin.Spoken, nil
}

func (h *house) EndConversation(device protocol.DeviceID) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = append(h.ended, device)
	return nil
}

func (h *house) Roles(protocol.DeviceID) []string { return h.roles }

func (h *house) SwitchRole(_ protocol.DeviceID, role string) error {
	h.role = role
	return nil
}

func (h *house) Call(_ context.Context, _ protocol.DeviceID, tool string, args json.RawMessage) (mcp.Result, error) {
	var decoded map[string]any
	if err := json.Unmarshal(args, &decoded); err != nil {
		return mcp.Result{}, err
	}
	return h.tools[tool](decoded)
}

func (h *house) HasTool(_ protocol.DeviceID, tool string) bool { return h.tools[tool] != nil }

// behave changes what Deliver answers.
func (h *house) behave(answer func(delivery) (builtin.Way, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = answer
}

// seen returns the attempts so far as "kind id: text", after the seconds since
// begin at which they were made.
func (h *house) seen(begin time.Time) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []string
	for _, d := range h.deliveries {
		list = append(list, fmt.Sprintf("%v %s", d.at.Sub(begin), d.Text))
	}
	return list
}

func absent(delivery) (builtin.Way, error) {
	return "", fmt.Errorf("deliver: %w", builtin.ErrAbsent)
}

// A running is tools at work.
type running struct {
	*builtin.Tools
	t    *testing.T
	stop func() error // ends Run and returns its error
	log  *journal
}

// run makes tools and runs them until the test ends.
func run(t *testing.T, cfg builtin.Config, h builtin.House, prepare ...func(*builtin.Tools)) *running {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	if cfg.Location == nil {
		cfg.Location = time.UTC
	}
	log := new(journal)
	tools, err := builtin.New(cfg, h, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range prepare {
		f(tools)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	var once sync.Once
	var result error
	go func() { ended <- tools.Run(ctx) }()
	r := &running{tools, t, func() error {
		once.Do(func() { cancel(); result = <-ended })
		return result
	}, log}
	t.Cleanup(func() { r.stop() })
	for !tools.Ready() {
		runtime.Gosched()
	}
	return r
}

// call calls a tool for a device and returns what the model reads.
func (r *running) call(device protocol.DeviceID, tool, args string) (string, bool) {
	r.t.Helper()
	ctx := mcp.WithCaller(r.t.Context(), mcp.Caller{Device: device, Session: "s", Role: "default"})
	res, err := r.Source().Call(ctx, tool, json.RawMessage(args))
	if err != nil {
		r.t.Errorf("%s %s: %v", tool, args, err)
	}
	return res.Text, !res.IsError
}

// must calls a tool that has to succeed with this text.
func (r *running) must(device protocol.DeviceID, tool, args, want string) {
	r.t.Helper()
	if got, ok := r.call(device, tool, args); !ok || got != want {
		r.t.Errorf("%s %s:\n got %q (%v)\nwant %q", tool, args, got, ok, want)
	}
}

// refuses calls a tool that has to fail with a text that holds part.
func (r *running) refuses(device protocol.DeviceID, tool, args, part string) {
	r.t.Helper()
	if got, ok := r.call(device, tool, args); ok || !strings.Contains(got, part) {
		r.t.Errorf("%s %s:\n got %q (%v)\nwant a refusal with %q", tool, args, got, ok, part)
	}
}

// equal compares what a house has seen.
func equal(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("delivered\n got %q\nwant %q", got, want)
	}
}

// A journal keeps a log.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

// An atomicDuration is a duration that several goroutines use.
type atomicDuration struct{ atomic.Int64 }

func (d *atomicDuration) Load() time.Duration       { return time.Duration(d.Int64.Load()) }
func (d *atomicDuration) Store(value time.Duration) { d.Int64.Store(int64(value)) }
