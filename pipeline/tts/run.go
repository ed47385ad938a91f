package tts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// pipeDelay is how long after a program's end its output is still read, if a
// child of it holds the pipe open.
const pipeDelay = time.Second

// A run is one program under way. Its goroutine waits for the program, so that
// the program ends, and lets the next one begin, however slowly the caller reads.
type run struct {
	output *spool
	cancel context.CancelFunc
	done   chan struct{} // closed when the program and the goroutines are gone
	err    error         // how the program failed, set before done is closed
}

// start runs the program for a sentence. The caller has taken a slot, which the
// run gives back, and calls stop.
func (c *command) start(ctx context.Context, sentence string) *run {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	r := &run{output: newSpool(cancel), cancel: cancel, done: make(chan struct{})}
	args, input := c.arguments(sentence)
	var messages tail
	cmd := exec.CommandContext(ctx, c.program, args...)
	cmd.Env = c.cfg.Env
	if input != "" {
		cmd.Stdin = strings.NewReader(input)
	}
	cmd.Stdout = r.output
	cmd.Stderr = &messages
	cmd.WaitDelay = pipeDelay
	// A group of its own, so that what the program starts dies with it, and so
	// that an interrupt typed at the server's terminal is the server's alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return killGroup(cmd) }
	err := cmd.Start()
	go func() {
		defer close(r.done)
		defer func() { <-c.slots }()
		defer r.output.end()
		if err == nil {
			err = cmd.Wait()
			// What the program left behind holds the group's id, which therefore
			// belongs to nobody else; if it left nothing behind, nobody is hit.
			_ = killGroup(cmd)
		}
		r.err = c.failure(ctx, err, &messages, r.output)
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

// failure explains how a program ended.
func (c *command) failure(ctx context.Context, err error, messages *tail, output *spool) error {
	name := c.cfg.Command[0]
	switch {
	case output.overflowed():
		return fmt.Errorf("%s was stopped: %w than %d bytes for one sentence", name, errTooMuch, MaxSpeech)
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%s was stopped after %v, see timeout", name, c.cfg.Timeout)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	if line := messages.lastLine(); line != "" {
		return fmt.Errorf("%s failed: %w: %s", name, err, line)
	}
	return fmt.Errorf("%s failed: %w", name, err)
}

// killGroup kills the process group that the command leads.
func killGroup(cmd *exec.Cmd) error {
	return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
}

// A spool holds a program's output, at most [MaxSpeech] of it, until it is read.
// One goroutine writes and one reads.
type spool struct {
	more chan struct{} // holds a token when there is something new to see
	stop func()        // stops the program

	mu    sync.Mutex
	data  []byte
	read  int
	ended bool
	over  bool // something was not held
}

func newSpool(stop func()) *spool { return &spool{more: make(chan struct{}, 1), stop: stop} }

// Write implements [io.Writer]. When there is too much it stops the program.
func (s *spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.data)+len(p) > MaxSpeech {
		s.over = true
		s.stop()
		return 0, errTooMuch
	}
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

// overflowed reports whether something was not held.
func (s *spool) overflowed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
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

// tailBytes is how much of a program's messages is kept, in bytes: its end.
const tailBytes = 2 << 10

// A tail keeps the end of what is written to it. It is read after the writer has
// finished.
type tail struct{ data []byte }

// Write implements [io.Writer]. It does not fail.
func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if drop := len(t.data) - tailBytes; drop > 0 {
		t.data = append(t.data[:0], t.data[drop:]...)
	}
	return len(p), nil
}

// lastLine returns the last line that is not empty, at most 200 bytes of it.
func (t *tail) lastLine() string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(t.data), "?"))
	line := oneLine(text[strings.LastIndexByte(text, '\n')+1:])
	return strings.ToValidUTF8(line[:min(len(line), 200)], "")
}
