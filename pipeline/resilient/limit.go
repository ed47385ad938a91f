package resilient

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Limits bound how long a provider may keep its caller waiting. Time in which
// the caller is busy with an item does not count.
type Limits struct {
	// First bounds the wait for the first item: from the call for a Model and a
	// Synthesizer, from the end of the input for a Transcriber and a Voice,
	// which have nothing to say before. 0 is [DefaultFirst].
	First time.Duration
	// Idle bounds the wait for every further item and for the end. 0 is
	// [DefaultIdle].
	Idle time.Duration
}

// The limits used where none are given. Someone who has asked a question takes
// five seconds of silence for a broken device.
const (
	DefaultFirst = 5 * time.Second
	DefaultIdle  = 15 * time.Second
)

// ErrTooSlow reports that a provider exceeded a time limit.
var ErrTooSlow = errors.New("the provider is too slow")

func (l Limits) orDefault() Limits {
	if l.First <= 0 {
		l.First = DefaultFirst
	}
	if l.Idle <= 0 {
		l.Idle = DefaultIdle
	}
	return l
}

// A watch cancels a provider's context when a limit is exceeded. It is used from
// the caller's goroutine and, for input, from the one that feeds the provider.
type watch struct {
	limits Limits
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	timer    *time.Timer // made when first needed
	deadline time.Time   // of this turn, if that counts; the timer may fire late and into the next
	waiting  bool        // the provider's turn: it has control, not the caller
	counts   bool        // waiting counts, because all input is there
	yielded  bool        // an item was yielded while waiting counted
	expired  error       // the limit that was exceeded
}

// newWatch returns a watch of a provider whose turn begins now. fed says that
// its input arrives over time and that inputEnded will be called.
func newWatch(limits Limits, cancel context.CancelCauseFunc, fed bool) *watch {
	w := &watch{limits: limits, cancel: cancel, counts: !fed}
	w.resume()
	return w
}

// inputEnded says that the provider has been given all its input.
func (w *watch) inputEnded() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts = true
	w.start()
}

// pause ends the provider's turn and returns the limit it has exceeded, if any.
func (w *watch) pause() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting, w.yielded = false, w.counts
	if w.timer != nil {
		w.timer.Stop()
	}
	return w.expired
}

// resume begins the provider's next turn.
func (w *watch) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = true
	w.start()
}

// limit returns the limit that applies to this turn. The caller holds mu.
func (w *watch) limit() time.Duration {
	if w.yielded {
		return w.limits.Idle
	}
	return w.limits.First
}

// start starts the time of this turn, if it counts. The caller holds mu.
func (w *watch) start() {
	if !w.waiting || !w.counts {
		return
	}
	w.deadline = time.Now().Add(w.limit())
	if w.timer == nil {
		w.timer = time.AfterFunc(w.limit(), w.expire)
		return
	}
	w.timer.Reset(w.limit())
}

// expire is called by the timer.
func (w *watch) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.waiting || time.Now().Before(w.deadline) {
		return
	}
	what := "for its first item"
	if w.yielded {
		what = "between items"
	}
	w.expired = fmt.Errorf("%w: it took longer than %v %s", ErrTooSlow, w.limit(), what)
	w.cancel(w.expired)
}
