//go:build unix

package chaos

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// endings are the ways in which a process may end because of a fault. They are set before the
// fault.
type endings struct {
	Killed  bool // by SIGKILL, also its own at a failpoint
	Clean   bool // with code 0, after SIGTERM
	GivesUp bool // it starts, and may find that it cannot: its stores are broken, too
}

// The codes with which a broker ends that cannot start.
const (
	codeStore = 3
	codeStart = 4
)

// An Exit is the end of a process.
type Exit struct {
	Process string
	At      time.Time
	State   string // as the system reports it
	Code    int    // -1: a signal
	Signal  syscall.Signal
	May     endings
	Last    []string // lines of its log
}

// planned reports whether the rig has ended the process.
func (x *Exit) planned() bool {
	switch {
	case x.Signal == syscall.SIGKILL:
		return x.May.Killed
	case x.Code == 0:
		return x.May.Clean
	case x.Code == codeStore || x.Code == codeStart:
		return x.May.GivesUp
	}
	return false
}

// expect changes how the process may end.
func (c *child) expect(change func(*endings)) {
	c.exitMu.Lock()
	defer c.exitMu.Unlock()
	change(&c.may)
}

// exited writes down the end of a process whose log began at an offset.
func (c *child) exited(state *os.ProcessState, log int64) {
	x := Exit{Process: c.name, At: time.Now(), State: state.String(), Code: state.ExitCode(),
		Last: lastLines(filepath.Join(c.dir, c.name+".log"), log)}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		x.Signal = status.Signal()
	}
	c.exitMu.Lock()
	defer c.exitMu.Unlock()
	x.May = c.may
	c.exits = append(c.exits, x)
}

// ends returns the exits of the process so far. It may be called at any time.
func (c *child) ends() []Exit {
	c.exitMu.Lock()
	defer c.exitMu.Unlock()
	return slices.Clone(c.exits)
}

const (
	tailLines = 12
	tailWidth = 300
)

// lastLines returns the last lines of the log of a process, which began at an offset. If the log
// has a panic, the lines are the beginning of it. An unreadable log has no lines.
func lastLines(path string, from int64) (last []string) {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return nil
	}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	panicked := false
	for lines.Scan() {
		text := lines.Text()
		if !panicked && isPanic(text) {
			panicked, last = true, nil
		}
		last = append(last, text[:min(len(text), tailWidth)])
		if len(last) > tailLines {
			if panicked {
				return last[:tailLines]
			}
			last = last[1:]
		}
	}
	return last
}

// isPanic recognises the first line that the runtime prints when it ends a process.
func isPanic(line string) bool {
	return strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:")
}
