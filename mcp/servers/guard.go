package servers

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// guardPatience is how long a word to the guard may take. It reads at once
// unless somebody has stopped it.
const guardPatience = time.Second

// A Guard outlives Parley by a moment. The kernel kills a program whose parent
// was killed, but not what that program had started: npx, for one, only starts
// node. So the guard is a second process that holds the other end of a pipe and
// is told of every program's process group. When the pipe ends, because Parley
// did, it kills those groups and ends, too.
//
// It is started with the first program and started again should it die. A nil
// Guard guards nothing. It is safe for concurrent use.
type Guard struct {
	argv []string
	log  *slog.Logger

	mu     sync.Mutex
	groups map[int]bool // the ids of the process groups that live
	cmd    *exec.Cmd    // nil while it does not run
	pipe   *os.File
	closed bool
}

// NewGuard returns a guard that runs argv, a program that does nothing but call
// [ServeGuard] with its input: Parley itself, as /proc/self/exe, and the name of
// a subcommand. It starts nothing yet.
func NewGuard(log *slog.Logger, argv ...string) *Guard {
	return &Guard{argv: argv, log: log, groups: map[int]bool{}}
}

// Close ends the guard and waits for it. Programs that still run are killed.
func (g *Guard) Close() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.end()
}

// add has the group killed should Parley die.
func (g *Guard) add(group int) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.groups[group] = true
	g.tell("+", group)
}

// remove forgets a group that is gone.
func (g *Guard) remove(group int) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.groups, group)
	g.tell("-", group)
}

// tell says one word to the guard. If that fails, another guard is told of all
// groups.
func (g *Guard) tell(word string, group int) {
	if g.closed {
		return
	}
	if g.cmd != nil {
		if g.say(word, group) == nil {
			return
		}
		g.log.Warn("the guard of mcp servers' programs is gone, starting another")
		g.end()
	}
	if len(g.groups) == 0 {
		return
	}
	err := g.start()
	for id := range g.groups {
		if err == nil {
			err = g.say("+", id)
		}
	}
	if err != nil {
		g.log.Warn("no guard for mcp servers' programs: what they start may outlive a killed Parley", "error", err)
	}
}

func (g *Guard) say(word string, group int) error {
	_ = g.pipe.SetWriteDeadline(time.Now().Add(guardPatience))
	_, err := fmt.Fprintf(g.pipe, "%s%d\n", word, group)
	return err
}

func (g *Guard) start() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command(g.argv[0], g.argv[1:]...)
	cmd.Stdin = r
	cmd.Env = []string{} // it needs nothing
	cmd.Dir = "/"        // it keeps no directory in use
	// A group of its own: an interrupt at the terminal must not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		_ = w.Close()
		return err
	}
	g.cmd, g.pipe = cmd, w
	return nil
}

// end closes the pipe, on which the guard ends, and waits for it.
func (g *Guard) end() {
	if g.cmd == nil {
		return
	}
	_ = g.pipe.Close()
	// Somebody may have stopped it, and then it does not react.
	process := g.cmd.Process
	timer := time.AfterFunc(guardPatience, func() { _ = process.Kill() })
	_ = g.cmd.Wait()
	timer.Stop()
	g.cmd, g.pipe = nil, nil
}

// ServeGuard is the guard's side: it reads of process groups from r and kills
// those that were not taken back when r ends. It ignores the signals that ask a
// process to end, as it has to be the last one; so call it from a process that
// does nothing else.
func ServeGuard(r io.Reader) {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	groups := map[int]bool{}
	words := bufio.NewScanner(r)
	for words.Scan() {
		word := words.Text()
		if len(word) < 2 {
			continue
		}
		// 0 and 1 would be the guard's own group and everybody.
		group, err := strconv.Atoi(word[1:])
		switch {
		case err != nil || group <= 1:
		case word[0] == '+':
			groups[group] = true
		case word[0] == '-':
			delete(groups, group)
		}
	}
	for group := range groups {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
}
