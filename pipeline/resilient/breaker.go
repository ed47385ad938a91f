package resilient

import (
	"sync"
	"time"
)

const (
	// BreakerFailures is how many failures in a row open a breaker.
	BreakerFailures = 3
	// BreakerRest is how long an open breaker lets its provider rest before it
	// is tried again.
	BreakerRest = 30 * time.Second
)

// A State is what a [Breaker] lets through.
type State int

// The states of a breaker. Their values are stable: metrics export them.
const (
	Closed   State = iota // everything
	HalfOpen              // one call, to see whether the provider has recovered
	Open                  // nothing
)

// String returns the state's name as metrics and logs write it.
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case HalfOpen:
		return "half_open"
	}
	return "open"
}

// A Breaker remembers how one provider has fared, so that conversations do not
// each wait for one that is down. It opens after [BreakerFailures] failures in a
// row, whichever calls they belong to, and after [BreakerRest] lets a single call
// through, whose outcome closes it or opens it again.
//
// The zero Breaker is closed. It is safe for concurrent use and must not be
// copied. Chains that use the same provider may share its breaker.
type Breaker struct {
	mu       sync.Mutex
	failures int       // in a row
	until    time.Time // when an open breaker may be tried; zero when closed
	trying   bool      // the one call of a half-open breaker is under way
}

// State returns what the breaker lets through now.
func (b *Breaker) State() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state()
}

func (b *Breaker) state() State {
	switch {
	case b.until.IsZero():
		return Closed
	case time.Now().Before(b.until):
		return Open
	}
	return HalfOpen
}

// An outcome is how a call went, as far as it tells about the provider.
type outcome int

const (
	succeeded outcome = iota
	failed
	undecided // the user ended it, or the request was at fault
)

// allow asks for leave to call the provider. Given leave, the caller reports the
// outcome with report, passing trial back.
func (b *Breaker) allow() (trial, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.state() {
	case Closed:
		return false, true
	case HalfOpen:
		if !b.trying {
			b.trying = true
			return true, true
		}
	}
	return false, false
}

// report says how a call went and returns whether that opened or closed the
// breaker. A call begun before the breaker opened says nothing once it is open:
// the trial decides.
func (b *Breaker) report(trial bool, o outcome) (changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if trial {
		b.trying = false
	} else if !b.until.IsZero() {
		return false
	}
	switch o {
	case succeeded:
		b.failures, b.until = 0, time.Time{}
		return trial
	case failed:
		b.failures++
		if trial || b.failures >= BreakerFailures {
			b.until = time.Now().Add(BreakerRest)
			return true
		}
	}
	return false
}
