package api

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/intake"
)

// lateRead is how long a read whose deadline has passed looks for bytes that are there already.
const lateRead = time.Millisecond

// One goroutine at a time reads a clientConn, and the same one calls Ended.
type clientConn struct {
	*net.TCPConn
	ended bool
	from  *listener
	heard atomic.Bool // from does not remember the connection any more
	late  atomic.Bool // a read has looked once more since the deadline was set

	sent  atomic.Int64 // bytes of answers that were written
	pace  pace
	seat  seat
	given atomic.Bool // the connection is given up: no write is prolonged

	lingers atomic.Bool // Close reads what still comes
}

// A pace is how fast the client takes an answer.
type pace struct {
	until atomic.Int64 // the deadline of writing that the server set, Unix ns
	begun atomic.Int64 // sent at that time
	seen  int64        // sent when the deadline was prolonged last
}

// SetReadDeadline sets the deadline of the reads.
func (c *clientConn) SetReadDeadline(t time.Time) error {
	c.late.Store(false)
	if due := c.seat.headDue(); !due.IsZero() && (t.IsZero() || t.After(due)) {
		t = due
	}
	return c.TCPConn.SetReadDeadline(t)
}

func (c *clientConn) Close() error {
	if c.lingers.Swap(false) {
		c.readOut()
	}
	c.forget()
	c.leave()
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

// SetWriteDeadline sets the deadline of an answer that begins to be written now. A client that reads
// at least as fast as package intake wants bodies to come gets more time.
func (c *clientConn) SetWriteDeadline(t time.Time) error {
	c.pace.until.Store(t.UnixNano())
	c.pace.begun.Store(c.sent.Load())
	return c.TCPConn.SetWriteDeadline(t)
}

// Write writes a part of an answer, as long as the client reads.
func (c *clientConn) Write(p []byte) (n int, _ error) {
	for {
		some, err := c.TCPConn.Write(p[n:])
		n += some
		c.sent.Add(int64(some))
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || !c.prolong() {
			return n, err
		}
	}
}

// prolong moves a deadline of writing that has passed, unless the client was too slow.
func (c *clientConn) prolong() bool {
	sent, begun := c.sent.Load(), c.pace.begun.Load()
	paused := sent == max(c.pace.seen, begun)
	c.pace.seen = sent
	now := time.Now()
	next := intake.Deadline(time.Unix(0, c.pace.until.Load()).Add(-intake.Patience), now, int(sent-begun))
	if paused || !next.After(now) || c.TCPConn.SetWriteDeadline(next) != nil {
		return false
	}
	return !c.given.Load() // after the deadline, so that Cut comes before it or is seen
}

// ReadFrom writes what r has: that of TCPConn would pass Write by.
func (c *clientConn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c}, r)
}

// Cut ends a write under way, and all later ones: the client gets no more of its answer.
func (c *clientConn) Cut() {
	c.given.Store(true)
	_ = c.TCPConn.SetWriteDeadline(time.Unix(1, 0)) // a closed connection has no write under way
}
