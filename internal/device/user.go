package device

import "parley/internal/protocol"

// Toggle presses the chat button: it opens a conversation, interrupts speech, or
// closes the conversation, by the state. It does not wait.
func (d *Device) Toggle() { d.post(evToggle) }

// ButtonDown presses the talk button of a device in manual mode; speech is
// interrupted. It does not wait.
func (d *Device) ButtonDown() { d.post(evButtonDown) }

// ButtonUp releases the talk button. It does not wait.
func (d *Device) ButtonUp() { d.post(evButtonUp) }

// Wake lets the device hear its wake word. preroll, 16 kHz mono, is what its
// microphone heard before; the last two seconds of it are sent, as by builds
// with CONFIG_SEND_WAKE_WORD_DATA. It does not wait.
func (d *Device) Wake(word string, preroll []int16) {
	d.main.mu.Lock()
	d.main.wakes = wakeCall{word, preroll}
	d.main.mu.Unlock()
	d.post(evWake)
}

// Abort interrupts the device if it speaks when its main task comes to it, and
// does nothing otherwise. It does not wait.
func (d *Device) Abort() {
	d.schedule(func() {
		switch {
		case d.traits.py:
			d.pyAbort()
		case d.State() == Speaking:
			d.abortSpeaking("")
		}
	})
}

// Type sends text as if it had been spoken, as py-xiaozhi does. It does not wait.
func (d *Device) Type(text string) {
	d.schedule(func() { d.sendText(protocol.ListenDetect, text) })
}

// toggle is HandleToggleChatEvent.
func (d *Device) toggle() {
	switch d.State() {
	case Idle:
		d.speaker.interrupt()
		d.open(d.handsFree())
	case Speaking:
		if d.traits.py {
			d.pyAbort()
			return
		}
		d.abortSpeaking("")
	case Listening:
		d.speaker.interrupt()
		d.closeChannel(true)
	}
}

// buttonDown is HandleStartListeningEvent.
func (d *Device) buttonDown() {
	switch d.State() {
	case Idle:
		d.speaker.interrupt()
		d.open(protocol.ModeManual)
	case Speaking:
		d.abortSpeaking("")
		if d.traits.py {
			d.setState(Idle)
			d.pyListen(protocol.ModeManual)
			return
		}
		d.listen(protocol.ModeManual)
	}
}

// buttonUp is HandleStopListeningEvent. It does not look at the mode.
func (d *Device) buttonUp() {
	if d.State() == Listening {
		d.sendListen(protocol.ListenStop, "")
		d.setState(Idle)
	}
}

// wakeUp is HandleWakeWordDetectedEvent.
func (d *Device) wakeUp(w wakeCall) {
	switch d.State() {
	case Idle:
		d.speaker.interrupt()
		d.openThen(func() {
			if !d.traits.py {
				d.sendPreroll(w.preroll)
				d.sendText(protocol.ListenDetect, w.word)
			}
			d.converse(d.handsFree())
		})
	case Speaking:
		if d.traits.py {
			d.pyAbort()
			return
		}
		d.abortSpeaking("wake_word_detected")
		if d.traits.wakeListens {
			d.mic.discard()
			d.main.restartListen = true
			d.listen(d.handsFree())
		}
	case Listening:
		if d.traits.wakeListens {
			d.sendAbort("wake_word_detected")
			d.mic.discard()
			d.sendListen(protocol.ListenStart, d.handsFree())
			d.speaker.flush(lossAbort)
		}
	}
}

// abortSpeaking tells the server that the user interrupts. The device stays as
// it is until the server says tts stop.
func (d *Device) abortSpeaking(reason string) {
	d.interrupt()
	d.sendAbort(reason)
	if d.traits.abortSilences {
		d.speaker.flush(lossAbort)
	}
	d.emit(Event{Kind: Aborted, Text: reason})
}

// interrupt counts what is queued, and what comes before the next tts start, as
// given up by the user.
func (d *Device) interrupt() {
	d.mu.Lock()
	d.session.interrupted = true
	d.mu.Unlock()
	d.speaker.interrupt()
}

// open makes sure of a channel and listens.
func (d *Device) open(m protocol.Mode) {
	d.openThen(func() { d.converse(m) })
}

func (d *Device) converse(m protocol.Mode) {
	if d.traits.py {
		d.pyListen(m)
		return
	}
	d.listen(m)
}

// openThen opens a channel where none is usable and then does what comes next.
// Firmware since 2.2 lets the main task handle the change to connecting before
// it opens.
func (d *Device) openThen(next func()) {
	if d.channelOpen() {
		next()
		return
	}
	d.setState(Connecting)
	proceed := func() {
		if d.State() == Connecting && d.openChannel() {
			next()
		}
	}
	if d.traits.deferredState {
		d.schedule(proceed)
		return
	}
	proceed()
}

// speakRequested is an idle device's answer to a server that has something to
// say: it opens a channel, sends a packet so that a NAT knows the way back, and
// goes to speaking by itself (78/xiaozhi-esp32 pull request 1939, for 2.5).
func (d *Device) speakRequested() {
	if d.State() != Idle {
		return
	}
	d.openThen(func() {
		d.mu.Lock()
		d.mode = d.handsFree()
		d.mu.Unlock()
		d.sendPacket(nil, 0)
		d.setState(Speaking)
		d.publish(`{"session_id":"` + d.SessionID() + `","type":"speak_ready","state":"ready"}`)
	})
}
