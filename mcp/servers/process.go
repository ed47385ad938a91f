package servers

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"parley/internal/program"
)

// How a program is made to end: its input is closed, which the protocol says is
// enough; then it is asked; then it is not asked. Each counts from the first.
const (
	askAfter  = 2 * time.Second // SIGTERM to the group
	killAfter = 4 * time.Second // SIGKILL to the group
	// pipeDelay is how long after a program's end its output is still read, if
	// something that left its group holds the pipe open.
	pipeDelay = time.Second
)

// A Process is a running stdio server: a program in a process group of its own,
// whose input and output speak MCP and whose messages go to the log. What it
// starts dies with it, and all of them with Parley, however that ends; see
// [Guard].
type Process struct {
	// In is the program's input; closing it asks the program to end.
	In io.WriteCloser
	// Out is the program's output. It ends when the program has.
	Out io.ReadCloser

	pid   int
	guard *Guard
	out   *os.File
	errs  *os.File
	done  chan struct{}  // closed when the program and its group are gone
	err   error          // why it ended; read after done
	tasks sync.WaitGroup // hold and the log of its messages
}

// StartProcess starts cfg's program, with no shell between. guard may be nil,
// and then what the program itself starts may outlive a Parley that is killed.
// Lines of messages that the log has no room for are added to dropped, which may
// be nil.
func StartProcess(cfg Config, guard *Guard, dropped *atomic.Uint64, log *slog.Logger) (*Process, error) {
	path, err := cfg.findProgram()
	if err != nil {
		return nil, err
	}
	if dropped == nil {
		dropped = new(atomic.Uint64)
	}
	p := &Process{guard: guard, done: make(chan struct{})}
	cmd := exec.Command(path, cfg.Args...)
	cmd.Dir = cfg.Dir
	cmd.Env = program.Environ(cfg.environ()...)
	theirs, err := p.pipes(cmd)
	if err == nil {
		started := make(chan error, 1)
		p.tasks.Go(func() { p.hold(cmd, started) }) // ends with the program
		err = <-started
	}
	for _, f := range theirs {
		_ = f.Close() // the program has its own
	}
	if err != nil {
		p.close()
		p.tasks.Wait()
		return nil, fmt.Errorf("starting %s: %w", cfg.Command, err)
	}
	// Ends when nobody holds the program's end any more, or soon after hold.
	p.tasks.Go(func() { pour(p.errs, dropped, log) })
	return p, nil
}

// pipes joins the program's three streams to p and returns its ends of them. On
// an error what was opened is in p and in the returned files.
func (p *Process) pipes(cmd *exec.Cmd) (theirs []*os.File, err error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return theirs, err
	}
	theirs, p.In, cmd.Stdin = append(theirs, inR), inW, inR
	outR, outW, err := os.Pipe()
	if err != nil {
		return theirs, err
	}
	theirs, p.out, p.Out, cmd.Stdout = append(theirs, outW), outR, outR, outW
	errR, errW, err := os.Pipe()
	if err != nil {
		return theirs, err
	}
	theirs, p.errs, cmd.Stderr = append(theirs, errW), errR, errW
	return theirs, nil
}

// hold starts the program and waits for it. The kernel sends a program its
// death signal when the thread that started it ends, not the process
// (golang.org/issue/27505), and the runtime may end a thread at any time unless
// a goroutine is locked to it. This one is, for as long as the program lives.
func (p *Process) hold(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	setProcAttr(cmd)
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	p.pid = cmd.Process.Pid
	p.guard.add(p.pid)
	started <- nil
	p.err = cmd.Wait()
	// What the program left behind holds the group's id, which therefore
	// belongs to nobody else; if it left nothing behind, nobody is hit.
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	p.guard.remove(p.pid)
	// Something that made itself a group of its own may still hold the pipes.
	_ = p.out.SetReadDeadline(time.Now().Add(pipeDelay))
	_ = p.errs.SetReadDeadline(time.Now().Add(pipeDelay))
	close(p.done)
}

// Done returns a channel that is closed when the program has ended and every
// process of its group has been killed.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says why the program ended, after [Process.Done]: nil if it said success.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Stop closes the program's input, asks it to end after two seconds and kills it
// after four, and returns when it, its group and its goroutines are gone. It may
// be called once the program has ended, and more than once.
func (p *Process) Stop() {
	_ = p.In.Close()
	if !p.endsWithin(askAfter) {
		_ = syscall.Kill(-p.pid, syscall.SIGTERM)
		if !p.endsWithin(killAfter - askAfter) {
			_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		}
	}
	<-p.done
	p.tasks.Wait()
	p.close()
}

func (p *Process) endsWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		return false
	}
}

// close closes our ends of the pipes.
func (p *Process) close() {
	if p.In != nil {
		_ = p.In.Close()
	}
	for _, f := range []*os.File{p.out, p.errs} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// findProgram returns the path of the program. A command with a slash is
// relative to Dir; any other is looked up in PATH, that of Env where it has one.
func (c *Config) findProgram() (string, error) {
	if c.Dir != "" {
		if info, err := os.Stat(c.Dir); err != nil || !info.IsDir() {
			return "", fmt.Errorf("cwd %q is no directory; create it or correct cwd", c.Dir)
		}
	}
	name, list := c.Command, ""
	switch search, own := c.Env["PATH"]; {
	case filepath.IsAbs(name):
	case strings.Contains(name, "/"):
		name = filepath.Join(c.Dir, name)
		if !filepath.IsAbs(name) {
			name = "./" + name // Join cleans it away
		}
	case own:
		list = search
	}
	var path string
	err := error(&exec.Error{Name: name, Err: exec.ErrNotFound})
	if list == "" {
		path, err = exec.LookPath(name)
	}
	for _, dir := range filepath.SplitList(list) {
		if path, err = exec.LookPath(filepath.Join(dir, name)); err == nil {
			break
		}
	}
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return "", fmt.Errorf("cannot run command: %w; install it, or correct command or PATH", err)
	}
	return filepath.Abs(path)
}

// environ is Env as "NAME=value".
func (c *Config) environ() []string {
	env := make([]string, 0, len(c.Env))
	for name, value := range c.Env {
		env = append(env, name+"="+value)
	}
	return env
}
