package front

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"go.uber.org/goleak"

	"github.com/penstock-broker/penstock/internal/test/certs"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// patience bounds the waits of tests.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2")) // both end with their next tick
}

// A rig is a front before a server of HTTP/1.1.
type rig struct {
	t             *testing.T
	authority     *certs.Authority
	files         Files
	front         *Front
	server        *fasthttp.Server
	secure, plain string // addresses
	streams       *share.Bound
	run           chan struct{} // closed when Run has returned
}

// newRig starts a front; change may change what is served.
func newRig(t *testing.T, h fasthttp.RequestHandler, change func(*Options, *fasthttp.Server, Files)) *rig {
	t.Helper()
	r := &rig{t: t, run: make(chan struct{}), streams: share.New(share.Options{Name: "streams", Most: 2000})}
	var err error
	r.authority, err = certs.NewAuthority()
	require.NoError(t, err)
	dir := t.TempDir()
	r.files = Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	r.issue(nil)
	r.server = &fasthttp.Server{Handler: h, StreamRequestBody: true, MaxRequestBodySize: 1, ReadBufferSize: 16 << 10,
		ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, CloseOnShutdown: true,
		NoDefaultServerHeader: true, NoDefaultContentType: true, Logger: quietly{}}
	secure, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r.secure, r.plain = secure.Addr().String(), plain.Addr().String()
	o := Options{TLS: secure, H2C: plain, Serve: r.server.Serve, Streams: r.streams,
		Registry: prometheus.NewRegistry(),
		Log:      slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o, r.server, r.files)
	}
	if o.Certificates == nil {
		o.Certificates, err = Open(r.files)
		require.NoError(t, err)
	}
	r.front = New(o)
	go func() {
		defer close(r.run)
		r.front.Run(context.Background())
	}()
	t.Cleanup(func() { r.stop() })
	return r
}

type quietly struct{}

func (quietly) Printf(string, ...any) {}

// stop stops the front and then the server, and requires that nothing is left.
func (r *rig) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(r.t, r.front.Shutdown(ctx))
	require.NoError(r.t, r.server.ShutdownWithContext(ctx))
	select {
	case <-r.run:
	case <-ctx.Done():
		require.Fail(r.t, "the front does not end")
	}
	require.Zero(r.t, r.streams.Taken())
}

// issue writes another certificate and its key.
func (r *rig) issue(change func(*x509.Certificate)) {
	issued, err := r.authority.Issue(change)
	require.NoError(r.t, err)
	cert, key, err := certs.PEM(issued)
	require.NoError(r.t, err)
	require.NoError(r.t, os.WriteFile(r.files.Cert, cert, 0o600))
	require.NoError(r.t, os.WriteFile(r.files.Key, key, 0o600))
}

// client returns a client of h2, h2c or http/1.1 over TLS, and the address of its URLs.
func (r *rig) client(protocol string, with ...tls.Certificate) (*http.Client, string) {
	var p http.Protocols
	base := "https://" + r.secure
	switch protocol {
	case "h2":
		p.SetHTTP2(true)
	case "h2c":
		p.SetUnencryptedHTTP2(true)
		base = "http://" + r.plain
	default:
		p.SetHTTP1(true)
	}
	transport := &http.Transport{Protocols: &p, TLSClientConfig: &tls.Config{RootCAs: r.authority.Pool(),
		Certificates: with, MinVersion: tls.VersionTLS12}}
	r.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}, base
}

// each runs a test for each protocol.
func (r *rig) each(test func(t *testing.T, c *http.Client, base string)) {
	for _, protocol := range protocols {
		r.t.Run(protocol, func(t *testing.T) {
			c, base := r.client(protocol)
			defer c.CloseIdleConnections()
			test(t, c, base)
		})
	}
}

func read(t *testing.T, r *http.Response, err error) string {
	t.Helper()
	require.NoError(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(text)
}

// echo answers with what it gets.
func echo(rc *fasthttp.RequestCtx) {
	body := io.Reader(bytes.NewReader(rc.Request.Body()))
	if s := rc.RequestBodyStream(); s != nil {
		text, err := io.ReadAll(s)
		if err != nil || intake.CutShort(rc.Conn()) {
			rc.SetStatusCode(400)
			return
		}
		body = bytes.NewReader(text)
	}
	rc.Response.Header.Set("X-Secure", strconv.FormatBool(rc.IsTLS()))
	rc.Response.Header.Set("X-From", rc.RemoteAddr().String())
	rc.Response.Header.Set("X-Seen", string(rc.Method())+" "+string(rc.RequestURI())+" "+string(rc.Host()))
	rc.SetBodyStream(body, -1)
}

func TestARequestArrivesAsItWasSent(t *testing.T) {
	newRig(t, echo, nil).each(func(t *testing.T, c *http.Client, base string) {
		for _, size := range []int{0, 1, 100, pipeBytes - 1, pipeBytes, pipeBytes + 1, 3 << 20, 32 << 20} {
			body := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
			for _, from := range []io.Reader{bytes.NewReader(body), struct{ io.Reader }{bytes.NewReader(body)}} {
				got, err := c.Post(base+"/a%2Fb?c=d", "text/x", from)
				text := read(t, got, err)
				require.True(t, string(body) == text, "%d bytes of %d", len(text), size)
				require.Equal(t, "POST /a%2Fb?c=d "+base[strings.Index(base, "//")+2:], got.Header.Get("X-Seen"))
				require.Equal(t, strconv.FormatBool(strings.HasPrefix(base, "https")), got.Header.Get("X-Secure"))
				require.True(t, strings.HasPrefix(got.Header.Get("X-From"), "127.0.0.1:"), "the address is that of the client")
			}
		}
	})
}

// A trailer is no header, and a body that breaks off is no whole one.
func TestTrailersAreDropped(t *testing.T) {
	newRig(t, func(rc *fasthttp.RequestCtx) {
		_, _ = io.ReadAll(rc.RequestBodyStream())
		rc.SetBodyString("token " + string(rc.Request.Header.Peek("X-Token")))
	}, nil).each(func(t *testing.T, c *http.Client, base string) {
		if strings.HasPrefix(base, "https") && c.Transport.(*http.Transport).Protocols.HTTP1() {
			return // the HTTP/1.1 server sees it itself
		}
		r, err := http.NewRequest("POST", base, struct{ io.Reader }{strings.NewReader("body")})
		require.NoError(t, err)
		r.Trailer = http.Header{"X-Token": {"forged"}}
		got, err := c.Do(r)
		require.Equal(t, "token ", read(t, got, err))
	})
}

// The first part of an answer comes before the last part of the request.
func TestBodiesStreamBothWays(t *testing.T) {
	newRig(t, func(rc *fasthttp.RequestCtx) {
		in := bufio.NewReader(rc.RequestBodyStream())
		rc.SetBodyStreamWriter(func(w *bufio.Writer) {
			for {
				line, err := in.ReadString('\n')
				if err != nil {
					return
				}
				_, _ = w.WriteString(strings.ToUpper(line))
				if w.Flush() != nil {
					return
				}
			}
		})
	}, nil).each(func(t *testing.T, c *http.Client, base string) {
		if c.Transport.(*http.Transport).Protocols.HTTP1() {
			return // its client reads no answer before it has sent all
		}
		out, in := io.Pipe()
		sent := make(chan error, 1)
		go func() {
			_, err := in.Write([]byte("first\n"))
			sent <- err
		}()
		got, err := c.Post(base, "text/x", out)
		require.NoError(t, err)
		defer got.Body.Close()
		answers := bufio.NewReader(got.Body)
		require.NoError(t, <-sent)
		for i := range 10 {
			line, err := answers.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, []string{"FIRST\n", "NEXT\n"}[min(i, 1)], line)
			_, err = in.Write([]byte("next\n"))
			require.NoError(t, err)
		}
		require.NoError(t, in.Close())
		_, err = io.ReadAll(answers)
		require.NoError(t, err)
	})
}

// Each event of a stream comes when it is written.
func TestEventsComeAtOnce(t *testing.T) {
	next := make(chan struct{})
	newRig(t, func(rc *fasthttp.RequestCtx) {
		rc.SetContentType("text/event-stream")
		rc.SetBodyStreamWriter(func(w *bufio.Writer) {
			for i := range 3 {
				fmt.Fprintf(w, "data: %d\n", i)
				if w.Flush() != nil {
					return
				}
				<-next
			}
		})
	}, nil).each(func(t *testing.T, c *http.Client, base string) {
		got, err := c.Get(base)
		require.NoError(t, err)
		defer got.Body.Close()
		lines := bufio.NewReader(got.Body)
		for i := range 3 {
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("data: %d\n", i), line)
			next <- struct{}{}
		}
	})
}

// A refusal comes before the body, which nobody reads.
func TestAnAnswerMayComeBeforeTheBody(t *testing.T) {
	newRig(t, func(rc *fasthttp.RequestCtx) {
		rc.SetStatusCode(413)
		rc.SetBodyString("too large")
		rc.SetConnectionClose()
	}, nil).each(func(t *testing.T, c *http.Client, base string) {
		if c.Transport.(*http.Transport).Protocols.HTTP1() {
			return // without api.Listen the connection is reset
		}
		out, in := io.Pipe()
		defer in.Close()
		go func() { _, _ = in.Write([]byte("begins")) }()
		got, err := c.Post(base, "text/x", out)
		require.Equal(t, "too large", read(t, got, err))
		require.Equal(t, 413, got.StatusCode)
		again, err := c.Get(base) // on the same connection
		require.Equal(t, "too large", read(t, again, err))
	})
}

// A handler sees that its client has left: while it waits, while it reads, and while it writes.
func TestAClientThatLeavesIsSeen(t *testing.T) {
	seen, begun := make(chan string, 1), make(chan struct{}, 1)
	newRig(t, func(rc *fasthttp.RequestCtx) {
		switch string(rc.Path()) {
		case "/waits":
			begun <- struct{}{}
			for !intake.Gone(rc.Conn()) {
				time.Sleep(time.Millisecond)
			}
			seen <- "gone"
		case "/reads":
			piece := make([]byte, 5)
			_, err := io.ReadFull(rc.RequestBodyStream(), piece)
			begun <- struct{}{}
			if err == nil {
				_, err = io.ReadAll(rc.RequestBodyStream())
			}
			seen <- fmt.Sprint(err != nil || intake.CutShort(rc.Conn()))
		case "/writes":
			begun <- struct{}{}
			rc.SetBodyStreamWriter(func(w *bufio.Writer) {
				for {
					_, _ = w.Write(make([]byte, 64<<10))
					if w.Flush() != nil {
						seen <- "cut"
						return
					}
				}
			})
		}
	}, nil).each(func(t *testing.T, c *http.Client, base string) {
		for path, want := range map[string]string{"/waits": "gone", "/reads": "true", "/writes": "cut"} {
			ctx, leave := context.WithCancel(t.Context())
			out, in := io.Pipe()
			if path == "/reads" {
				go func() { _, _ = in.Write([]byte("hello")) }()
			} else {
				require.NoError(t, in.Close())
			}
			r, err := http.NewRequestWithContext(ctx, "POST", base+path, out)
			require.NoError(t, err)
			over := make(chan struct{})
			go func() {
				defer close(over)
				if got, err := c.Do(r); err == nil {
					<-ctx.Done()
					_ = got.Body.Close()
				}
			}()
			<-begun
			leave()
			select {
			case got := <-seen:
				require.Equal(t, want, got, path)
			case <-time.After(patience):
				require.Fail(t, "the handler does not see it", path)
			}
			_ = in.Close()
			<-over
		}
	})
}

// A client that reads nothing is ended, and takes no stream for ever.
func TestAClientThatDoesNotReadIsEnded(t *testing.T) {
	ended := map[string]chan struct{}{}
	for _, protocol := range protocols {
		ended["/"+protocol] = make(chan struct{})
	}
	r := newRig(t, func(rc *fasthttp.RequestCtx) {
		over := ended[string(rc.Path())]
		rc.SetBodyStreamWriter(func(w *bufio.Writer) {
			defer close(over)
			for {
				_, _ = w.Write(make([]byte, 64<<10))
				if w.Flush() != nil {
					return
				}
			}
		})
	}, func(_ *Options, s *fasthttp.Server, _ Files) { s.WriteTimeout = 300 * time.Millisecond })
	answers := map[string]*http.Response{}
	for _, protocol := range protocols {
		c, base := r.client(protocol)
		got, err := c.Get(base + "/" + protocol)
		require.NoError(t, err)
		defer got.Body.Close()
		answers["/"+protocol] = got
	}
	for path, over := range ended {
		select {
		case <-over:
		case <-time.After(patience):
			require.Fail(t, "it holds its stream", path)
		}
		_, err := io.ReadAll(answers[path].Body)
		require.Error(t, err, "the answer is not whole")
	}
}

func TestAHundredStreamsShareAConnection(t *testing.T) {
	var under, most atomic.Int64
	release := make(chan struct{})
	r := newRig(t, func(rc *fasthttp.RequestCtx) {
		if rc.IsGet() {
			return
		}
		if n := under.Add(1); n == 100 {
			close(release)
		} else if n > most.Load() {
			most.Store(n)
		}
		<-release
		echo(rc)
	}, nil)
	c, base := r.client("h2")
	got, err := c.Get(base) // with a connection, the client opens no others
	require.Empty(t, read(t, got, err))
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			got, err := c.Post(base, "text/x", strings.NewReader(strconv.Itoa(i)))
			if err != nil {
				t.Error(err)
				return
			}
			defer got.Body.Close()
			text, err := io.ReadAll(got.Body)
			if err != nil || string(text) != strconv.Itoa(i) {
				t.Errorf("%d: %q %v", i, text, err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, "1", metric(t, r, "penstock_front_connections_total", "h2"))
}

// metric returns the value of a metric with a label.
func metric(t *testing.T, r *rig, name, label string) string {
	t.Helper()
	families, err := r.front.o.Registry.(*prometheus.Registry).Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return strconv.FormatFloat(m.GetGauge().GetValue()+m.GetCounter().GetValue(), 'f', -1, 64)
			}
		}
	}
	return "absent"
}

// Beyond the share of its address a request is refused, and the connection serves the others.
func TestStreamsAreBounded(t *testing.T) {
	held := make(chan struct{})
	r := newRig(t, func(rc *fasthttp.RequestCtx) {
		if string(rc.Path()) == "/held" {
			<-held
		}
	}, func(o *Options, _ *fasthttp.Server, _ Files) {
		o.Streams = share.New(share.Options{Name: "streams", Most: 4})
	})
	bound := r.front.o.Streams
	c, base := r.client("h2")
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if got, err := c.Get(base + "/held"); err == nil {
				_ = got.Body.Close()
			}
		})
	}
	require.Eventually(t, func() bool { return bound.Taken() == 2 }, patience, time.Millisecond)
	got, err := c.Get(base)
	require.Contains(t, read(t, got, err), `"overloaded"`)
	require.Equal(t, 503, got.StatusCode)
	require.Equal(t, "1", got.Header.Get("Retry-After"))
	close(held)
	wg.Wait()
	got, err = c.Get(base)
	require.Empty(t, read(t, got, err))
	require.Zero(t, bound.Taken())
}

// The request under way gets its answer, and the connection no other one.
func TestAStopWaitsForRequestsUnderWay(t *testing.T) {
	begun, release := make(chan struct{}, 3), make(chan struct{})
	r := newRig(t, func(rc *fasthttp.RequestCtx) {
		begun <- struct{}{}
		<-release
		rc.SetBodyString("done")
	}, nil)
	answers := make(chan string, 3)
	for _, protocol := range protocols {
		c, base := r.client(protocol)
		go func() {
			got, err := c.Get(base)
			if err != nil {
				answers <- err.Error()
				return
			}
			defer got.Body.Close()
			text, _ := io.ReadAll(got.Body)
			answers <- string(text)
		}()
		<-begun
	}
	silent, err := net.Dial("tcp", r.secure)
	require.NoError(t, err)
	defer silent.Close()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		r.stop()
	}()
	_, err = silent.Read(make([]byte, 1)) // returns when it is closed
	require.Error(t, err)
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", r.plain)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, patience, time.Millisecond, "nothing new is accepted")
	close(release)
	for range protocols {
		require.Equal(t, "done", <-answers)
	}
	<-stopped
}

// While the HTTP/1.1 server stops, the front still serves what comes on connections that it has.
func TestTheServerMayStopWhileTheFrontServes(t *testing.T) {
	r := newRig(t, echo, nil)
	c, base := r.client("h2")
	got, err := c.Post(base, "text/x", strings.NewReader("before"))
	require.Equal(t, "before", read(t, got, err))
	stopped := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() { stopped <- r.server.ShutdownWithContext(ctx) }()
	for range 20 {
		got, err = c.Post(base, "text/x", strings.NewReader("meanwhile"))
		require.Equal(t, "meanwhile", read(t, got, err))
		time.Sleep(time.Millisecond)
	}
	c.CloseIdleConnections()
	require.NoError(t, r.front.Shutdown(ctx))
	require.NoError(t, <-stopped)
}

// Somebody who takes the listener of h2c for one of HTTP/1.1 is told.
func TestTheListenerOfH2CRefusesHTTP1(t *testing.T) {
	r := newRig(t, echo, nil)
	got, err := http.Get("http://" + r.plain + "/livez")
	require.Contains(t, read(t, got, err), "HTTP/2 only")
	require.Equal(t, 400, got.StatusCode)
}
