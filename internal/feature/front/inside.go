package front

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A link is a connection in memory, as this package sees it: it writes requests and reads answers.
type link struct {
	requests, answers *half
}

func newLink() *link { return &link{newHalf(), newHalf()} }

// abort ends the link. The handler of a request under way finds its client gone.
func (l *link) abort() {
	l.requests.abort()
	l.answers.abort()
}

// An inside is the end of a link that the HTTP/1.1 server has. It looks like the connection of the
// client: it has its addresses, and tells of it what api.Listen tells of a connection of TCP.
type inside struct {
	link          *link
	local, remote net.Addr
	slow          deadline    // of writing
	late          func() bool // whether the client's connection has no place; nil: it has one
	client        net.Conn    // whose requests all come through the link; nil: it is that of one request
	ended         atomic.Bool // the reader has seen the end

	closed chan struct{} // by the server
	once   sync.Once
	leave  func() // called when the server closes it; nil: nothing
}

// A deadline is told by when the answer must be written.
type deadline interface{ writeBy(t time.Time) error }

// Read reads what the client sent.
func (c *inside) Read(p []byte) (int, error) {
	n, err := c.link.requests.Read(p)
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		c.ended.Store(true)
	}
	return n, err
}

// Write writes a part of an answer.
func (c *inside) Write(p []byte) (int, error) { return c.link.answers.Write(p) }

// Close ends the connection. What was written is still sent to the client.
func (c *inside) Close() error {
	c.link.requests.abort()
	c.link.answers.end()
	c.once.Do(func() {
		if c.leave != nil {
			c.leave()
		}
		close(c.closed)
	})
	return nil
}

// LocalAddr is where the client's connection was accepted.
func (c *inside) LocalAddr() net.Addr { return c.local }

// RemoteAddr is the address of the client.
func (c *inside) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines.
func (c *inside) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t) // it never fails
	return c.SetWriteDeadline(t)
}

// SetReadDeadline sets the deadline of the reads.
func (c *inside) SetReadDeadline(t time.Time) error {
	c.link.requests.setDeadline(t)
	return nil
}

// SetWriteDeadline sets the deadline of the answer, which is prolonged for a client that reads.
func (c *inside) SetWriteDeadline(t time.Time) error { return c.slow.writeBy(t) }

// Ended reports whether the client had stopped sending when the last read returned.
func (c *inside) Ended() bool { return c.ended.Load() }

// Gone reports whether the client waits for no answer any more.
func (c *inside) Gone() bool { return c.link.requests.over() }

// Cut ends the answer: the client gets no more of it.
func (c *inside) Cut() { c.link.abort() }

// Late reports whether the client's connection has no place.
func (c *inside) Late() bool { return c.late != nil && c.late() }

// Client returns the connection of the client, if the link carries all its requests.
func (c *inside) Client() net.Conn { return c.client }

// A secure is an inside of a client that speaks TLS.
type secure struct {
	*inside
	state tls.ConnectionState
}

// Handshake says that there is TLS. It was done before.
func (*secure) Handshake() error { return nil }

// ConnectionState is that of the client's connection. It names no protocol: what is inside is
// HTTP/1.1.
func (c *secure) ConnectionState() tls.ConnectionState { return c.state }

// An entrance is the listener of the connections in memory.
type entrance struct {
	queue chan net.Conn
	done  chan struct{}
	over  atomic.Bool
}

func newEntrance() *entrance {
	return &entrance{queue: make(chan net.Conn), done: make(chan struct{})}
}

var errStopped = errors.New("front: the server has stopped")

// enter hands a connection to the server.
func (e *entrance) enter(c net.Conn) error {
	select {
	case e.queue <- c:
		return nil
	case <-e.done:
		return errStopped
	}
}

// Accept returns io.EOF after Close.
func (e *entrance) Accept() (net.Conn, error) {
	select {
	case c := <-e.queue:
		return c, nil
	case <-e.done:
		return nil, io.EOF
	}
}

// Close ends Accept.
func (e *entrance) Close() error {
	if !e.over.Swap(true) {
		close(e.done)
	}
	return nil
}

// Addr is that of no network.
func (*entrance) Addr() net.Addr { return &net.TCPAddr{} }

// A lasting is an entrance that the HTTP/1.1 server does not close: while that server stops, requests
// of HTTP/2 whose clients do not know it yet still enter. The front closes it.
type lasting struct{ *entrance }

// Close does nothing.
func (lasting) Close() error { return nil }
