package device

import (
	"context"
	"sync"
	"time"
)

// dma is how much decoded audio the hardware holds: six buffers of 240 samples
// at 24 kHz (AUDIO_CODEC_DMA_DESC_NUM, AUDIO_CODEC_DMA_FRAME_NUM).
const dma = 60 * time.Millisecond

// pyBuffer is py-xiaozhi's FIFO; when it is full the oldest audio goes.
const pyBuffer = 10 * time.Second

// A packet is one received frame on its way to the speaker.
type packet struct {
	payload     []byte
	timestamp   uint32
	duration    time.Duration
	reply       int  // how many tts starts the device had acted on
	sentence    int  // how many sentence_starts had arrived
	interrupted bool // the user has asked for it to stop
}

// A loss is why a queued packet is never heard.
type loss int

const (
	lossStart loss = iota // the reset that follows tts start
	lossStop              // tts stop
	lossAbort             // the user
)

// A speaker is the way from the decode queue to the ear. Its run goroutine is
// the firmware's output task; the other methods may be called concurrently.
type speaker struct {
	traits  traits
	decode  func(payload []byte, d time.Duration, reset bool) ([]int16, error) // nil: count only
	hear    func(at time.Time, pcm []int16)                                    // nil: nobody listens
	started func(at time.Time, p packet)                                       // the first frame after silence or of a reply
	emptied func()                                                             // the queues are empty, the last frame is on its way
	silent  func()                                                             // everything has been heard

	mu         sync.Mutex
	queue      []packet // decode and playback queue in one: the first traits.playback are the latter
	queued     time.Duration
	reset      bool          // the decoder is to be reset before the next frame
	until      time.Time     // when everything written will have sounded
	last       packet        // the frame written last, while it sounds or after
	sounded    bool          // last is set and its reply goes on
	quiet      bool          // silent was called since the last frame
	written    uint32        // timestamp of the frame being written
	timestamps []uint32      // of frames written, for the server's echo canceller
	gap        time.Duration // of the last underrun; 0: none that could still prove a pause
	sentenceAt time.Time     // of the last sentence_start
	gapEnd     time.Time
	counts     speakerCounts

	wake  chan struct{} // capacity 1: the queue has changed
	empty chan struct{} // capacity 1: the queue has become empty
}

type speakerCounts struct {
	played, undecodable                int64
	start, stop, overflow, interrupted int64
	underruns, pauses                  int64
	sounding, underrunTime, pauseTime  time.Duration
}

// maxTimestamps is MAX_TIMESTAMPS_IN_QUEUE of the firmware.
const maxTimestamps = 3

func newSpeaker(t traits) *speaker {
	return &speaker{traits: t, quiet: true, wake: make(chan struct{}, 1), empty: make(chan struct{}, 1)}
}

// push queues a packet and reports whether there was room. A full queue refuses
// the packet that comes, silently, as the firmware does; py-xiaozhi instead
// forgets its oldest audio.
func (s *speaker) push(p packet) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.traits.py {
		for len(s.queue) > 0 && s.queued+p.duration > pyBuffer {
			s.overflow(s.queue[0])
			s.queued -= s.queue[0].duration
			s.queue = s.queue[1:]
		}
	} else if s.traits.queue > 0 && len(s.queue) >= s.traits.queue+s.traits.playback {
		s.overflow(p)
		return false
	}
	s.queue = append(s.queue, p)
	s.queued += p.duration
	s.quiet = false
	signal(s.wake)
	return true
}

func (s *speaker) overflow(p packet) {
	if p.interrupted {
		s.counts.interrupted++
		return
	}
	s.counts.overflow++
}

// flush discards what is queued and resets the decoder. The frame in flight and
// what the hardware holds are still heard.
func (s *speaker) flush(why loss) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.queue {
		switch {
		case p.interrupted || why == lossAbort:
			s.counts.interrupted++
		case why == lossStart:
			s.counts.start++
		default:
			s.counts.stop++
		}
	}
	s.queue, s.queued = nil, 0
	s.timestamps = nil
	s.reset = true
	signal(s.empty)
	signal(s.wake)
}

// interrupt notes that the user no longer wants what is queued or sounding.
func (s *speaker) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.queue {
		s.queue[i].interrupted = true
	}
	s.sounded = false
}

// sentenceSkew is how much later than the first audio of a sentence its
// sentence_start may arrive: they travel by UDP and by TCP.
const sentenceSkew = 100 * time.Millisecond

// sentenceStarts notes a sentence_start. The gap it comes just after was then a
// pause between sentences.
func (s *speaker) sentenceStarts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gap > 0 && time.Since(s.gapEnd) <= sentenceSkew {
		s.counts.underruns--
		s.counts.underrunTime -= s.gap
		s.counts.pauses++
		s.counts.pauseTime += s.gap
	}
	s.gap, s.sentenceAt = 0, time.Now()
}

// isEmpty reports whether both queues are empty.
func (s *speaker) isEmpty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) == 0
}

// isSilent reports whether everything has been heard.
func (s *speaker) isSilent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) == 0 && s.quiet
}

// waitEmpty waits until both queues are empty. Only the main task calls it.
func (s *speaker) waitEmpty(ctx context.Context) {
	for !s.isEmpty() {
		select {
		case <-s.empty:
		case <-ctx.Done():
			return
		}
	}
}

// echo is the timestamp a microphone packet carries for the server's echo
// canceller: the oldest of those waiting, or 0 where more than maxTimestamps
// wait, which also discards one.
func (s *speaker) echo() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.timestamps) == 0 {
		return 0
	}
	var ts uint32
	if len(s.timestamps) <= maxTimestamps {
		ts = s.timestamps[0]
	}
	s.timestamps = s.timestamps[1:]
	return ts
}

// run plays what is queued until ctx ends.
func (s *speaker) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		wait, playing := s.step()
		wake := s.wake
		if playing {
			if wait <= 0 {
				continue // the hardware took the whole frame at once
			}
			wake = nil // the output task is writing: nothing new matters to it
		}
		var elapsed <-chan time.Time
		if wait > 0 {
			timer.Reset(wait)
			elapsed = timer.C
		}
		select {
		case <-ctx.Done():
		case <-elapsed:
		case <-wake:
		}
	}
}

// step writes the next frame to the hardware and returns how long the write
// takes; or, with nothing to write, how long what was written still sounds.
func (s *speaker) step() (wait time.Duration, playing bool) {
	now := time.Now()
	s.mu.Lock()
	s.remember()
	if len(s.queue) == 0 {
		wait = s.until.Sub(now)
		tell := wait <= 0 && !s.quiet
		if tell {
			s.quiet = true
		}
		s.mu.Unlock()
		if tell {
			s.silent()
		}
		return wait, false
	}
	p := s.queue[0]
	s.queue = s.queue[1:]
	s.queued -= p.duration
	empty, reset := len(s.queue) == 0, s.reset
	s.reset = false
	s.mu.Unlock()

	pcm, ok := s.decoded(p, reset)
	if ok {
		wait = s.write(now, p, pcm)
	}
	if empty {
		signal(s.empty)
		s.emptied()
	}
	return wait, true
}

// remember queues the timestamp of the frame whose write has just ended.
func (s *speaker) remember() {
	if s.written > 0 {
		s.timestamps = append(s.timestamps, s.written)
		if len(s.timestamps) > 4*maxTimestamps {
			s.timestamps = s.timestamps[1:] // no microphone takes them
		}
	}
	s.written = 0
}

// decoded turns a packet into PCM. A packet the decoder refuses takes no time.
func (s *speaker) decoded(p packet, reset bool) ([]int16, bool) {
	var pcm []int16
	err := errFrame
	if frameLegal(p.duration) {
		if s.decode == nil {
			return nil, true
		}
		pcm, err = s.decode(p.payload, p.duration, reset)
	}
	if err != nil {
		s.mu.Lock()
		s.counts.undecodable++
		s.mu.Unlock()
		return nil, false
	}
	return pcm, true
}

// write gives a frame to the hardware and returns how long that blocks.
func (s *speaker) write(now time.Time, p packet, pcm []int16) time.Duration {
	s.mu.Lock()
	at := s.until
	if now.After(at) {
		at = now
	}
	fresh := !s.sounded || s.last.reply != p.reply
	if gap := at.Sub(s.until); gap > 0 && !fresh && !p.interrupted {
		if s.last.sentence != p.sentence || at.Sub(s.sentenceAt) <= sentenceSkew {
			s.counts.pauses++
			s.counts.pauseTime += gap
		} else {
			s.counts.underruns++
			s.counts.underrunTime += gap
			s.gap, s.gapEnd = gap, at
		}
	}
	s.until = at.Add(p.duration)
	s.last, s.sounded = p, !p.interrupted
	s.counts.played++
	s.counts.sounding += p.duration
	s.written = p.timestamp
	wait := s.until.Sub(now) - dma
	s.mu.Unlock()
	if fresh && !p.interrupted {
		s.started(at, p)
	}
	if s.hear != nil && pcm != nil {
		s.hear(at, pcm)
	}
	return wait
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// report adds the speaker's counts to r.
func (s *speaker) report(r *Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	r.Played, r.Sounding, r.Undecodable = c.played, c.sounding, c.undecodable
	r.Queued = int64(len(s.queue))
	r.ClippedStart, r.ClippedStop, r.ClippedOverflow = c.start, c.stop, c.overflow
	r.Interrupted += c.interrupted
	r.Underruns, r.UnderrunTime = c.underruns, c.underrunTime
	r.Pauses, r.PauseTime = c.pauses, c.pauseTime
}
