//go:build unix

package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"time"
)

// A wire is a client's connection straight to a broker, byte by byte, without a proxy. The broker
// sees exactly what the kernel does when a client dies.
type wire struct {
	*net.TCPConn
	answers *bufio.Reader
}

// wirePatience bounds the waits of a client on a wire.
const wirePatience = 10 * time.Second

// dialWire connects to a broker.
func dialWire(addr string) (*wire, error) {
	c, err := net.DialTimeout("tcp", addr, 2*time.Second)
	if err != nil {
		return nil, err
	}
	if err := c.SetDeadline(time.Now().Add(wirePatience)); err != nil {
		_ = c.Close() // nothing was sent
		return nil, err
	}
	return &wire{c.(*net.TCPConn), bufio.NewReaderSize(c, 4<<10)}, nil
}

// die ends the connection as the kernel of a dying client may: with a reset, with an orderly close,
// or with the end of the sending direction first.
func (w *wire) die(rng *rand.Rand) (how string) {
	switch rng.IntN(3) {
	case 0:
		_ = w.SetLinger(0) // fails only on what is closed already
		how = "reset"
	case 1:
		how = "closed"
	default:
		_ = w.CloseWrite()
		time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
		how = "half-closed, then closed"
	}
	_ = w.Close()
	return how
}

// silent waits for d, or until ctx ends, and reports whether no byte arrived in that time.
func (w *wire) silent(ctx context.Context, d time.Duration) bool {
	stop := context.AfterFunc(ctx, func() { _ = w.SetReadDeadline(time.Now()) })
	defer stop()
	_ = w.SetReadDeadline(time.Now().Add(d)) // fails only on what is closed already
	_, err := w.answers.Peek(1)
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// A script is a request as its bytes.
type script struct {
	bytes []byte
	ends  []int // of a batch: where each line ends
}

// request begins a script: everything but the length and the body.
func request(path, contentType string, fields ...string) []byte {
	b := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: broker\r\nContent-Type: %s\r\n", path, contentType)
	for pair := range slices.Chunk(fields, 2) {
		b = fmt.Appendf(b, "%s: %s\r\n", pair[0], pair[1])
	}
	return b
}

// whole is a script with one body.
func whole(head, body []byte) script {
	b := fmt.Appendf(head, "Content-Length: %d\r\n\r\n", len(body))
	return script{bytes: append(b, body...)}
}

// inLines is the script of a batch, its lines sent as chunks or with the length of all.
func inLines(head []byte, lines [][]byte, chunked bool) (s script) {
	size := 0
	for _, l := range lines {
		size += len(l)
	}
	if chunked {
		s.bytes = append(head, "Transfer-Encoding: chunked\r\n\r\n"...)
	} else {
		s.bytes = fmt.Appendf(head, "Content-Length: %d\r\n\r\n", size)
	}
	for _, l := range lines {
		if chunked {
			s.bytes = fmt.Appendf(s.bytes, "%x\r\n", len(l))
		}
		s.bytes = append(s.bytes, l...)
		s.ends = append(s.ends, len(s.bytes))
		if chunked {
			s.bytes = append(s.bytes, "\r\n"...)
		}
	}
	if chunked {
		s.bytes = append(s.bytes, "0\r\n\r\n"...)
	}
	return s
}

// sent is how many lines are complete in the first n bytes.
func (s *script) sent(n int) int {
	k, _ := slices.BinarySearch(s.ends, n+1)
	return k
}
