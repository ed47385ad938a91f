package doctor

import (
	"slices"
	"time"
)

// A line is what became of the sounds sent over it.
type line struct {
	sent    []time.Time // by number
	arrived []arrival   // in the order they came back
	refused bool        // the system was told that nobody listens there
}

// An arrival is a sound that came back.
type arrival struct {
	number uint32 // of ours
	seq    uint32 // of the server's packet
	at     time.Time
}

// Figures are what was measured of a line.
type figures struct {
	Sent      int
	LostThere int // never reached the server, or were refused by it
	LostBack  int // were sent back and did not arrive
	Swapped   int // overtook one another, either way
	Repeated  int
	Least     time.Duration // round trip
	Median    time.Duration
	Most      time.Duration
	Jitter    time.Duration // mean change of the round trip from one to the next
}

// figures computes them. The server numbers what it sends without gaps, so that
// a gap in its numbers is a loss on the way back; what it never numbered was lost
// on the way there.
func (l *line) figures() figures {
	f := figures{Sent: len(l.sent)}
	seen := map[uint32]bool{}
	var trips []time.Duration
	var highest, lastNumber uint32
	var jitter time.Duration
	for i, a := range l.arrived {
		if seen[a.number] || int(a.number) >= len(l.sent) {
			f.Repeated++
			continue
		}
		seen[a.number] = true
		if i > 0 && a.number < lastNumber {
			f.Swapped++
		}
		lastNumber = max(lastNumber, a.number)
		highest = max(highest, a.seq)
		trip := a.at.Sub(l.sent[a.number])
		if len(trips) > 0 {
			jitter += (trip - trips[len(trips)-1]).Abs()
		}
		trips = append(trips, trip)
	}
	// A server that numbers in its own way must not make the sums negative.
	f.LostBack = min(max(int(highest)-len(trips), 0), f.Sent-len(trips))
	f.LostThere = f.Sent - len(trips) - f.LostBack
	if len(trips) == 0 {
		return f
	}
	if len(trips) > 1 {
		f.Jitter = jitter / time.Duration(len(trips)-1)
	}
	slices.Sort(trips)
	f.Least, f.Median, f.Most = trips[0], trips[len(trips)/2], trips[len(trips)-1]
	return f
}

// lost is the share of sounds that did not come back, in percent.
func (f figures) lost() float64 {
	if f.Sent == 0 {
		return 0
	}
	return 100 * float64(f.LostThere+f.LostBack) / float64(f.Sent)
}

// Bounds of what is good. Losses are heard from about one in a hundred on, and
// speech is hard to follow from one in ten. Devices play without a jitter buffer,
// so that packets that vary by more than the server's lead are gaps.
const (
	lossHeard  = 1.0  // %
	lossTooBig = 10.0 // %
	defaultGap = 180 * time.Millisecond
	slowTrip   = 400 * time.Millisecond
)

// report says what the figures mean to somebody who listens.
func (f figures) report(r *Report) {
	const check = "quality"
	lost := f.lost()
	detail := [...]any{f.Sent, f.LostThere, f.LostBack, f.Swapped, f.Repeated, ms(f.Least), ms(f.Median), ms(f.Most), ms(f.Jitter)}
	const figuresText = "%d packets, lost %d there and %d back, out of order %d, repeated %d; round trip %v / %v / %v (least / median / most), jitter %v"
	switch {
	case lost > lossTooBig:
		r.fail(check, "move the device nearer to its access point, use 2.4 GHz without other traffic, or look for a congested link", figuresText, detail[:]...)
	case lost > lossHeard:
		r.warn(check, "some words will have holes: look at the Wi-Fi", figuresText, detail[:]...)
	case f.Most-f.Least > defaultGap:
		r.warn(check, "the network's delay varies by more than the default [speech] lead: raise it to at least "+roundUp(f.Most-f.Least).String(), figuresText, detail[:]...)
	case f.Swapped > 0:
		r.warn(check, "devices drop what comes late: look for load balancing over several links", figuresText, detail[:]...)
	case f.Median > slowTrip:
		r.warn(check, "answers start late by this: run Parley nearer to the devices", figuresText, detail[:]...)
	default:
		r.ok(check, figuresText, detail[:]...)
	}
}

// roundUp rounds up to whole frames of 60 ms, in which a lead is spent.
func roundUp(d time.Duration) time.Duration {
	const frame = 60 * time.Millisecond
	return (d + frame - 1) / frame * frame
}

// ms rounds for people.
func ms(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}
