package egress

import (
	"net/http"
)

// Web returns a client of net/http for requests other than deliveries: to token endpoints and
// status URLs. It follows the address rules of the Client, no redirects, and no proxy of the
// environment. The caller bounds time and size. Close of the Client ends it.
func (c *Client) Web() *http.Client {
	return &http.Client{
		Transport: c.web,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

func newWebTransport(c *Client) *http.Transport {
	return &http.Transport{
		DialContext:            c.dialH2,
		TLSClientConfig:        c.opts.TLS.Clone(),
		TLSHandshakeTimeout:    dialTimeoutH2,
		DisableCompression:     true, // a small answer cannot become a large one
		IdleConnTimeout:        c.opts.IdleTimeout,
		MaxIdleConnsPerHost:    2,
		MaxConnsPerHost:        16,
		MaxResponseHeaderBytes: maxHeadBytes,
	}
}
