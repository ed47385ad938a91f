package servers

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// The pauses between sessions. The first is for a server that was restarted, the
// last for one that is gone for good and costs little then.
const (
	firstPause = time.Second
	maxPause   = 600 * time.Second
	// healthyAfter is how long a server must have been ready for its next
	// failure to count as the first.
	healthyAfter = time.Minute
)

// supervise holds one session after another until ctx ends.
func (s *Server) supervise(ctx context.Context, session func(context.Context) error) {
	pause := firstPause
	for ctx.Err() == nil {
		s.enter(Starting, nil)
		s.opts.Counters.Starts.Add(1)
		err := session(ctx)
		if ctx.Err() != nil {
			break
		}
		if err == nil {
			err = errors.New("the session ended")
		}
		if s.lasted() >= healthyAfter {
			pause = firstPause
		}
		// Servers that fail together shall not all come back together.
		wait := pause - rand.N(pause/4)
		pause = min(2*pause, maxPause)
		s.enter(Waiting, err)
		s.opts.Counters.Failures.Add(1)
		s.log.Warn("mcp server failed", "error", err, "retry_ms", wait.Milliseconds())
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	s.enter(Stopped, nil)
	s.log.Info("mcp server stopped")
}

// enter notes a new state. Starting keeps the error that led to it.
func (s *Server) enter(state string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case Starting:
		if s.health.State == Waiting {
			s.health.Restarts++
		}
		s.readyFor = 0
	default:
		s.health.Err = err
	}
	s.health.State, s.health.Since = state, time.Now()
}

// lasted is how long the last session was ready, 0 if it never was.
func (s *Server) lasted() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readyFor
}

// changed is called by the client after its tools came, changed or went, on the
// goroutine of Run.
func (s *Server) changed() {
	s.note(s.client.Ready())
	if s.opts.OnChange != nil {
		s.opts.OnChange()
	}
}

// note notes whether a session is up that has told its tools.
func (s *Server) note(ready bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ready && s.health.State != Ready:
		s.health.State, s.health.Since, s.health.Err = Ready, time.Now(), nil
	case !ready && s.health.State == Ready:
		s.readyFor = time.Since(s.health.Since)
		s.health.State, s.health.Since = Waiting, time.Now()
	}
}
