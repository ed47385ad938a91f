package servers

import (
	"os/exec"
	"syscall"
)

// setProcAttr puts the program into a process group of its own, so that what it
// starts can be found, and so that an interrupt typed at the server's terminal
// is the server's alone; and has the kernel kill it when the server dies. The
// thread that starts it must live as long as it does.
func setProcAttr(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
