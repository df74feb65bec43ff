package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
)

// A peer is a second process of this program, the other end of an exchange. In one process both
// ends share a scheduler and cause needless wake-ups of each other. In measurements a peer halved
// the CPU of an exchange, which a producer and a broker pay in full.
type peer struct {
	addr    string
	process Process
	cmd     *exec.Cmd
	stdin   io.Closer
}

// peerWithin bounds the start and the end of a peer.
const peerWithin = 10 * time.Second

// startPeer runs `bench peer` with further arguments and waits for its address.
func startPeer(args ...string) (_ *peer, err error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start peer: %w", err)
	}
	p := &peer{cmd: exec.Command(binary, append([]string{"peer"}, args...)...)}
	ownGroup(p.cmd)
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start peer: %w", err)
	}
	p.stdin = stdin
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start peer: %w", err), stdin.Close())
	}
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start peer: %w", err), stdin.Close())
	}
	p.process = Process{Name: "peer", PID: p.cmd.Process.Pid}
	late := time.AfterFunc(peerWithin, func() { _ = p.cmd.Process.Kill() }) // ends the read below
	line, err := bufio.NewReader(stdout).ReadString('\n')
	late.Stop()
	if err != nil {
		return nil, errors.Join(errors.New("start peer: it did not report its address"), p.Close())
	}
	p.addr = strings.TrimSpace(line)
	return p, nil
}

// Close ends the peer: it lives as long as its standard input is open, so it
// also ends when this process is killed.
func (p *peer) Close() error {
	err := p.stdin.Close()
	late := time.AfterFunc(peerWithin, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	return errors.Join(err, p.cmd.Wait())
}

// peerCommand is the other end: an HTTP server with an almost empty handler, or an echo. Only this
// program calls it.
func peerCommand(_ context.Context, args []string, out, progress io.Writer) (int, error) {
	f := flags("peer")
	size := f.Int("echo", 0, "answer each time so many bytes have arrived, without parsing them")
	if err := parse(f, args, out); err != nil {
		return ExitUsage, err
	}
	if *size < 0 || *size > maxBodyBytes {
		return ExitUsage, errors.New("peer: --echo needs a size that fits a request")
	}
	var addr string
	var stop func() error
	if *size > 0 {
		e, err := startEcho(*size)
		if err != nil {
			return ExitCannotStart, err
		}
		addr, stop = e.addr, e.Close
	} else {
		n, err := startNoop(func(rc *fasthttp.RequestCtx) {
			rc.SetStatusCode(fasthttp.StatusCreated)
			rc.Response.Header.Set("Location", "/channel/limits/message/00000000000000000000")
		})
		if err != nil {
			return ExitCannotStart, err
		}
		addr, stop = n.addr, n.Close
	}
	fmt.Fprintln(out, addr)
	_, err := io.Copy(io.Discard, os.Stdin)
	return ExitOK, errors.Join(err, stop())
}
