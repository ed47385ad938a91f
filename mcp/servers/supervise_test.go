package servers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// idle returns a server that the test supervises with sessions of its own.
func idle(t *testing.T) *Server {
	t.Helper()
	s, err := New(Config{Name: "a", Command: "sh"}, Options{}, new(logbook).logger())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPauses has a server that always fails: the pauses double from one second
// to ten minutes, less up to a quarter.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := idle(t)
		broken := errors.New("broken")
		var ended time.Time
		want := firstPause
		sessions := 0
		s.supervise(ctx, func(context.Context) error {
			if sessions++; sessions > 1 {
				if pause := time.Since(ended); pause <= want-want/4 || pause > want {
					t.Errorf("pause %d is %v, want up to %v", sessions-1, pause, want)
				}
				want = min(2*want, maxPause)
				if h := s.Health(); h.State != Starting || h.Restarts != sessions-1 || !errors.Is(h.Err, broken) {
					t.Errorf("in session %d health is %+v", sessions, h)
				}
			}
			if sessions == 14 {
				cancel()
			}
			ended = time.Now()
			return broken
		})
		if want != maxPause {
			t.Errorf("the last pause is %v", want)
		}
		if s.opts.Counters.Starts.Load() != 14 || s.opts.Counters.Failures.Load() != 13 {
			t.Errorf("counted %d starts, %d failures", s.opts.Counters.Starts.Load(), s.opts.Counters.Failures.Load())
		}
	})
}

// TestHealthResetsThePauses has sessions that were ready for a minute, and for a
// little less, each followed by one that fails at once.
func TestHealthResetsThePauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := idle(t)
		var ended time.Time
		steps := []struct{ ready, before time.Duration }{
			{0, 0}, {0, time.Second}, {healthyAfter - time.Millisecond, 2 * time.Second},
			{healthyAfter, 4 * time.Second}, {0, time.Second}, {0, 2 * time.Second},
		}
		n := 0
		s.supervise(ctx, func(context.Context) error {
			step := steps[n]
			if pause := time.Since(ended); n > 0 && (pause > step.before || pause <= step.before-step.before/4) {
				t.Errorf("the pause before session %d is %v, want up to %v", n, pause, step.before)
			}
			if n++; n == len(steps) {
				cancel()
			}
			if step.ready > 0 {
				s.note(true)
				if h := s.Health(); h.State != Ready || h.Err != nil {
					t.Errorf("ready, health is %+v", h)
				}
				time.Sleep(step.ready)
				s.note(false)
			}
			ended = time.Now()
			return errors.New("broken")
		})
		if h := s.Health(); h.State != Stopped {
			t.Errorf("at the end health is %+v", h)
		}
	})
}

// TestTheEndCutsAPause ends in the middle of one.
func TestTheEndCutsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		began := time.Now()
		idle(t).supervise(ctx, func(context.Context) error { return errors.New("broken") })
		if took := time.Since(began); took != 10*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}
