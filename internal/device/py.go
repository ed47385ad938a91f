package device

import "parley/internal/protocol"

// The session logic of py-xiaozhi where it differs from the firmware's
// (src/bootstrap/session.py of 2.1.1). Its keep_listening is "not manual".

// enterPy turns the microphone on or off. Nothing is drawn first and no queue is
// reset.
func (d *Device) enterPy(to State) {
	switch {
	case to == Listening:
		d.mic.start()
	case to == Idle, d.listeningMode() != protocol.ModeRealtime:
		d.mic.stop()
	}
}

// pySpeechStarts stays listening in realtime.
func (d *Device) pySpeechStarts() {
	if d.listeningMode() == protocol.ModeRealtime {
		d.setState(Listening)
		return
	}
	d.setState(Speaking)
}

// pySpeechStops sends listen start first and then forgets what was not played,
// in any state.
func (d *Device) pySpeechStops() {
	mode := d.listeningMode()
	if mode == protocol.ModeManual {
		d.setState(Idle)
		return
	}
	if mode != protocol.ModeRealtime && d.channelOpen() {
		d.sendListen(protocol.ListenStart, mode)
	}
	d.speaker.flush(lossStop)
	d.setState(Listening)
}

// pyAbort says so and, without a button, listens again at once.
func (d *Device) pyAbort() {
	d.abortSpeaking("user_interruption")
	mode := d.listeningMode()
	if mode == protocol.ModeManual {
		d.setState(Idle)
		return
	}
	if mode != protocol.ModeRealtime && d.channelOpen() {
		d.sendListen(protocol.ListenStart, mode)
	}
	d.setState(Listening)
}

// pyListen announces a mode before it changes the state, which it has been in
// since hello.
func (d *Device) pyListen(m protocol.Mode) {
	d.mu.Lock()
	d.mode = m
	d.mu.Unlock()
	d.sendListen(protocol.ListenStart, m)
	d.setState(Listening)
}
