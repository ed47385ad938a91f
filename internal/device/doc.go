// Package device is a simulated voice device: the firmware's state machine, its
// queues and its main task, without the hardware. It is what `parley talk`
// speaks through and what the project measures itself with.
//
// # What is modelled
//
// One goroutine is the firmware's main task. Everything the firmware does there
// happens there: state changes, the handling of tts and goodbye, the bodies of
// MCP tools, every reply, the sending of microphone audio, and the up to ten
// seconds a hello may take. A slow tool therefore freezes the device as it does
// the real one. Messages are read on a second goroutine and audio on a third, as
// in the firmware, so that what arrives between two passes of the main task
// meets the state of that moment: audio that comes before the device is speaking
// is dropped, audio that comes between the change of state and the reset of the
// decoder is wiped.
//
// The loudspeaker is a queue of packets, a queue of two decoded frames, one
// frame in flight and 60 ms of DMA, played on the clock with no threshold before
// it starts. What a listener would have missed is counted, by cause, in
// [Report]. A [Profile] selects the firmware generation: queue lengths, what
// becomes of queued audio at tts stop, sequence and length rules, who answers a
// goodbye.
//
// # What is not modelled
//
// Local sounds (the pop-up after a wake word, the vibration of an alert), Wi-Fi
// power saving, firmware upgrades, and the WebSocket transport.
//
// # Independence
//
// The package seals and opens audio packets with its own few lines over
// crypto/cipher instead of the server's code, so that a mistake made on one side
// shows on the other.
//
// All waiting is on channels and timers, so a device runs in virtual time under
// testing/synctest when [Options] gives it connections that do.
package device
