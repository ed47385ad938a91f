package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"parley/internal/protocol"
)

// Kinds of events.
const (
	EventConnected     = "connected"      // the device connected
	EventDisconnected  = "disconnected"   // its connection ended
	EventSessionOpened = "session_opened" // its hello was answered
	EventSessionClosed = "session_closed" // the detail says why
	EventListening     = "listening"      // its microphone is on
	EventSpeaking      = "speaking"       // an answer began
	EventSilent        = "silent"         // the answer ended
	EventNoAudio       = "no_audio"       // it listens and is not heard; the detail names the likely cause
	EventTurn          = "turn"           // a turn has finished; the data tells how it went
	EventNotification  = "notification"   // it has sent an MCP notification: the detail is its method, the data its params
)

// eventMissed tells a listener that it was not sent everything. It is made here
// and cannot be published.
const eventMissed = "missed"

// eventKinds are those that can be published and asked for.
func eventKinds() []string {
	return []string{
		EventConnected, EventDisconnected, EventSessionOpened, EventSessionClosed,
		EventListening, EventSpeaking, EventSilent, EventNoAudio, EventTurn,
		EventNotification,
	}
}

func isEventKind(s string) bool { return slices.Contains(eventKinds(), s) }

// An Event is something that happened to a device. It must not tell what was
// said: whoever has the scope read may listen.
type Event struct {
	Kind      string    // one of the kinds above
	At        time.Time // zero means now
	Device    protocol.DeviceID
	SessionID string // of the session concerned; "" for none
	Detail    string // why, or how: one line for people, cut at 512 bytes
	// Data is what else there is to tell: anything that package json makes an
	// object of at most MaxEventData bytes of, or nil. It is encoded later, by
	// other goroutines and only if somebody listens, so it must not change any
	// more.
	Data any
}

// MaxEventData bounds an event's data as JSON, in bytes. What is larger, or no
// object, is logged and left out; the event is sent without.
const MaxEventData = 16 << 10

// Publish tells everybody who listens at /api/v1/events, now and within the next
// [HeldEvents] events, of e. It never blocks: a listener whose queue is full
// misses e, and is told so. An event of an unknown kind is logged and dropped.
func (a *API) Publish(e Event) { a.hub.publish(e) }

// EndEvents ends every stream of events, once what is queued for it has been
// sent, and refuses new ones. It does not wait, and may be called again. It is
// for [net/http.Server.RegisterOnShutdown]: Shutdown waits for requests, and
// these would never end. Close ends them without it.
func (a *API) EndEvents() { a.hub.end() }

// A happening is an event with its place among all events.
type happening struct {
	Event
	number uint64 // the first event has 1; 0 for one that is for one listener only
	encode sync.Once
	text   []byte // as it is sent, for all listeners; made by encode
}

// missed is the happening that tells a listener of a gap. n is 0 where nobody
// knows how many events it holds.
func missed(n uint64, why string) *happening {
	h := &happening{Event: Event{Kind: eventMissed, At: time.Now(), Detail: why}}
	if n > 0 {
		h.Data = struct {
			Events uint64 `json:"events"`
		}{n}
	}
	return h
}

// eventJSON is an event as it is sent.
type eventJSON struct {
	Kind      string            `json:"kind"`
	At        time.Time         `json:"at"`
	Device    protocol.DeviceID `json:"device,omitempty"`
	SessionID string            `json:"session_id,omitempty"`
	Detail    string            `json:"detail,omitempty"`
	Data      json.RawMessage   `json:"data,omitempty"`
}

// frame is h as Server-Sent Events have it. Members are on one line: package
// json leaves no line end in a string or between two of them.
func (h *hub) frame(n *happening) []byte {
	n.encode.Do(func() {
		data, err := object(n.Data)
		if err != nil {
			h.fault("api event without its data", n.Kind, err)
		}
		var b bytes.Buffer
		if n.number > 0 {
			b.WriteString("id: " + h.id(n.number) + "\n")
		}
		b.WriteString("event: " + n.Kind + "\ndata: ")
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		// Only a time of another era can fail here.
		if err := e.Encode(eventJSON{n.Kind, n.At.UTC(), n.Device, n.SessionID, n.Detail, data}); err != nil {
			h.fault("api event lost", n.Kind, err)
			return
		}
		b.WriteByte('\n') // the encoder has ended the line, this ends the event
		n.text = b.Bytes()
	})
	return n.text
}

// object is v as a JSON object, nothing for nil.
func object(v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	data, err := json.Marshal(v)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the data cannot be encoded: %w", err)
	case string(data) == "null":
		return nil, nil
	case data[0] != '{':
		return nil, errors.New("the data is no JSON object; give a struct or a map")
	case len(data) > MaxEventData:
		return nil, fmt.Errorf("the data has %d bytes of at most %d; tell less", len(data), MaxEventData)
	}
	return data, nil
}
