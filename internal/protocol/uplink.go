package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
)

// Types of uplink messages. Others exist in old firmware ("iot") and will in
// new; they are to be tolerated.
const (
	TypeHello   = "hello"
	TypeListen  = "listen"
	TypeAbort   = "abort"
	TypeMCP     = "mcp"
	TypeGoodbye = "goodbye"
	// TypeSpeakReady answers [SpeakRequest]: the device is ready to play.
	TypeSpeakReady = "speak_ready"
)

// States of a listen message.
const (
	ListenStart  = "start"
	ListenStop   = "stop"
	ListenDetect = "detect" // a wake word, or text a person typed
)

// A Mode is how a device decides when its user has finished.
type Mode string

// The listening modes.
const (
	ModeAuto     Mode = "auto"     // the server finds the end; the microphone rests while the device speaks
	ModeManual   Mode = "manual"   // a button; the device says stop
	ModeRealtime Mode = "realtime" // the microphone is always on and the echo cancelled
)

// ErrMessage is wrapped by the errors of [ParseUplink].
var ErrMessage = errors.New("bad message")

// An Uplink is any message of a device. Only the members of its Type are set.
type Uplink struct {
	Type      string `json:"type"`
	SessionID string `json:"session_id"`

	// hello
	Version     Version         `json:"version"`
	Transport   string          `json:"transport"`
	Features    Features        `json:"features"`
	AudioParams AudioParams     `json:"audio_params"`
	TextFont    json.RawMessage `json:"text_font"`

	// listen
	State string `json:"state"`
	Mode  Mode   `json:"mode"`
	Text  string `json:"text"`

	// abort
	Reason string `json:"reason"`

	// mcp
	Payload json.RawMessage `json:"payload"`
}

// Features are the abilities a device announces in its hello.
type Features struct {
	MCP       bool `json:"mcp"`
	AEC       bool `json:"aec"` // the server cancels the echo, by the timestamps devices return
	GlyphPush bool `json:"glyph_push"`
	// Echo asks for the test of the line instead of a conversation: what is
	// sent comes back. It is an extension of Parley's own, for its doctor.
	Echo bool `json:"parley_echo"`
}

// AudioParams describe one direction of audio.
type AudioParams struct {
	Format        string `json:"format,omitempty"`
	SampleRate    int    `json:"sample_rate,omitempty"`    // Hz
	Channels      int    `json:"channels,omitempty"`       //
	FrameDuration int    `json:"frame_duration,omitempty"` // ms
}

// A Version is a protocol version. Devices send a number, some clients the
// string "1.0"; both are read, and neither is ever a reason to refuse.
type Version int

// UnmarshalJSON reads a number or a string and never fails on either.
func (v *Version) UnmarshalJSON(b []byte) error {
	f, err := strconv.ParseFloat(string(bytes.Trim(b, `"`)), 64)
	if err == nil && f >= 0 && f < 1<<16 {
		*v = Version(f)
	}
	return nil
}

// ParseUplink reads one message of a device. Members it does not know are
// ignored. The error names the member at fault and wraps [ErrMessage]; firmware
// does send invalid JSON (unescaped wake words, tool names), so an error here
// is to be counted and logged, never a reason to disconnect.
func ParseUplink(b []byte) (Uplink, error) {
	var u Uplink
	if err := json.Unmarshal(b, &u); err != nil {
		var t *json.UnmarshalTypeError
		var s *json.SyntaxError
		switch {
		case errors.As(err, &t) && t.Field == "":
			return Uplink{}, fmt.Errorf("%w: is a JSON %s; send an object", ErrMessage, t.Value)
		case errors.As(err, &t):
			return Uplink{}, fmt.Errorf("%w: %q is a JSON %s; send %s", ErrMessage, t.Field, t.Value, kindName(t))
		case errors.As(err, &s):
			return Uplink{}, fmt.Errorf("%w: not JSON at byte %d: %w", ErrMessage, s.Offset, err)
		}
		return Uplink{}, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	if u.Type == "" {
		return Uplink{}, fmt.Errorf(`%w: "type" is missing; send one of hello, listen, abort, mcp, goodbye`, ErrMessage)
	}
	return u, nil
}

func kindName(t *json.UnmarshalTypeError) string {
	switch t.Type.Kind() {
	case reflect.Struct:
		return "an object"
	case reflect.Int:
		return "a whole number"
	case reflect.Bool:
		return "true or false"
	}
	return "a " + t.Type.Kind().String()
}
