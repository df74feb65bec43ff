//go:build unix

package bench

import (
	"os/exec"
	"syscall"
)

// ownGroup protects a child from a terminal's Ctrl-C: the child must run until the ledger no longer
// needs it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
