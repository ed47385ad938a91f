package tts

import (
	"context"
	"io"
	"strings"
	"sync"
)

// A run is one program under way. Its goroutine waits for the program, so that
// the program ends, and lets the next one begin, however slowly the caller reads.
type run struct {
	output *spool
	cancel context.CancelFunc
	done   chan struct{} // closed when the program and the goroutine are gone
	err    error         // how the program failed, set before done is closed
}

// start runs the program for a sentence. The caller calls stop.
func (c *command) start(ctx context.Context, sentence string) *run {
	ctx, cancel := context.WithCancel(ctx)
	r := &run{output: newSpool(), cancel: cancel, done: make(chan struct{})}
	args, input := c.arguments(sentence)
	var stdin io.Reader
	if input != "" {
		stdin = strings.NewReader(input)
	}
	go func() {
		defer close(r.done)
		defer r.output.end()
		r.err = c.program.Run(ctx, args, stdin, r.output, MaxSpeech)
	}()
	return r
}

// wait waits for the program to end and returns how it failed. The output is
// complete by then.
func (r *run) wait() error {
	<-r.done
	return r.err
}

// stop kills the program and whatever it started, and waits for the program.
func (r *run) stop() {
	r.cancel()
	<-r.done
}

// A spool holds a program's output until it is read; the program is bounded.
// One goroutine writes and one reads.
type spool struct {
	more chan struct{} // holds a token when there is something new to see

	mu    sync.Mutex
	data  []byte
	read  int
	ended bool
}

func newSpool() *spool { return &spool{more: make(chan struct{}, 1)} }

// Write implements [io.Writer].
func (s *spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data = append(s.data, p...)
	s.wake()
	return len(p), nil
}

// end says that nothing more will be written.
func (s *spool) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.wake()
}

func (s *spool) wake() {
	select {
	case s.more <- struct{}{}:
	default: // the reader has yet to see the token that is there
	}
}

// Read implements [io.Reader]. It waits for the writer, whose end is certain.
func (s *spool) Read(p []byte) (int, error) {
	for {
		s.mu.Lock()
		n := copy(p, s.data[s.read:])
		s.read += n
		ended := s.ended
		s.mu.Unlock()
		switch {
		case n > 0:
			return n, nil
		case ended:
			return 0, io.EOF
		}
		<-s.more
	}
}
