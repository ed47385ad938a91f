package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"time"

	"parley/internal/protocol"
	"parley/mcp"
)

// A Fleet is the connected devices. Its methods are called from many goroutines
// at once. Those with a context return soon after it ends.
//
// Their errors wrap [ErrAbsent] where the device is not connected, else one of
// the other errors of this package or of package mcp where one fits.
type Fleet interface {
	// Devices lists the devices connected now, sorted by id. The caller owns
	// the slice.
	Devices() []Device
	// Device returns one connected device, false where it is not.
	Device(id protocol.DeviceID) (Device, bool)
	// Tools lists all of the device's own tools, those for people only
	// included and marked. While the device has not told them yet the error
	// is [ErrNoTools].
	Tools(ctx context.Context, id protocol.DeviceID) ([]mcp.Tool, error)
	// Call runs one of the device's own tools, whoever it is meant for: who
	// may is decided here. args is a JSON object, or empty for none. A tool
	// that ran and failed gives a result and no error.
	Call(ctx context.Context, id protocol.DeviceID, tool string, args json.RawMessage) (mcp.Result, error)
	// Request returns the result of one JSON-RPC request to the device:
	// initialize, tools/list or tools/call. params is a JSON object, or empty
	// for none. An error reply of the device is an error with its message.
	Request(ctx context.Context, id protocol.DeviceID, method string, params json.RawMessage) (json.RawMessage, error)
	// Say brings a text to the device's user by the best way there is, and
	// says which.
	Say(ctx context.Context, id protocol.DeviceID, text string) (Way, error)
	// Alert shows a message on the device, with a face and a short sound.
	Alert(ctx context.Context, id protocol.DeviceID, alert Alert) error
	// Reboot restarts the device, which is then away for some seconds.
	Reboot(ctx context.Context, id protocol.DeviceID) error
	// End ends the device's open session. reason is for the log. The error
	// is [ErrNoSession] where none is open.
	End(ctx context.Context, id protocol.DeviceID, reason string) error
}

// Errors of a [Fleet].
var (
	// ErrAbsent means that the device is not connected.
	ErrAbsent = errors.New("the device is not connected")
	// ErrNoSession means that the device has no session open.
	ErrNoSession = errors.New("no session is open")
	// ErrNoTools means that the device has not told its tools yet.
	ErrNoTools = errors.New("the device has not told its tools yet")
	// ErrUnable means that this device cannot do what was asked of it.
	ErrUnable = errors.New("the device cannot do that")
)

// A Device is what is known of a connected device. Its JSON form is part of the
// API.
type Device struct {
	ID          protocol.DeviceID `json:"id"`
	ClientID    string            `json:"client_id"`          // as it connected by MQTT
	Board       string            `json:"board,omitempty"`    // "" where it is not known
	Firmware    string            `json:"firmware,omitempty"` // its version; "" where it is not known
	Remote      netip.AddrPort    `json:"address"`            // of its MQTT connection
	ConnectedAt time.Time         `json:"connected_at"`
	Role        string            `json:"role"`
	State       State             `json:"state"`
	// SessionID and SessionStart are those of the open session, zero where
	// none is.
	SessionID    string    `json:"session_id,omitempty"`
	SessionStart time.Time `json:"session_started_at,omitzero"`
	Tools        int       `json:"tools"` // that the device has told of
}

// A State is what a device is doing, as far as the server knows.
type State string

// The states of a device. All but the first are those of an open session.
const (
	StateConnected State = "connected" // no session is open
	StateIdle      State = "idle"      // a session is open and nothing happens in it
	StateListening State = "listening" // it is sending what it hears
	StateThinking  State = "thinking"  // an answer is in the making
	StateSpeaking  State = "speaking"  // an answer is being played
)

// A Way is how a text reached a device.
type Way string

// The ways of [Fleet.Say].
const (
	Spoken    Way = "spoken"    // it is spoken in the open session
	Requested Way = "requested" // the device was asked to open a session for it
	Shown     Way = "shown"     // it is shown as an alert, with its sound
)

// An Alert is a message on a device's screen.
type Alert struct {
	Status  string // the headline
	Message string
	Emotion string // the face, such as "happy"
}
