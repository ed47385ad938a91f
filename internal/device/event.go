package device

import "time"

// A Kind says what an [Event] is about.
type Kind string

// The kinds of events.
const (
	Connected    Kind = "connected"    // MQTT is up
	Disconnected Kind = "disconnected" // MQTT is gone; Err says why
	Opened       Kind = "opened"       // hello was answered, the audio channel is open; Text is the session id
	Closed       Kind = "closed"       // the audio channel is closed
	StateChanged Kind = "state"        // State is the new state
	Message      Kind = "message"      // a message arrived; Type, Detail, Text
	SpeechEnded  Kind = "speech_ended" // the main task acted on tts stop
	Microphone   Kind = "microphone"   // the microphone is warm and being sent
	FirstPacket  Kind = "first_packet" // the first audio of a reply arrived and was queued
	FirstSound   Kind = "first_sound"  // the first audio of a reply sounds; Time is when
	Silent       Kind = "silent"       // the speaker has played everything it had
	Aborted      Kind = "aborted"      // the user interrupted and the device said so
	ToolCalled   Kind = "tool"         // a tool ran; Tool, Text (arguments), Result
	Failed       Kind = "failed"       // the device shows a network error; Err
	Crashed      Kind = "crashed"      // a message this firmware does not survive; Err
	Rebooting    Kind = "rebooting"    // the server asked for it
)

// An Event is something that happened in a device.
type Event struct {
	Kind  Kind
	Time  time.Time
	State State // the state at that time

	Type, Detail string // of a message: its type, and its state or emotion
	Text         string
	Tool, Result string
	Err          error
}
