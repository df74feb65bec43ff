package api

import (
	"errors"
	"io"
	"net"
)

// Listen returns a listener whose connections remember that their client has
// stopped sending. Servers of NewServer need it: fasthttp takes the end of the
// connection between two chunks for the end of the body, and a message that was
// cut short there would be stored as if it were whole. Connections that are not
// TCP are handed through.
func Listen(ln net.Listener) net.Listener { return listener{ln} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok && err == nil {
		return &clientConn{TCPConn: tcp}, nil
	}
	return c, err
}

// A clientConn is read by one goroutine at a time, the one that asks Ended.
type clientConn struct {
	*net.TCPConn
	ended bool
}

func (c *clientConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	if err != nil && errors.Is(err, io.EOF) {
		c.ended = true
	}
	return n, err
}

// Ended reports whether the end of what the client sends was met. A body in
// chunks that is over when this is true has no last chunk.
func (c *clientConn) Ended() bool { return c.ended }

func ended(c net.Conn) bool {
	e, ok := c.(interface{ Ended() bool })
	return ok && e.Ended()
}
