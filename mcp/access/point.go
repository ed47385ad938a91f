package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"parley/mcp"
)

// Errors of connections that hold a valid token and have no place.
var (
	errStopping  = errors.New("the server is stopping; come back later")
	errFull      = errors.New("too many connections are open; come back later")
	errTokenFull = errors.New("too many connections are open with this token; close one, or use another token")
)

// A Point is an access point: the HTTP handler that pipes connect to, and the
// source of the tools they lend. All methods are safe for concurrent use.
type Point struct {
	cfg Config
	log *slog.Logger

	failures failures
	handlers sync.WaitGroup // the connections, each served by its HTTP handler
	// generation rises whenever anybody's tools may have changed.
	generation atomic.Uint64

	mu       sync.Mutex
	closed   bool
	revoked  map[string]bool
	conns    map[*conn]bool
	perToken map[string]int // connections by token id
	// seated holds the connections whose tools are known, by the target of their
	// scope and in the order of their places.
	seated map[string][]*conn
}

// New returns an access point without connections. It returns an error wrapping
// [ErrKey] if the key is too short.
func New(cfg Config, log *slog.Logger) (*Point, error) {
	if len(cfg.Key) < MinKey {
		return nil, fmt.Errorf("%w: %d bytes, at least %d are needed; 'openssl rand -base64 32' prints a good one", ErrKey, len(cfg.Key), MinKey)
	}
	p := &Point{
		cfg: cfg.withDefaults(), log: log,
		conns: map[*conn]bool{}, perToken: map[string]int{}, seated: map[string][]*conn{},
	}
	p.SetRevoked(cfg.Revoked)
	return p, nil
}

// SetRevoked replaces the list of revoked tokens, given by their ids, and ends
// the connections of those that are on it now. It does not wait for their end,
// but their tools are gone when it returns.
func (p *Point) SetRevoked(ids []string) {
	revoked := make(map[string]bool, len(ids))
	for _, id := range ids {
		revoked[id] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.revoked = revoked
	for c := range p.conns {
		if revoked[c.scope.ID] {
			p.unseatLocked(c)
			c.end(&ending{websocket.StatusPolicyViolation, ErrRevoked.Error()})
		}
	}
}

// Close ends all connections, with a reason their peers are told, refuses further
// ones and returns when no goroutine of the Point is left, after 5 seconds at
// most. An http.Server does not close WebSockets when it is shut down; this does.
func (p *Point) Close() {
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		c.end(&ending{websocket.StatusGoingAway, "the server is stopping"})
	}
	p.mu.Unlock()
	p.handlers.Wait()
}

// admit makes room for a connection whose token is valid. Every admitted
// connection must leave.
func (p *Point) admit(ctx context.Context, s Scope, addr netip.Addr) (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.revoked[s.ID]:
		return nil, ErrRevoked
	case p.closed:
		return nil, errStopping
	case len(p.conns) >= p.cfg.MaxConnections:
		return nil, errFull
	case p.perToken[s.ID] >= p.cfg.MaxPerToken:
		return nil, errTokenFull
	}
	c := newConn(ctx, p, s, addr)
	p.handlers.Add(1)
	p.conns[c] = true
	p.perToken[s.ID]++
	p.cfg.Counters.Accepted.Add(1)
	return c, nil
}

func (p *Point) leave(c *conn) {
	c.end(nil)
	p.mu.Lock()
	p.unseatLocked(c)
	delete(p.conns, c)
	if p.perToken[c.scope.ID]--; p.perToken[c.scope.ID] == 0 {
		delete(p.perToken, c.scope.ID)
	}
	p.mu.Unlock()
	p.handlers.Done()
}

// A place is what a connection is known by: for whom it is, its token, the name
// its server gives itself, and a number from 1 among connections of which all
// that is the same. A pipe that comes back has its place again.
type place struct {
	target, token, server string
	number                int
}

func (a place) compare(b place) int {
	return cmp.Or(cmp.Compare(a.token, b.token), cmp.Compare(a.server, b.server), cmp.Compare(a.number, b.number))
}

// seat gives c, whose tools are known, a place. Connections in the way are asked
// first whether they are still there, because a pipe that lost its network is
// back long before its old connection is known to be dead.
func (p *Point) seat(c *conn) {
	var asked sync.WaitGroup
	for _, other := range p.namesakes(c) {
		asked.Go(func() { // ends with the answer, after 10 seconds at most
			if !other.alive() {
				p.unseat(other)
			}
		})
	}
	asked.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.ctx.Err() != nil || c.seated {
		return
	}
	c.place = place{target: c.scope.target(), token: c.scope.ID, server: c.serverName(), number: 1}
	at := p.seated[c.place.target]
	for slices.ContainsFunc(at, func(o *conn) bool { return o.place == c.place }) {
		c.place.number++
	}
	i, _ := slices.BinarySearchFunc(at, c.place, func(o *conn, place place) int { return o.place.compare(place) })
	p.seated[c.place.target] = slices.Insert(at, i, c)
	c.seated = true
	p.changed()
}

// namesakes returns the others whose place differs from c's by its number alone.
// There are none once c is seated.
func (p *Point) namesakes(c *conn) []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.seated {
		return nil
	}
	var others []*conn
	for _, o := range p.seated[c.scope.target()] {
		if o.place.token == c.scope.ID && o.place.server == c.serverName() {
			others = append(others, o)
		}
	}
	return others
}

func (p *Point) unseat(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unseatLocked(c)
}

func (p *Point) unseatLocked(c *conn) {
	if !c.seated {
		return
	}
	c.seated = false
	target := c.place.target
	at := slices.DeleteFunc(p.seated[target], func(o *conn) bool { return o == c })
	if p.seated[target] = at; len(at) == 0 {
		delete(p.seated, target)
	}
	p.changed()
}

func (p *Point) changed() { p.generation.Add(1) }

// A lender is a seated connection as a conversation sees it.
type lender struct {
	place  place
	client *mcp.Client
}

// lenders returns who lends to these targets, in their order.
func (p *Point) lenders(targets []string) []lender {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []lender
	for _, t := range targets {
		for _, c := range p.seated[t] {
			all = append(all, lender{c.place, c.client})
		}
	}
	return all
}

// A Connection tells operators of one connection.
type Connection struct {
	Token   string    // its id
	For     string    // for whom it lends, such as "device a0:85:e3:f4:49:34"
	Address string    // of the peer, without port
	Server  string    // the name its server gives itself, "" until it has
	Tools   int       // how many it lends now
	Since   time.Time // it was accepted
}

// Connections tells of all connections, the oldest first.
func (p *Point) Connections() []Connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]Connection, 0, len(p.conns))
	for c := range p.conns {
		info := Connection{Token: c.scope.ID, For: c.scope.String(), Address: c.addr.String(), Server: c.serverName(), Since: c.since}
		if c.seated {
			info.Tools = len(c.client.Tools())
		}
		all = append(all, info)
	}
	slices.SortFunc(all, func(a, b Connection) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Token, b.Token), cmp.Compare(a.Server, b.Server))
	})
	return all
}
