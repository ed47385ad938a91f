package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"parley/internal/protocol"
)

// A Device is the MCP client of one connected device. It lives as long as the
// device's connection.
//
// A device runs one thing at a time, so calls are made one at a time, in the
// order they were asked for. A device cannot cancel: a call that its caller has
// given up still holds the next one back until the device answers or the call's
// time limit ends, because its main task is busy for as long.
//
// A Device that is neither calling nor asking for tools has no goroutine and no
// SDK session; it keeps its tools, of which devices with equal firmware share
// one copy. All methods are safe for concurrent use.
type Device struct {
	id    protocol.DeviceID
	send  func(payload json.RawMessage) error
	cfg   Config
	log   *slog.Logger
	ready chan struct{} // closed when the tools are known

	worker sync.WaitGroup // counts the goroutines of work and deliver, if they run

	version atomic.Uint64 // of tools; rises when they change

	mu         sync.Mutex
	closed     bool
	working    bool // work is running
	wanted     bool // an attempt to discover is due
	attempts   int  // failed ones since Start
	retry      *time.Timer
	waiting    []*call  // at most maxWaiting
	pending    *request // on the wire; at most one, as devices are serial
	lastID     int32
	greeting   json.RawMessage // answers initialize again; nil until the device has
	discovered bool            // the device has told its tools
	tools      []unique.Handle[toolText]

	stale  bool        // the tools are to be listed again
	listed time.Time   // when they last were
	relist *time.Timer // makes them stale, if set

	subscribers []*subscriber // never changed, only replaced
	notices     []notice      // at most maxNotices
	delivering  bool          // deliver is running
	ponged      time.Time     // when a ping was last answered
}

var _ Source = (*Device)(nil)

// NewDevice returns the client of the device with this id. send puts one
// JSON-RPC message, always a JSON object, into an MQTT message to the device; it
// must be safe for concurrent use, must return promptly, and must not call Close.
// Nothing is sent before [Device.Start] or [Device.Call].
func NewDevice(id protocol.DeviceID, send func(payload json.RawMessage) error, cfg Config, log *slog.Logger) *Device {
	return &Device{
		id:    id,
		send:  send,
		cfg:   cfg.withDefaults(),
		log:   log.With("device", string(id)),
		ready: make(chan struct{}),
		// A device that reconnects may still answer the calls of its last
		// connection: with a random start their ids mean nothing here.
		lastID: rand.Int32N(math.MaxInt32),
	}
}

// Start begins to ask the device for its tools and returns at once. A device
// that does not answer (it may be waiting for its hello, or running a tool) is
// asked again after 2 s, 4 s, and so on, six times in all. Calling Start again
// begins anew where that has failed and does nothing otherwise, so it suits any
// sign of life, such as a hello.
func (d *Device) Start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.discovered {
		return
	}
	d.attempts = 0
	if d.working {
		return // the attempt under way will do, or be repeated
	}
	d.wantLocked()
}

// Close ends all calls with [ErrClosed] and returns when no goroutine of the
// Device is left. It may be called more than once.
func (d *Device) Close() {
	d.mu.Lock()
	d.closed = true
	if d.retry != nil {
		d.retry.Stop()
	}
	if d.relist != nil {
		d.relist.Stop()
	}
	for _, c := range d.waiting {
		c.done <- outcome{err: ErrClosed}
	}
	d.waiting = nil
	if d.pending != nil {
		d.finishLocked(d.pending, answer{err: ErrClosed})
	}
	d.mu.Unlock()
	d.worker.Wait()
}

// Ready returns a channel that is closed when the device has told its tools.
func (d *Device) Ready() <-chan struct{} { return d.ready }

// Tools lists the device's tools in its own order, those for users only
// included. It is empty until the device has told them.
func (d *Device) Tools() []Tool {
	d.mu.Lock()
	handles := d.tools // never changed, only replaced
	d.mu.Unlock()
	tools := make([]Tool, len(handles))
	for i, h := range handles {
		tools[i] = h.Value().tool()
	}
	return tools
}

// Count is how many tools the device has told.
func (d *Device) Count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.tools)
}

// Version rises whenever the tools change.
func (d *Device) Version() uint64 { return d.version.Load() }

// Receive takes one JSON-RPC message of the device and never blocks. It keeps
// payload, which must not change afterwards. At most one reply is awaited at any
// time, so replies do not queue: what is not that one, because it is late,
// doubled, unknown or no reply at all, is counted and ignored. Notifications go
// to the subscribers; of requests only ping is answered, at most once a second.
func (d *Device) Receive(payload json.RawMessage) {
	var e envelope
	if err := json.Unmarshal(payload, &e); err != nil {
		d.Salvage(payload)
		return
	}
	if notNull(e.Method) != nil {
		d.uninvited(text(e.Method), notNull(e.ID), notNull(e.Params))
		return
	}
	r, err := e.reply()
	if err != nil {
		d.cfg.Counters.Malformed.Add(1)
		d.log.Debug("mcp message ignored", "error", err)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pending == nil || d.pending.id != r.id {
		d.cfg.Counters.Unexpected.Add(1)
		return
	}
	d.finishLocked(d.pending, answer{reply: r})
}

// Call runs one tool on the device and returns its only result. It waits its
// turn behind at most eight calls, and for the device's tools where they
// are not known yet. The time limit counts from sending; ctx covers everything.
// When ctx ends while the device is at work, Call returns at once and says that
// the tool may still take effect; before that, nothing is sent.
func (d *Device) Call(ctx context.Context, name string, args json.RawMessage) (Result, error) {
	args, err := checkArguments(args, maxArguments)
	if err == nil {
		err = checkUpgrade(name, args)
	}
	if err != nil {
		return Result{}, fmt.Errorf("tool %q: %w", name, err)
	}
	if err := ctx.Err(); err != nil {
		return Result{}, fmt.Errorf("tool %q was not called: %w", name, err)
	}
	c := &call{name: name, args: args, done: make(chan outcome, 1)}
	if err := d.enqueue(c); err != nil {
		return Result{}, fmt.Errorf("tool %q: %w", name, err)
	}
	select {
	case o := <-c.done:
		return o.result, o.wrap(name)
	case <-ctx.Done():
	}
	if d.withdraw(c) {
		return Result{}, fmt.Errorf("tool %q was not called: %w", name, ctx.Err())
	}
	select {
	case o := <-c.done: // it came in the same moment
		return o.result, o.wrap(name)
	default:
		return Result{}, fmt.Errorf("tool %q was called and may still take effect: %w", name, ctx.Err())
	}
}

// checkArguments returns args as a JSON object of at most limit bytes, an empty
// one for none.
func checkArguments(args json.RawMessage, limit int) (json.RawMessage, error) {
	args = bytes.TrimSpace(args)
	if len(args) == 0 || string(args) == "null" {
		return json.RawMessage("{}"), nil
	}
	if len(args) > limit {
		return nil, fmt.Errorf("%w: %d bytes, at most %d allowed", ErrArguments, len(args), limit)
	}
	if args[0] != '{' || !json.Valid(args) {
		return nil, fmt.Errorf("%w: send one JSON object", ErrArguments)
	}
	return slices.Clone(args), nil
}

// checkUpgrade refuses to upgrade a device's firmware from nowhere. Firmware does
// not insist on the URL and would take the argument's description for it.
func checkUpgrade(name string, args json.RawMessage) error {
	if name != upgradeFirmware {
		return nil
	}
	var p struct {
		URL string `json:"url"`
	}
	if err := json.Unmarshal(args, &p); err != nil || strings.TrimSpace(p.URL) == "" {
		return fmt.Errorf(`%w: "url" must be the address of the firmware`, ErrArguments)
	}
	return nil
}
