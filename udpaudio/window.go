package udpaudio

const (
	// windowBehind is how far behind the newest sequence number a packet may
	// come and still be accepted: 64 packets, 3.8 s of 60 ms frames, far more
	// than a reordering network needs, and one machine word.
	windowBehind = 64

	// windowAhead is how far ahead of the newest a sequence number may be. A
	// packet beyond would move the window away from those of the device, which
	// would then be refused as old. 2^15 packets are half an hour of 60 ms
	// frames lost in a row, at the start as in the middle of a session.
	windowAhead = 1 << 15
)

// A window tells fresh sequence numbers from replayed ones, in the manner of
// RFC 4303 §3.4.3. Sequences do not wrap: 2^32 packets of 20 ms are two and a
// half years of talking, and after the last one every packet is old, so that
// no counter block can come back. The zero window has seen number 0, which no
// device sends, and nothing else.
type window struct {
	last uint32 // newest accepted
	seen uint64 // bit i: last-1-i was accepted
}

// fresh returns delivered if seq may be accepted, or why not.
func (w *window) fresh(seq uint32) outcome {
	switch {
	case seq > w.last:
		if seq-w.last >= windowAhead {
			return dropAhead
		}
		return delivered
	case seq == w.last || seq == 0:
		return dropReplayed
	case w.last-seq >= windowBehind:
		return dropOld
	case w.seen>>(w.last-seq-1)&1 == 1:
		return dropReplayed
	}
	return delivered
}

// accept marks seq, for which fresh has returned delivered.
func (w *window) accept(seq uint32) {
	if seq <= w.last {
		w.seen |= 1 << (w.last - seq - 1)
		return
	}
	// The old newest becomes the bit below the new one. Shifts of 64 and more
	// give 0 in Go, as they should.
	w.seen = (w.seen<<1 | 1) << (seq - w.last - 1)
	w.last = seq
}
