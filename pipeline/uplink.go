package pipeline

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"parley/internal/audio"
)

// A packet is one Opus packet on its way from a socket to a conversation.
type packet struct {
	seq  uint32
	data []byte
	at   time.Time
}

// packetPool keeps the way of a packet free of allocations: packets are at most
// a datagram long, and a conversation returns each after decoding it.
var packetPool = sync.Pool{New: func() any { return &packet{data: make([]byte, 0, 1500)} }}

func newPacket(seq uint32, opus []byte) *packet {
	p := packetPool.Get().(*packet)
	p.seq, p.at = seq, time.Now()
	p.data = append(p.data[:0], opus...)
	return p
}

func (p *packet) free() { packetPool.Put(p) }

// Bounds of the uplink's repair.
const (
	// reorderDepth is how many packets may wait for a missing one: as many as
	// a Wi-Fi retry delays, and no more than a listener notices.
	reorderDepth = 4
	// reorderWait is how long they may wait.
	reorderWait = 150 * time.Millisecond
	// concealMax is how many lost packets in a row are concealed. Opus fades to
	// silence by then; a longer gap is a new beginning.
	concealMax = 3
	// maxFrame is the longest PCM of one packet: 120 ms at SampleRate.
	maxFrame = SampleRate * 120 / 1000
	// jitterMost is the largest step that counts as jitter. More is an outage.
	jitterMost = 500 * time.Millisecond
	// shortestFrame is that of any client in the field.
	shortestFrame = 20 * time.Millisecond
	// dtxSize is the largest packet that discontinuous transmission sends; it
	// holds no sound and is not decoded.
	dtxSize = 3
)

// An uplink turns packets into PCM in order: it waits a bounded time for what
// is late, conceals what is lost, and makes silence of DTX.
type uplink struct {
	decoder  *audio.Decoder
	started  bool
	next     uint32 // the sequence that comes next
	waiting  [reorderDepth]*packet
	waits    int
	deadline time.Time // when waiting ends; zero when nothing waits
	frame    int       // samples of the last decoded packet
	pcm      [maxFrame]int16

	// Late, Lost count packets that came after their turn, and that were
	// concealed or skipped; reordered, those that came before theirs.
	late, lost, reordered uint64
	taken                 uint64 // packets played

	// Clients that count by two are told by so many such steps in a row that no
	// loss explains them. From then on numbers are those of packets.
	raw    uint32 // the number of the newest packet, as it came
	number uint32 // what it counts as
	stride int32  // 1 or 2
	twos   int    // steps of two in a row

	jitter  time.Duration // of arrivals, as RFC 3550 §6.4.1 has it, but for pauses
	behind  time.Duration // how late the newest packet is, and nothing has made up for it yet
	lastAt  time.Time     // the arrival of the newest packet, of number lastSeq
	lastSeq uint32
}

func (u *uplink) init() error {
	d, err := audio.NewDecoder(SampleRate)
	if err != nil {
		return fmt.Errorf("uplink decoder: %w", err)
	}
	u.decoder, u.frame, u.stride = d, SampleRate*60/1000, 1
	return nil
}

// lossy reports whether the device's packets get lost on their way here, one in a
// hundred or more. There is no report of what gets lost on the way back; a path
// that loses one way mostly loses the other.
func (u *uplink) lossy() bool { return u.lost > 0 && u.lost*100 >= u.taken }

// take accepts one packet and calls emit with the PCM that has become due, in
// order. The PCM is valid only during the call.
func (u *uplink) take(p *packet, emit func([]int16)) {
	if !u.started {
		u.started, u.next = true, p.seq
		if p.seq <= reorderDepth { // devices count from 1, so what comes first may not be the first
			u.next = 1
		}
		u.raw, u.number = p.seq, p.seq
	}
	u.renumber(p, emit)
	u.arrival(p)
	if int32(p.seq-u.next) > 0 {
		u.reordered++
	}
	u.place(p, emit)
}

// strideSure is how many steps of two in a row make a client one that counts by
// two. A line that loses every other packet for so long carries no speech anyway.
const strideSure = 8

// renumber gives p the number it has among packets.
func (u *uplink) renumber(p *packet, emit func([]int16)) {
	step := int32(p.seq - u.raw)
	u.raw = p.seq
	if u.twos++; step != 2 {
		u.twos = 0
	}
	stride := u.stride
	switch {
	case stride == 1 && u.twos == strideSure:
		stride = 2
	case stride == 2 && step%2 != 0:
		stride = 1
	}
	u.number += uint32(step / stride)
	if p.seq = u.number; stride == u.stride {
		return
	}
	u.stride = stride
	for u.waits > 0 { // nothing will come between
		u.skip(p.at, emit)
	}
	u.next = p.seq
}

// arrival takes part in the estimate of jitter: how far the steps between
// arrivals are from those between the packets' places in the sound. A late step
// counts when a later one is as much too early, which makes up for it: then it was
// the network. A device that sends nothing in silence only begins anew.
func (u *uplink) arrival(p *packet) {
	steps := int32(p.seq - u.lastSeq)
	last := u.lastAt
	u.lastAt, u.lastSeq = p.at, p.seq
	if last.IsZero() {
		return
	}
	frame := time.Duration(u.frame) * time.Second / SampleRate
	late := p.at.Sub(last) - time.Duration(steps)*frame
	var off time.Duration
	switch {
	case late.Abs() > jitterMost:
		u.behind = 0
		return
	case late > 0:
		u.behind = min(u.behind+late, jitterMost)
	default:
		made := min(-late, u.behind)
		u.behind -= made
		off = made - late
	}
	u.jitter += (off - u.jitter) / 16
}

// restart begins the estimate of jitter anew: the microphone has rested, or a wake
// word's sound came in a burst.
func (u *uplink) restart() { u.jitter, u.behind, u.lastAt = 0, 0, time.Time{} }

// place plays p if its turn has come, keeps it if it has not, and drops it if it
// is over.
func (u *uplink) place(p *packet, emit func([]int16)) {
	at := p.at // play gives p back to the pool
	switch ahead := int32(p.seq - u.next); {
	case ahead < 0:
		u.late++
		p.free()
		return
	case ahead == 0:
		u.play(p, emit)
	default:
		if !u.wait(p) {
			u.skip(at, emit)
			u.place(p, emit)
			return
		}
	}
	u.release(at, emit)
}

// wait keeps p until what is missing before it arrives. It reports false when
// no place is left.
func (u *uplink) wait(p *packet) bool {
	for i, w := range u.waiting {
		if w == nil {
			u.waiting[i] = p
			u.waits++
			if u.deadline.IsZero() {
				u.deadline = p.at.Add(reorderWait)
			}
			return true
		}
	}
	return false
}

// release plays every waiting packet whose turn has come.
func (u *uplink) release(now time.Time, emit func([]int16)) {
	for again := u.waits > 0; again; {
		again = false
		for i, w := range u.waiting {
			if w == nil || int32(w.seq-u.next) > 0 {
				continue
			}
			u.waiting[i], again = nil, true
			u.waits--
			if w.seq == u.next {
				u.play(w, emit)
			} else { // a second copy: the channel drops those, so this is its window's edge
				u.late++
				w.free()
			}
		}
	}
	switch {
	case u.waits == 0:
		u.deadline = time.Time{}
	case !now.Before(u.deadline):
		u.deadline = now.Add(reorderWait)
	}
}

// skip, called at the deadline and when no place is left, gives up on the packets missing before the first waiting one: it
// conceals them and moves on.
func (u *uplink) skip(now time.Time, emit func([]int16)) {
	first := int32(-1)
	var next *packet
	for _, w := range u.waiting {
		if w == nil {
			continue
		}
		if d := int32(w.seq - u.next); first < 0 || d < first {
			first, next = d, w
		}
	}
	if first <= 0 {
		return
	}
	u.lost += uint64(first)
	for left := min(first, concealMax); left > 0; left-- {
		conceal := u.decoder.Conceal
		if left == 1 && len(next.data) > dtxSize {
			// The packet after the gap may repeat the one before it (in-band FEC).
			conceal = func(pcm []int16) error { return u.decoder.Recover(next.data, pcm) }
		}
		if conceal(u.pcm[:u.frame]) == nil {
			emit(u.pcm[:u.frame])
		}
	}
	u.next += uint32(first)
	u.release(now, emit)
}

func (u *uplink) play(p *packet, emit func([]int16)) {
	u.next = p.seq + 1
	u.taken++
	defer p.free()
	if len(p.data) <= dtxSize {
		if d, err := audio.Duration(p.data); err == nil && u.taken == 1 && d >= shortestFrame {
			u.frame = int(d * SampleRate / time.Second) // a better guess than none
		}
		clear(u.pcm[:u.frame])
		emit(u.pcm[:u.frame])
		return
	}
	n, err := u.decoder.Decode(p.data, u.pcm[:])
	if err != nil { // not Opus: treat it as lost
		u.lost++
		if n = u.frame; u.decoder.Conceal(u.pcm[:n]) != nil {
			return
		}
	}
	u.frame = n
	emit(u.pcm[:n])
}

// heldMax is how much audio is kept while not listening: what MQTT can be late
// by on a mobile network.
const heldMax = time.Second

// held is audio that arrived while the conversation was not listening. UDP
// overtakes MQTT, so the first syllables can arrive before the listen start
// that announces them.
type held struct {
	frames  []heldFrame
	expired uint64 // frames dropped for their age or number
}

type heldFrame struct {
	at  time.Time
	pcm []int16
}

func (h *held) add(pcm []int16, now time.Time) {
	h.frames = append(h.frames, heldFrame{now, append([]int16(nil), pcm...)})
	drop := 0
	for drop < len(h.frames) && now.Sub(h.frames[drop].at) > heldMax {
		drop++
	}
	drop = max(drop, len(h.frames)-heldFrames)
	h.expired += uint64(drop)
	h.frames = append(h.frames[:0], h.frames[drop:]...)
}

// heldFrames bounds a burst: a wake word's pre-roll is up to 33 packets at once.
const heldFrames = 40

// A burst is burstSize packets in a row, each within burstGap of the one before. A
// running microphone sends one every 20 to 60 ms, of which Wi-Fi may deliver two
// or three together.
const (
	burstGap  = 10 * time.Millisecond
	burstSize = 4
)

// drop forgets what arrived before at.
func (h *held) drop(at time.Time) {
	n := 0
	for n < len(h.frames) && h.frames[n].at.Before(at) {
		n++
	}
	h.expired += uint64(n)
	h.frames = append(h.frames[:0], h.frames[n:]...)
}

// take returns what is held, and empties it. first is the arrival of the first
// packet of a stream that runs up to now; it is zero if there is none. After a wake word, the burst that
// the device sends of it, the word itself, is left out: it is not what the
// user asks.
func (h *held) take(now time.Time, woken bool) (pcm [][]int16, first time.Time) {
	from, row := 0, 1
	for i, f := range h.frames {
		if i > 0 && f.at.Sub(h.frames[i-1].at) < burstGap {
			row++
		} else {
			row = 1
		}
		if now.Sub(f.at) > heldMax || woken && row >= burstSize {
			from = i + 1
		}
	}
	running := now
	for _, f := range slices.Backward(h.frames[from:]) {
		if running.Sub(f.at) > streamGap {
			break
		}
		first, running = f.at, f.at
	}
	for _, f := range h.frames[from:] {
		pcm = append(pcm, f.pcm)
	}
	h.frames = nil
	return pcm, first
}

// streamGap is the longest pause within a running microphone's packets: a lost
// one, and jitter. What came before a longer one is no part of the stream.
const streamGap = 200 * time.Millisecond
