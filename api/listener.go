package api

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	leastAcceptPause = 5 * time.Millisecond
	mostAcceptPause  = 200 * time.Millisecond
	acceptWarnEvery  = time.Minute
)

// Listen returns a listener for servers of NewServer, which need it for two reasons.
//
// First, its connections record that the client has stopped sending. fasthttp takes the end
// of the connection between two chunks for the end of the body, and would store a truncated
// message as a whole one.
//
// Second, it waits while no connection can be accepted, where fasthttp would end the server.
//
// Connections that are not TCP are passed through.
//
// Close also closes the connections on which no byte has come. fasthttp would wait for their
// first request until its timeout, and clients that connect ahead would hold up a stop.
func Listen(ln net.Listener) net.Listener {
	return &listener{Listener: ln, silent: map[*clientConn]struct{}{}}
}

// One goroutine at a time calls a listener.
type listener struct {
	net.Listener
	warned time.Time // the last time that a failure was logged

	mu     sync.Mutex
	silent map[*clientConn]struct{} // connections without a byte; nil: the listener is closed
}

// add remembers a connection until its first byte, unless the listener is closed.
func (l *listener) add(c *clientConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.silent == nil {
		return false
	}
	l.silent[c] = struct{}{}
	return true
}

func (l *listener) forget(c *clientConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.silent, c)
}

// Close closes the listener and the connections on which no byte has come.
func (l *listener) Close() error {
	err := l.Listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.silent {
		_ = c.TCPConn.Close()
	}
	l.silent = nil
	return err
}

func (l *listener) Accept() (net.Conn, error) {
	for pause := leastAcceptPause; ; pause = min(2*pause, mostAcceptPause) {
		c, err := l.Listener.Accept()
		if err != nil && passes(err) {
			if time.Since(l.warned) > acceptWarnEvery {
				l.warned = time.Now()
				slog.Warn("the listener cannot accept connections at the moment", "error", err)
			}
			time.Sleep(pause)
			continue
		}
		if tcp, ok := c.(*net.TCPConn); ok && err == nil {
			client := &clientConn{TCPConn: tcp, from: l}
			if !l.add(client) {
				_ = tcp.Close()
				return nil, net.ErrClosed
			}
			return client, nil
		}
		return c, err
	}
}

// passing are the failures after which the listener still works: descriptors or memory are
// used up, or the connection ended or was forbidden before it was accepted.
var passing = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EPROTO, syscall.EPERM}

func passes(err error) bool {
	return slices.ContainsFunc(passing, func(e error) bool { return errors.Is(err, e) })
}

// lateRead is how long a read whose deadline has passed looks for bytes that are there already.
const lateRead = time.Millisecond

// One goroutine at a time reads a clientConn, and the same one calls Ended.
type clientConn struct {
	*net.TCPConn
	ended bool
	from  *listener
	heard atomic.Bool // from does not remember the connection any more
	late  atomic.Bool // a read has looked once more since the deadline was set
}

// SetReadDeadline sets the deadline of the reads.
func (c *clientConn) SetReadDeadline(t time.Time) error {
	c.late.Store(false)
	return c.TCPConn.SetReadDeadline(t)
}

func (c *clientConn) Close() error {
	c.forget()
	return c.TCPConn.Close()
}

func (c *clientConn) forget() {
	if !c.heard.Swap(true) {
		c.from.forget(c)
	}
}

// Read reads once more when the deadline has passed: a broker that stood still may find the deadline
// over and a request that came in time. A connection on which the client never sent a byte would
// otherwise answer 408 to its first request.
func (c *clientConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && !c.late.Swap(true) {
		if c.TCPConn.SetReadDeadline(time.Now().Add(lateRead)) == nil {
			n, err = c.TCPConn.Read(p)
		}
	}
	if !c.heard.Load() {
		c.forget()
	}
	if err != nil && errors.Is(err, io.EOF) {
		c.ended = true
	}
	return n, err
}

// Ended reports whether the client has closed its sending side. A chunked body that ends
// with Ended true has no last chunk, and is truncated.
func (c *clientConn) Ended() bool { return c.ended }
