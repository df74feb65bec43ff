package api

import (
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
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
//
// places bound the connections; nil: they are not bounded.
func Listen(ln net.Listener, places *Places) net.Listener {
	return &listener{Listener: ln, places: places, silent: map[*clientConn]struct{}{}}
}

// One goroutine at a time calls a listener.
type listener struct {
	net.Listener
	places *Places
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
			if l.places != nil && !l.places.admit(client) {
				_ = tcp.Close()
				continue
			}
			if !l.add(client) {
				_ = client.Close()
				return nil, net.ErrClosed
			}
			client.await()
			return client, nil
		}
		return c, err
	}
}

// passing are the failures after which the listener still works: descriptors or memory are
// used up, or the connection ended or was forbidden before it was accepted.
var passing = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED,
	syscall.EPROTO, syscall.EPERM}

func passes(err error) bool {
	return slices.ContainsFunc(passing, func(e error) bool { return errors.Is(err, e) })
}
