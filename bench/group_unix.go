//go:build unix

package bench

import (
	"os/exec"
	"syscall"
)

// ownGroup keeps a terminal's Ctrl-C from a child: it is to stop when the ledger
// is done with it, not before.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
