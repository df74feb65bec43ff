package push

import (
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/egress"
)

// A Deliverer is where push deliveries go: an egress.Client, see Over.
type Deliverer interface {
	// Target returns the target of a callback URL; protocol is "" or "h2". An
	// error says that nothing can be delivered there.
	Target(rawURL, protocol string) (Target, error)
}

// A Target is one callback URL. It is kept as long as the consumer's record
// does not change, and used concurrently.
type Target interface {
	// Post sends one POST and waits for the end of the exchange, for at most
	// timeout altogether. After it req is not used any more.
	Post(req *fasthttp.Request, timeout time.Duration) egress.Result
}

// Over returns the client as a Deliverer.
func Over(c *egress.Client) Deliverer { return client{c} }

type client struct{ *egress.Client }

func (c client) Target(rawURL, protocol string) (Target, error) {
	t, err := c.Client.Target(rawURL, protocol)
	if err != nil {
		return nil, err // and not a Target that holds a nil *egress.Target
	}
	return t, nil
}
