package api

import (
	"context"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/problem"
)

// The headers that carry tokens.
const (
	headerAdminToken    = "X-Broker-Admin-Token"
	headerChannelToken  = "X-Broker-Channel-Token"
	headerConsumerToken = "X-Broker-Consumer-Token"
	headerProducerID    = "X-Broker-Producer-ID"
	headerProducerToken = "X-Broker-Producer-Token"
)

var (
	errTokenMissing = problem.New(fasthttp.StatusUnauthorized, "token_missing",
		"This needs a token: X-Broker-Admin-Token, or where a consumer or producer may act, the tokens of that one and of the channel.")
	errAdminToken = problem.New(fasthttp.StatusForbidden, "admin_token_mismatch",
		"X-Broker-Admin-Token does not match.")
	errNoAdmin = problem.New(fasthttp.StatusForbidden, "admin_disabled",
		"No admin token is configured, so nobody may do this.")
)

// admit decides whether a request may go on, before its body is read. Only a token
// that is in the body, AccessForm, is left to the handler.
func (a *API) admit(ctx context.Context, rc *fasthttp.RequestCtx, access Access) error {
	switch access {
	case AccessAdmin:
		return a.checkAdmin(rc)
	case AccessManagement, AccessOwn, AccessPublished, AccessJob:
		return a.admitReader(ctx, rc, access)
	case AccessConsumer:
		return a.admitConsumer(ctx, rc)
	case AccessRetrigger:
		if byAdmin(rc) {
			return a.checkAdmin(rc)
		}
		return a.admitConsumerOfJob(ctx, rc)
	default:
		return nil
	}
}

// admitReader admits everybody while management is open, else the bearers of
// tokens. A producer is admitted to the channel only: publisher tells the handler
// whose messages it may show.
func (a *API) admitReader(ctx context.Context, rc *fasthttp.RequestCtx, access Access) error {
	var refusal error
	if a.o.OpenManagement {
		if refusal = a.checkOpen(rc); refusal == nil {
			return nil
		}
	}
	h := &rc.Request.Header
	sent := func(name string) bool { return len(h.Peek(name)) > 0 }
	switch {
	case sent(headerAdminToken):
		return a.checkAdmin(rc)
	case access.forConsumers() && sent(headerConsumerToken):
		return a.admitConsumer(ctx, rc)
	case access.forProducers() && (sent(headerProducerID) || sent(headerProducerToken)):
		return a.admitProducer(ctx, rc)
	case access.forConsumers() && sent(headerChannelToken):
		return a.admitConsumer(ctx, rc)
	case access.forProducers() && sent(headerChannelToken):
		return a.admitProducer(ctx, rc)
	case refusal != nil:
		return refusal
	default:
		return a.checkAdmin(rc)
	}
}

func (access Access) forConsumers() bool { return access == AccessOwn || access == AccessJob }
func (access Access) forProducers() bool { return access == AccessPublished || access == AccessJob }

func (a *API) admitConsumer(ctx context.Context, rc *fasthttp.RequestCtx) error {
	_, _, err := a.authorizeConsumer(ctx, rc)
	return err
}

// publisherKey is the user value that holds the producer that admitProducer found.
const publisherKey = "publisher"

func (a *API) admitProducer(ctx context.Context, rc *fasthttp.RequestCtx) error {
	h := &rc.Request.Header
	_, p, err := a.o.Catalogue.AuthorizeProducer(ctx, param(rc, "channel"), h.Peek(headerChannelToken), h.Peek(headerProducerID), h.Peek(headerProducerToken))
	if err != nil {
		return err
	}
	rc.SetUserValue(publisherKey, p)
	return nil
}

// publisher returns the producer as which the request was admitted. nil: it may
// see the messages of all producers.
func publisher(rc *fasthttp.RequestCtx) *durable.Producer {
	p, _ := rc.UserValue(publisherKey).(*durable.Producer)
	return p
}

// byAdmin reports whether the request says that it comes from the admin.
func byAdmin(rc *fasthttp.RequestCtx) bool { return len(rc.Request.Header.Peek(headerAdminToken)) > 0 }

// checkAdmin answers whether the request comes from the admin. Without a
// configured token it is refused whatever it carries.
func (a *API) checkAdmin(rc *fasthttp.RequestCtx) error {
	token := rc.Request.Header.Peek(headerAdminToken)
	switch {
	case a.o.AdminToken == "":
		return errNoAdmin
	case len(token) == 0:
		return errTokenMissing
	case !catalogue.TokenMatches(token, a.o.AdminToken):
		return errAdminToken
	}
	return nil
}
