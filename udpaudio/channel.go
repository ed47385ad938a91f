package udpaudio

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"parley/internal/protocol"
)

// Errors of [Channel.Send].
var (
	// ErrNoPath means that the device's address is not known yet. It becomes
	// known with the device's first packet; see [Receiver].
	ErrNoPath = errors.New("udpaudio: no packet has come from the device yet")
	// ErrSize means that an Opus packet is larger or smaller than devices take;
	// see [MaxPayload] and [MinPayload].
	ErrSize = errors.New("udpaudio: Opus packet of a size devices drop")
	// ErrExhausted means that a session has lasted so long, 49 days, that a
	// counter block could be used twice. Only a new session helps.
	ErrExhausted = errors.New("udpaudio: session too long for its key; open a new one")
)

// lastSequence is the last sequence number that is sent. The counter blocks of
// a packet follow the header's, in the field that also numbers packets, and
// must not leave it.
const lastSequence = math.MaxUint32 - MaxPayload/HeaderSize - 1

// A Receiver takes what comes from one device. Its methods are called on the
// goroutine that reads the socket, one at a time for each channel, and hold up
// the packets of all others: they must not block. They may call any method of
// the channel but Close.
type Receiver interface {
	// PathReady is called once, before the first Audio, when the device's
	// address has become known and Send can succeed.
	PathReady()

	// Audio takes one Opus packet, valid only during the call. Up to 3 bytes
	// are silence; 0 bytes are possible. The sequence numbers arrive as the
	// network delivers them: each at most once, but neither in order nor
	// complete. The timestamp is 0, or that of the downlink packet whose echo
	// the packet may contain.
	Audio(sequence, timestamp uint32, opus []byte)
}

// A Channel carries the audio of one session. Its methods may be called
// concurrently.
type Channel struct {
	server   *Server
	ssrc     uint32
	receiver Receiver
	opened   time.Time

	// up guards what comes from the device, and is held during the calls of the
	// receiver. Whoever needs both locks takes up first.
	up     sync.Mutex
	window window
	shape  shape
	path   path

	// down guards what goes to the device.
	down      sync.Mutex
	key       [16]byte
	to        netip.AddrPort // not valid before the first packet
	sequence  uint32         // of the last packet sent
	timestamp uint32         // of the last packet sent, ms
	out       [HeaderSize + (MaxPayload+15)/16*16]byte
	sealed    int // length of the last packet, in out

	// Written with both locks held, read with either.
	cipher *Cipher
	closed bool

	highest    atomic.Uint32 // copy of window.last for Stats
	outcomes   tally
	sent       atomic.Uint64
	repeated   atomic.Uint64
	sendErrors atomic.Uint64
	moves      atomic.Uint64
}

// SSRC returns the number that stands for the session in its packets.
func (c *Channel) SSRC() uint32 { return c.ssrc }

// Offer returns what the reply to the device's hello carries: the session's key
// and its nonce, the header that the device copies into each of its packets
// and completes with length, timestamp and sequence. After Close the key is
// zero.
func (c *Channel) Offer() (key, nonce [16]byte) {
	Header{SSRC: c.ssrc}.Put(nonce[:])
	c.down.Lock()
	defer c.down.Unlock()
	return c.key, nonce
}

// A packet is a received datagram with its header, and where its plaintext goes.
type packet struct {
	header Header
	raw    *[HeaderSize]byte
	body   []byte // ciphertext
	plain  []byte // room for the plaintext, rounded up
}

// receive handles a well-formed packet of this session.
func (c *Channel) receive(p *packet, from netip.AddrPort) {
	c.up.Lock()
	defer c.up.Unlock()
	if c.closed {
		c.count(dropClosed, 1)
		return
	}
	if verdict := c.window.fresh(p.header.Sequence); verdict != delivered {
		c.count(verdict, 1)
		return
	}
	first := !c.path.addr.IsValid()
	if !first && from != c.path.addr {
		c.foreign(p, from)
		return
	}
	opus := c.decrypt(p)
	if !c.shape.learn(opus) {
		c.count(dropImplausible, 1)
		return
	}
	if c.path.held > 0 && p.header.Sequence > c.path.packets[0].header.Sequence {
		c.discardHeld() // the row of the candidate is broken
	}
	if first {
		c.adopt(from)
		c.receiver.PathReady()
	}
	c.deliver(p.header, opus)
}

// decrypt returns the plaintext of p, which lies in p.plain.
func (c *Channel) decrypt(p *packet) []byte {
	c.cipher.XOR(p.plain, p.body, p.raw)
	return p.plain[:len(p.body)]
}

// deliver accepts a packet that has passed all tests.
func (c *Channel) deliver(h Header, opus []byte) {
	c.window.accept(h.Sequence)
	c.highest.Store(c.window.last)
	c.count(delivered, 1)
	c.receiver.Audio(h.Sequence, h.Timestamp, opus)
}

func (c *Channel) count(o outcome, n int) {
	c.outcomes[o].Add(uint64(n))
	c.server.outcomes[o].Add(uint64(n))
}

// Send encrypts one Opus packet of 60 ms and sends it to the device. It
// returns the timestamp of the packet in ms, which rises with every packet: by
// 60, or more where the session's clock, which starts with [Server.Open], has
// gone on meanwhile.
//
// It fails with [ErrSize], [ErrNoPath], [ErrExhausted] or [ErrClosed], or with
// an error of the socket, after which the packet is lost like any other in the
// network.
func (c *Channel) Send(opus []byte) (timestamp uint32, err error) {
	if len(opus) < MinPayload || len(opus) > MaxPayload {
		return 0, fmt.Errorf("%w: %d bytes, want %d to %d", ErrSize, len(opus), MinPayload, MaxPayload)
	}
	c.down.Lock()
	defer c.down.Unlock()
	switch {
	case c.closed:
		return 0, ErrClosed
	case !c.to.IsValid():
		return 0, ErrNoPath
	}
	next := nextTimestamp(c.timestamp, time.Since(c.opened))
	if next > math.MaxUint32 || c.sequence >= lastSequence {
		return 0, ErrExhausted
	}
	c.timestamp = uint32(next)
	c.sequence++
	n := c.seal(opus)
	c.sealed = n
	if _, err := c.server.conn.WriteToUDPAddrPort(c.out[:n], c.to); err != nil {
		c.sendErrors.Add(1)
		c.server.sendErrors.Add(1)
		return 0, fmt.Errorf("udpaudio: sending to %v: %w", c.to, err)
	}
	c.sent.Add(1)
	c.server.sent.Add(1)
	return c.timestamp, nil
}

// Repeat sends the last packet once more, bit for bit, for a path that loses some:
// a device that drops what it has plays it once. It fails with [ErrNoPath] if
// nothing was sent yet, with [ErrClosed], or with an error of the socket.
func (c *Channel) Repeat() error {
	c.down.Lock()
	defer c.down.Unlock()
	switch {
	case c.closed:
		return ErrClosed
	case !c.to.IsValid() || c.sealed == 0:
		return ErrNoPath
	}
	if _, err := c.server.conn.WriteToUDPAddrPort(c.out[:c.sealed], c.to); err != nil {
		c.sendErrors.Add(1)
		c.server.sendErrors.Add(1)
		return fmt.Errorf("udpaudio: repeating to %v: %w", c.to, err)
	}
	c.repeated.Add(1)
	return nil
}

// seal builds the packet with the current sequence and timestamp in out, and
// returns its length.
func (c *Channel) seal(opus []byte) int {
	Header{
		Flags:      FlagDownlink,
		PayloadLen: uint16(len(opus)),
		SSRC:       c.ssrc,
		Timestamp:  c.timestamp,
		Sequence:   c.sequence,
	}.Put(c.out[:])
	c.cipher.XOR(c.out[HeaderSize:], opus, (*[HeaderSize]byte)(c.out[:]))
	return HeaderSize + len(opus)
}

// nextTimestamp returns the timestamp that follows last, in ms, elapsed after
// the session began. It is above 0, because devices return no echo timestamp
// for 0, and above last, because the counter blocks of two packets of equal
// length and timestamp could overlap.
func nextTimestamp(last uint32, elapsed time.Duration) uint64 {
	return max(uint64(last)+protocol.DownlinkFrame, uint64(elapsed.Milliseconds()))
}

// Close ends the channel: nothing is received or sent any more, and the key is
// forgotten. It waits for calls of the receiver and of Send under way, so that
// none runs after it; a receiver must not call it, nor wait for one who does.
// Closing again does nothing.
func (c *Channel) Close() {
	c.up.Lock()
	defer c.up.Unlock()
	c.down.Lock()
	defer c.down.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	clear(c.key[:])
	c.cipher = nil // the expanded key within is the garbage collector's
	c.discardHeld()
	c.path.packets = nil
	c.server.table.remove(c)
}

// Stats returns the counters so far.
func (c *Channel) Stats() ChannelStats {
	s := ChannelStats{
		Delivered:  c.outcomes[delivered].Load(),
		Dropped:    c.outcomes.drops(),
		Sent:       c.sent.Load(),
		Repeated:   c.repeated.Load(),
		SendErrors: c.sendErrors.Load(),
		Moves:      c.moves.Load(),
	}
	// Read after Delivered, and so never less: a number counts as the newest
	// before its packet counts as delivered.
	s.Lost = uint64(c.highest.Load()) - s.Delivered
	c.down.Lock()
	defer c.down.Unlock()
	s.Path = c.to
	return s
}
