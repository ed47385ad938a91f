package session

import (
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
)

// emit tells whoever listens.
func (p *peer) emit(kind EventKind, sessionID, detail string) {
	if f := p.server.cfg.OnEvent; f != nil {
		f(Event{Kind: kind, At: time.Now(), Device: p.link.Device(), SessionID: sessionID, Detail: detail})
	}
}
