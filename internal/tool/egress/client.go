package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/tool/guard"
)

// Options of a Client.
type Options struct {
	Policy          Policy        // of URLs that management configures
	Fetch           Policy        // of URLs that users name
	UserAgent       string        // sent unless the request has its own
	MaxConnsPerHost int           // exchanges at a time with one scheme, host and port; 0: 512
	IdleTimeout     time.Duration // of kept connections; 0: 15 s, below the 60 s of most servers and balancers
	TLS             *tls.Config   // nil: TLS 1.2 or newer, the system's roots
	// Lookup resolves host names; nil: the system's resolver.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

// maxConnAge makes connections follow a name that moved.
const maxConnAge = 5 * time.Minute

// A Client sends deliveries. Connections are shared by all targets of the same
// scheme, host, port and protocol. Safe for concurrent use.
type Client struct {
	opts   Options
	dialer *dialer
	h2     [rules]*h2Client
	webs   [rules]*http.Transport // of Web
	calls  *calls                 // of Web
	stop   context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex // never held together with host.mu
	hosts map[hostKey]*host
	conns map[*conn]struct{} // all that are open, to cut them at Close
}

type hostKey struct {
	tls     bool
	address string
	h2      bool
	rule    Rule
}

// NewClient returns a client. Close it when done: it owns a goroutine that
// closes idle connections.
func NewClient(o Options) *Client {
	if o.MaxConnsPerHost <= 0 {
		o.MaxConnsPerHost = 512
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = 15 * time.Second
	}
	if o.TLS == nil {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	} else {
		o.TLS = o.TLS.Clone()
	}
	if len(o.TLS.Certificates) == 0 && o.TLS.GetClientCertificate == nil {
		o.TLS.GetClientCertificate = noCertificate
	}
	if o.TLS.ClientSessionCache == nil {
		o.TLS.ClientSessionCache = tls.NewLRUClientSessionCache(1024)
	}
	if o.Lookup == nil {
		o.Lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	life, stop := context.WithCancel(context.Background())
	c := &Client{
		opts: o,
		dialer: &dialer{
			policies: [rules]Policy{ToConsumers: o.Policy, Configured: o.Policy, ByUsers: o.Fetch},
			names:    resolver{lookup: o.Lookup, names: map[string]answer{}},
			life:     life,
		},
		stop:  stop,
		calls: newCalls(),
		hosts: map[hostKey]*host{},
		conns: map[*conn]struct{}{},
	}
	for rule := range rules {
		c.h2[rule], c.webs[rule] = newH2Client(c, rule), newWebTransport(c, rule)
	}
	c.wg.Go(func() { guard.Loop(life, "idle connections", c.sweep) })
	return c
}

// Close cuts every connection, exchanges under way included: they end with
// ErrClosed. Stop posting first, and wait for the requests in flight.
func (c *Client) Close() {
	c.stop()
	c.mu.Lock()
	open := make([]*conn, 0, len(c.conns))
	for cn := range c.conns {
		open = append(open, cn)
	}
	c.mu.Unlock()
	for _, cn := range open {
		cn.Conn.Close()
	}
	for rule := range rules {
		c.h2[rule].close()
		c.webs[rule].CloseIdleConnections()
	}
	c.wg.Wait()
}

func (c *Client) closed() bool { return c.dialer.life.Err() != nil }

// sweep closes connections that were idle for too long, and forgets hosts that
// no caller posts to any more.
func (c *Client) sweep(ctx context.Context) {
	tick := time.NewTicker(max(c.opts.IdleTimeout/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.mu.Lock()
		hosts := make([]*host, 0, len(c.hosts))
		for _, h := range c.hosts {
			hosts = append(hosts, h)
		}
		c.mu.Unlock()
		for _, h := range hosts {
			if h.sweep(time.Now()) {
				c.mu.Lock()
				delete(c.hosts, h.key)
				c.mu.Unlock()
			}
		}
	}
}

// host returns the shared connections of key.
func (c *Client) host(key hostKey) *host {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.hosts[key]
	if h == nil {
		h = newHost(c, key)
		c.hosts[key] = h
	}
	return h
}

// A Target is a callback URL, parsed once. It holds no connection of its own,
// so it needs no closing. Safe for concurrent use.
type Target struct {
	c    *Client
	dest destination
	key  hostKey
	host atomic.Pointer[host]
}

// Target returns the target of a URL that deliveries are posted to, under a rule. Protocol "" is
// HTTP/1.1, "h2" is HTTP/2 (an https consumer that does not speak it gets HTTP/1.1), and "auto" is h2
// on https and HTTP/1.1 on http. The error is the policy's: see Policy.CheckURL.
func (c *Client) Target(rule Rule, rawURL, protocol string) (*Target, error) {
	if protocol != "" && protocol != "h2" && protocol != "auto" {
		return nil, fmt.Errorf("egress: protocol must be empty, h2 or auto, not %q", protocol)
	}
	dest, err := c.dialer.policies[rule].parse(rawURL)
	if err != nil {
		return nil, err
	}
	return &Target{
		c:    c,
		dest: dest,
		key: hostKey{tls: dest.tls, address: dest.address(), h2: protocol == "h2" || protocol == "auto" && dest.tls,
			rule: rule},
	}, nil
}

// Post sends one POST and waits for the end of the exchange, for at most
// timeout altogether. The caller has filled headers and body of req; method,
// host and URI are set here. When Post returns, req is not used any more.
func (t *Target) Post(req *fasthttp.Request, timeout time.Duration) Result {
	return t.PostKeeping(req, timeout, nil)
}

// PostKeeping is Post that also keeps a part of an answer with a status of 2xx. nil: it does not.
func (t *Target) PostKeeping(req *fasthttp.Request, timeout time.Duration, keep *Keep) Result {
	start := time.Now()
	r := t.post(req, start.Add(timeout), keep)
	r.Took = time.Since(start)
	return r
}

func (t *Target) post(req *fasthttp.Request, deadline time.Time, keep *Keep) Result {
	if t.c.closed() {
		return failed(ErrClosed, false)
	}
	req.SetURI(nil) // else it would win over the URI set here
	req.Header.SetMethod(fasthttp.MethodPost)
	req.Header.SetProtocol("HTTP/1.1")
	req.Header.SetHost(t.dest.authority)
	req.Header.SetRequestURI(t.dest.uri)
	if len(req.Header.UserAgent()) == 0 {
		req.Header.SetUserAgent(t.c.opts.UserAgent)
	}
	for {
		h := t.host.Load()
		if h == nil {
			h = t.c.host(t.key)
			t.host.Store(h)
		}
		switch err := h.enter(); err {
		case nil:
			defer h.leave()
		case errRetired:
			t.host.CompareAndSwap(h, nil)
			continue
		default:
			return failed(err, false)
		}
		if !t.key.h2 {
			return h.post(req, deadline, keep)
		}
		if time.Now().Before(h.noH2()) {
			return h.post(req, deadline, keep)
		}
		r := t.c.h2[t.key.rule].post(t, req, deadline, keep)
		if errors.Is(r.Err, errNoH2) && r.Status == 0 {
			if r = h.post(req, deadline, keep); r.Status != 0 {
				h.withoutH2(time.Now().Add(noH2For))
			}
		}
		return r
	}
}
