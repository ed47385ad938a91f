package builtin

import "sync/atomic"

// Stats are the figures of the tools. All but Entries and Waiting only grow.
type Stats struct {
	Entries       uint64 // timers, alarms and reminders that are set, now
	Waiting       uint64 // of them, due and not delivered, now
	Set           uint64
	Spoken        uint64 // notices delivered, by their ways
	Called        uint64
	Shown         uint64
	Late          uint64 // of them, a minute or more after they were due
	Refused       uint64 // attempts to deliver that failed, absence not counted
	Dropped       uint64 // notices given up after 24 h
	Writes        uint64 // of the file
	WriteFailures uint64
	Fetched       uint64 // web pages read
	FetchRefused  uint64 // connections refused because of their address
}

type counters struct {
	set, spoken, called, shown, late, refused, dropped, writes, writeFailures, fetched, fetchRefused atomic.Uint64
}

// Stats returns the figures.
func (t *Tools) Stats() Stats {
	c := t.stats
	s := Stats{
		Set: c.set.Load(), Spoken: c.spoken.Load(), Called: c.called.Load(), Shown: c.shown.Load(),
		Late: c.late.Load(), Refused: c.refused.Load(), Dropped: c.dropped.Load(),
		Writes: c.writes.Load(), WriteFailures: c.writeFailures.Load(),
		Fetched: c.fetched.Load(), FetchRefused: c.fetchRefused.Load(),
	}
	s.Entries, s.Waiting = t.book.count()
	return s
}

// delivered counts a notice by its way.
func (c *counters) delivered(way Way, late bool) {
	switch way {
	case Spoken:
		c.spoken.Add(1)
	case Called:
		c.called.Add(1)
	case Shown:
		c.shown.Add(1)
	}
	if late {
		c.late.Add(1)
	}
}
