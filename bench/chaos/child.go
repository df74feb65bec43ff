//go:build unix

package chaos

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// A guard kills the processes of the rig if the rig itself is killed. It is a shell at the other
// end of a pipe.
type guard struct {
	mu   sync.Mutex
	pipe io.WriteCloser
	cmd  *exec.Cmd
}

// guardScript keeps a list of process IDs. Each line adds or removes one. When the pipe closes, the
// script kills the listed processes.
const guardScript = `
pids=
while read -r op pid; do
	kept=
	for p in $pids; do [ "$p" = "$pid" ] || kept="$kept $p"; done
	pids=$kept
	[ "$op" = out ] || pids="$pids $pid"
done
for p in $pids; do kill -9 "$p" 2>/dev/null; done
exit 0
`

func startGuard() (*guard, error) {
	cmd := exec.Command("/bin/sh", "-c", guardScript, "guard")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &guard{pipe: pipe, cmd: cmd}, nil
}

func (g *guard) tell(op string, pid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, _ = fmt.Fprintln(g.pipe, op, pid) // fails only if the guard has ended
}

// Close ends the guard, which kills the remaining processes.
func (g *guard) Close() error { return errors.Join(g.pipe.Close(), g.cmd.Wait()) }

// A child is a program of the rig that is started, killed and started again. Unless noted, its
// methods must be called by one goroutine at a time.
type child struct {
	name    string
	program string                   // "": this program
	args    func(start int) []string // start counts from 1
	env     []string
	dir     string
	guard   *guard

	first endings // that a process which has just started may have

	starts int
	cmd    *exec.Cmd
	ended  chan struct{}

	exitMu sync.Mutex
	may    endings // of the process that runs
	exits  []Exit
}

// start runs the program; its output goes to <name>.log.
func (c *child) start() error {
	binary := c.program
	if binary == "" {
		var err error
		if binary, err = os.Executable(); err != nil {
			return err
		}
	}
	log, err := os.OpenFile(filepath.Join(c.dir, c.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own descriptor
	begins, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	c.starts++
	cmd := exec.Command(binary, c.args(c.starts)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = c.env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's interrupt is for the rig
	c.expect(func(e *endings) { *e = c.first })
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	c.guard.tell("in", cmd.Process.Pid)
	ended := make(chan struct{})
	c.cmd, c.ended = cmd, ended
	go func() { // ends with the process
		_ = cmd.Wait() // the code is in ProcessState
		c.guard.tell("out", cmd.Process.Pid)
		c.exited(cmd.ProcessState, begins)
		close(ended)
	}()
	return nil
}

// running reports whether the process has not ended.
func (c *child) running() bool {
	if c.cmd == nil {
		return false
	}
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// kill ends the process as a loss of power would.
func (c *child) kill() {
	if c.running() {
		c.expect(func(e *endings) { e.Killed = true })
		_ = c.cmd.Process.Kill() // fails when it has just ended
		<-c.ended
	}
}

// signal sends s; a process that has ended does not mind.
func (c *child) signal(s syscall.Signal) {
	if c.running() {
		_ = c.cmd.Process.Signal(s)
	}
}

// terminate asks the process to end.
func (c *child) terminate() {
	c.expect(func(e *endings) { e.Clean = true })
	c.signal(syscall.SIGTERM)
}

// wait waits for the end of the process and reports whether it came.
func (c *child) wait(d time.Duration) bool {
	select {
	case <-c.ended:
		return true
	case <-time.After(d):
		return false
	}
}

// stop ends the process with SIGTERM, and kills it after d. clean reports whether it ended by
// itself with code 0.
func (c *child) stop(d time.Duration) (clean bool) {
	if !c.running() {
		return c.cmd != nil && c.cmd.ProcessState.ExitCode() == 0
	}
	c.terminate()
	if !c.wait(d) {
		c.kill()
		return false
	}
	return c.cmd.ProcessState.ExitCode() == 0
}
