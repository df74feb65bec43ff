package api

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// A script is a connection whose client sent everything at once and left.
type script struct {
	in    *bytes.Reader
	out   bytes.Buffer
	ended bool
}

func (s *script) Read(p []byte) (int, error) {
	n, err := s.in.Read(p)
	s.ended = s.ended || err != nil
	return n, err
}

func (s *script) Write(p []byte) (int, error)      { return s.out.Write(p) }
func (s *script) Close() error                     { return nil }
func (s *script) LocalAddr() net.Addr              { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
func (s *script) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }
func (s *script) Ended() bool                      { return s.ended }

// A read request is how a server understood one.
type readRequest struct{ method, target, body string }

// understood serves a client that sends input and returns what reached the handler.
func understood(t *testing.T, input []byte) (all []readRequest, answers string) {
	s := NewServer(loaded(1<<16, func(rc *fasthttp.RequestCtx) {
		all = append(all, readRequest{string(rc.Method()), string(rc.RequestURI()), string(rc.PostBody())})
	}), ServerOptions{})
	c := &script{in: bytes.NewReader(input)}
	_ = s.ServeConn(c) // what is wrong with the input is in the answers
	return all, c.out.String()
}

// Two servers in a row must agree where a request ends: whatever this one
// carries out, net/http reads in the same way, if it reads it at all.
func FuzzRequestsAreReadAsNetHTTPReadsThem(f *testing.F) {
	next := "GET /next HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, s := range []string{
		"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
		"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n3;a=\"b\"\r\nabc\r\n0\r\nX-T: 1\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
		"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
		"GET http://y/a?b#c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"\r\nOPTIONS * HTTP/1.1\r\nHost: x\r\nX A: b\r\nX-B:\r\n c\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 00003\r\nContent-Type: multipart/form-data; boundary=b\r\n\r\n--b",
	} {
		f.Add([]byte(s + next))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		ours, answers := understood(t, input)
		require.NotContains(t, answers, "HTTP/1.1 500")
		theirs := bufio.NewReader(bytes.NewReader(input))
		for i, got := range ours {
			r, err := http.ReadRequest(theirs)
			if err != nil {
				return // it ends the connection here
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				require.Failf(t, "a body that net/http refuses was accepted", "%d of %q: %v", i, input, err)
			}
			require.Equal(t, readRequest{r.Method, r.RequestURI, string(body)}, got, "request %d of %q", i, input)
		}
	})
}

// Whatever a header block is, the check of it ends and says the same of its
// parts: no line of an accepted block is one that it refuses alone.
func FuzzAmbiguous(f *testing.F) {
	for _, s := range []string{"", "\r\n", "Host: x\r\nX-A: b\r\n\r\n",
		"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "A: b\r\n c\r\n\r\n", "A: b\n\n", "A B: c\r\n\r\n",
		"transfer-encoding:\tCHUNKED \r\n\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, block []byte) {
		if _, err := inspect(block); err != nil {
			return
		}
		for line := range strings.SplitAfterSeq(string(block), "\n") {
			_, err := inspect([]byte(line))
			require.NoError(t, err, "%q of %q", line, block)
			name, value, _ := strings.Cut(strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), ":")
			require.NotContains(t, name, " ")
			if strings.EqualFold(name, "Transfer-Encoding") {
				require.True(t, strings.EqualFold(strings.Trim(value, " \t"), "chunked"))
			}
		}
	})
}
