package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unique"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// A call is one tool call waiting for its turn or running.
type call struct {
	name string
	args json.RawMessage
	done chan outcome // capacity 1; gets exactly one value
}

type outcome struct {
	result Result
	err    error
}

func (o outcome) wrap(name string) error {
	if o.err == nil {
		return nil
	}
	return fmt.Errorf("tool %q: %w", name, o.err)
}

// enqueue puts c last in the queue and sees that work runs.
func (d *Device) enqueue(c *call) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return ErrClosed
	case len(d.waiting) >= maxWaiting:
		d.cfg.Counters.Busy.Add(1)
		return fmt.Errorf("%w: %d; wait for their results first", ErrBusy, maxWaiting)
	}
	d.waiting = append(d.waiting, c)
	d.wakeLocked()
	return nil
}

// withdraw takes c out of the queue. It reports false when c's turn has come.
func (d *Device) withdraw(c *call) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.Index(d.waiting, c)
	if i < 0 {
		return false
	}
	d.waiting = slices.Delete(d.waiting, i, i+1)
	return true
}

// next takes the first call off the queue, nil when there is none.
func (d *Device) next() *call {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) == 0 {
		d.waiting = nil // an idle device keeps no buffer
		return nil
	}
	c := d.waiting[0]
	d.waiting = slices.Delete(d.waiting, 0, 1)
	return c
}

// failWaiting ends every waiting call with err.
func (d *Device) failWaiting(err error) {
	for c := d.next(); c != nil; c = d.next() {
		c.done <- outcome{err: err}
	}
}

// wantLocked makes one attempt to discover due now.
func (d *Device) wantLocked() {
	d.wanted = true
	d.wakeLocked()
}

// wakeLocked starts the worker where it does not run. The worker ends by itself
// when there is nothing to do, and soon after Close, which waits for it.
func (d *Device) wakeLocked() {
	if d.working {
		return
	}
	d.working = true
	d.worker.Go(d.work)
}

// work visits the device until nothing is left to do. At most one runs.
func (d *Device) work() {
	for d.hasWork() {
		if err := d.visit(); err != nil {
			d.failWaiting(err)
		}
	}
}

// hasWork reports whether the worker must go on; if not, it has ended.
func (d *Device) hasWork() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.working = !d.closed && (d.wanted || len(d.waiting) > 0)
	d.wanted = false
	if d.working && d.retry != nil {
		d.retry.Stop() // the attempt it was for is made now
		d.retry = nil
	}
	return d.working
}

// visit opens an SDK session with the device, learns the tools where they are
// not known, runs the waiting calls, and closes the session: kept open, it would
// cost every idle device a goroutine. The first session initializes the device;
// later ones are initialized by conn alone.
//
// The SDK's methods get no deadline and no cancellation: conn answers every
// request within its limit and after Close at once. A cancelled context would
// make the SDK send notifications/cancelled from a goroutine nobody waits for.
func (d *Device) visit() error {
	ctx := context.Background()
	began := time.Now()
	client := sdk.NewClient(&sdk.Implementation{Name: "parley", Version: d.cfg.Version}, &sdk.ClientOptions{
		Capabilities:   &sdk.ClientCapabilities{},
		MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true},
	})
	c := newConn(d)
	c.limit = answerTimeout
	session, err := client.Connect(ctx, c, &sdk.ClientSessionOptions{ProtocolVersion: protocolVersion})
	if err != nil {
		return d.discoveryFailed(err)
	}
	defer session.Close() // its error is that of conn.Close, which has none
	switch known, stale := d.knowledge(); {
	case !known:
		if err := d.discover(ctx, session, c, began); err != nil {
			return d.discoveryFailed(err)
		}
	case stale:
		d.rediscover(ctx, session, c)
	}
	for next := d.next(); next != nil; next = d.next() {
		next.done <- d.run(ctx, session, c, next)
	}
	return nil
}

// knowledge reports whether the tools are known, and whether they have changed;
// if so, the caller lists them again.
func (d *Device) knowledge() (known, stale bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	stale, d.stale = d.stale, false
	return d.discovered, stale
}

// discoveryFailed arranges for another attempt and returns what a caller who
// waited for this one is told.
func (d *Device) discoveryFailed(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	d.attempts++
	if d.attempts < maxAttempts {
		pause := firstRetry << (d.attempts - 1)
		d.retry = time.AfterFunc(pause, d.again)
		d.log.Debug("device did not tell its tools, asking again", "attempt", d.attempts, "retry_ms", pause.Milliseconds(), "error", err)
	} else if d.attempts == maxAttempts {
		d.cfg.Counters.Abandoned.Add(1)
		d.log.Warn("device does not tell its tools", "attempts", d.attempts, "error", err)
	}
	return fmt.Errorf("the device's tools are not known: %w", err)
}

// again makes the next attempt when its pause is over, unless work forestalled it.
func (d *Device) again() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed && !d.discovered && d.retry != nil {
		d.wantLocked()
	}
}

// discover learns the device's tools.
func (d *Device) discover(ctx context.Context, session *sdk.ClientSession, c *conn, began time.Time) error {
	texts, err := d.list(ctx, session, c)
	if err != nil {
		return err
	}
	d.setTools(texts)
	close(d.ready)
	d.cfg.Counters.Discovered.Add(1)
	info := session.InitializeResult().ServerInfo
	d.log.Info("device told its tools", "board", info.Name, "firmware", info.Version,
		"tools", len(texts), "took_ms", time.Since(began).Milliseconds())
	return nil
}

// rediscover learns the device's tools again. Where that fails, they stay as they
// were.
func (d *Device) rediscover(ctx context.Context, session *sdk.ClientSession, c *conn) {
	texts, err := d.list(ctx, session, c)
	if err != nil {
		d.log.Warn("device did not tell its new tools", "error", err)
		return
	}
	d.setTools(texts)
	d.log.Info("device changed its tools", "tools", len(texts))
}

// setTools notes what the device has told.
func (d *Device) setTools(texts []toolText) {
	tools := make([]unique.Handle[toolText], len(texts))
	for i, t := range texts {
		tools[i] = unique.Make(t)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listed = time.Now()
	if !d.discovered || !slices.Equal(tools, d.tools) {
		d.version.Add(1)
	}
	d.tools = tools
	if !d.discovered {
		d.discovered = true
		d.wanted = false
		d.greeting = json.RawMessage(`{}`) // said once, in the log
	}
}

// list reads the pages of tools/list. A listing that would not end, or breaks
// off with an error after the first page (firmware cannot list past a tool
// larger than a page), counts as far as it went.
func (d *Device) list(ctx context.Context, session *sdk.ClientSession, c *conn) ([]toolText, error) {
	var l listing
	for params := (&sdk.ListToolsParams{}); ; {
		c.limit = answerTimeout
		page, err := session.ListTools(ctx, params)
		if errors.Is(err, ErrTimeout) || errors.Is(err, ErrClosed) || err != nil && l.pages == 0 {
			return nil, err
		}
		if err != nil {
			d.log.Warn("device told its tools in part", "tools", len(l.tools), "reason", err)
			return l.tools, nil
		}
		if why := l.add(c.page, page.NextCursor); why != "" {
			d.log.Warn("device told its tools in part", "tools", len(l.tools), "reason", why)
			return l.tools, nil
		}
		if page.NextCursor == "" {
			return l.tools, nil
		}
		params.Cursor = page.NextCursor
	}
}

// run makes one call.
func (d *Device) run(ctx context.Context, session *sdk.ClientSession, c *conn, next *call) outcome {
	if !d.has(next.name) {
		return outcome{err: ErrUnknownTool}
	}
	began := time.Now()
	d.cfg.Counters.Calls.Add(1)
	c.limit = d.cfg.limit(next.name)
	res, err := session.CallTool(ctx, &sdk.CallToolParams{Name: next.name, Arguments: next.args})
	took := time.Since(began).Milliseconds()
	if errors.Is(err, ErrTimeout) {
		err = fmt.Errorf("%w; it may still take effect", err)
	}
	if err != nil {
		d.log.Warn("tool call failed", "tool", next.name, "took_ms", took, "error", err)
		return outcome{err: err}
	}
	r := toResult(res, d.cfg.ResultLimit, d.cfg.ImageLimit)
	d.log.Debug("tool called", "tool", next.name, "took_ms", took, "is_error", r.IsError, "bytes", len(r.Text))
	return outcome{result: r}
}

func (d *Device) has(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.tools, func(h unique.Handle[toolText]) bool { return h.Value().name == name })
}
