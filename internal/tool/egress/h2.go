package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

const (
	// unreadH2 is how much of one answer net/http takes before it is read, the least that HTTP/2
	// begins with. An answer that waits for room takes this memory beside its room; net/http would
	// take 4 MiB.
	unreadH2 = 64<<10 - 1
)

// An h2Client sends deliveries over HTTP/2.
type h2Client struct {
	c      *Client
	plain  *http.Transport // http: prior knowledge
	secure *http.Transport // https: ALPN, HTTP/1.1 for a consumer without HTTP/2
}

func newH2Client(c *Client, rule Rule) *h2Client {
	transport := func(prior bool, set func(*http.Protocols)) *http.Transport {
		var p http.Protocols
		set(&p)
		return &http.Transport{
			Protocols: &p,
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				conn, err := c.Dial(ctx, rule, address)
				if err != nil {
					return nil, err
				}
				conn = newGrantedConn(conn)
				if prior {
					conn = &priorConn{Conn: conn}
				}
				return conn, nil
			},
			TLSClientConfig:        c.opts.TLS.Clone(),
			TLSHandshakeTimeout:    dialTimeout,
			DisableCompression:     true,
			IdleConnTimeout:        c.opts.IdleTimeout,
			MaxIdleConnsPerHost:    c.opts.MaxConnsPerHost,
			MaxResponseHeaderBytes: maxHeadBytes,
			// A connection that a middlebox dropped would fail every stream on
			// it by timeout: ask after silence.
			HTTP2: &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second,
				MaxReceiveBufferPerStream: unreadH2},
		}
	}
	return &h2Client{
		c:      c,
		plain:  transport(true, func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }),
		secure: transport(false, func(p *http.Protocols) { p.SetHTTP1(true); p.SetHTTP2(true) }),
	}
}

func (h *h2Client) close() {
	h.plain.CloseIdleConnections()
	h.secure.CloseIdleConnections()
}

// post sends the request, and again where the consumer refused it before it processed it.
func (h *h2Client) post(t *Target, req *fasthttp.Request, deadline time.Time, keep *Keep) Result {
	for refusals := 1; ; refusals++ {
		r := h.try(t, req, deadline, keep)
		if !errors.Is(r.Err, ErrRefused) || r.Status != 0 {
			return r
		}
		if !pause(h.c.dialer.life, refusals, deadline) {
			if h.c.closed() {
				return failed(ErrClosed, false)
			}
			return failed(ErrRefused, false)
		}
	}
}

// try does one exchange. net/http repeats a request only when it can rewind
// the body or has not touched it: this body cannot be rewound, also an empty
// one, and an Idempotency-Key header changes nothing about that.
func (h *h2Client) try(t *Target, req *fasthttp.Request, deadline time.Time, keep *Keep) Result {
	ctx, cancel := context.WithDeadline(h.c.dialer.life, deadline)
	defer cancel()
	var sent atomic.Bool
	var shake handshake
	var prior atomic.Pointer[priorConn]
	grants := grants{size: answerGrant(keep)}
	defer grants.end()
	ctx = httptrace.WithClientTrace(shake.in(untilEnd(ctx)), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			sent.Store(true)
			grants.begin(info.Conn)
			if p, ok := info.Conn.(*priorConn); ok {
				prior.Store(p)
			}
		},
		TLSHandshakeStart: func() { shake.under.Store(true) },
		TLSHandshakeDone:  func(_ tls.ConnectionState, err error) { shake.under.Store(err != nil) },
	})

	transport := h.plain
	if t.dest.tls {
		transport = h.secure
	}
	body := &lentBody{b: req.Body()}
	defer body.Close() // takes the caller's bytes back before Post returns
	resp, err := transport.RoundTrip(t.request(req, body).WithContext(ctx))
	if err != nil {
		if !sent.Load() && shake.under.Load() {
			return failed(h.c.handshakeFailure(ctx, &shake, err), false)
		}
		err = h.failure(ctx, err)
		unused := errors.Is(err, errUnused)
		if p := prior.Load(); p != nil && !p.speaks.Load() && (unused || errors.Is(err, ErrNoAnswer)) {
			err = errNoH2
		} else if unused {
			err = ErrRefused
		}
		return failed(shake.explain(err), sent.Load())
	}
	defer resp.Body.Close()
	r := Result{
		Status:     resp.StatusCode,
		Sent:       true,
		RetryAfter: parseRetryAfter(resp.Header.Get("Retry-After"), time.Now()),
	}
	if err = r.read(resp, keep, cancel); err != nil {
		r.Err = h.brokeOff(ctx, err)
	}
	return r
}

// request returns a request of net/http with the headers of req. A consumer that gets HTTP/1.1 sees
// their names as they are written; HTTP/2 has them in lower case.
func (t *Target) request(req *fasthttp.Request, body *lentBody) *http.Request {
	url := *t.dest.parsed
	url.Host = t.dest.address()
	out := &http.Request{
		Method:        http.MethodPost,
		URL:           &url,
		Host:          t.dest.authority,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        make(http.Header, req.Header.Len()),
		Body:          body,
		ContentLength: int64(len(body.b)),
	}
	for k, v := range req.Header.All() {
		switch name := string(k); http.CanonicalHeaderKey(name) {
		case "Host", "Content-Length", "Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade",
			"Te", "Trailer":
			// belong to a connection of HTTP/1.1, or are set by net/http
		default:
			out.Header[name] = append(out.Header[name], string(v))
		}
	}
	return out
}

// read reads the part of an answer that is kept.
func (r *Result) read(resp *http.Response, keep *Keep, stop func()) (err error) {
	if keep != nil && r.Status/100 == 2 {
		r.Response, err = KeepOf(resp, keep, stop)
	} else {
		r.Answer, _, err = readAnswer(resp.Body, resp.ContentLength > maxAnswerBytes)
	}
	return err
}

// KeepOf returns what is kept of an answer of net/http. stop ends the request.
func KeepOf(resp *http.Response, keep *Keep, stop func()) (*Response, error) {
	r := &Response{}
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		for _, value := range resp.Header[name] {
			r.Add(keep, name, value)
		}
	}
	var err error
	r.Body, r.Truncated, err = keep.read(resp.Body, int(resp.ContentLength), stop)
	return r, err
}

// A lentBody is a request body that net/http may read from its own goroutine
// until it is closed, and not a moment longer.
type lentBody struct {
	mu     sync.Mutex
	b      []byte
	closed bool
}

func (l *lentBody) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	if len(l.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, l.b)
	l.b = l.b[n:]
	return n, nil
}

// Close makes further reads fail. Closing again is fine.
func (l *lentBody) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed, l.b = true, nil
	return nil
}
