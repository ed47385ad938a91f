package record

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"parley/internal/protocol"
)

// flushEvery is how long what was written may stay in memory. Together with
// hold it is less than the second of audio that a crash may cost.
const flushEvery = 500 * time.Millisecond

// A Tap takes the audio of one session. Its methods never block, may be called
// concurrently, and do nothing on a nil Tap, which is what a session has that
// nobody listens in on.
type Tap struct {
	recorder *Recorder
	name     string // of the files, without extension
	device   protocol.DeviceID
	session  string
	opened   time.Time
	log      *slog.Logger

	queue   chan *packet // bounded by queueLength; what does not fit is dropped
	dropped atomic.Uint64
	closed  atomic.Bool
	ended   chan struct{}
	once    sync.Once
}

// Up takes a copy of one packet of the device, with the sequence number it came
// with. Packets may be out of order, repeated, missing, or empty, which means
// silence.
func (t *Tap) Up(sequence uint32, opus []byte) {
	if t != nil {
		t.put(up, sequence, opus)
	}
}

// Down takes a copy of one packet sent to the device.
func (t *Tap) Down(opus []byte) {
	if t != nil {
		t.put(down, 0, opus)
	}
}

func (t *Tap) put(d direction, sequence uint32, opus []byte) {
	if t.closed.Load() || len(opus) == 0 {
		return // an empty packet is a gap, and gaps are filled
	}
	if len(opus) > maxPacket {
		t.recorder.stats.bad.Add(1)
		return
	}
	p := t.recorder.packets.Get().(*packet)
	p.set(d, sequence, time.Since(t.opened), opus)
	select {
	case t.queue <- p:
	default:
		t.recorder.packets.Put(p)
		t.recorder.stats.dropped.Add(1)
		t.dropped.Add(1)
	}
}

// Close ends the tap. It returns at once; the file is completed on the tap's
// goroutine, for which [Recorder.Close] waits. Further calls do nothing.
func (t *Tap) Close() {
	if t != nil {
		t.end()
	}
}

func (t *Tap) end() {
	t.once.Do(func() {
		t.closed.Store(true)
		close(t.ended)
	})
}

// run is the tap's goroutine. It ends after end was called.
func (t *Tap) run() {
	defer t.recorder.forget(t)
	out := newOutput(t)
	line := newTimeline(out.write, &t.recorder.stats)
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		wait := flushEvery
		if at, ok := line.due(); ok {
			wait = min(wait, at-time.Since(t.opened))
		} else if out.clean() {
			wait = time.Hour // nothing to do before the next packet
		}
		due.Reset(wait)
		select {
		case p := <-t.queue:
			t.take(line, p)
		case <-due.C:
		case <-t.ended:
			t.finish(line, out)
			return
		}
		for _, p := range line.advance(time.Since(t.opened)) {
			t.recorder.packets.Put(p)
		}
		out.flush(time.Since(t.opened))
	}
}

func (t *Tap) take(line *timeline, p *packet) {
	if !line.add(p) {
		t.recorder.packets.Put(p)
	}
}

// finish takes what is left in the queue and completes the file.
func (t *Tap) finish(line *timeline, out *output) {
	end := time.Since(t.opened)
	for len(t.queue) > 0 {
		t.take(line, <-t.queue)
	}
	for _, p := range line.finish(end) {
		t.recorder.packets.Put(p)
	}
	out.close()
}
