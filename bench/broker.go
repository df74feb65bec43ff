package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/penstock-broker/penstock/bench/target"
	penstock "github.com/penstock-broker/penstock/clients/go"
)

// Bounds of the life of a broker that a bench starts.
const (
	readyWithin = 60 * time.Second
	stopWithin  = 20 * time.Second
)

// A Broker is the broker under load: a running one, or one that was started for the measurement and
// is stopped after it.
type Broker struct {
	URL       string
	Processes []Process // whose CPU time belongs to the cost of a message

	made []*subject // in a broker that runs on

	cmd    *exec.Cmd
	exited chan error
	dir    string
	traces *traceSink // nil: none are asked for
}

// OpenBroker returns the broker at c.URL, or starts one and waits until it is ready.
func OpenBroker(ctx context.Context, c *Config) (*Broker, error) {
	if c.URL != "" {
		b := &Broker{URL: strings.TrimSuffix(c.URL, "/")}
		if addr, err := hostPort(b.URL); err == nil {
			if p, ok := listener("broker", addr); ok && p.PID != os.Getpid() {
				b.Processes = append(b.Processes, p)
			}
		}
		b.Processes = append(b.Processes, storeProcesses(c)...)
		return b, probe(ctx, c, b.URL)
	}
	return startBroker(ctx, c)
}

func control(ctx context.Context, c *Config, base string, alive func() error) error {
	ctl := NewControl(base, c.AdminToken)
	defer ctl.Close()
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	return ctl.Ready(ctx, alive)
}

// answersWithin bounds how long the broker at --url may take to answer.
const answersWithin = 2 * time.Second

// probe returns why there is no broker that is ready at a URL.
func probe(ctx context.Context, c *Config, base string) error {
	ctl := NewControl(base, c.AdminToken)
	defer ctl.Close()
	asking, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	var version struct{ Version string }
	status, body, err := ctl.do(asking, http.MethodGet, "/version", nil)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer from %s within %s", base, answersWithin)
	case err != nil:
		return fmt.Errorf("nothing answers at %s: %w", base, dialError(err))
	case status != http.StatusOK || json.Unmarshal(body, &version) != nil || version.Version == "":
		return fmt.Errorf("%s answers, and is no Penstock: GET /version is %d without a Version", base, status)
	}
	status, body, err = ctl.do(asking, http.MethodGet, "/readyz", nil)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("the broker at %s does not say that it is ready: %w", base, dialError(err))
	case status != http.StatusOK:
		return fmt.Errorf("the broker at %s is not ready: %w", base, statusError{status, clip(body, 300)})
	}
	return nil
}

// dialError is the error of a request without the URL, which the caller names.
func dialError(err error) error {
	if e := (*penstock.Error)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// storeProcesses finds the servers behind --mysql and --redis on this machine.
func storeProcesses(c *Config) (out []Process) {
	if cfg, err := mysql.ParseDSN(c.MySQL); c.MySQL != "" && err == nil && cfg.Net == "tcp" {
		if p, ok := listener("mysql", cfg.Addr); ok {
			out = append(out, p)
		}
	}
	if u, err := url.Parse(c.Redis); c.Redis != "" && err == nil {
		port := u.Port()
		if port == "" {
			port = "6379"
		}
		if p, ok := listener("redis", net.JoinHostPort(u.Hostname(), port)); ok {
			out = append(out, p)
		}
	}
	return out
}

func startBroker(ctx context.Context, c *Config) (_ *Broker, err error) {
	binary, err := target.Broker(c.Binary)
	if err != nil {
		return nil, fmt.Errorf("start broker: %w", err)
	}
	port, err := freePort()
	if err != nil {
		return nil, fmt.Errorf("start broker: %w", err)
	}
	dir, err := os.MkdirTemp("", "penstock-bench-")
	if err != nil {
		return nil, fmt.Errorf("start broker: %w", err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	b := &Broker{URL: "http://" + addr, dir: dir, exited: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if c.Traced > 0 {
		if b.traces, err = startTraceSink(c.Traced); err != nil {
			return nil, err
		}
	}
	log, err := os.Create(filepath.Join(dir, "broker.log"))
	if err != nil {
		return nil, fmt.Errorf("start broker: %w", err)
	}
	defer log.Close() // the broker has its own descriptor
	b.cmd = exec.Command(binary, "serve")
	ownGroup(b.cmd)
	b.cmd.Env = b.env(c, addr)
	b.cmd.Stdout, b.cmd.Stderr = log, log
	if err := b.cmd.Start(); err != nil {
		b.cmd = nil
		return nil, fmt.Errorf("start broker: %w", err)
	}
	go func() { b.exited <- b.cmd.Wait() }() // ends with the broker, which Close ends
	b.Processes = append([]Process{{"broker", b.cmd.Process.Pid}}, storeProcesses(c)...)
	err = control(ctx, c, b.URL, func() error {
		select {
		case werr := <-b.exited:
			b.cmd = nil // nothing is left to stop
			return fmt.Errorf("start broker: it ended (%w) with these last words:\n%s", werr, b.lastWords())
		default:
			return nil
		}
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// env is the environment of a started broker that listens at addr.
func (b *Broker) env(c *Config, addr string) []string {
	env := append(withoutBroker(os.Environ()),
		"BROKER_LISTEN="+addr,
		"BROKER_DATA_DIR="+filepath.Join(b.dir, "data"),
		"BROKER_MYSQL_DSN="+c.MySQL,
		"BROKER_REDIS_URL="+c.Redis,
		"BROKER_ADMIN_TOKEN="+c.AdminToken,
		"BROKER_OPEN_MANAGEMENT=true",
		"BROKER_LOG_LEVEL=warn",
	)
	if b.traces != nil {
		env = append(env, b.traces.env...)
	}
	return append(env, c.BrokerEnv...)
}

// withoutBroker drops settings of another broker from the environment.
func withoutBroker(env []string) (out []string) {
	for _, e := range env {
		if !strings.HasPrefix(e, "BROKER_") {
			out = append(out, e)
		}
	}
	return out
}

// lastWords is the end of the broker's log.
func (b *Broker) lastWords() string {
	text, err := os.ReadFile(filepath.Join(b.dir, "broker.log"))
	if err != nil {
		return ""
	}
	return string(text[max(0, len(text)-2000):])
}

// Warnings returns the end of the log of a started broker, which logs only warnings and errors.
func (b *Broker) Warnings() string {
	if b.cmd == nil {
		return ""
	}
	return b.lastWords()
}

// Close stops a started broker and removes its data; another is left alone.
func (b *Broker) Close() error {
	if b.dir == "" {
		return nil
	}
	var err error
	if b.cmd != nil {
		err = b.stop()
	}
	if b.traces != nil {
		err = errors.Join(err, b.traces.close())
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// stop ends the process with SIGTERM. A process that ended before is an error, because it must live
// as long as the run.
func (b *Broker) stop() error {
	select {
	case err := <-b.exited:
		return fmt.Errorf("the broker ended by itself: %w", errors.Join(err, errors.New("its last words: "+b.lastWords())))
	default:
	}
	_ = b.cmd.Process.Signal(syscall.SIGTERM) // fails when it has ended just now
	select {
	case err := <-b.exited:
		var exit *exec.ExitError
		const terminated = 128 + int(syscall.SIGTERM)
		if errors.As(err, &exit) && exit.ExitCode() != terminated && exit.ExitCode() != -1 {
			return fmt.Errorf("the broker ended with code %d", exit.ExitCode())
		}
		return nil
	case <-time.After(stopWithin):
		return errors.Join(fmt.Errorf("the broker did not stop within %s", stopWithin), b.cmd.Process.Kill(), <-b.exited)
	}
}

// freePort asks the kernel for a port. Another process could take it before the broker does; the
// broker then reports that.
func freePort() (int, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := ln.Addr().(*net.TCPAddr).Port
	return port, ln.Close()
}
