package push

import (
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// A Deliverer makes the targets of push deliveries. Over makes one of an egress.Client.
type Deliverer interface {
	// Target returns the target of a callback URL under a rule; protocol is "", "h2" or "auto". An error means
	// that the URL cannot be delivered to.
	Target(rule egress.Rule, rawURL, protocol string) (Target, error)
}

// A Target is one callback URL. The lane keeps it until the consumer's record changes, and uses it
// concurrently.
type Target interface {
	// Post sends one POST and waits for the end of the exchange, for at most timeout in total. Post
	// does not use req after it has returned.
	Post(req *fasthttp.Request, timeout time.Duration) egress.Result
}

// Over returns the client as a Deliverer.
func Over(c *egress.Client) Deliverer { return client{c} }

type client struct{ *egress.Client }

func (c client) Target(rule egress.Rule, rawURL, protocol string) (Target, error) {
	t, err := c.Client.Target(rule, rawURL, protocol)
	if err != nil {
		return nil, err // avoids a non-nil Target that holds a nil *egress.Target
	}
	return t, nil
}
