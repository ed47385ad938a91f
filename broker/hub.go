package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// ErrRetainedFull means a message was delivered, but not retained: it is larger
// than Limits.Home.MaxRetainedPayload, or there is no room for another.
var ErrRetainedFull = errors.New("retained messages are full")

// A hub routes messages between home clients and this process. It knows nothing
// of voice devices, nor they of it.
//
// It is a router of our own, and of the engine only the packets' coding is used.
// The engine (v2.7.9) keeps the packet ids of both directions in one table, so it
// refuses a client's SUBSCRIBE because a message to it has the same id, with a
// code that MQTT 3.1.1 does not have. It sends what it kept for an absent client
// in random order. It may publish the will of a taken-over connection, "offline",
// after its successor's "online". It drops what a full queue cannot take, of any
// QoS, and lets the client go on. It leaves the subscriptions of expired sessions
// in its tree. Its subscriptions in the process do not hear "a" for "a/#". And
// its clients take two goroutines each. Here one lock decides the order of all
// that happens, and nothing is written to a client while it is held.
type hub struct {
	limits HomeLimits
	users  map[string]*User
	log    *slog.Logger
	stats  homeStats
	kick   chan struct{} // of 1: keep shall look at its deadlines again

	mu       sync.Mutex
	closed   bool
	root     node
	sessions map[sessionKey]*homeSession
	retained int         // messages
	bytes    int         // of those
	round    uint64      // of the message being routed
	hits     []hit       // of the message being routed
	due      []*listener // have something to hear once mu is free
	filters  int         // subscriptions of clients
}

// A hit is a session that a message goes to, once, however many of its
// subscriptions match.
type hit struct {
	session *homeSession
	d       delivery
}

func newHub(users []User, limits HomeLimits, log *slog.Logger) *hub {
	h := &hub{
		limits:   limits,
		users:    make(map[string]*User, len(users)),
		log:      log,
		kick:     make(chan struct{}, 1),
		sessions: make(map[sessionKey]*homeSession),
	}
	for i := range users {
		u := users[i]
		h.users[u.Name] = &u
	}
	return h
}

// user is the user of a name, nil if there is none. The hub may be nil.
func (h *hub) user(name []byte) *User {
	if h == nil {
		return nil
	}
	return h.users[string(name)]
}

// unlock frees the hub and then lets our own subscribers hear what is due, on
// this goroutine.
func (h *hub) unlock() {
	due := h.due
	h.due = nil
	h.mu.Unlock()
	for _, l := range due {
		l.drain()
	}
}

// publish routes a message of the connection c, or of our own if c is nil. The
// error is ErrTakenOver if c no longer has its session, ErrShutdown, or wraps
// ErrRetainedFull.
func (h *hub) publish(c *homeClient, m *message) error {
	h.mu.Lock()
	defer h.unlock()
	switch {
	case h.closed:
		return ErrShutdown
	case c != nil && c.session.client != c:
		return ErrTakenOver
	}
	return h.route(m)
}

// route retains a message if it is to be, and queues it for everybody who
// subscribed. The lock is held.
func (h *hub) route(m *message) error {
	var err error
	if m.retain {
		err = h.retain(m)
	}
	h.round++
	h.hits = h.hits[:0]
	h.root.match(m.topic, func(n *node) {
		for s, sub := range n.clients {
			h.hit(m, s, sub)
		}
		for _, l := range n.listeners {
			if l.push(m, false) {
				h.due = append(h.due, l)
			}
		}
	})
	for i := range h.hits {
		h.deliver(h.hits[i].session, h.hits[i].d)
	}
	clear(h.hits)
	return err
}

// hit notes that a subscription matches. Of several of one client the highest
// QoS counts (MQTT 5, section 3.3.4).
func (h *hub) hit(m *message, s *homeSession, sub subscription) {
	if sub.noLocal && m.from == s {
		return
	}
	if s.mark != h.round {
		s.mark, s.hit = h.round, len(h.hits)
		h.hits = append(h.hits, hit{session: s, d: delivery{msg: m}})
	}
	d := &h.hits[s.hit].d
	d.qos = max(d.qos, min(m.qos, sub.qos))
	d.retain = d.retain || m.retain && sub.retainAsPublished
	if sub.id != 0 {
		d.ids = append(d.ids, sub.id)
	}
}

// deliver queues a message for a client, whatever it subscribed to, only if its
// rules let it hear the topic. A connected client with no room is dropped.
func (h *hub) deliver(s *homeSession, d delivery) {
	if !s.rules.maySubscribe(d.msg.topic) {
		h.stats.denied.Add(1)
		return
	}
	switch s.push(d) {
	case pushFull:
		h.stats.dropped.Add(1)
		if s.client != nil {
			s.client.conn.fail(fmt.Errorf("%w: %d messages wait", ErrSlow, h.limits.MaxQueued))
		}
	case pushOK:
		if s.client != nil {
			s.client.conn.wake()
		}
	}
}

// retain keeps a message as its topic's last, or removes that if the payload is
// empty. The lock is held.
func (h *hub) retain(m *message) error {
	if len(m.payload) == 0 {
		h.unretain(m.topic)
		return nil
	}
	if len(m.payload) > h.limits.MaxRetainedPayload {
		h.stats.notRetained.Add(1)
		return fmt.Errorf("%w: payload of %d bytes, at most %d are", ErrRetainedFull, len(m.payload), h.limits.MaxRetainedPayload)
	}
	n := h.root.at(m.topic)
	count, size := 1, m.size
	if n.retained != nil {
		count, size = 0, m.size-n.retained.size
	}
	if h.retained+count > h.limits.MaxRetained || h.bytes+size > h.limits.MaxRetainedBytes {
		h.root.prune(m.topic)
		h.stats.notRetained.Add(1)
		return fmt.Errorf("%w: %d messages of %d bytes", ErrRetainedFull, h.retained, h.bytes)
	}
	n.retained = m
	h.retained += count
	h.bytes += size
	return nil
}

func (h *hub) unretain(topic string) {
	n := h.root.at(topic)
	if n.retained != nil {
		h.retained--
		h.bytes -= n.retained.size
		n.retained = nil
	}
	h.root.prune(topic)
}

// retainedFor is what is retained under a filter. What has expired is removed on
// the way. The lock is held.
func (h *hub) retainedFor(filter string) []*message {
	var found, old []*message
	now := time.Now()
	h.root.matchRetained(filter, func(m *message) {
		if m.expired(now) {
			old = append(old, m)
		} else {
			found = append(found, m)
		}
	})
	for _, m := range old {
		h.unretain(m.topic)
	}
	return found
}

// keep ends the sessions of clients that stay away and publishes delayed wills,
// until ctx ends.
func (h *hub) keep(ctx context.Context) {
	for {
		var timer <-chan time.Time
		if next := h.sweep(time.Now()); !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-timer:
		case <-h.kick:
		case <-ctx.Done():
			return
		}
	}
}

// sweep does what is due, and returns when the next thing is, zero for none.
func (h *hub) sweep(now time.Time) (next time.Time) {
	h.mu.Lock()
	defer h.unlock()
	sooner := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for _, s := range h.sessions {
		switch {
		case s.client != nil:
			continue
		case !now.Before(s.expires):
			h.end(s)
			continue
		case s.will != nil && !now.Before(s.willAt):
			h.publishWill(s)
		case s.will != nil:
			sooner(s.willAt)
		}
		sooner(s.expires)
	}
	return next
}

// close stops routing: wills of connections that end from here on are nobody's
// news.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}
