package penstock

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// A Client speaks to one broker, or to any of several behind one URL. Its methods may be called by
// several goroutines at once.
type Client struct {
	o    Options
	base string // URL without a slash at its end
	http *http.Client
	own  *http.Transport // nil: the caller's transport is used

	mu     sync.Mutex
	tokens map[string]string // that the broker told, by path of the resource
}

// New makes a client. It sends nothing: a broker that cannot be reached shows in the first call.
func New(o Options) (*Client, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	base, err := o.base()
	if err != nil {
		return nil, err
	}
	c := &Client{o: o, base: base, tokens: map[string]string{}}
	if o.Transport == nil {
		c.own = newTransport()
		o.Transport = c.own
	}
	// Redirects are not followed: the tokens belong to this URL alone.
	c.http = &http.Client{Transport: o.Transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	return c, nil
}

func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        60 * time.Second,
		DisableCompression:     true, // the bound of an answer is that of what was sent
		MaxResponseHeaderBytes: 64 << 10,
		ForceAttemptHTTP2:      true,
	}
}

// Close closes the idle connections. Calls under way go on.
func (c *Client) Close() {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}
