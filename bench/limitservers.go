package bench

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// A noop is an HTTP server with an almost empty handler.
type noop struct {
	addr   string
	server *fasthttp.Server
	served sync.WaitGroup
}

func startNoop(h fasthttp.RequestHandler) (*noop, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n := &noop{addr: ln.Addr().String(), server: &fasthttp.Server{Handler: h, NoDefaultServerHeader: true,
		Logger: silent{}, CloseOnShutdown: true}}
	n.served.Go(func() { _ = n.server.Serve(ln) })
	return n, nil
}

// Close stops listening and waits shortly for connections to end.
func (n *noop) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = n.server.ShutdownWithContext(ctx) // open connections of clients no longer matter
	n.served.Wait()
	return nil
}

// An echo sends a fixed answer after each given number of bytes, without parsing them. Only the
// client and the kernel are left to measure.
type echo struct {
	addr string
	ln   net.Listener

	mu      sync.Mutex
	conns   []net.Conn
	closing bool
	running sync.WaitGroup
}

var echoAnswer = []byte("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")

func startEcho(requestBytes int) (*echo, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e := &echo{addr: ln.Addr().String(), ln: ln}
	e.running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			if !e.keep(c) {
				_ = c.Close()
				return
			}
			e.running.Go(func() { answerUnread(c, requestBytes) })
		}
	})
	return e, nil
}

// keep records a connection for Close. It returns false after Close.
func (e *echo) keep(c net.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.conns = append(e.conns, c)
	return !e.closing
}

func answerUnread(c net.Conn, requestBytes int) {
	buf := make([]byte, requestBytes)
	for {
		if _, err := io.ReadFull(c, buf); err != nil {
			return
		}
		if _, err := c.Write(echoAnswer); err != nil {
			return
		}
	}
}

// Close ends all connections.
func (e *echo) Close() error {
	e.mu.Lock()
	e.closing = true
	errs := []error{e.ln.Close()}
	for _, c := range e.conns {
		_ = c.Close() // the client may have been first
	}
	e.mu.Unlock()
	e.running.Wait()
	return errors.Join(errs...)
}
