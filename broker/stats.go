package broker

import (
	"errors"
	"sync"
	"sync/atomic"
)

// A Refusal names why a connection was not let in. The values are for metrics
// and logs, and do not change.
type Refusal string

// The refusals.
const (
	RefusedRate        Refusal = "rate"        // Limits.ConnectRate
	RefusedPending     Refusal = "pending"     // Limits.MaxPending; this was the oldest
	RefusedTimeout     Refusal = "timeout"     // Limits.ConnectTimeout
	RefusedTooLarge    Refusal = "too_large"   // Limits.MaxConnect
	RefusedMalformed   Refusal = "malformed"   // not MQTT, or closed before CONNECT
	RefusedVersion     Refusal = "version"     // not MQTT 3.1, 3.1.1 or 5
	RefusedClientID    Refusal = "client_id"   // not a device's client id
	RefusedCredentials Refusal = "credentials" // missing, not signed with our key, or a user's wrong password
	RefusedPublic      Refusal = "public"      // open enrolment, from a public address
	RefusedFull        Refusal = "full"        // Limits.MaxDevices or Limits.Home.MaxClients
	RefusedBusy        Refusal = "busy"        // the previous connection did not end
	RefusedOvertaken   Refusal = "overtaken"   // a newer one came while this one waited for the previous
	RefusedWill        Refusal = "will"        // a home client's will is for a topic it may not publish to
	RefusedShutdown    Refusal = "shutdown"    // the broker was stopping
)

// Stats are the counters of an [Embedded] broker since New, and its gauges. But
// for connections as such they count devices; those of home clients are in Home.
type Stats struct {
	Home HomeStats

	Connected int64 // devices now
	Pending   int64 // connections without a CONNECT now

	Accepted  int64             // TCP connections
	Refused   map[Refusal]int64 // of those, not let in
	Received  int64             // messages delivered to a Receiver
	Sent      int64             // messages accepted by Link.Send
	Denied    int64             // publications and subscriptions to foreign topics
	TakenOver int64             // connections ended by a newer one of the same device
	Slow      int64             // connections ended because the device did not read
	Flooded   int64             // connections ended because the device sent too much
	Silent    int64             // connections ended by the keepalive
	Violated  int64             // connections ended by a protocol error or a packet too large
}

// Stats returns the counters. It may be called concurrently and at any time.
func (b *Embedded) Stats() Stats {
	s := &b.stats
	out := Stats{
		Connected: s.connected.Load(),
		Accepted:  s.accepted.Load(),
		Refused:   make(map[Refusal]int64),
		Received:  s.received.Load(),
		Sent:      s.sent.Load(),
		Denied:    s.denied.Load(),
		TakenOver: s.takenOver.Load(),
		Slow:      s.slow.Load(),
		Flooded:   s.flooded.Load(),
		Silent:    s.silent.Load(),
		Violated:  s.violated.Load(),
	}
	b.mu.Lock()
	out.Pending = int64(b.pending.Len())
	b.mu.Unlock()
	if b.home != nil {
		out.Home = b.home.snapshot()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for r, n := range s.refusals {
		out.Refused[r] = n
	}
	return out
}

// stats are the counters behind Stats.
type stats struct {
	connected, accepted, received, sent, denied          atomic.Int64
	takenOver, slow, flooded, silent, violated, unlogged atomic.Int64

	mu       sync.Mutex
	refusals map[Refusal]int64
}

func (s *stats) refused(r Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusals == nil {
		s.refusals = make(map[Refusal]int64)
	}
	s.refusals[r]++
}

// ended counts why a connection ended.
func (s *stats) ended(reason error) {
	for _, c := range []struct {
		err error
		n   *atomic.Int64
	}{
		{ErrTakenOver, &s.takenOver}, {ErrSlow, &s.slow}, {ErrFlood, &s.flooded},
		{ErrSilent, &s.silent}, {ErrProtocol, &s.violated}, {ErrTooLarge, &s.violated},
	} {
		if errors.Is(reason, c.err) {
			c.n.Add(1)
			return
		}
	}
}

// HomeStats are the counters of home clients since New, and five gauges. They are
// zero if no users are configured.
type HomeStats struct {
	Connected     int64 // clients now
	Sessions      int64 // of clients connected or away, now
	Subscriptions int64 // of all sessions, now
	Retained      int64 // messages now
	RetainedBytes int64 // of those

	Received    int64 // messages from clients, routed
	Sent        int64 // messages written to clients
	Dropped     int64 // deliveries for which there was no room, or that the client said are too large
	NotRetained int64 // messages delivered but not retained, for lack of room
	Denied      int64 // publications, subscriptions and deliveries that the user's filters do not allow
	TakenOver   int64 // connections ended by a newer one of the same user and client id
	Slow        int64 // connections ended because the client did not read
	Throttled   int64 // packets that were read later because the client sent too fast
	Silent      int64 // connections ended by the keepalive
	Violated    int64 // connections ended by a protocol error or a packet too large
}

// homeStats are the counters behind HomeStats.
type homeStats struct {
	connected, received, sent, dropped, notRetained, denied atomic.Int64
	takenOver, slow, throttled, silent, violated            atomic.Int64
}

// ended counts why a connection ended, but for take-overs, which the hub counts.
func (s *homeStats) ended(reason error) {
	switch {
	case errors.Is(reason, ErrSlow):
		s.slow.Add(1)
	case errors.Is(reason, ErrSilent):
		s.silent.Add(1)
	case errors.Is(reason, ErrProtocol), errors.Is(reason, ErrTooLarge), errors.Is(reason, ErrFlood):
		s.violated.Add(1)
	}
}

func (h *hub) snapshot() HomeStats {
	s := &h.stats
	out := HomeStats{
		Connected: s.connected.Load(), Received: s.received.Load(), Sent: s.sent.Load(), Dropped: s.dropped.Load(),
		NotRetained: s.notRetained.Load(), Denied: s.denied.Load(), TakenOver: s.takenOver.Load(), Slow: s.slow.Load(),
		Throttled: s.throttled.Load(), Silent: s.silent.Load(), Violated: s.violated.Load(),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	out.Sessions, out.Subscriptions = int64(len(h.sessions)), int64(h.filters)
	out.Retained, out.RetainedBytes = int64(h.retained), int64(h.bytes)
	return out
}
