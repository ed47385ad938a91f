package record

import (
	"time"

	"parley/internal/audio"
)

const (
	// hold is how long packets wait for those that belong before them. Networks
	// in homes hold packets up for a few hundred milliseconds at worst.
	hold = 400 * time.Millisecond
	// maxHeld bounds the packets that wait, so that a device that sends too many
	// costs no memory. The oldest go first.
	maxHeld = 128
	// pause is the shortest gap that is filled, unless packets are known to be
	// lost. Shorter ones are the network's unevenness.
	pause = 60 * time.Millisecond
	// catchUp is how far a track may stay behind the other before it is filled,
	// so that a file's pages are nearly in order of time. Packets that were
	// held up longer than that stand too late by the rest.
	catchUp = 2 * time.Second
	// step is how much of a track is filled before it is the other's turn.
	step = 1200 * time.Millisecond
	// maxAhead is how far a track may run ahead of the clock. A device that
	// sends more audio than time passes is cut down to it.
	maxAhead = 10 * time.Second
)

// A sink takes a timeline's packets, for each direction one after the other and
// without gaps. at is where the packet begins. Filling is no packet of the
// session; fresh is the first packet after filling, or of all.
type sink func(p placed)

type placed struct {
	direction direction
	at        time.Duration
	opus      []byte // valid during the call
	length    time.Duration
	filling   bool
	fresh     bool
}

// A track is one direction of a timeline.
type track struct {
	end       time.Duration // where the next packet goes
	model     []byte        // the last packet's beginning, "" before the first
	length    time.Duration // of the last packet
	concealed time.Duration // of the gap being filled
	sequence  uint32        // of the last packet, if any
	fresh     bool          // nothing, or filling, came last
}

// A timeline puts the packets of both directions where they belong in time. It
// is not safe for concurrent use.
type timeline struct {
	sink    sink
	stats   *counters
	tracks  [directions]track
	held    []*packet // of both directions, in order; at most maxHeld
	done    []*packet // what advance returns
	scratch []byte    // for filling
}

func newTimeline(s sink, stats *counters) *timeline {
	l := &timeline{sink: s, stats: stats}
	for i := range l.tracks {
		l.tracks[i].fresh = true
	}
	return l
}

// add takes a packet and keeps it until it is returned by advance or finish. It
// reports false, and does not keep it, if the packet is bad or late.
func (l *timeline) add(p *packet) bool {
	length, err := audio.Duration(p.opus)
	if err != nil {
		l.stats.bad.Add(1)
		return false
	}
	p.length = length
	i, ok := l.position(p)
	if !ok {
		l.stats.late.Add(1)
		return false
	}
	l.held = append(l.held, nil)
	copy(l.held[i+1:], l.held[i:])
	l.held[i] = p
	return true
}

// position is where p belongs among the packets that wait: behind all of them,
// unless it was overtaken. It reports false if its place is taken or gone.
func (l *timeline) position(p *packet) (int, bool) {
	at := len(l.held)
	if p.direction == down {
		return at, true
	}
	if t := &l.tracks[up]; t.model != nil && p.sequence <= t.sequence {
		return 0, false
	}
	for i := len(l.held) - 1; i >= 0; i-- {
		other := l.held[i]
		if other.direction != up {
			continue
		}
		if other.sequence == p.sequence {
			return 0, false
		}
		if other.sequence < p.sequence {
			break
		}
		at = i
		p.at = min(p.at, other.at) // so that nobody waits longer than hold
	}
	return at, true
}

// due is when advance has something to do, false if it has not.
func (l *timeline) due() (time.Duration, bool) {
	if len(l.held) == 0 {
		return 0, false
	}
	return l.held[0].at + hold, true
}

// advance places the packets that have waited long enough at the time now and
// returns them; the slice is valid until the next call.
func (l *timeline) advance(now time.Duration) []*packet {
	l.done = l.done[:0]
	for len(l.held) > 0 && (l.held[0].at+hold <= now || len(l.held) > maxHeld) {
		p := l.held[0]
		l.place(p, l.held[1:])
		l.done = append(l.done, p)
		copy(l.held, l.held[1:])
		l.held = l.held[:len(l.held)-1]
	}
	return l.done
}

// finish places all packets, and fills both tracks up to now, or to the end of
// the longer.
func (l *timeline) finish(now time.Duration) []*packet {
	done := l.advance(now + hold)
	if l.tracks[up].model == nil && l.tracks[down].model == nil {
		return done // nothing was said
	}
	end := max(now, l.tracks[up].end, l.tracks[down].end)
	l.fill([directions]time.Duration{end, end})
	return done
}

// place puts a packet at its place, with a gap before it if there is one. The
// packets that wait behind it say how late it may be.
func (l *timeline) place(p *packet, behind []*packet) {
	t := &l.tracks[p.direction]
	if t.end-p.at > maxAhead {
		l.stats.ahead.Add(1)
		return
	}
	var to [directions]time.Duration
	to[p.direction] = t.end + t.gap(p, behind)
	to[1-p.direction] = p.at - catchUp
	l.fill(to)
	t.concealed = 0
	t.length, t.sequence = p.length, p.sequence
	t.model = append(t.model[:0], p.opus[:min(2, len(p.opus))]...)
	l.stats.packets.Add(1)
	l.emit(placed{direction: p.direction, opus: p.opus, length: p.length})
}

// gap is how much is missing before p.
func (t *track) gap(p *packet, behind []*packet) time.Duration {
	if p.direction == down {
		if missing := p.at - t.end; missing >= pause {
			return missing
		}
		return 0
	}
	// A packet cannot come before its audio has ended. The packet that was held
	// up least says how much is missing before all.
	missing := p.at - p.length - t.end
	before := p.length
	for _, b := range behind {
		if b.direction == up {
			missing = min(missing, b.at-b.length-before-t.end)
			before += b.length
		}
	}
	var lost time.Duration
	if t.model != nil {
		// Some clients count by two, so that a missing number alone means
		// nothing: the time has to be missing too.
		n := (missing + p.length/2) / p.length
		lost = max(0, min(n, time.Duration(p.sequence-t.sequence-1))) * p.length
	}
	if missing-lost >= max(pause, p.length) {
		return missing
	}
	return lost
}

// fill fills both tracks up to a position each, to within a tick, and long gaps
// by turns.
func (l *timeline) fill(to [directions]time.Duration) {
	for at := min(l.tracks[up].end, l.tracks[down].end) + step; ; at += step {
		done := true
		for d := range l.tracks {
			limit := to[d]
			if limit-l.tracks[d].end > step {
				limit = min(limit, at)
				done = false
			}
			l.fillTrack(direction(d), limit)
		}
		if done {
			return
		}
	}
}

// fillTrack fills one track, as the package's documentation says.
func (l *timeline) fillTrack(d direction, to time.Duration) {
	t := &l.tracks[d]
	for t.model != nil && t.concealed+t.length <= concealFor && t.end+t.length <= to {
		l.scratch = appendConcealment(l.scratch[:0], t.model)
		t.concealed += t.length
		l.emit(placed{direction: d, opus: l.scratch, length: t.length, filling: true})
	}
	for {
		var length time.Duration
		l.scratch, length = appendSilence(l.scratch[:0], to-t.end)
		if length == 0 {
			return
		}
		t.concealed = concealFor
		l.emit(placed{direction: d, opus: l.scratch, length: length, filling: true})
	}
}

// emit hands a packet on, at the end of its track.
func (l *timeline) emit(p placed) {
	t := &l.tracks[p.direction]
	p.at = t.end
	p.fresh = t.fresh && !p.filling
	t.end += p.length
	t.fresh = p.filling
	l.sink(p)
}
