package servers

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestTheFamilyDies has a program start another that ignores every request to
// end and keeps the pipe open, and then end in three ways.
func TestTheFamilyDies(t *testing.T) {
	for name, end := range map[string]func(f *fixture, pid int){
		"stopped": func(f *fixture, _ int) { f.stop() },
		"died":    func(f *fixture, _ int) { _, _ = f.Call(context.Background(), "die", nil) },
		"killed":  func(_ *fixture, pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := run(t, self("good"), Options{})
			f.waitState(Ready)
			pid := f.about().PID
			var child int
			if _, err := fmt.Sscan(f.call("spawn", "").Text, &child); err != nil {
				t.Fatal(err)
			}
			end(f, pid)
			mustGo(t, "the program", pid)
			mustGo(t, "its child", child)
		})
	}
}

// TestAThreadThatEndsKillsNoProgram starts a program from a thread that ends,
// which for the kernel is the death of the program's parent.
func TestAThreadThatEndsKillsNoProgram(t *testing.T) {
	var p *Process
	var err error
	var starter sync.WaitGroup
	starter.Go(func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with it
		p, err = StartProcess(Config{Command: "cat"}, nil, nil, new(logbook).logger())
	})
	starter.Wait()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	if _, err := fmt.Fprintln(p.In, "hello"); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewScanner(p.Out)
	if !out.Scan() || out.Text() != "hello" {
		t.Errorf("it says %q: %v", out.Text(), out.Err())
	}
	for range 50 { // end threads
		starter.Go(runtime.LockOSThread)
	}
	starter.Wait()
	_, _ = fmt.Fprintln(p.In, "still")
	if !out.Scan() || out.Text() != "still" {
		t.Errorf("then it says %q: %v", out.Text(), out.Err())
	}
}

func TestAProcessThatEndsByItself(t *testing.T) {
	p, err := StartProcess(Config{Command: "sh", Args: []string{"-c", "echo bye; exit 7"}}, nil, nil, new(logbook).logger())
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewScanner(p.Out)
	if !out.Scan() || out.Text() != "bye" || out.Scan() {
		t.Errorf("it says %q", out.Text())
	}
	<-p.Done()
	p.Stop()
	p.Stop()
	if err := p.Err(); err == nil || err.Error() != "exit status 7" {
		t.Errorf("it ended with %v", err)
	}
}

func TestAProgramThatCannotStart(t *testing.T) {
	broken := t.TempDir() + "/broken"
	if err := os.WriteFile(broken, []byte("\x7fELF, it says"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := StartProcess(Config{Command: broken}, nil, nil, new(logbook).logger()); err == nil || !strings.Contains(err.Error(), "starting "+broken) {
		t.Errorf("got %v", err)
	}
}

// TestNothingOutlivesParley kills a Parley that runs a server whose program has
// a deaf child, in the way that leaves it no time for anything.
func TestNothingOutlivesParley(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleKey+"=parley")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var program, child, guard int
	_, err = fmt.Fscan(out, &program, &child, &guard)
	for what, pid := range map[string]int{"the program": program, "its child": child, "the guard": guard} {
		if err == nil && gone(pid) {
			t.Errorf("%s (%d) is gone before its time", what, pid)
		}
	}
	_ = syscall.Kill(guard, syscall.SIGTERM) // what systemd sends to all; it stays
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	mustGo(t, "the program", program)
	mustGo(t, "its child", child)
	mustGo(t, "the guard", guard)
}
