// Package program runs other people's programs, such as recognisers and
// synthesizers, the way a server must: without a shell, with a time limit, a
// bounded output and an environment that holds no keys, and so that nothing of
// them is left when they end.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unicode"
)

const (
	// DefaultTimeout is how long a run may take where nothing is configured.
	DefaultTimeout = 30 * time.Second
	// pipeDelay is how long after a program's end its output is still read, if a
	// child of it holds the pipe open.
	pipeDelay = time.Second
	// tailBytes is how much of a program's messages is kept, in bytes: its end.
	tailBytes = 2 << 10
)

// ErrTooMuch means that a program wrote more than it may and was stopped.
var ErrTooMuch = errors.New("it writes too much")

// A Config says what to run.
type Config struct {
	// Name is the program, looked up in PATH unless it has a slash.
	Name string
	// Env holds the program's environment beside PATH, HOME, LANG and the like,
	// as "NAME=value". Nothing else of the server's environment, which may hold
	// keys, is passed on.
	Env []string
	// Timeout is how long one run may take; 0 is [DefaultTimeout].
	Timeout time.Duration
	// Concurrent is how many runs may overlap; 0 is the number of cores. Further
	// ones wait.
	Concurrent int
}

// A Program can be run any number of times. It is safe for concurrent use and
// holds nothing to close.
type Program struct {
	cfg   Config
	path  string
	env   []string
	slots chan struct{} // holds one element for each run under way; senders wait
}

// Find returns the program that cfg names, or an error that says what is wrong.
// It runs nothing.
func Find(cfg Config) (*Program, error) {
	switch {
	case cfg.Timeout < 0:
		return nil, fmt.Errorf("timeout is %v; it must not be negative", cfg.Timeout)
	case cfg.Concurrent < 0:
		return nil, fmt.Errorf("parallel is %d; it must not be negative", cfg.Concurrent)
	}
	path, err := exec.LookPath(cfg.Name)
	if err != nil {
		return nil, fmt.Errorf("cannot run command: %w; install it or correct command", err)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Concurrent == 0 {
		cfg.Concurrent = runtime.NumCPU()
	}
	return &Program{
		cfg: cfg, path: path, env: Environ(cfg.Env...),
		slots: make(chan struct{}, cfg.Concurrent),
	}, nil
}

// Run runs the program with args in a process group of its own, feeds it stdin,
// which may be nil, and writes what it prints to out, at most limit bytes. When
// Run returns the program is gone and every process of its group has been
// killed. It waits for its turn first; ctx ends both.
//
// The error says how the program failed, in its own last words where it had
// any, or wraps [ErrTooMuch]; if ctx ended first, it is ctx's cause.
func (p *Program) Run(ctx context.Context, args []string, stdin io.Reader, out io.Writer, limit int64) error {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-p.slots }()
	runCtx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	output := bounded{out: out, left: limit, stop: cancel}
	var messages tail
	cmd := exec.CommandContext(runCtx, p.path, args...)
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
	switch {
	case output.over:
		return fmt.Errorf("%s was stopped: %w: more than %d bytes", p.cfg.Name, ErrTooMuch, limit)
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case runCtx.Err() != nil:
		return fmt.Errorf("%s was stopped after %v, see timeout", p.cfg.Name, p.cfg.Timeout)
	}
	if line := messages.lastLine(); line != "" {
		return fmt.Errorf("%s failed: %w: %s", p.cfg.Name, err, line)
	}
	return fmt.Errorf("%s failed: %w", p.cfg.Name, err)
}

// killGroup kills the process group that the command leads.
func killGroup(cmd *exec.Cmd) error {
	return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
}

// A bounded passes on what is written to it, up to a limit, and stops the program
// that writes more. over is read after the writer has finished.
type bounded struct {
	out  io.Writer
	left int64 // bytes
	over bool
	stop func()
}

// Write implements [io.Writer].
func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		b.over = true
		b.stop()
		return 0, ErrTooMuch
	}
	return b.out.Write(p)
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
	line := OneLine(text[strings.LastIndexByte(text, '\n')+1:])
	return strings.ToValidUTF8(line[:min(len(line), 200)], "")
}

// OneLine makes one line of a text, without control characters: programs that
// read lines would take several for several texts, and an argument cannot hold a
// NUL.
func OneLine(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text))
}

// Environ returns the environment of a program that the server starts: of the
// server's own what a program needs to run at all, and then extra, each as
// "NAME=value", of which the last of a name counts.
func Environ(extra ...string) []string { return append(passedEnv(os.Environ()), extra...) }

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
