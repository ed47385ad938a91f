//go:build !linux

package servers

import (
	"os/exec"
	"syscall"
)

// setProcAttr puts the program into a process group of its own, so that what it
// starts can be found, and so that an interrupt typed at the server's terminal
// is the server's alone. No kernel but Linux kills it when the server dies; the
// guard does.
func setProcAttr(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
