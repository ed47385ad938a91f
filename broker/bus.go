package broker

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxHeard is the number of messages that wait for one function given to
// [Bus.Subscribe], retained ones apart. They wait only while it runs.
const maxHeard = 4096

// A Bus is this process's own place among the home clients: it hears and says
// what it likes, but for the topics of voice devices and those with "$". Its
// methods are safe for concurrent use. It works whether or not anybody is
// connected, and before [Embedded.Serve].
type Bus struct{ hub *hub }

// A Message is what somebody published: a home client, or this process. Nothing
// in it may be changed.
type Message struct {
	Topic string
	// Payload is valid during the call only.
	Payload []byte
	// Retained says that the message was published before the subscription.
	Retained bool
	// ResponseTopic and CorrelationData are what a client of MQTT 5 wants its
	// answer to go to and to hold; CorrelationData is valid during the call only.
	ResponseTopic   string
	CorrelationData []byte
}

// Home returns the bus of the home clients, nil if no users are configured.
func (b *Embedded) Home() *Bus {
	if b.home == nil {
		return nil
	}
	return &Bus{b.home}
}

var errTopic = errors.New("topic is not for home clients")

// Publish sends a message to the home clients that subscribed, with QoS 1 or what
// each asked for if that is less, and to our own subscribers. The payload is
// copied. It never waits for a client. If retain is set the message is kept for
// who subscribes later, or forgotten if the payload is empty.
//
// The error wraps [ErrRetainedFull] if the message was delivered but not
// retained, [ErrTooLarge] above Limits.Home.MaxPacket, and [ErrShutdown] when
// the broker is stopping; or it says what is wrong with the topic.
func (b *Bus) Publish(topic string, payload []byte, retain bool) error {
	switch {
	case !validTopic(topic) || reserved(topic):
		return fmt.Errorf("broker: publish to %q: %w", topic, errTopic)
	case len(topic)+len(payload)+4 > b.hub.limits.MaxPacket:
		return fmt.Errorf("broker: publish to %q: %w: %d bytes, at most %d allowed", topic, ErrTooLarge, len(payload), b.hub.limits.MaxPacket)
	}
	m := &message{topic: topic, payload: slices.Clone(payload), qos: 1, retain: retain, size: len(topic) + len(payload)}
	if err := b.hub.publish(nil, m); err != nil {
		return fmt.Errorf("broker: publish to %q: %w", topic, err)
	}
	return nil
}

// Subscribe calls f for every message that matches the filter, retained ones
// first, one at a time and in the order they were published. f is called on the
// publisher's goroutine, and Subscribe's for retained ones; it must not block.
// It may publish, subscribe and cancel. After cancel has returned no call
// begins; one on another goroutine may still be under way. The error says what
// is wrong with the filter.
func (b *Bus) Subscribe(filter string, f func(Message)) (cancel func(), err error) {
	if !validFilter(filter) || reserved(filter) {
		return nil, fmt.Errorf("broker: subscribe to %q: %w", filter, errTopic)
	}
	h := b.hub
	l := &listener{f: f, dropped: &h.stats.dropped}
	h.mu.Lock()
	n := h.root.at(filter)
	n.listeners = append(n.listeners, l)
	for _, m := range h.retainedFor(filter) {
		if l.push(m, true) {
			h.due = append(h.due, l)
		}
	}
	h.unlock()
	return func() { h.cancel(filter, l) }, nil
}

func (h *hub) cancel(filter string, l *listener) {
	l.mu.Lock()
	l.cancelled, l.queue = true, nil
	l.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.root.at(filter)
	if n.listeners = slices.DeleteFunc(n.listeners, func(o *listener) bool { return o == l }); len(n.listeners) == 0 {
		n.listeners = nil
	}
	h.root.prune(filter)
}

// A listener is one subscription of our own. Messages are queued under the hub's
// lock, which sets their order, and heard after it, on whichever publisher's
// goroutine comes first.
type listener struct {
	f       func(Message)
	dropped interface{ Add(int64) int64 }

	mu        sync.Mutex
	queue     []heard
	live      int // of queue, not retained
	busy      bool
	cancelled bool
}

type heard struct {
	msg      *message
	retained bool
}

// push queues a message, and reports whether somebody has to drain.
func (l *listener) push(m *message, retained bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancelled {
		return false
	}
	if !retained {
		if l.live >= maxHeard {
			l.dropped.Add(1)
			return false
		}
		l.live++
	}
	l.queue = append(l.queue, heard{m, retained})
	return len(l.queue) == 1 && !l.busy
}

// drain calls f until the queue is empty, unless somebody else is at it.
func (l *listener) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy {
		return
	}
	l.busy = true
	defer func() { l.busy = false }()
	for len(l.queue) > 0 {
		queue := l.queue
		l.queue = nil
		for _, h := range queue {
			if l.cancelled {
				return
			}
			if !h.retained {
				l.live--
			}
			l.call(h)
		}
	}
}

// call runs f without the lock.
func (l *listener) call(h heard) {
	l.mu.Unlock()
	defer l.mu.Lock()
	if h.msg.expired(time.Now()) {
		return
	}
	m := Message{Topic: h.msg.topic, Payload: h.msg.payload, Retained: h.retained}
	if p := h.msg.props; p != nil {
		m.ResponseTopic, m.CorrelationData = p.ResponseTopic, p.CorrelationData
	}
	l.f(m)
}
