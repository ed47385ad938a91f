package builtin

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"parley/internal/protocol"
)

const (
	// recheck is how often the wall clock is looked at though nothing is due:
	// it may have been set, or the machine may have slept.
	recheck = time.Minute
	// maxWorkers bounds the devices that are being delivered to at once.
	maxWorkers = 64
	// deliverTimeout bounds one attempt.
	deliverTimeout = 30 * time.Second
	// firstDelay is the pause after an attempt that failed; it doubles up to
	// maxDelay. After retryFor a notice waits for the device to connect anew.
	firstDelay = 5 * time.Second
	maxDelay   = 2 * time.Minute
	retryFor   = 10 * time.Minute
)

// A delay spaces out attempts to deliver. The zero value is that of a notice
// that no attempt has failed for.
type delay struct {
	since time.Time // of the first failure
	pause time.Duration
	again time.Time // of the next attempt; zero if none is planned
}

// after returns the delay once an attempt has failed at now.
func (d delay) after(now time.Time) delay {
	if d.since.IsZero() {
		return delay{now, firstDelay, now.Add(firstDelay)}
	}
	d.pause = min(2*d.pause, maxDelay)
	d.again = now.Add(d.pause)
	if d.again.Sub(d.since) > retryFor {
		d.again = time.Time{}
	}
	return d
}

// A scheduler waits for what is due and sees it delivered.
type scheduler struct {
	book  *book
	house House
	words Words
	stats *counters
	log   *slog.Logger

	workers sync.WaitGroup
}

// run is the scheduler's goroutine. It ends with ctx, when no worker is left.
func (s *scheduler) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if wait, ok := s.book.tick(); ok {
			timer.Reset(min(wait, recheck))
		} else {
			timer.Stop()
		}
		for range s.book.employ() {
			s.workers.Go(func() { s.work(ctx) }) // ends when nothing is ready
		}
		select {
		case <-ctx.Done():
			s.workers.Wait()
			return
		case <-timer.C:
		case <-s.book.kick:
		}
	}
}

// employ returns how many more workers there shall be, and counts them. One that
// finds nothing to do ends at once.
func (b *book) employ() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.queue), maxWorkers-b.workers)
	b.workers += n
	return n
}

// A job is what one device is to be told.
type job struct {
	device protocol.DeviceID
	hellos int
	items  []item
}

type item struct {
	entry *entry
	record
}

// take returns the next job. If there is none, the worker that asks is counted
// out.
func (b *book) take() (job, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		b.workers--
		return job{}, false
	}
	j := job{device: b.queue[0]}
	b.queue = b.queue[1:]
	h := b.homes[j.device]
	j.hellos = h.hellos
	for _, e := range h.entries {
		if e.ready {
			j.items = append(j.items, item{e, e.record})
		}
	}
	slices.SortFunc(j.items, func(a, b item) int {
		return cmp.Or(a.Pending.Compare(b.Pending), cmp.Compare(a.ID, b.ID))
	})
	return j, true
}

// work delivers until nothing is ready.
func (s *scheduler) work(ctx context.Context) {
	for ctx.Err() == nil {
		j, ok := s.book.take()
		if !ok {
			return
		}
		s.deliver(ctx, j)
		s.book.done(j.device)
	}
}

// deliver brings what is due to one device, in its order. After a failure the
// rest would fare no better, and is not tried.
func (s *scheduler) deliver(ctx context.Context, j job) {
	var failure error
	for _, it := range j.items {
		if !s.book.current(it) {
			continue // cancelled, or too old, meanwhile
		}
		n := s.words.notice(it.record, it.Pending, s.book.now(), s.book.loc)
		n.Lost = func() { s.lost(it) }
		var way Way
		if failure == nil {
			attempt, cancel := context.WithTimeout(ctx, deliverTimeout)
			way, failure = s.house.Deliver(attempt, j.device, n)
			cancel()
		}
		if failure != nil && ctx.Err() != nil {
			return // it is in the file, and comes late
		}
		s.report(j, n, way, failure, s.book.settle(it, j.hellos, failure))
	}
}

// report counts and logs what came of an attempt.
func (s *scheduler) report(j job, n Notice, way Way, err error, next outcome) {
	log := s.log.With("device", string(j.device), "id", n.ID, "kind", string(n.Kind))
	switch {
	case err == nil:
		s.stats.delivered(way, n.Late)
		log.Info("notice delivered", "way", string(way), "late_by", s.book.now().Sub(n.Due).Round(time.Second))
	case next == waits:
		log.Info("notice waits for its device", "for_at_most", keepFor)
	case errors.Is(err, ErrAbsent):
	default:
		s.stats.refused.Add(1)
		if next == failed {
			log.Warn("notice not delivered; it is tried again", "error", err, "for", retryFor)
		} else if next == givenUp {
			log.Error("notice not delivered; it waits until the device connects anew", "error", err, "for_at_most", keepFor)
		}
	}
}

// lost sees to a notice that was delivered, as far as was known, and then was not.
func (s *scheduler) lost(it item) {
	if s.book.lost(it) {
		s.log.Info("notice came back undelivered; it is tried again", "device", string(it.Device), "id", it.ID, "kind", string(it.Kind))
	}
}

// current reports whether a notice is still to be delivered.
func (b *book) current(it item) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return it.entry.index >= 0 && it.entry.Pending.Equal(it.Pending)
}

// An outcome is what is logged of an attempt.
type outcome int

const (
	settled outcome = iota // nothing to be said
	waits                  // the device is absent, for the first time
	failed                 // another failure, for the first time
	givenUp                // no more attempts are planned
)

// settle keeps what came of an attempt. hellos is how often the device had
// connected when it began.
func (b *book) settle(it item, hellos int, err error) outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := it.entry
	if e.index < 0 || !e.Pending.Equal(it.Pending) {
		return settled // cancelled, given up, or due again meanwhile
	}
	e.ready = false
	result := settled
	switch {
	case err == nil && e.lost:
		b.again(e)
	case err == nil:
		e.Pending, e.delay, e.delivered = time.Time{}, delay{}, true
		b.changed()
		if e.Due.IsZero() {
			b.drop(e)
			return settled
		}
	case b.homes[e.Device].hellos != hellos:
		e.ready = true // it has come meanwhile
	case errors.Is(err, ErrAbsent):
		if !e.told {
			result = waits
		}
		e.delay, e.told = delay{}, true
	default:
		if e.since.IsZero() {
			result = failed
		}
		if e.delay = e.after(b.now()); e.again.IsZero() {
			result = givenUp
		}
		signal(b.kick)
	}
	b.reschedule(e)
	return result
}

// lost makes a notice pending again that was delivered. It reports false if that
// is of no use any more: it was cancelled before, or is due anew.
func (b *book) lost(it item) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := it.entry
	switch {
	case e.index >= 0 && e.Pending.Equal(it.Pending):
		e.lost = true // settle comes yet
		return true
	case e.index >= 0 && e.Pending.IsZero():
		e.Pending = it.Pending // it repeats
	case e.index < 0 && e.delivered:
		r := it.record
		r.Due = time.Time{}
		losses := e.losses
		e.delivered = false // once
		e = b.insert(r)
		e.losses = losses
	default:
		return false
	}
	b.again(e)
	b.reschedule(e)
	b.changed()
	signal(b.kick)
	return true
}

// again plans another attempt for what was lost. One that is lost again and again
// is tried ever more rarely, like one that is refused. mu is held.
func (b *book) again(e *entry) {
	e.losses = e.losses.after(b.now())
	e.delay, e.lost, e.told = e.losses, false, false
}

// done ends a worker's time with a device. What has become ready meanwhile goes
// to the end of the queue.
func (b *book) done(device protocol.DeviceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.homes[device]
	h.queued = false
	if len(h.entries) == 0 {
		delete(b.homes, device)
		return
	}
	for _, e := range h.entries {
		if e.ready {
			b.makeReady(e)
		}
	}
}
