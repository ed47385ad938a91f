package audio

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// maxSharedFilters bounds the filters an EncoderPool keeps. Synthesizers in use
// have about ten rates among them.
const maxSharedFilters = 16

// An EncoderPool bounds how many packets a process encodes at once. Encoding is
// the only heavy work on the way of a packet, 0.1 to 0.5 ms at a time in C, and
// without a bound a hundred conversations that start to speak together would
// keep every processor from those that are speaking.
//
// It is safe for concurrent use, starts no goroutine and needs no closing.
type EncoderPool struct {
	slots chan struct{} // holds a token for each encode under way

	mu      sync.Mutex
	filters map[[2]int]*filter // by the pair of rates

	encodes, waits, waited atomic.Int64
}

// EncoderStats counts what an [EncoderPool] has done.
type EncoderStats struct {
	Encodes int64         // frames encoded or decoded for encoding
	Waits   int64         // of them, how many had to wait for another to end
	Waited  time.Duration // by all of them together
}

// NewEncoderPool returns a pool that encodes n packets at a time, or, for n less
// than one, as many as there are processors.
func NewEncoderPool(n int) *EncoderPool {
	if n < 1 {
		n = runtime.GOMAXPROCS(0)
	}
	return &EncoderPool{slots: make(chan struct{}, n), filters: make(map[[2]int]*filter)}
}

// Stats returns the counts since the pool was made.
func (p *EncoderPool) Stats() EncoderStats {
	return EncoderStats{
		Encodes: p.encodes.Load(),
		Waits:   p.waits.Load(),
		Waited:  time.Duration(p.waited.Load()),
	}
}

// do runs f when fewer than n others are running, in the order they came. It
// returns ctx's error if that ends first. Afterwards it lets others run: a voice
// that encodes a whole sentence would keep its processor for 10 ms, until it is
// preempted, and the packets of other conversations with it (docs/performance.md).
func (p *EncoderPool) do(ctx context.Context, f func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case p.slots <- struct{}{}:
	default:
		if err := p.wait(ctx); err != nil {
			return err
		}
	}
	defer func() { <-p.slots }()
	p.encodes.Add(1)
	f()
	runtime.Gosched()
	return nil
}

// wait takes a slot when one is free.
func (p *EncoderPool) wait(ctx context.Context) error {
	start := time.Now()
	p.waits.Add(1)
	defer func() { p.waited.Add(int64(time.Since(start))) }()
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// resampler returns a new resampler, whose filter others may share.
func (p *EncoderPool) resampler(in, out int) (*Resampler, error) {
	key := [2]int{in, out}
	p.mu.Lock()
	f := p.filters[key]
	p.mu.Unlock()
	if f != nil {
		return newResampler(f), nil
	}
	f, err := newFilter(in, out)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.filters) < maxSharedFilters {
		p.filters[key] = f
	}
	return newResampler(f), nil
}
