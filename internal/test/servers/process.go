//go:build unix

package servers

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	startTimeout = time.Minute      // recovery after kill -9 on a busy machine included
	stopTimeout  = 30 * time.Second // clean shutdown; SIGKILL after it
	pollInterval = 5 * time.Millisecond
	portAttempts = 10
)

// launch reports its process ID to the janitor, on descriptor 3, and then becomes the server. The
// janitor therefore knows every running server.
const launch = `echo $$ >&3; exec "$@" 3>&-`

// errStopped is returned for a server that is not running.
var errStopped = errors.New("servers: the server is not running")

// A process is one server: its program, its data folder and its port stay the
// same over kill and restart. All methods may be called concurrently.
type process struct {
	program
	folder *folder
	port   int

	mu  sync.Mutex
	pid int // 0: not running
}

// A program has the facts that are needed to start one kind of server.
type program struct {
	binary string
	args   func(port int) []string
	ready  string // text in the log once the server listens and has recovered
	ping   func(port int) error
	env    []string // in addition to the environment of this process
	bus    int      // it listens on port + bus as well; 0: it does not
}

// startProcess starts a server in f on a free port. When it fails f is gone.
func startProcess(f *folder, g program) (*process, error) {
	var failure error
	for range portAttempts {
		port, err := freePort(g.bus)
		if err != nil {
			failure = err
			break
		}
		p := &process{program: g, folder: f, port: port}
		if failure = p.start(); failure == nil {
			return p, nil
		}
		if isFree(port) && isFree(port+g.bus) { // the port was not the reason
			break
		}
	}
	return nil, errors.Join(failure, f.remove())
}

// freePort returns a port that is free, as is the one that is bus higher. Both are below the range
// from which systems take the ports of outgoing connections (32768 and up on Linux, 49152 and up
// elsewhere), so they are still free when a killed server restarts.
func freePort(bus int) (int, error) {
	for range 100 {
		port := 15000 + rand.IntN(17000-bus)
		if isFree(port) && isFree(port+bus) {
			return port, nil
		}
	}
	return 0, errors.New("servers: found no free port between 15000 and 32000")
}

// isFree reports whether no process listens on a port.
func isFree(port int) bool {
	ln, err := listen(port)
	return err == nil && ln.Close() == nil
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}

// start starts the server and returns when it answers. It does nothing when
// the server already runs.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return nil
	}
	log, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the server has its own copy
	before, err := log.Seek(0, 2)
	if err != nil {
		return err
	}

	cmd := exec.Command("/bin/sh", append([]string{"-c", launch, "launch", p.binary}, p.args(p.port)...)...)
	cmd.Dir = p.folder.path
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{p.folder.pipe}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's interrupt is for the tests
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("servers: start %s: %w", p.binary, err)
	}
	p.pid = cmd.Process.Pid

	deadline := time.Now().Add(startTimeout)
	for {
		text, err := p.logSince(before)
		if err != nil {
			return errors.Join(err, p.killLocked())
		}
		// The log shows that the started server is ready. The port alone does not, since another
		// process might have taken it first.
		if bytes.Contains(text, []byte(p.ready)) && p.ping(p.port) == nil {
			return nil
		}
		if !p.running() {
			return fmt.Errorf("servers: %s ended while starting:\n%s", p.binary, tail(text))
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("servers: %s not ready after %v:\n%s", p.binary, startTimeout, tail(text)),
				p.killLocked())
		}
		time.Sleep(pollInterval)
	}
}

// kill acts like a power loss for the process: SIGKILL, and the process is gone on return.
func (p *process) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killLocked()
}

func (p *process) killLocked() error {
	if !p.running() {
		return nil
	}
	if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("servers: kill %s: %w", p.binary, err)
	}
	p.reap(0)
	return nil
}

// stop ends the server as its administrator would and waits for it.
func (p *process) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return nil
	}
	// A paused process sees SIGTERM only once it continues.
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		if err := syscall.Kill(p.pid, sig); err != nil {
			return fmt.Errorf("servers: stop %s: %w", p.binary, err)
		}
	}
	for deadline := time.Now().Add(stopTimeout); p.running(); time.Sleep(pollInterval) {
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("servers: %s did not stop within %v", p.binary, stopTimeout), p.killLocked())
		}
	}
	return nil
}

// signal sends sig to the running server.
func (p *process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return errStopped
	}
	return syscall.Kill(p.pid, sig)
}

// pause stops the server and returns when all its threads have stopped, which the signal only
// requests.
func (p *process) pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return errStopped
	}
	if err := syscall.Kill(p.pid, syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return err
		case status.Stopped():
			return nil
		default: // it ended instead
			p.pid = 0
			p.folder.forget()
			return errStopped
		}
	}
}

// remove kills the server and deletes its data.
func (p *process) remove() error { return errors.Join(p.kill(), p.folder.remove()) }

// running reports whether the server has not ended yet. The number of a
// process that was not reaped cannot belong to another one.
func (p *process) running() bool {
	if p.pid != 0 {
		p.reap(syscall.WNOHANG)
	}
	return p.pid != 0
}

// reap collects the server's end and remembers it. It asks the system directly
// because os/exec can only wait in a goroutine of its own.
func (p *process) reap(options int) {
	for {
		pid, err := syscall.Wait4(p.pid, nil, options, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid == p.pid {
			p.pid = 0
			p.folder.forget()
		}
		return
	}
}

func (p *process) logPath() string { return filepath.Join(p.folder.path, "server.log") }

func (p *process) logSince(offset int64) ([]byte, error) {
	text, err := os.ReadFile(p.logPath())
	if err != nil {
		return nil, err
	}
	return text[min(int(offset), len(text)):], nil
}

// tail returns the end of a log.
func tail(log []byte) []byte { return log[max(0, len(log)-4000):] }
