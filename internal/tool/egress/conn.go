package egress

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
)

// readBuffer is enough for the headers of usual answers, bytes.
const readBuffer = 16 << 10

var (
	readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, readBuffer) }}
	writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 8<<10) }}
	scratch = sync.Pool{New: func() any { return new([4 << 10]byte) }}
)

// A conn is one connection, used by one exchange at a time.
type conn struct {
	net.Conn  // TCP, or TLS over it
	c         *Client
	raw       syscall.RawConn // of the TCP connection; nil where there is none
	peek      func(fd uintptr) bool
	dead      bool       // set by peek
	handshake *handshake // nil where there was none
	created   time.Time
	lastUse   time.Time
	deadline  time.Time // of the exchange; zero where net/http minds it
}

func newConn(c *Client, tcp net.Conn) *conn {
	cn := &conn{Conn: tcp, c: c, created: time.Now()}
	if sc, ok := tcp.(syscall.Conn); ok {
		cn.raw, _ = sc.SyscallConn()
		cn.peek = func(fd uintptr) bool {
			cn.dead = !quiet(fd)
			return true
		}
	}
	c.mu.Lock()
	c.conns[cn] = struct{}{}
	c.mu.Unlock()
	return cn
}

func (cn *conn) close() {
	cn.Conn.Close()
	cn.c.mu.Lock()
	delete(cn.c.conns, cn)
	cn.c.mu.Unlock()
}

// until sets the deadline of the next exchange.
func (cn *conn) until(deadline time.Time) error {
	cn.deadline = deadline
	return cn.SetDeadline(deadline)
}

// Write sends nothing once the deadline is over. The connection's own deadline takes
// effect when its timer has run: a process that stood still may get to write before
// that, on a lease that another worker has by now.
func (cn *conn) Write(b []byte) (int, error) {
	if !cn.deadline.IsZero() && !time.Now().Before(cn.deadline) {
		return 0, os.ErrDeadlineExceeded
	}
	return cn.Conn.Write(b)
}

// interrupt makes a read under way return. The connection is of no use afterwards.
func (cn *conn) interrupt() { _ = cn.SetReadDeadline(time.Unix(1, 0)) }

// stale reports whether the server has closed an idle connection, or has said
// something unasked on it, which would be taken for the answer to the next
// request. Costs one system call; what it cannot see is a close that is still
// on its way, and then the exchange fails with Sent set.
func (cn *conn) stale() bool {
	if cn.raw == nil {
		return false
	}
	cn.dead = false
	return cn.raw.Read(cn.peek) != nil || cn.dead
}

// exchange sends req and reads the answer under the deadline that is set, and
// reports whether the connection can be used again.
func (cn *conn) exchange(req *fasthttp.Request, kept *Keep) (r Result, keep bool) {
	bw := writers.Get().(*bufio.Writer)
	bw.Reset(cn)
	werr := req.Write(bw)
	if werr == nil {
		werr = bw.Flush()
	}
	bw.Reset(nil)
	writers.Put(bw)
	if werr != nil && isTimeout(werr) {
		return failed(ErrTimeout, true), false
	}

	// After a failed write there may still be an answer: a server that refuses
	// the body says so and closes.
	br := readers.Get().(*bufio.Reader)
	br.Reset(cn.Conn)
	resp := fasthttp.AcquireResponse()
	resp.StreamBody = true
	r, keep = cn.read(resp, br, kept)
	fasthttp.ReleaseResponse(resp)
	br.Reset(nil)
	readers.Put(br)
	if werr != nil {
		keep = false
		if alert(r.Err) {
			return r, false // the reason, which came before the end
		}
		if r.Err != nil || r.OK() { // it cannot have accepted what it did not get
			return failed(fmt.Errorf("egress: write: %w", werr), true), false
		}
	}
	keep = keep && !req.ConnectionClose()
	return r, keep
}

// read reads the answer: 1xx heads (at most 100, the codec's limit), the final
// head, and the part of the body that is kept.
func (cn *conn) read(resp *fasthttp.Response, br *bufio.Reader, kept *Keep) (r Result, keep bool) {
	start, err := br.Peek(len("HTTP/1.1 000"))
	switch {
	case alert(err): // the codec would take it for the end
		return failed(fmt.Errorf("egress: TLS: %w", err), true), false
	case bytes.HasPrefix(start, tlsAlert):
		return failed(errTLS, true), false
	}
	mended := false
	if bytes.HasPrefix(bytes.TrimLeft(start, "\r\n"), []byte("HTTP/1.")) {
		br, mended, err = parse(resp, br)
	} else {
		err = resp.ReadLimitBody(br, maxAnswerBytes)
	}
	if err != nil {
		return failed(readError(err), true), false
	}
	if resp.StatusCode() < 100 {
		return failed(errNotHTTP, true), false
	}
	r = Result{
		Status:     resp.StatusCode(),
		Sent:       true,
		RetryAfter: parseRetryAfter(string(resp.Header.Peek(fasthttp.HeaderRetryAfter)), time.Now()),
	}
	length := resp.Header.ContentLength() // -1 chunked, -2 until the connection ends
	whole := true
	if kept != nil && r.Status/100 == 2 {
		r.Response = &Response{}
		resp.Header.SetNoDefaultContentType(true) // else one that was not sent would be kept
		for name, value := range resp.Header.All() {
			r.Response.Add(kept, string(name), string(value))
		}
	}
	if body := resp.BodyStream(); body != nil {
		if length == -1 { // the codec's stream takes a cut between two chunks for the end
			body = httputil.NewChunkedReader(br)
		}
		var err error
		if r.Response != nil {
			r.Response.Body, r.Response.Truncated, err = kept.read(body, length, cn.interrupt)
			whole = !r.Response.Truncated
		} else {
			r.Answer, whole, err = readAnswer(body, length > maxAnswerBytes)
		}
		if err == nil && whole && length == -1 {
			if err = resp.Header.ReadTrailer(br); err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
		}
		if err != nil {
			r.Err = bodyError(err, length == -1)
		}
	}
	keep = r.Err == nil && whole && !mended && length != -2 && br.Buffered() == 0 &&
		r.Status != fasthttp.StatusSwitchingProtocols && !resp.ConnectionClose()
	return r, keep
}

// readAnswer reads a body up to maxAnswerBytes and returns its first KiB. whole
// is false when there is more than that; known says so in advance, and then only
// the first KiB is read, and an error there does not matter either: the status
// decides.
func readAnswer(body io.Reader, known bool) (answer []byte, whole bool, err error) {
	buf := scratch.Get().(*[4 << 10]byte)
	defer scratch.Put(buf)
	total, filled := 0, 0
	for total <= maxAnswerBytes {
		into := buf[filled:]
		if filled >= keepAnswerBytes {
			into = buf[keepAnswerBytes:]
		}
		n, e := body.Read(into)
		total += n
		filled = max(filled, min(filled+n, keepAnswerBytes))
		if e == io.EOF {
			whole = true
			break
		}
		if e != nil {
			err = e
			break
		}
		if known && filled >= keepAnswerBytes {
			break
		}
	}
	if filled > 0 {
		answer = append([]byte(nil), buf[:filled]...)
	}
	if known {
		return answer, false, nil
	}
	return answer, whole, err
}

var (
	errNotHTTP = errors.New("egress: the answer is not HTTP/1.1")
	errChunks  = errors.New("egress: the chunks of the answer are malformed")
	errTLS     = errors.New("egress: the consumer speaks TLS, not HTTP: its callback URL has to begin with https")
)

// tlsAlert is how a server of TLS begins its answer to plain text.
var tlsAlert = []byte{21, 3}

func readError(err error) error {
	if e := lost(err); e != nil {
		return e
	}
	for _, e := range []error{errHeadSize, errLengths, errTransfer, errInterim, errNotHTTP} {
		if errors.Is(err, e) {
			return err
		}
	}
	return headError(err)
}

// lost returns what became of the connection, nil where an error is about what was read.
func lost(err error) error {
	switch {
	case isTimeout(err):
		return ErrTimeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("%w (%w)", ErrNoAnswer, err)
	}
	return nil
}

func bodyError(err error, chunked bool) error {
	switch {
	case isTimeout(err):
		return ErrTimeout
	case chunked && lost(err) == nil && !foreign(err):
		err = errChunks
	}
	return fmt.Errorf("%w: %w", ErrIncomplete, err)
}

func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}
