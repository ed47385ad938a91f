package servers

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// group starts a process group that only SIGKILL ends and returns its id.
func group(t *testing.T) int {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{roleKey + "=child"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

func TestServeGuard(t *testing.T) {
	// Signals are ignored process-wide, so this runs in the guard's process.
	kept, taken := group(t), group(t)
	g := NewGuard(new(logbook).logger(), os.Args[0], "guard")
	g.add(kept)
	g.add(taken)
	g.remove(kept)
	g.Close()
	mustGo(t, "the group", taken)
	if gone(kept) {
		t.Error("a group that was taken back was killed")
	}
}

// TestAnotherGuard kills the guard, which is noticed at the next word.
func TestAnotherGuard(t *testing.T) {
	var log logbook
	g := NewGuard(log.logger(), os.Args[0], "guard")
	first := group(t)
	g.add(first)
	old := g.cmd.Process.Pid
	_ = syscall.Kill(old, syscall.SIGKILL)
	if !eventually(func() bool { return gone(old) }) {
		t.Fatal("the guard lives on")
	}
	second := group(t)
	g.add(second)
	if g.cmd.Process.Pid == old || !strings.Contains(log.String(), "starting another") {
		t.Errorf("no other guard was started:\n%s", &log)
	}
	g.Close()
	mustGo(t, "the first group", first)
	mustGo(t, "the second group", second)
	g.add(4711) // after Close nothing is started
	if g.cmd != nil {
		t.Error("a guard was started after Close")
	}
}

// TestWithoutAGuard has none: nil, or one that cannot be started.
func TestWithoutAGuard(t *testing.T) {
	var none *Guard
	none.add(1)
	none.remove(1)
	none.Close()
	var log logbook
	g := NewGuard(log.logger(), "/no/such/program")
	g.add(4711)
	g.remove(4711)
	g.Close()
	if !strings.Contains(log.String(), "no guard") {
		t.Errorf("nothing was logged:\n%s", &log)
	}
}

// TestTheGuardIgnoresRubbish feeds it what would kill the tests, were it obeyed.
func TestTheGuardIgnoresRubbish(t *testing.T) {
	cmd := exec.Command(os.Args[0], "guard")
	cmd.Stdin = strings.NewReader("+0\n+1\n+-1\n+\n\n+x\n?5\n+99999999999999999999\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
