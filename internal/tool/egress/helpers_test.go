package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func client(t testing.TB, change ...func(*Options)) *Client {
	t.Helper()
	o := Options{UserAgent: "Penstock/test"}
	for _, f := range change {
		f(&o)
	}
	c := NewClient(o)
	t.Cleanup(c.Close)
	return c
}

func trust(s *httptest.Server) func(*Options) {
	return func(o *Options) {
		roots := x509.NewCertPool()
		roots.AddCert(s.Certificate())
		o.TLS = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
}

// post sends body to url once.
func post(t testing.TB, c *Client, url, protocol, body string, timeout time.Duration) Result {
	t.Helper()
	target, err := c.Target(ToConsumers, url, protocol)
	require.NoError(t, err)
	return postTo(target, body, timeout)
}

func postTo(target *Target, body string, timeout time.Duration) Result {
	req := fasthttp.AcquireRequest()
	defer fasthttp.ReleaseRequest(req)
	req.Header.SetContentType("text/plain")
	req.Header.Set("Idempotency-Key", "k")
	req.SetBodyString(body)
	return target.Post(req, timeout)
}

// A consumer is a server whose every connection is handled by hand.
type consumer struct {
	net.Listener
	conns    atomic.Int32
	requests atomic.Int32
}

func (s *consumer) url() string { return "http://" + s.Addr().String() + "/cb" }

// answering serves each connection with handle, which returns false to close it.
func answering(t testing.TB, handle func(conn net.Conn, n int) (keep bool)) *consumer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &consumer{Listener: l}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			go func() {
				defer conn.Close()
				defer context.AfterFunc(ctx, func() { conn.Close() })()
				br := bufio.NewReader(conn)
				for {
					r, err := http.ReadRequest(br)
					if err != nil {
						return
					}
					buf := make([]byte, 4096)
					for e := error(nil); e == nil; {
						_, e = r.Body.Read(buf)
					}
					if !handle(conn, int(s.requests.Add(1))) {
						return
					}
				}
			}()
		}
	}()
	return s
}

func saying(t testing.TB, answer string) *consumer {
	return answering(t, func(conn net.Conn, _ int) bool {
		_, err := conn.Write([]byte(answer))
		return err == nil
	})
}

func always(addrs ...string) func(*Options) {
	return func(o *Options) {
		o.Lookup = func(context.Context, string) ([]netip.Addr, error) {
			list := make([]netip.Addr, len(addrs))
			for i, a := range addrs {
				list[i] = netip.MustParseAddr(a)
			}
			return list, nil
		}
	}
}

func port(t testing.TB, l net.Listener) string {
	t.Helper()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

func says(status string, body string, headers ...string) string {
	return "HTTP/1.1 " + status + "\r\n" + strings.Join(append(headers, ""), "\r\n") +
		"Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}
