package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/penstock-broker/penstock/bench"
	"github.com/penstock-broker/penstock/internal/tool/timerslack"
)

// A process is a server that this program started.
type process struct {
	name   string
	cmd    *exec.Cmd
	log    string
	exited chan struct{} // closed once it has been waited for
	err    error         // of the wait, to be read after exited
	grace  time.Duration // from SIGTERM to SIGKILL
}

const (
	readyPause = 20 * time.Millisecond // between two looks whether a server is ready
	stopWithin = 20 * time.Second      // after SIGTERM, unless a process needs longer; SIGKILL then
)

// launcher runs functions on one thread that lives as long as the program: the
// parent-death signal is sent when the thread that started a process ends.
var launcher = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() { // it never ends, on purpose
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// start runs a server in its own process group, in the folder unless it has another one, so that a terminal's interrupt reaches only this
// program. If this program dies, the server gets the signal onDeath.
func start(name, folder string, onDeath syscall.Signal, cmd *exec.Cmd) (*process, error) {
	p := &process{name: name, cmd: cmd, log: filepath.Join(folder, name+".log"), exited: make(chan struct{}), grace: stopWithin}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close() // the server has its own descriptor
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.Dir == "" {
		cmd.Dir = folder
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: onDeath}
	started := make(chan error)
	launcher() <- func() {
		// The server runs with the system's timer slack, not with that of this program.
		if err := timerslack.SetThread(timerslack.System); err != nil {
			started <- err
			return
		}
		started <- cmd.Start()
	}
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { // ends with the server, which stop ends
		p.err = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// ready waits until check finds the server usable.
func (p *process) ready(ctx context.Context, check func(context.Context) error) error {
	for {
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := check(one)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended while starting: %w\n%s", p.name, errors.Join(p.err, err), p.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("%s did not get ready: %w\n%s", p.name, err, p.lastWords())
		case <-time.After(readyPause):
		}
	}
}

// stop ends the server and waits for its end. A server that had ended by itself is an error,
// because it must live as long as its run.
func (p *process) stop() error {
	select {
	case <-p.exited:
		return fmt.Errorf("%s had ended by itself (%v), its last words:\n%s", p.name, p.cmd.ProcessState, p.lastWords())
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails when it has ended just now
	select {
	case <-p.exited:
		return nil
	case <-time.After(p.grace):
		err := p.cmd.Process.Kill()
		<-p.exited
		return errors.Join(fmt.Errorf("%s did not stop within %s", p.name, p.grace), err)
	}
}

func (p *process) measured() bench.Process {
	return bench.Process{Name: p.name, PID: p.cmd.Process.Pid}
}

// lastWords returns the end of the log.
func (p *process) lastWords() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return ""
	}
	return string(text[max(0, len(text)-2000):])
}

// A group is the servers of one run and their folder.
type group struct {
	folder    string
	processes []*process
	measure   []bench.Process
}

// newGroup makes the folder.
func newGroup(s *site) (*group, error) {
	folder, err := s.run()
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	return &group{folder: folder}, nil
}

// start adds a server to the group.
func (g *group) start(name string, onDeath syscall.Signal, cmd *exec.Cmd) (*process, error) {
	p, err := start(name, g.folder, onDeath, cmd)
	if err == nil {
		g.processes = append(g.processes, p)
		g.measure = append(g.measure, p.measured())
	}
	return p, err
}

// Processes are the servers.
func (g *group) Processes() []bench.Process { return g.measure }

// Close stops the servers, the last one first, and removes their data.
func (g *group) Close() error {
	var errs []error
	for i := len(g.processes) - 1; i >= 0; i-- {
		errs = append(errs, g.processes[i].stop())
	}
	g.processes = nil
	return errors.Join(append(errs, os.RemoveAll(g.folder))...)
}
