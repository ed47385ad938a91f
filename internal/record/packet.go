package record

import (
	"time"
)

// A direction is one of the two a session's audio goes in. It is also the
// number of its track.
type direction int

const (
	up   direction = iota // what the device says
	down                  // what Parley says
	directions
)

const (
	// maxPacket is the length of the longest packet taken, in bytes: a datagram
	// has at most 1,500.
	maxPacket = 1500
	// queueLength is how many packets wait for a tap's goroutine, 4 s of both
	// directions at 60 ms. More are dropped and counted.
	queueLength = 128
)

// A packet is a copy of one Opus packet on its way to the timeline.
type packet struct {
	direction direction
	sequence  uint32        // of the device; 0 in the other direction
	at        time.Duration // when it came, since the tap was opened
	length    time.Duration // of its audio
	opus      []byte        // in buffer
	buffer    [maxPacket]byte
}

// set copies opus, which must fit.
func (p *packet) set(d direction, sequence uint32, at time.Duration, opus []byte) {
	p.direction, p.sequence, p.at, p.length = d, sequence, at, 0
	p.opus = p.buffer[:copy(p.buffer[:], opus)]
}
