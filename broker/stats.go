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
	RefusedCredentials Refusal = "credentials" // missing or not signed with our key
	RefusedPublic      Refusal = "public"      // open enrolment, from a public address
	RefusedFull        Refusal = "full"        // Limits.MaxDevices
	RefusedBusy        Refusal = "busy"        // the previous connection did not end
	RefusedOvertaken   Refusal = "overtaken"   // a newer one came while this one waited for the previous
	RefusedShutdown    Refusal = "shutdown"    // the broker was stopping
)

// Stats are the counters of an [Embedded] broker since New, and two gauges.
type Stats struct {
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
