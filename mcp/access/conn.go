package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"parley/mcp"
)

// revision is the revision of MCP that xiaozhi's cloud greets with, so it is the
// one that everything written for it understands.
const revision = "2024-11-05"

// farewell is how long the end of a connection may take: telling the peer why, and
// hearing that it has noticed.
const farewell = 5 * time.Second

// An ending is why Parley ends a connection, as its peer is told.
type ending struct {
	code   websocket.StatusCode
	reason string // at most 123 bytes
}

func (e *ending) Error() string { return e.reason }

// A conn is one connection of a pipe. Its HTTP handler's goroutine holds the MCP
// session and waits for all others.
type conn struct {
	p      *Point
	scope  Scope
	addr   netip.Addr
	since  time.Time
	log    *slog.Logger
	client *mcp.Client
	ctx    context.Context         // ends with the connection, for a cause
	end    context.CancelCauseFunc // ends it; the first cause counts
	told   chan struct{}           // capacity 1: the tools came, changed or went

	server atomic.Pointer[string] // the name the server gave itself
	listed atomic.Bool            // it has told its tools, once at least

	// ws and raw are set once, before anybody else knows the connection: the
	// WebSocket and what it runs over.
	ws      *websocket.Conn
	raw     net.Conn
	broken  atomic.Pointer[error] // why nothing can be read any more
	closing atomic.Bool
	closed  chan struct{} // closed when the socket is

	// place and seated are the Point's, under its lock.
	place  place
	seated bool
}

func newConn(ctx context.Context, p *Point, s Scope, addr netip.Addr) *conn {
	c := &conn{
		p: p, scope: s, addr: addr, since: time.Now(), told: make(chan struct{}, 1), closed: make(chan struct{}),
		log: p.log.With("token", s.ID, "address", addr.String()),
	}
	c.ctx, c.end = context.WithCancelCause(ctx)
	c.client = mcp.NewClient(mcp.ClientConfig{
		Label: "endpoint " + s.ID, CallTimeout: p.cfg.CallTimeout, ResultLimit: p.cfg.ResultLimit,
		Version: p.cfg.Version, Protocol: revision, OnChange: c.changed,
	}, c.log)
	return c
}

// changed is called by the client when the tools came, changed or went.
func (c *conn) changed() {
	if c.client.Ready() {
		c.listed.Store(true)
	}
	c.p.changed()
	select {
	case c.told <- struct{}{}:
	default: // keep looks soon
	}
}

func (c *conn) serverName() string {
	if name := c.server.Load(); name != nil {
		return *name
	}
	return ""
}

// broke notes the first error of reading.
func (c *conn) broke(err error) { c.broken.CompareAndSwap(nil, &err) }

// serve holds the connection until it ends, and returns when nothing of it is left.
func (c *conn) serve(ws *websocket.Conn, raw net.Conn) {
	c.ws, c.raw = ws, raw
	var keeper sync.WaitGroup
	keeper.Go(c.keep) // ends with c.ctx
	err := c.client.Serve(c.ctx, newWire(c, ws))
	c.p.unseat(c)
	if why := c.why(); why != nil {
		err = why
	} else if broken := c.broken.Load(); broken != nil {
		err = *broken
	}
	c.end(err)
	c.hangUp() // where Serve never came to use the wire
	<-c.closed
	keeper.Wait()
	if !c.listed.Load() {
		c.p.cfg.Counters.Silent.Add(1)
	}
	c.log.Info("mcp endpoint closed", "name", c.serverName(), "reason", err, "open_s", int(time.Since(c.since).Seconds()))
}

// why is the cause Parley ended the connection for, nil if it did not.
func (c *conn) why() *ending {
	var e *ending
	if errors.As(context.Cause(c.ctx), &e) {
		return e
	}
	return nil
}

// hangUp begins to close the socket and returns at once: the SDK holds a lock
// while it closes a transport. c.closed says when it is done.
func (c *conn) hangUp() {
	if c.closing.Swap(true) {
		return
	}
	go func() { // ends within 5 seconds; serve waits for it
		defer close(c.closed)
		c.goodbye()
	}()
}

// goodbye closes the socket with the reason, or at once where nothing can be read
// from it any more.
func (c *conn) goodbye() {
	// The WebSocket library bounds its waiting, but not for the rest of a frame
	// that a peer has begun.
	_ = c.raw.SetDeadline(time.Now().Add(farewell))
	if c.broken.Load() != nil {
		_ = c.ws.CloseNow()
		return
	}
	e := c.why()
	switch {
	case e != nil:
	case c.ctx.Err() != nil:
		e = &ending{websocket.StatusGoingAway, "the server is stopping"}
	case !c.listed.Load():
		e = &ending{websocket.StatusPolicyViolation, "told no tools"}
	default:
		e = &ending{websocket.StatusInternalError, "the MCP session ended"}
	}
	_ = c.ws.Close(e.code, e.reason)
}

// keep watches the connection until it ends: whether its tools come in time,
// whether its token is still valid, and whether the peer is still there.
func (c *conn) keep() {
	silence := time.NewTimer(tellTimeout)
	defer silence.Stop()
	pings := time.NewTicker(pingEvery)
	defer pings.Stop()
	var expiry <-chan time.Time
	if !c.scope.Expires.IsZero() {
		timer := time.NewTimer(time.Until(c.scope.Expires))
		defer timer.Stop()
		expiry = timer.C
	}
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.told:
			if c.client.Ready() {
				silence.Stop()
				c.p.seat(c)
			}
		case <-silence.C:
			c.end(&ending{websocket.StatusPolicyViolation, fmt.Sprintf("told no tools within %v", tellTimeout)})
		case <-expiry:
			c.end(&ending{websocket.StatusPolicyViolation, ErrExpired.Error()})
		case <-pings.C:
			c.alive()
		}
	}
}

// alive asks the peer whether it is there and waits for the answer, at most 10
// seconds. It ends a connection whose peer does not answer.
func (c *conn) alive() bool {
	ctx, cancel := context.WithTimeout(c.ctx, pingTimeout)
	defer cancel()
	if c.ws.Ping(ctx) == nil {
		return true
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && c.ctx.Err() == nil {
		c.p.cfg.Counters.Lost.Add(1)
		c.end(&ending{websocket.StatusInternalError, fmt.Sprintf("no answer to a ping within %v", pingTimeout)})
	}
	return false
}
