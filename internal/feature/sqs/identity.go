package sqs

import (
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// An identity is who sends a request.
type identity struct{}

// admit finds out who sends a request, from its head.
func (c *call) admit() (identity, error) {
	if !c.Open {
		return identity{}, noSignature.New("The request needs a signature: management is not open to it.")
	}
	return identity{}, nil
}

// check checks what of the identity depends on the body.
func (identity) check(*call, []byte) error { return nil }

// share is whose share of bodies and answers the request uses.
func (identity) share(rc *fasthttp.RequestCtx) share.Key { return intake.Manager(rc) }

// sees reports whether the caller may know of the queues of a channel.
func (identity) sees(*catalogue.Channel) bool { return true }
