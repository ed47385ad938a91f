package asr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unicode"
)

const (
	// DefaultTimeout is how long a program may take for one utterance where
	// nothing is configured.
	DefaultTimeout = 30 * time.Second
	// maxOutput bounds what a program may write about one utterance, in bytes:
	// far more than anybody says in [MaxUtterance].
	maxOutput = 64 << 10
	// pipeDelay is how long after a program's end its output is still read, if a
	// child of it holds the pipe open.
	pipeDelay = time.Second
	// tailBytes is how much of a program's messages is kept, in bytes: its end.
	tailBytes = 2 << 10
)

var errTooMuch = errors.New("it writes more")

// A program is something to run once for each utterance.
type program struct {
	name    string // as configured, for errors
	path    string
	env     []string
	timeout time.Duration
}

// run runs the program in a process group of its own and returns what it wrote
// to standard output. When run returns, all processes of the group are gone.
// It blocks until then; the goroutines that copy its output end before it does.
func (p *program) run(ctx context.Context, args []string, stdin io.Reader) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	output := bounded{stop: cancel}
	var messages tail
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.Env = p.env
	cmd.Stdin = stdin
	cmd.Stdout = &output
	cmd.Stderr = &messages
	cmd.WaitDelay = pipeDelay
	// A group of its own, so that what the program starts dies with it, and so
	// that an interrupt typed at the server's terminal is the server's alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return killGroup(cmd) }
	err := cmd.Start()
	if err == nil {
		err = cmd.Wait()
		// What the program left behind holds the group's id, which therefore
		// belongs to nobody else; if it left nothing behind, nobody is hit.
		_ = killGroup(cmd)
	}
	return output.data, p.failure(ctx, err, &output, &messages)
}

// failure explains how a run ended.
func (p *program) failure(ctx context.Context, err error, output *bounded, messages *tail) error {
	switch {
	case output.over:
		return fmt.Errorf("%s was stopped: %w than %d bytes for one utterance", p.name, errTooMuch, maxOutput)
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%s was stopped after %v, see timeout", p.name, p.timeout)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	if line := messages.lastLine(); line != "" {
		return fmt.Errorf("%s failed: %w: %s", p.name, err, line)
	}
	return fmt.Errorf("%s failed: %w", p.name, err)
}

// killGroup kills the process group that the command leads.
func killGroup(cmd *exec.Cmd) error {
	return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
}

// A bounded holds what is written to it, at most [maxOutput], and stops a
// program that writes more. It is read after the writer has finished.
type bounded struct {
	data []byte
	over bool
	stop func()
}

// Write implements [io.Writer].
func (b *bounded) Write(p []byte) (int, error) {
	if len(b.data)+len(p) > maxOutput {
		b.over = true
		b.stop()
		return 0, errTooMuch
	}
	b.data = append(b.data, p...)
	return len(p), nil
}

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
	line := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text[strings.LastIndexByte(text, '\n')+1:])
	return strings.ToValidUTF8(strings.TrimSpace(line[:min(len(line), 200)]), "")
}

// passedEnv returns what of the server's environment a program needs to run at
// all: where programs, libraries and models are, and the language. The rest may
// hold keys.
func passedEnv(environ []string) []string {
	var passed []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		switch name {
		case "PATH", "HOME", "LANG", "LANGUAGE", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "XDG_DATA_HOME", "XDG_CACHE_HOME":
			passed = append(passed, entry)
		default:
			if strings.HasPrefix(name, "LC_") {
				passed = append(passed, entry)
			}
		}
	}
	return passed
}
