package device

import "fmt"

// A Profile is a generation of client software whose behaviour differs from the
// others in something a server can notice.
type Profile int

// The profiles. The version in parentheses is the one a profile represents and
// reports.
const (
	FW24  Profile = iota // firmware 2.4 (2.4.2): listen start is deferred until playback has drained
	FW22                 // firmware 2.2.2 to 2.3.0 (2.2.6): tts stop blocks the main task until the queue is empty
	FW18                 // firmware 1.8.0 to 2.1.0 (2.1.0): starting the microphone discards what is queued
	FW17                 // firmware 1.7 (1.7.6): as FW18, and an abort silences the speaker at once
	FW162                // firmware 1.6.2 (1.6.2): a queue of 10 packets
	FW160                // firmware 1.6.0 (1.6.0): a queue of 5 packets
	FW15                 // firmware up to 1.5 (1.5.0): an unbounded queue, 60 ms frames only
	Py                   // the desktop client py-xiaozhi (2.1.1)
)

// Profiles lists all profiles, newest firmware first.
func Profiles() []Profile { return []Profile{FW24, FW22, FW18, FW17, FW162, FW160, FW15, Py} }

// ParseProfile reads the name of a profile as [Profile.String] writes it.
func ParseProfile(s string) (Profile, error) {
	for _, p := range Profiles() {
		if p.String() == s {
			return p, nil
		}
	}
	return 0, fmt.Errorf("device: unknown profile %q: use one of %v", s, Profiles())
}

// String is the profile's short name, such as "fw24".
func (p Profile) String() string {
	switch p {
	case FW24:
		return "fw24"
	case FW22:
		return "fw22"
	case FW18:
		return "fw18"
	case FW17:
		return "fw17"
	case FW162:
		return "fw162"
	case FW160:
		return "fw160"
	case FW15:
		return "fw15"
	case Py:
		return "py"
	}
	return fmt.Sprintf("Profile(%d)", int(p))
}

// stopPolicy is what happens to queued audio when a device goes from speaking to
// listening in a mode that rests the microphone while it speaks.
type stopPolicy int

const (
	stopDefers stopPolicy = iota // plays on; listen start follows once it has drained
	stopBlocks                   // plays on; the main task waits for it
	stopLoses                    // listen start is sent and the queue discarded
)

// traits are a profile's differences. Each was read in the release's source; see
// docs/protocol.md.
type traits struct {
	version string // reported in User-Agent and serverInfo

	queue    int // packets waiting to be decoded; 0: unbounded
	playback int // decoded frames waiting; older firmware decodes when it plays
	stop     stopPolicy

	anyState       bool // audio is queued outside speaking too (not while listening with firmware 1.6)
	repeatSequence bool // a packet with the sequence of the last one is accepted
	anySequence    bool // no sequence check
	anyType        bool // no check of the type byte
	exactLength    bool // the datagram must be 16 + payload_len bytes
	minPayload     int  // shorter payloads are dropped
	fixedFrame     bool // frame_duration of the hello is ignored

	deferredState   bool // the work of a state change is done in a later pass
	strictHello     bool // a bad hello is refused instead of crashing the device
	endpointPort    bool // "host:port" is understood
	reconnects      bool // a lost connection is retried after 60 s when idle
	keepalive       int  // default, seconds
	goodbyeAnyID    bool // a goodbye without session_id ends the session
	goodbyeEchoed   bool // a goodbye is answered with one
	wakeListens     bool // a wake word while speaking also starts to listen
	abortSilences   bool // an abort discards what is queued
	mcp             bool // announces and serves tools
	userTools       bool // knows withUserTools
	toolThread      bool // tool bodies run beside the main task
	glyphPush       bool // features carries glyph_push
	features        bool // hello has a features member
	nonceTimestamps bool // uplink timestamps are the nonce's bytes
	py              bool // py-xiaozhi's own session logic
}

// traits is the table of docs/protocol.md, one row a profile.
func (p Profile) traits() traits {
	switch p {
	case FW22:
		return traits{version: "2.2.6", queue: 40, playback: 2, stop: stopBlocks,
			repeatSequence: true, minPayload: 8, deferredState: true, endpointPort: true, reconnects: true, keepalive: 240,
			goodbyeAnyID: true, wakeListens: true, mcp: true, userTools: true, features: true}
	case FW18:
		return traits{version: "2.1.0", queue: 40, playback: 2, stop: stopLoses,
			repeatSequence: true, minPayload: 8, endpointPort: true, reconnects: true, keepalive: 240,
			goodbyeAnyID: true, goodbyeEchoed: true, mcp: true, userTools: true, features: true}
	case FW17:
		return traits{version: "1.7.6", queue: 40, stop: stopLoses,
			repeatSequence: true, minPayload: 8, endpointPort: true, keepalive: 120,
			goodbyeAnyID: true, goodbyeEchoed: true, abortSilences: true, mcp: true, toolThread: true, features: true}
	case FW162:
		return traits{version: "1.6.2", queue: 10, stop: stopLoses, anyState: true,
			repeatSequence: true, minPayload: 8, endpointPort: true, keepalive: 90,
			goodbyeAnyID: true, goodbyeEchoed: true, abortSilences: true}
	case FW160:
		return traits{version: "1.6.0", queue: 5, stop: stopLoses, anyState: true,
			repeatSequence: true, minPayload: 8, keepalive: 90,
			goodbyeAnyID: true, goodbyeEchoed: true, abortSilences: true, nonceTimestamps: true}
	case FW15:
		return traits{version: "1.5.0", stop: stopLoses, fixedFrame: true,
			repeatSequence: true, minPayload: 8, keepalive: 90,
			goodbyeAnyID: true, goodbyeEchoed: true, abortSilences: true, nonceTimestamps: true}
	case Py:
		return traits{version: "2.1.1", stop: stopLoses, anyState: true, fixedFrame: true,
			anySequence: true, anyType: true, endpointPort: true, keepalive: 60, strictHello: true,
			goodbyeAnyID: true, mcp: true, userTools: true, features: true, nonceTimestamps: true, py: true}
	default:
		return traits{version: "2.4.2", queue: 40, playback: 2, stop: stopDefers,
			exactLength: true, deferredState: true, strictHello: true, endpointPort: true, reconnects: true, keepalive: 240,
			wakeListens: true, mcp: true, userTools: true, features: true, glyphPush: true}
	}
}
