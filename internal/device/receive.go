package device

import (
	"context"
	"errors"
	"net"
	"time"
)

// A window tells sequence numbers that repeat from those that come late, over
// the last 64; the firmware itself knows only the last one.
type window struct {
	last uint32
	seen uint64 // bit i: last-i was seen
}

// newWindow is the window after a hello: sequences start at 1.
func newWindow() window { return window{seen: 1} }

// An order is how a sequence number relates to those before.
type order int

const (
	inOrder order = iota
	repeated
	late
)

// note records seq and returns its order and how many numbers it skipped.
func (w *window) note(seq uint32) (o order, skipped int64) {
	if seq > w.last {
		ahead := seq - w.last
		w.seen = w.seen<<ahead | 1 // shifting by 64 and more clears it
		w.last = seq
		return inOrder, int64(ahead) - 1
	}
	behind := w.last - seq
	if behind >= 64 {
		return late, 0
	}
	bit := uint64(1) << behind
	if w.seen&bit != 0 {
		return repeated, 0
	}
	w.seen |= bit
	return late, -1 // not lost after all
}

// readAudio reads a session's socket until it is closed.
func (d *Device) readAudio(conn net.Conn) {
	defer context.AfterFunc(d.ctx, func() { conn.Close() })()
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		if err == nil {
			d.receiveAudio(conn, buf[:n])
			continue
		}
		if errors.Is(err, net.ErrClosed) || d.ctx.Err() != nil {
			return
		}
		// An ICMP error of an earlier packet, which the firmware does not
		// notice either. The pause keeps a dead socket from spinning.
		if !d.pause(100*time.Millisecond) || !d.owns(conn) {
			return
		}
	}
}

func (d *Device) owns(conn net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session.conn == conn
}

// receiveAudio is the firmware's UDP callback: it checks, decrypts and, while
// the device is speaking, queues. What nobody decodes is not decrypted.
func (d *Device) receiveAudio(conn net.Conn, datagram []byte) {
	d.mu.Lock()
	if d.session.conn != conn {
		d.mu.Unlock()
		return
	}
	d.counts.Received++
	if !d.wellFormed(datagram) {
		d.counts.Malformed++
		d.mu.Unlock()
		return
	}
	h := readHeader(datagram)
	if !d.inSequence(h.sequence) {
		d.mu.Unlock()
		return
	}
	s := &d.session
	s.lastHeard = time.Now()
	p := packet{
		timestamp: h.timestamp, duration: time.Duration(s.frame) * time.Millisecond,
		reply: s.replies, sentence: s.sentences, interrupted: s.interrupted,
	}
	if !d.hears() {
		if s.interrupted {
			d.counts.Interrupted++
		} else {
			d.counts.ClippedState++
		}
		d.mu.Unlock()
		return
	}
	if d.opts.Decode {
		p.payload = s.codec.open(datagram)
	}
	first := d.speaker.push(p) && s.fresh
	if first {
		s.fresh = false
	}
	d.mu.Unlock()
	if first {
		d.emit(Event{Kind: FirstPacket})
	}
}

// wellFormed applies the profile's rules of length and type. d.mu is held.
func (d *Device) wellFormed(datagram []byte) bool {
	if len(datagram) < headerLen+d.traits.minPayload {
		return false
	}
	h := readHeader(datagram)
	if !d.traits.anyType && h.kind != 1 {
		return false
	}
	return !d.traits.exactLength || len(datagram) == headerLen+h.length
}

// inSequence applies the profile's rule of sequence and counts what it finds.
// d.mu is held.
func (d *Device) inSequence(seq uint32) bool {
	last := d.session.window.last
	o, skipped := d.session.window.note(seq)
	d.counts.Lost += skipped
	switch {
	case o == inOrder:
		return true
	case d.traits.anySequence, d.traits.repeatSequence && seq == last:
		d.counts.Repeated++
		return true
	case o == repeated:
		d.counts.Duplicate++
	default:
		d.counts.Late++
	}
	return false
}

// hears reports whether audio that arrives now is queued. d.mu is held.
func (d *Device) hears() bool {
	switch {
	case d.traits.py:
		return true
	case d.traits.anyState:
		return d.state != Listening
	}
	return d.state == Speaking
}
