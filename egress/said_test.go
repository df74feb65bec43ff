package egress

import (
	"io"
	"net"

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
	return cn.exchange(&req)
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
