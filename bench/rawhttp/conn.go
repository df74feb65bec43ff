package rawhttp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// ErrNotSent means that no byte of the request left this process.
var ErrNotSent = errors.New("rawhttp: request not sent")

// ErrTooLarge means that an answer is larger than MaxBody.
var ErrTooLarge = errors.New("rawhttp: response body too large")

// MaxBody bounds the body of an answer, in bytes.
const MaxBody = 64 << 20

// inlineWrite is the largest request that is written before its answer is read.
// A server that answers while it still reads could otherwise fill both
// directions and wait for ever.
const inlineWrite = 64 << 10

// A Response is an answer. Its slices are valid until the next Do.
type Response struct {
	Status     int
	Body       []byte
	RetryAfter int // seconds, 0 when there is none

	headers []byte
}

// Header returns the value of the first header with that lower-case name, nil if there is none.
func (r *Response) Header(lower string) []byte {
	for rest := r.headers; len(rest) > 0; {
		eol := bytes.IndexByte(rest, '\n')
		if eol < 0 {
			return nil
		}
		if name, value, ok := splitField(rest[:eol+1]); ok && foldEqual(name, lower) {
			return value
		}
		rest = rest[eol+1:]
	}
	return nil
}

// A Conn is one keep-alive connection. It is made at the first Do, and again after it broke. Only
// one goroutine at a time may use it.
type Conn struct {
	addr    string
	timeout time.Duration

	c        net.Conn
	deadline time.Time
	buf      []byte // bytes read; [r:w] are not consumed
	r, w     int
	body     []byte
	res      Response
}

// New returns a connection to host:port, which the first Do dials. timeout is a loose bound of an
// round trip, which fails after at least that time and at most twice that time.
func New(addr string, timeout time.Duration) *Conn {
	return &Conn{addr: addr, timeout: timeout, buf: make([]byte, 4<<10)}
}

// Do sends request and reads the answer. On ErrNotSent the server cannot have
// seen the request; on any other error it may have acted on it.
func (c *Conn) Do(request []byte) (*Response, error) {
	if c.c == nil {
		conn, err := net.DialTimeout("tcp", c.addr, c.timeout)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
		}
		c.c, c.r, c.w, c.deadline = conn, 0, 0, time.Time{}
	}
	if err := c.roundTrip(request); err != nil {
		c.Close()
		return nil, err
	}
	return &c.res, nil
}

// Close closes the connection; the next Do makes a new one.
func (c *Conn) Close() {
	if c.c != nil {
		_ = c.c.Close() // unread bytes of the connection do not matter
		c.c = nil
	}
}

func (c *Conn) roundTrip(request []byte) error {
	// Moving a deadline costs as much as a small system call: once in a while is enough.
	if now := time.Now(); c.deadline.Sub(now) < c.timeout {
		c.deadline = now.Add(2 * c.timeout)
		if err := c.c.SetDeadline(c.deadline); err != nil {
			return err
		}
	}
	if c.w != c.r {
		return fmt.Errorf("%w: bytes before the request", ErrMalformed)
	}
	c.r, c.w = 0, 0
	if len(request) > inlineWrite {
		written := make(chan error, 1)
		go func(conn net.Conn) {
			_, err := conn.Write(request)
			written <- err
		}(c.c)
		err := c.receive()
		early := err == nil && c.res.Status >= 400 // a refusal may come before the end of the request
		if err != nil || early {
			c.Close() // ends the writer
		}
		if writeErr := <-written; !early {
			err = errors.Join(err, writeErr)
		}
		return err
	}
	if n, err := c.c.Write(request); err != nil {
		if n == 0 {
			// The kernel took no byte, and the peer may have closed before, so it has seen nothing
			// of this request.
			return fmt.Errorf("%w: %w", ErrNotSent, err)
		}
		return err
	}
	return c.receive()
}

// receive reads one final answer into c.res.
func (c *Conn) receive() error {
	var h head
	for {
		var n int
		var err error
		if h, n, err = parseHead(c.buf[c.r:c.w]); err != nil {
			return err
		}
		if n > 0 {
			c.r += n
			if h.status >= 200 {
				break
			}
			continue // 1xx: the answer is still to come
		}
		if err := c.fill(); err != nil {
			return err
		}
	}
	// Reading the body may move the buffer: keep the headers.
	c.res.headers = append(c.res.headers[:0], h.headers...)
	c.res.Status, c.res.RetryAfter = h.status, h.retry
	var err error
	switch h.length {
	case lengthChunked:
		err = c.readChunks()
	case lengthUntilClose:
		err = c.readAll()
	default:
		err = c.readBody(h.length)
	}
	if err != nil {
		return err
	}
	if h.close || h.length == lengthUntilClose {
		c.Close()
	}
	return nil
}

// fill reads more bytes and makes room for them if necessary.
func (c *Conn) fill() error {
	if c.w == len(c.buf) {
		if c.r > 0 {
			c.w = copy(c.buf, c.buf[c.r:c.w])
			c.r = 0
		} else {
			c.buf = append(c.buf, make([]byte, len(c.buf))...)
		}
	}
	n, err := c.c.Read(c.buf[c.w:])
	c.w += n
	if n > 0 {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (c *Conn) readBody(length int) error {
	if length > MaxBody {
		return ErrTooLarge
	}
	if c.w-c.r >= length { // the usual case: no copy
		c.res.Body = c.buf[c.r : c.r+length]
		c.r += length
		return nil
	}
	c.body = c.body[:0]
	if err := c.take(length); err != nil {
		return err
	}
	c.res.Body = c.body
	return nil
}

// take appends the next n bytes to c.body.
func (c *Conn) take(n int) error {
	for n > 0 {
		if c.r == c.w {
			if err := c.fill(); err != nil {
				return err
			}
		}
		k := min(n, c.w-c.r)
		c.body = append(c.body, c.buf[c.r:c.r+k]...)
		c.r += k
		n -= k
	}
	return nil
}

func (c *Conn) readAll() error {
	c.body = c.body[:0]
	for {
		c.body = append(c.body, c.buf[c.r:c.w]...)
		c.r, c.w = 0, 0
		if len(c.body) > MaxBody {
			return ErrTooLarge
		}
		if err := c.fill(); errors.Is(err, io.ErrUnexpectedEOF) {
			c.res.Body = c.body
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (c *Conn) readChunks() error {
	c.body = c.body[:0]
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		text, _, _ := bytes.Cut(line, []byte{';'})
		size, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 16, 32)
		if err != nil {
			return ErrMalformed
		}
		if len(c.body)+int(size) > MaxBody {
			return ErrTooLarge
		}
		if size == 0 {
			break
		}
		if err := c.take(int(size)); err != nil {
			return err
		}
		if line, err = c.line(); err != nil {
			return err
		}
		if len(line) != 0 {
			return ErrMalformed
		}
	}
	for { // trailers
		line, err := c.line()
		if err != nil {
			return err
		}
		if len(line) == 0 {
			c.res.Body = c.body
			return nil
		}
	}
}

// line returns the next line without its CRLF, valid until the next read.
func (c *Conn) line() ([]byte, error) {
	for {
		if i := bytes.IndexByte(c.buf[c.r:c.w], '\n'); i >= 0 {
			line := c.buf[c.r : c.r+i]
			c.r += i + 1
			return bytes.TrimSuffix(line, []byte{'\r'}), nil
		}
		if c.w-c.r > maxHeadBytes {
			return nil, ErrMalformed
		}
		if err := c.fill(); err != nil {
			return nil, err
		}
	}
}
