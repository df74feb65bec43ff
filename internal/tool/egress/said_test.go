package egress

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// A said is a connection to a server whose answer is answer, and then its end.
type said struct {
	net.Conn // nil: deadlines are not used
	answer   io.Reader
}

func (s said) Read(p []byte) (int, error)  { return s.answer.Read(p) }
func (s said) Write(p []byte) (int, error) { return io.Discard.Write(p) }
func (s said) Close() error                { return nil }

// exchangeWith sends a request to a server that says answer whatever it is asked.
func exchangeWith(c *Client, answer io.Reader) (Result, bool) {
	cn := newConn(c, said{answer: answer})
	defer cn.close()
	var req fasthttp.Request
	req.Header.SetMethod(fasthttp.MethodPost)
	req.SetRequestURI("/")
	req.Header.SetHost("h")
	return cn.exchange(&req, nil)
}

// An endless reader gives its head, then filler for ever, and counts.
type endless struct {
	head, filler string
	taken        int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.head)
	e.head = e.head[n:]
	for n < len(p) && len(e.head) == 0 {
		e.head = e.filler
		m := copy(p[n:], e.head)
		e.head = e.head[m:]
		n += m
	}
	e.taken += n
	return n, nil
}

// A tape is a connection that keeps what is written to it.
type tape struct {
	said
	text *strings.Builder
}

func (h tape) Write(p []byte) (int, error) { return h.text.Write(p) }
func (h tape) SetDeadline(time.Time) error { return nil } // its timer never runs

// A process that stood still between choosing a connection and writing to it sends
// nothing any more, although the connection's own deadline has not struck yet.
func TestAnExchangeWhoseTimeIsOverSendsNothing(t *testing.T) {
	c := client(t)
	for _, late := range []bool{false, true} {
		var text strings.Builder
		cn := newConn(c, tape{said{answer: strings.NewReader("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")}, &text})
		deadline := time.Now().Add(time.Minute)
		if late {
			deadline = time.Now().Add(-time.Millisecond)
		}
		require.NoError(t, cn.until(deadline))
		var req fasthttp.Request
		req.Header.SetMethod(fasthttp.MethodPost)
		req.SetRequestURI("/")
		req.Header.SetHost("h")
		req.SetBodyString(strings.Repeat("x", 20_000)) // more than a buffer
		r, keep := cn.exchange(&req, nil)
		cn.close()
		require.Equal(t, !late, keep)
		if late {
			require.ErrorIs(t, r.Err, ErrTimeout)
			require.Empty(t, text.String())
			continue
		}
		require.NoError(t, r.Err)
		require.Greater(t, text.Len(), 20_000)
	}
}
