package device

import (
	"fmt"

	"parley/internal/protocol"
)

// A State is a state of the firmware's state machine, as far as conversations
// go.
type State int

// The states.
const (
	Starting State = iota // not connected yet, or crashed
	Idle
	Connecting // hello was sent
	Listening
	Speaking
)

// String is the state's name in the firmware's log.
func (s State) String() string {
	switch s {
	case Starting:
		return "starting"
	case Idle:
		return "idle"
	case Connecting:
		return "connecting"
	case Listening:
		return "listening"
	case Speaking:
		return "speaking"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// legal reports whether the firmware's state machine goes from one state to
// another.
func legal(from, to State) bool {
	switch from {
	case Starting:
		return to == Idle
	case Idle:
		return to == Connecting || to == Listening || to == Speaking
	case Connecting:
		return to == Idle || to == Listening
	case Listening:
		return to == Idle || to == Speaking
	case Speaking:
		return to == Idle || to == Listening
	}
	return false
}

// setState changes the state on the main task. The work of the change is done at
// once by firmware before 2.2 and in a later pass, for the state of that time,
// since: there a quick change there and back goes unnoticed.
func (d *Device) setState(to State) {
	d.mu.Lock()
	from := d.state
	requested := d.opts.SpeakRequest && from == Connecting && to == Speaking
	if from == to || !legal(from, to) && !requested {
		d.mu.Unlock()
		return
	}
	d.state = to
	d.mu.Unlock()
	d.emit(Event{Kind: StateChanged})
	switch {
	case d.traits.py:
		d.enterPy(to)
	case d.traits.deferredState:
		d.post(evState)
	default:
		d.enter()
	}
}

// enter is the firmware's HandleStateChanged.
func (d *Device) enter() {
	state := d.State()
	if !d.pause(d.opts.DisplayWork) {
		return
	}
	if state != Listening {
		d.main.pendingListen = false
	}
	switch state {
	case Idle:
		d.mic.stop()
	case Listening:
		d.enterListening()
	case Speaking:
		if d.listeningMode() != protocol.ModeRealtime {
			d.mic.stop()
		}
		d.speaker.flush(lossStart)
	}
}

// enterListening starts the microphone, now or when the profile does. In
// realtime it has been running all along, and no listen start is sent.
func (d *Device) enterListening() {
	if d.mic.running() && !d.main.restartListen {
		return
	}
	if d.listeningMode() == protocol.ModeAuto {
		switch {
		case d.traits.stop == stopDefers && !d.speaker.isEmpty():
			d.main.pendingListen = true
			return
		case d.traits.stop == stopBlocks:
			d.speaker.waitEmpty(d.ctx)
		}
	}
	d.startListening()
}

// startListening announces the mode and starts the microphone, which resets the
// decoder and so discards whatever is still queued.
func (d *Device) startListening() {
	d.main.restartListen = false
	d.sendListen(protocol.ListenStart, d.listeningMode())
	d.speaker.flush(lossStop)
	d.mic.start()
}

func (d *Device) listeningMode() protocol.Mode {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mode
}

// listen goes to listening in a mode.
func (d *Device) listen(m protocol.Mode) {
	d.mu.Lock()
	d.mode = m
	d.mu.Unlock()
	d.setState(Listening)
}

// handsFree is the mode of a conversation without a button held.
func (d *Device) handsFree() protocol.Mode {
	if d.opts.Mode == protocol.ModeRealtime {
		return protocol.ModeRealtime
	}
	return protocol.ModeAuto
}

// speechStarts acts on tts start.
func (d *Device) speechStarts() {
	if d.traits.py {
		d.pySpeechStarts()
		return
	}
	d.setState(Speaking)
}

// speechStops acts on tts stop, which means something only while speaking.
func (d *Device) speechStops() {
	switch {
	case d.traits.py:
		d.pySpeechStops()
	case d.State() != Speaking:
	case d.listeningMode() == protocol.ModeManual:
		d.setState(Idle)
	default:
		d.setState(Listening)
	}
	d.emit(Event{Kind: SpeechEnded})
}
