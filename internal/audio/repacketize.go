package audio

import (
	"errors"
	"fmt"
	"time"
)

// ErrMismatch is returned by [Repacketizer.Push] for a packet that is sound but
// cannot share a packet with those before it.
var ErrMismatch = errors.New("the Opus packet does not fit with the ones before it")

// A Repacketizer merges short Opus packets into longer ones without decoding
// them, as libopus' repacketizer does: three packets of 20 ms become one of
// 60 ms whose frames are the same bytes (RFC 6716 §3.2). A decoder makes the
// same samples of it.
//
// Devices are told to expect packets of 60 ms and size their buffers for it.
// That a packet of three 20 ms frames is one of them is what libopus and every
// decoder built on it say; no encoder has another way to make 60 ms in the
// Hybrid and CELT modes, so a device has to play it.
//
// The zero value is an empty Repacketizer, ready to use. It is not safe for
// concurrent use.
type Repacketizer struct {
	toc   byte // of the pending packets, frame code cleared
	info  PacketInfo
	sizes []int  // of the pending frames
	data  []byte // the pending frames
}

// Pending is the length of the audio pushed since the last Reset.
func (r *Repacketizer) Pending() time.Duration {
	return r.info.Duration()
}

// Push adds a copy of a packet's frames. The error wraps [ErrPacket] if packet
// is not one, and [ErrMismatch] if it differs from the pending ones in mode,
// bandwidth, frame length or channels, or makes more than 120 ms of them. A
// packet refused leaves the Repacketizer as it was.
func (r *Repacketizer) Push(packet []byte) error {
	var frames [maxFrames][]byte
	info, err := parsePacket(packet, &frames)
	if err != nil {
		return err
	}
	toc := packet[0] &^ 3
	if len(r.sizes) > 0 && toc != r.toc {
		return fmt.Errorf("%w: configuration %d after %d", ErrMismatch, toc>>2, r.toc>>2)
	}
	if r.Pending()+info.Duration() > maxPacketDuration {
		return fmt.Errorf("%w: %v after %v make more than %v", ErrMismatch, info.Duration(), r.Pending(), maxPacketDuration)
	}
	for _, f := range frames[:info.Frames] {
		r.sizes = append(r.sizes, len(f))
		r.data = append(r.data, f...)
	}
	r.toc = toc
	info.Frames = len(r.sizes)
	r.info = info
	return nil
}

// AppendPacket appends one packet of all pending frames to dst, in the shortest
// framing there is. It appends nothing if nothing is pending. The frames stay
// pending until Reset.
func (r *Repacketizer) AppendPacket(dst []byte) []byte {
	equal := true
	for _, size := range r.sizes {
		equal = equal && size == r.sizes[0]
	}
	switch n := len(r.sizes); {
	case n == 0:
		return dst
	case n == 1:
		dst = append(dst, r.toc)
	case n == 2 && equal:
		dst = append(dst, r.toc|1)
	case n == 2:
		dst = appendFrameLength(append(dst, r.toc|2), r.sizes[0])
	case equal:
		dst = append(dst, r.toc|3, byte(n))
	default:
		dst = append(dst, r.toc|3, byte(n)|0x80)
		for _, size := range r.sizes[:n-1] {
			dst = appendFrameLength(dst, size)
		}
	}
	return append(dst, r.data...)
}

// Reset forgets what is pending.
func (r *Repacketizer) Reset() {
	r.info = PacketInfo{}
	r.sizes = r.sizes[:0]
	r.data = r.data[:0]
}
