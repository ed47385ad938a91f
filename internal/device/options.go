package device

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"parley/internal/protocol"
)

// Options describe a device. Only ID and one of OTA and MQTT are required.
type Options struct {
	ID         protocol.DeviceID
	ClientUUID string // sent as Client-Id; "" means one derived from ID
	Profile    Profile
	// Mode is how the device listens: auto (the default), realtime for a device
	// that cancels its echo, or manual for one with a button.
	Mode protocol.Mode
	// ServerAEC announces that the server cancels the echo: the device is
	// realtime and returns the timestamps of what its speaker played.
	ServerAEC bool
	// SpeakRequest is for firmware that opens a channel when the server has
	// something to say, from 2.5 on.
	SpeakRequest bool

	// OTA is the URL a device asks for its configuration at boot. With an empty
	// one MQTT is used as given.
	OTA  string
	HTTP *http.Client // for OTA; nil means http.DefaultClient
	MQTT Credentials

	// DialMQTT and DialUDP open connections; nil means the real network, where
	// port 8883 is TLS with the system's roots, as in the firmware. The address
	// is host:port.
	DialMQTT func(ctx context.Context, addr string) (net.Conn, error)
	DialUDP  func(ctx context.Context, addr string) (net.Conn, error)

	// Tools are the device's MCP tools in their order; nil means
	// [DefaultTools], an empty slice none.
	Tools []Tool

	// Decode decrypts received audio and turns it into PCM. Without it frames are
	// counted, timed and queued all the same, and silence is not encoded for ever:
	// a device costs next to nothing.
	Decode bool
	// Hear, with Decode, is given each frame (24 kHz mono) as it goes to the
	// speaker, and when its first sample will sound. It is called from one
	// goroutine; the slice is valid during the call.
	Hear func(at time.Time, pcm []int16)
	// OnEvent is told what happens, one event at a time, from the device's
	// goroutines. It must not block; it may call the methods that do not.
	OnEvent func(Event)

	// DisplayWork is how long the main task draws between a change of state and
	// the reset of the decoder; 0 means 40 ms, negative none. Real displays take
	// 20 to 80 ms.
	DisplayWork time.Duration
	// Frame is the length of an uplink packet: 20, 40 or 60 ms; 0 means 60 ms.
	// All firmware sends 60 ms, py-xiaozhi 20 ms on most desktops.
	Frame time.Duration
	// Noise is the peak of the noise a microphone hears under everything, in
	// PCM units; 0 is digital silence.
	Noise int16

	Log *slog.Logger // nil discards
}

// Credentials are what a device needs to reach its MQTT broker, as the OTA reply
// carries them.
type Credentials struct {
	Endpoint       string // host or host:port; the port defaults to 8883
	ClientID       string
	Username       string
	Password       string
	PublishTopic   string
	SubscribeTopic string // used by py-xiaozhi only; "null" means none
	Keepalive      int    // seconds; 0 means the profile's default
}

// Limits and defaults of Options.
const (
	defaultDisplayWork = 40 * time.Millisecond
	defaultFrame       = 60 * time.Millisecond // OPUS_FRAME_DURATION_MS of all firmware
)

// ErrOptions is wrapped by the errors [New] returns for options it cannot use.
var ErrOptions = errors.New("device: bad options")

func (o Options) withDefaults() (Options, error) {
	id, err := protocol.ParseDeviceID(string(o.ID))
	if err != nil {
		return o, fmt.Errorf("%w: ID: %w", ErrOptions, err)
	}
	o.ID = id
	if o.OTA == "" && o.MQTT.Endpoint == "" {
		return o, fmt.Errorf("%w: set OTA or MQTT.Endpoint, or the device cannot connect", ErrOptions)
	}
	if o.ServerAEC {
		o.Mode = protocol.ModeRealtime
	}
	switch o.Mode {
	case "":
		o.Mode = protocol.ModeAuto
	case protocol.ModeAuto, protocol.ModeManual, protocol.ModeRealtime:
	default:
		return o, fmt.Errorf("%w: Mode %q: use auto, manual or realtime", ErrOptions, o.Mode)
	}
	switch o.Frame {
	case 0:
		o.Frame = defaultFrame
	case 20 * time.Millisecond, 40 * time.Millisecond, 60 * time.Millisecond:
	default:
		return o, fmt.Errorf("%w: Frame %v: use 20ms, 40ms or 60ms", ErrOptions, o.Frame)
	}
	switch {
	case o.DisplayWork == 0:
		o.DisplayWork = defaultDisplayWork
	case o.DisplayWork < 0:
		o.DisplayWork = 0
	}
	if o.ClientUUID == "" {
		o.ClientUUID = "00000000-0000-4000-8000-" + string(o.ID[0:2]+o.ID[3:5]+o.ID[6:8]+o.ID[9:11]+o.ID[12:14]+o.ID[15:17])
	}
	if o.HTTP == nil {
		o.HTTP = http.DefaultClient
	}
	if o.DialMQTT == nil {
		o.DialMQTT = dialMQTT
	}
	if o.DialUDP == nil {
		o.DialUDP = dialUDP
	}
	if o.Tools == nil {
		o.Tools = DefaultTools()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}
