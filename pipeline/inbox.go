package pipeline

import "sync/atomic"

type signalKind uint8

const (
	signalListenStart signalKind = iota
	signalListenStop
	signalDetect
	signalAbort
)

type signal struct {
	kind signalKind
	mode Mode
	text string
}

// Bounds of a conversation's inboxes. Packets beyond the first are dropped and
// counted: 64 are 3.8 s of audio, and a conversation that is so far behind
// would answer nobody. Signals are limited to 50 a second by the broker and
// handled in microseconds; one dropped is an error worth a log line.
const (
	uplinkBound = 64
	signalBound = 32
)

// An inbox is how packets and signals reach an engine. Its methods may be called
// from any goroutine and never block.
type inbox struct {
	packets   chan *packet
	signals   chan signal
	pathReady chan struct{} // one is enough
	dropped   atomic.Uint64 // packets refused because the inbox was full
}

func newInbox() inbox {
	return inbox{
		packets:   make(chan *packet, uplinkBound),
		signals:   make(chan signal, signalBound),
		pathReady: make(chan struct{}, 1),
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

// PathReady says that packets can be sent: the device's address is known. It is
// never lost.
func (i *inbox) PathReady() {
	select {
	case i.pathReady <- struct{}{}:
	default: // said already
	}
}

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
