package broker

import (
	"slices"
	"sync"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

// A homeSession is what the broker knows of a home client, connected or away: its
// subscriptions, its will, and what it has still to be sent. It belongs to a
// user and a client id, so that users cannot take each other's sessions.
//
// Locks are taken in the order hub, conn, session.
type homeSession struct {
	key    sessionKey
	rules  rules
	limits *HomeLimits
	stats  *homeStats

	// Guarded by hub.mu.
	subs    map[string]subscription
	will    *will         // nil for none
	willAt  time.Time     // when it is due; zero while connected
	expiry  time.Duration // how long the session outlives its connection
	expires time.Time     // when it ends; zero while connected
	mark    uint64        // hub.round of the message that last matched
	hit     int           // its index in hub.hits

	mu sync.Mutex
	// client is the connection, nil while away. It changes with both locks held,
	// so either is enough to read it.
	client    *homeClient
	v5        bool
	maxPacket int        // bytes the client accepts, all of a packet
	quota     int        // messages it takes unacknowledged
	queue     []delivery // in order; those that were sent before come first
	queued    int        // of them not retained
	bytes     int        // of those, and of the unacknowledged
	replays   int        // of them retained
	inflight  []delivery // sent, QoS 1 and 2, in order
	lastID    uint16
	received  map[uint16]struct{} // QoS 2 messages of the client without PUBREL
}

type sessionKey struct{ user, clientID string }

// A will is what a client wants said when its connection ends without a
// DISCONNECT.
type will struct {
	msg    *message
	delay  time.Duration // MQTT 5, section 3.1.3.2.2
	expiry time.Duration // from when it is published; 0 for never
}

// What became of a delivery.
type pushed int

const (
	pushOK      pushed = iota
	pushSkipped        // an absent client misses QoS 0
	pushFull           // nothing was queued
)

// push queues a delivery. The hub's lock is held.
func (s *homeSession) push(d delivery) pushed {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.client == nil && d.qos == 0:
		return pushSkipped
	case d.replay:
		if s.replays >= 2*s.limits.MaxRetained {
			return pushFull
		}
		s.replays++
	default:
		if s.queued >= s.limits.MaxQueued || s.bytes+d.msg.size > s.limits.MaxQueuedBytes {
			return pushFull
		}
		s.queued++
		s.bytes += d.msg.size
	}
	s.queue = append(s.queue, d)
	return pushOK
}

// fill appends packets to out, which may be nil, until it holds limit bytes or no
// more may be sent to c for now. The connection's lock is held.
func (s *homeSession) fill(c *homeClient, out *buffer, limit int) *buffer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != c {
		return out
	}
	now, n := time.Now(), 0
	for ; n < len(s.queue) && (out == nil || len(out.bytes) < limit); n++ {
		d := s.queue[n]
		if d.qos > 0 && len(s.inflight) >= s.quota {
			break // in order: what has QoS 0 waits as well
		}
		s.countOut(&d)
		if d.msg.expired(now) && !d.dup {
			s.settle(&d)
			continue
		}
		if d.qos > 0 && d.packetID == 0 {
			d.packetID = s.nextID(n)
		}
		if out == nil {
			out = c.conn.pool.Get().(*buffer)
		}
		before := len(out.bytes)
		out.bytes = d.appendPublish(out.bytes, s.v5, now)
		if len(out.bytes)-before > s.maxPacket { // MQTT 5, section 3.1.2.11.4
			out.bytes = out.bytes[:before]
			s.stats.dropped.Add(1)
			s.settle(&d)
			continue
		}
		s.stats.sent.Add(1)
		if d.qos == 0 {
			s.settle(&d)
		} else {
			d.dup = true // from now on
			s.inflight = append(s.inflight, d)
		}
	}
	s.drop(n)
	return out
}

// countOut takes a delivery off the queue's counts. Its bytes stay counted until
// settle.
func (s *homeSession) countOut(d *delivery) {
	if d.replay {
		s.replays--
	} else {
		s.queued--
	}
}

// settle forgets the bytes of a delivery that is over.
func (s *homeSession) settle(d *delivery) {
	if !d.replay {
		s.bytes -= d.msg.size
	}
}

// drop removes the first n of the queue, and lets go of what has grown large.
func (s *homeSession) drop(n int) {
	if n == 0 {
		return
	}
	if s.queue = slices.Delete(s.queue, 0, n); len(s.queue) == 0 && cap(s.queue) > 16 {
		s.queue = nil
	}
}

// nextID is a packet id that no message to the client has. The first n of the
// queue are on their way to inflight.
func (s *homeSession) nextID(n int) uint16 {
	for {
		s.lastID++
		used := func(d delivery) bool { return d.packetID == s.lastID }
		// Of the queue only those that were sent before have one, and they are first.
		resent := slices.IndexFunc(s.queue[n:], func(d delivery) bool { return d.packetID == 0 })
		if resent < 0 {
			resent = len(s.queue) - n
		}
		if s.lastID != 0 && !slices.ContainsFunc(s.inflight, used) && !slices.ContainsFunc(s.queue[n:n+resent], used) {
			return s.lastID
		}
	}
}

// acked handles a PUBACK, PUBREC or PUBCOMP. It reports whether the packet
// answers a message, whether that is over now, and whether another may follow.
func (s *homeSession) acked(kind byte, id uint16, failed bool) (known, over, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.inflight, func(d delivery) bool { return d.packetID == id })
	if i < 0 {
		return false, false, false
	}
	d := &s.inflight[i]
	switch kind {
	case packets.Puback:
		known = d.qos == 1
		over = known
	case packets.Pubrec:
		known = d.qos == 2
		over = known && failed && !d.released
		if known && !over {
			d.released = true
		}
	case packets.Pubcomp:
		known = d.qos == 2 && d.released
		over = known
	}
	if over {
		s.settle(d)
		if s.inflight = slices.Delete(s.inflight, i, i+1); len(s.inflight) == 0 {
			s.inflight = nil
		}
	}
	return known, over, over && len(s.queue) > 0
}

// receive notes a QoS 2 message of the client. It reports whether the message is
// new, and whether there is room for it.
func (s *homeSession) receive(id uint16) (isNew, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.received[id]; there {
		return false, true
	}
	if len(s.received) >= s.limits.MaxInflight {
		return true, false
	}
	if s.received == nil {
		s.received = make(map[uint16]struct{})
	}
	s.received[id] = struct{}{}
	return true, true
}

// release handles a PUBREL, and reports whether it was expected.
func (s *homeSession) release(id uint16) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.received[id]
	delete(s.received, id)
	return ok
}

// connect gives the session its connection, and puts in front of the queue what
// the client did not acknowledge on the last one. It returns the ids of the
// messages whose PUBREL is to be sent again. The hub's lock is held.
func (s *homeSession) connect(c *homeClient) (releases []uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client, s.v5, s.maxPacket, s.quota = c, c.v5, c.maxPacket, c.quota
	var again, released []delivery
	for _, d := range s.inflight {
		if d.released {
			released = append(released, d)
			releases = append(releases, d.packetID)
			continue
		}
		if d.replay {
			s.replays++
		} else {
			s.queued++
		}
		again = append(again, d)
	}
	s.inflight = released
	s.queue = append(again, s.queue...)
	return releases
}

// disconnect takes the session's connection away. QoS 0 is not kept. The hub's
// lock is held.
func (s *homeSession) disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client = nil
	s.queue = slices.DeleteFunc(s.queue, func(d delivery) bool {
		if d.qos > 0 {
			return false
		}
		s.countOut(&d)
		s.settle(&d)
		return true
	})
}
