package egress

import (
	"context"
	"net"
	"net/http"
)

// Product begins the User-Agent of a broker whose operator sets none.
const Product = "Penstock"

// MadeByBroker is the header of every request of Client.Web. Management without a token refuses
// requests that have it, so no broker of an installation answers another one.
const MadeByBroker = "X-Broker-Made-By"

// Web returns a client of net/http for requests other than deliveries. It follows the address rules
// of the Client, no redirects, and no proxy of the environment. The caller bounds time and size.
// Close of the Client ends it.
func (c *Client) Web(rule Rule) *http.Client {
	return &http.Client{
		Transport: &web{c: c, rule: rule},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

// A web sends the requests of Client.Web under one rule.
type web struct {
	c    *Client
	rule Rule
}

// RoundTrip names the host as the dialer and TLS know it, says who asks, and sends the request.
func (w *web) RoundTrip(r *http.Request) (*http.Response, error) {
	d, err := w.c.dialer.policies[w.rule].parse(r.URL.String())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	out := r.Clone(untilEnd(r.Context()))
	out.URL.Host = d.address()
	if out.Host == "" || out.Host == r.URL.Host {
		out.Host = d.authority
	}
	if len(out.Header["User-Agent"]) == 0 {
		out.Header.Set("User-Agent", w.c.opts.UserAgent)
	}
	out.Header.Set(MadeByBroker, "broker")
	return w.c.calls.send(out, w.c.webs[w.rule])
}

func newWebTransport(c *Client, rule Rule) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return c.Dial(ctx, rule, address)
		},
		TLSClientConfig:        c.opts.TLS.Clone(),
		TLSHandshakeTimeout:    dialTimeout,
		DisableCompression:     true, // a small answer cannot become a large one
		IdleConnTimeout:        c.opts.IdleTimeout,
		MaxIdleConnsPerHost:    2,
		MaxResponseHeaderBytes: maxHeadBytes,
	}
}
