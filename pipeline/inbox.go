package pipeline

import (
	"sync"
	"sync/atomic"
)

type signalKind uint8

const (
	signalListenStart signalKind = iota
	signalListenStop
	signalDetect
	signalAbort
	signalReady
)

type signal struct {
	kind signalKind
	mode Mode
	text string
}

// Bounds of a conversation's inboxes. Packets beyond the first are dropped and
// counted: 64 are 3.8 s of audio, and a conversation that is so far behind
// would answer nobody. Signals are limited to 50 a second by the broker and
// handled in microseconds; one dropped is an error worth a log line. Texts to
// say are refused when so many wait: nobody wants to hear more.
const (
	uplinkBound = 64
	signalBound = 32
	sayBound    = 8
)

// An inbox is how packets and signals reach an engine, and how others see what it
// is doing. Its methods may be called from any goroutine and never block.
type inbox struct {
	packets   chan *packet
	signals   chan signal
	pathReady chan struct{} // one is enough
	says      chan notice   // taken when there is nothing else to hear or say
	hangUp    chan struct{} // one is enough
	dropped   atomic.Uint64 // packets refused because the inbox was full
	refused   atomic.Uint64 // texts refused
	phase     atomic.Uint32 // a Phase

	saying sync.Mutex // held while a text is put into says, which must not follow the end
	mute   bool       // nothing more can be said
}

// A notice is a text of [Conversation.Say] on its way.
type notice struct {
	text   string
	unsaid func() // never nil
}

func newInbox() inbox {
	return inbox{
		packets:   make(chan *packet, uplinkBound),
		signals:   make(chan signal, signalBound),
		pathReady: make(chan struct{}, 1),
		says:      make(chan notice, sayBound),
		hangUp:    make(chan struct{}, 1),
	}
}

// ListenStart says that the device has begun to listen.
func (i *inbox) ListenStart(m Mode) bool {
	return i.signal(signal{kind: signalListenStart, mode: m})
}

// ListenStop says that the user has finished.
func (i *inbox) ListenStop() bool { return i.signal(signal{kind: signalListenStop}) }

// Detect reports a wake word or, while listening, text that the user typed.
func (i *inbox) Detect(text string) bool {
	return i.signal(signal{kind: signalDetect, text: text})
}

// Abort says that the user does not want to hear the rest.
func (i *inbox) Abort() bool { return i.signal(signal{kind: signalAbort}) }

// Ready says that the device, which was asked to, has gone to speaking by itself:
// it can be spoken to before it has ever listened.
func (i *inbox) Ready() bool { return i.signal(signal{kind: signalReady}) }

// silence ends the saying of texts, and tells of those whose turn never came.
func (i *inbox) silence() {
	i.saying.Lock()
	i.mute = true
	i.saying.Unlock()
	for n := len(i.says); n > 0; n-- {
		(<-i.says).unsaid()
	}
}

// PathReady says that packets can be sent: the device's address is known. It is
// never lost.
func (i *inbox) PathReady() {
	select {
	case i.pathReady <- struct{}{}:
	default: // said already
	}
}

// HangUp ends the session when everything that is being said, or waits to be,
// has been heard; at once if there is nothing. Something new that the user says
// before that cancels it.
func (i *inbox) HangUp() {
	select {
	case i.hangUp <- struct{}{}:
	default: // said already
	}
}

// Phase is what the engine was doing a moment ago.
func (i *inbox) Phase() Phase { return Phase(i.phase.Load()) }

// signal reports false when the inbox is full and the signal was dropped.
func (i *inbox) signal(s signal) bool {
	select {
	case i.signals <- s:
		return true
	default:
		return false
	}
}

// Hear delivers one Opus packet of the device with its sequence number. The
// packet is copied. It reports false if the conversation has fallen behind and
// the packet was dropped.
func (i *inbox) Hear(seq uint32, opus []byte) bool {
	p := newPacket(seq, opus)
	select {
	case i.packets <- p:
		return true
	default:
		p.free()
		i.dropped.Add(1)
		return false
	}
}
