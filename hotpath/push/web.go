package push

import (
	"context"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// Web is the sender of http and https: one POST for each attempt. callbacks says where it may go.
func Web(c *egress.Client, callbacks egress.Policy) Sender {
	return Sender{Schemes: []string{"http", "https"}, Kind: policy.ByHTTP, Check: callbacks.CheckURL,
		Target: func(rule egress.Rule, rawURL, protocol string) (Target, error) {
			t, err := c.Target(rule, rawURL, protocol)
			if err != nil {
				return nil, err // avoids a non-nil Target that holds a nil *egress.Target
			}
			return Posting(t), nil
		}}
}

// A Poster is one http or https URL: an egress.Target.
type Poster interface {
	// Post sends one POST and waits for the end of the answer, for at most timeout in total. Post
	// does not use req after it has returned.
	Post(req *fasthttp.Request, timeout time.Duration) egress.Result
}

// A Keeper is a Poster that can keep a part of the answer.
type Keeper interface {
	PostKeeping(req *fasthttp.Request, timeout time.Duration, keep *egress.Keep) egress.Result
}

// Posting returns the target that makes attempts with POST.
func Posting(p Poster) Target {
	keeper, _ := p.(Keeper)
	return &posting{p, keeper}
}

type posting struct {
	Poster
	keeper Keeper // nil: it keeps nothing
}

// Send makes the attempt of a delivery of this package.
func (t *posting) Send(ctx context.Context, a Attempt, deadline time.Time) egress.Result {
	if a.Test {
		return a.delivery.postTest(t, a.Policy, deadline)
	}
	return a.delivery.postUnlessProcessed(ctx, t, a.Policy, deadline)
}
