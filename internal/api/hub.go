package api

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"parley/internal/protocol"
)

// Limits of the stream of events.
const (
	// HeldEvents is how many of the last events are held for listeners that
	// come back.
	HeldEvents = 1024
	// MaxListeners bounds how many listen at once; more are refused.
	MaxListeners = 64
	// ListenerQueue bounds how many events wait for one listener while others
	// are being sent to it. It misses what comes when its queue is full.
	ListenerQueue = 256
)

// A hub passes events on to those who listen. Its methods are safe for
// concurrent use, and none blocks: the mutex is held for lists in memory only.
type hub struct {
	run    string // tells this run's ids from those of others
	log    *slog.Logger
	faults rate.Sometimes // a slip of the program's may come with every event
	ended  chan struct{}  // closed by end

	mu        sync.Mutex
	held      [HeldEvents]*happening // number n is at n % HeldEvents
	last      uint64                 // number of the last event
	listeners map[*listener]struct{}
	missed    uint64 // by all listeners, since the start
	over      bool   // ended is closed
}

func newHub(log *slog.Logger) *hub {
	return &hub{
		run: rand.Text()[:8], log: log, faults: rate.Sometimes{First: 3, Interval: time.Minute},
		ended: make(chan struct{}), listeners: map[*listener]struct{}{},
	}
}

// id names the event of a number to clients.
func (h *hub) id(number uint64) string { return h.run + "-" + strconv.FormatUint(number, 10) }

// fault logs what is wrong with an event.
func (h *hub) fault(what, kind string, err error) {
	h.faults.Do(func() { h.log.Error(what, "kind", clip(kind), "error", err) })
}

func (h *hub) publish(e Event) {
	if !isEventKind(e.Kind) {
		h.fault("api event dropped", e.Kind, fmt.Errorf("there is no such kind; there are %s", strings.Join(eventKinds(), ", ")))
		return
	}
	if e.At.IsZero() {
		e.At = time.Now()
	}
	e.Detail = clip(e.Detail)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	n := &happening{Event: e, number: h.last}
	h.held[h.last%HeldEvents] = n
	for l := range h.listeners {
		if l.wants.takes(e) {
			l.offer(n)
		}
	}
}

// end ends all streams.
func (h *hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.over {
		h.over = true
		close(h.ended)
	}
}

// figures are how many events were published, how many listen now, and how many
// events listeners missed.
func (h *hub) figures() (published uint64, listeners int, missed uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last, len(h.listeners), h.missed
}

// An eventFilter says which events are wanted; of an empty set, all are.
type eventFilter struct {
	devices map[protocol.DeviceID]bool
	kinds   map[string]bool
}

func (f eventFilter) takes(e Event) bool {
	return (len(f.kinds) == 0 || f.kinds[e.Kind]) && (len(f.devices) == 0 || f.devices[e.Device])
}

// A listener is one stream of events. All but wake is guarded by the hub's mutex.
type listener struct {
	hub    *hub
	who    string // name of the token
	wants  eventFilter
	wake   chan struct{} // holds a value while queue is not empty and nobody was told
	queue  []*happening
	missed uint64 // after those in queue
}

// join adds a listener. If since is the id of an event, the listener first gets
// the events after it, as far as they are held.
func (h *hub) join(who string, wants eventFilter, since string) (*listener, error) {
	l := &listener{hub: h, who: who, wants: wants, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		p := newProblem(http.StatusServiceUnavailable, codeOverload, "the server is stopping", "ask again when it is back")
		p.retry = 5
		return nil, p
	}
	if len(h.listeners) >= MaxListeners {
		p := newProblem(http.StatusServiceUnavailable, codeOverload, fmt.Sprintf("%d streams of events are open already", MaxListeners), "end one; one stream can tell of all devices")
		p.retry = 5
		return nil, p
	}
	if since != "" {
		l.queue = h.after(since, wants)
	}
	h.listeners[l] = struct{}{}
	return l, nil
}

// after lists the wanted events after the one with an id, and before them what
// is missing. An id of another run, or none at all, is before everything held.
func (h *hub) after(id string, wants eventFilter) []*happening {
	var out []*happening
	oldest := max(h.last, HeldEvents) - HeldEvents + 1
	run, digits, _ := strings.Cut(id, "-")
	number, err := strconv.ParseUint(digits, 10, 64)
	switch {
	case run != h.run, err != nil, number > h.last:
		out = append(out, missed(0, "the id is not of this run of the server"))
		number = oldest - 1
	case number+1 < oldest:
		out = append(out, missed(oldest-number-1, "they are not held any more; not all need have been wanted"))
		number = oldest - 1
	}
	for n := number + 1; n <= h.last; n++ {
		if e := h.held[n%HeldEvents]; wants.takes(e.Event) {
			out = append(out, e)
		}
	}
	return out
}

// offer queues n and wakes the listener. The hub's mutex is held.
func (l *listener) offer(n *happening) {
	if len(l.queue) >= ListenerQueue {
		l.missed++
		l.hub.missed++
		return
	}
	l.queue = append(l.queue, n)
	select {
	case l.wake <- struct{}{}:
	default: // it has been told and has not come yet
	}
}

// take empties the queue. Who has sent what it held has been sent all events up
// to reached, or told of them.
func (l *listener) take() (queue []*happening, reached uint64) {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	queue, l.queue = l.queue, nil
	if l.missed > 0 {
		queue = append(queue, missed(l.missed, "they came faster than they were read"))
		l.missed = 0
	}
	select {
	case <-l.wake: // for what is taken here
	default:
	}
	return queue, h.last
}

func (l *listener) leave() {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	delete(l.hub.listeners, l)
}
