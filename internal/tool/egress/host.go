package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// errRetired says that the host was forgotten; the target asks for a new one.
var errRetired = errors.New("egress: host retired")

// forgetHostAfter is how long a host without connections is remembered.
const forgetHostAfter = time.Minute

// A host counts the exchanges with one scheme, host and port and keeps the
// HTTP/1.1 connections that wait for the next one.
type host struct {
	c   *Client
	key hostKey
	tls *tls.Config // nil for http

	mu      sync.Mutex
	idle    []*conn // oldest first
	running int     // exchanges
	used    time.Time
	retired bool
	plain   time.Time // until then a host of HTTP/2 gets HTTP/1.1
}

func newHost(c *Client, key hostKey) *host {
	h := &host{c: c, key: key, used: time.Now()}
	if key.tls {
		h.tls = c.opts.TLS.Clone()
		h.tls.NextProtos = []string{"http/1.1"}
		if h.tls.ServerName == "" {
			h.tls.ServerName = hostOf(key.address)
		}
	}
	return h
}

// enter takes one of the MaxConnsPerHost places. It never waits: the caller
// gives the job back and another one gets its turn.
func (h *host) enter() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.retired:
		return errRetired
	case h.running >= h.c.opts.MaxConnsPerHost:
		return ErrBusy
	}
	h.running++
	return nil
}

func (h *host) leave() {
	h.mu.Lock()
	h.running--
	h.used = time.Now()
	h.mu.Unlock()
}

// sweep closes what has been idle for too long and reports whether the host is
// retired: of no use any more.
func (h *host) sweep(now time.Time) bool {
	h.mu.Lock()
	n := 0
	for n < len(h.idle) && now.Sub(h.idle[n].lastUse) >= h.c.opts.IdleTimeout {
		n++
	}
	old := append([]*conn(nil), h.idle[:n]...)
	h.idle = append(h.idle[:0], h.idle[n:]...)
	clear(h.idle[len(h.idle):cap(h.idle)])
	h.retired = h.retired || h.running == 0 && len(h.idle) == 0 && now.Sub(h.used) >= forgetHostAfter
	retired := h.retired
	h.mu.Unlock()
	for _, cn := range old {
		cn.close()
	}
	return retired
}

// noH2 returns until when the host gets HTTP/1.1 although HTTP/2 is wanted.
func (h *host) noH2() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.plain
}

func (h *host) withoutH2(until time.Time) {
	h.mu.Lock()
	h.plain = until
	h.mu.Unlock()
}

// post does one exchange over HTTP/1.1.
func (h *host) post(req *fasthttp.Request, deadline time.Time, kept *Keep) Result {
	cn, err := h.conn(deadline)
	if err != nil {
		return failed(err, false)
	}
	r, keep := cn.exchange(req, kept)
	r.Err = cn.handshake.explain(r.Err)
	if r.Err != nil && h.c.closed() {
		r.Err = ErrClosed
	}
	if !keep || h.c.closed() {
		cn.close()
		return r
	}
	cn.lastUse = time.Now()
	h.mu.Lock()
	h.idle = append(h.idle, cn)
	h.mu.Unlock()
	if h.c.closed() { // Close may have looked before it was put back
		cn.close()
	}
	return r
}

// conn returns a connection whose deadline is set: the most recently used idle
// one that its server has not closed, else a new one.
func (h *host) conn(deadline time.Time) (*conn, error) {
	now := time.Now()
	if !now.Before(deadline) {
		return nil, ErrTimeout
	}
	for {
		h.mu.Lock()
		n := len(h.idle)
		if n == 0 {
			h.mu.Unlock()
			break
		}
		cn := h.idle[n-1]
		h.idle[n-1] = nil
		h.idle = h.idle[:n-1]
		h.mu.Unlock()
		if now.Sub(cn.lastUse) < h.c.opts.IdleTimeout && now.Sub(cn.created) < maxConnAge &&
			cn.until(deadline) == nil && !cn.stale() {
			return cn, nil
		}
		cn.close()
	}
	return h.open(deadline)
}

func (h *host) open(deadline time.Time) (*conn, error) {
	ctx, cancel := context.WithDeadline(h.c.dialer.life, deadline)
	defer cancel()
	tcp, err := h.c.dialer.dial(ctx, h.key.rule, h.key.address)
	if err != nil {
		return nil, err
	}
	cn := newConn(h.c, tcp)
	if err := cn.until(deadline); err != nil {
		cn.close()
		return nil, &dialError{err}
	}
	if h.tls != nil {
		secure := tls.Client(tcp, h.tls)
		cn.handshake = new(handshake)
		if err := secure.HandshakeContext(cn.handshake.in(ctx)); err != nil {
			cn.close()
			return nil, h.c.handshakeFailure(ctx, cn.handshake, err)
		}
		cn.Conn = secure
	}
	if h.c.closed() {
		cn.close()
		return nil, ErrClosed
	}
	return cn, nil
}
