//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	startTimeout   = 60 * time.Second
	requestTimeout = 30 * time.Second
)

// A broker is the program under trial, as a process of its own.
type broker struct {
	base   string
	cmd    *exec.Cmd
	log    *os.File
	ended  chan struct{}
	client *http.Client
}

// startBroker runs the program with only these settings and waits until it is ready.
func startBroker(ctx context.Context, binary string, env []string) (*broker, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return nil, err
	}
	log, err := os.CreateTemp("", "relayreal-*.log")
	if err != nil {
		return nil, err
	}
	b := &broker{base: "http://" + address, log: log, ended: make(chan struct{}), client: &http.Client{
		Timeout:       requestTimeout,
		Transport:     &http.Transport{MaxIdleConnsPerHost: publishers + pullers},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	b.cmd = exec.Command(binary, "serve")
	for _, line := range os.Environ() {
		if !strings.HasPrefix(line, "BROKER_") {
			b.cmd.Env = append(b.cmd.Env, line)
		}
	}
	b.cmd.Env = append(append(b.cmd.Env, "BROKER_LISTEN="+address), env...)
	b.cmd.Stdout, b.cmd.Stderr = log, log
	if err := b.cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close(), os.Remove(log.Name()))
	}
	go func() {
		_ = b.cmd.Wait() // stop reads the state
		close(b.ended)
	}()
	if err := b.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, b.stop())
	}
	return b, nil
}

func (b *broker) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		r, err := b.do(ctx, http.MethodGet, "/readyz", nil, nil)
		if err == nil && r.status == http.StatusOK {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("the broker did not become ready")
		case <-b.ended:
			return errors.New("the broker ended at its start")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// stop ends the process and removes its log, unless the end is not a clean one.
func (b *broker) stop() error {
	b.client.CloseIdleConnections()
	err := b.cmd.Process.Signal(syscall.SIGTERM)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-b.ended:
	case <-time.After(startTimeout):
		_ = b.cmd.Process.Kill()
		<-b.ended
	}
	if err := b.log.Close(); err != nil {
		return err
	}
	if code := b.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("the broker ended with exit code %d; its log is %s", code, b.log.Name())
	}
	return os.Remove(b.log.Name())
}

// A reply is an answer, read.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// do sends one request.
func (b *broker) do(ctx context.Context, method, path string, body []byte, header map[string]string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, b.base+path, bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	res, err := b.client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close() //nolint:errcheck // read to its end below
	text, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, text}, err
}

// want sends one request, expects that status and decodes the answer into v
// when v is not nil.
func (b *broker) want(ctx context.Context, status int, method, path string, body []byte, header map[string]string, v any) error {
	r, err := b.do(ctx, method, path, body, header)
	if err != nil {
		return err
	}
	if r.status != status {
		return fmt.Errorf("%s %s: status %d, not %d: %s", method, path, r.status, status, r.body)
	}
	if v == nil {
		return nil
	}
	return json.Unmarshal(r.body, v)
}
