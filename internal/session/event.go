package session

import (
	"encoding/json"
	"sync"
	"time"

	"parley/broker"
)

// An Event is something that happened to a device, for whoever watches the fleet.
type Event struct {
	Kind      EventKind
	At        time.Time
	Device    broker.Device
	SessionID string // of the session concerned; "" if none
	Detail    string // why, or how: one line for people
	// Params are those of a notification, as the device wrote them; nil for none.
	Params json.RawMessage
}

// An EventKind says what happened.
type EventKind string

// The kinds of events.
const (
	EventConnected    EventKind = "connected"
	EventDisconnected EventKind = "disconnected"
	EventOpened       EventKind = "session_opened"
	EventClosed       EventKind = "session_closed" // Detail says why
	EventListening    EventKind = "listening"      // the device's microphone is on
	EventSpeaking     EventKind = "speaking"       // an answer began
	EventSilent       EventKind = "silent"         // it ended
	EventNoAudio      EventKind = "no_audio"       // a device listens and is not heard; Detail names the likely cause
	// EventNotification is an MCP notification of the device; Detail is its method.
	EventNotification EventKind = "notification"
)

// events are what happened to one device and has not been told yet. They are told
// in the order in which they happened, on whatever goroutine comes first, and
// without a lock, so that whoever is told may ask for something in turn. No more
// wait than happens while OnEvent, which returns at once, is told of one.
type events struct {
	mu      sync.Mutex
	waiting []Event
	telling bool // somebody is telling them
}

// note has an event told by the next publish. It may be called with other locks
// held.
func (p *peer) note(kind EventKind, sessionID, detail string) {
	if p.server.cfg.OnEvent == nil {
		return
	}
	p.noteEvent(Event{Kind: kind, SessionID: sessionID, Detail: detail})
}

// noteEvent is note of an event that has more to tell.
func (p *peer) noteEvent(e Event) {
	e.At, e.Device = time.Now(), p.link.Device()
	p.events.mu.Lock()
	defer p.events.mu.Unlock()
	p.events.waiting = append(p.events.waiting, e)
}

// notified passes a notification of the device on.
func (p *peer) notified(method string, params json.RawMessage) {
	if p.server.cfg.OnEvent == nil {
		return
	}
	p.noteEvent(Event{Kind: EventNotification, Detail: method, Params: params})
	p.publish()
}

// publish tells what was noted, unless somebody else is at it.
func (p *peer) publish() {
	q := &p.events
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.telling {
		return
	}
	q.telling = true
	for len(q.waiting) > 0 {
		e := q.waiting[0]
		q.waiting = q.waiting[1:]
		q.mu.Unlock()
		p.server.cfg.OnEvent(e)
		q.mu.Lock()
	}
	q.waiting, q.telling = nil, false
}

// emit notes an event and tells it.
func (p *peer) emit(kind EventKind, sessionID, detail string) {
	p.note(kind, sessionID, detail)
	p.publish()
}
