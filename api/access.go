package api

import (
	"context"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/answer"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/problem"
	"github.com/penstock-broker/penstock/internal/share"
)

// The headers that carry tokens.
const (
	headerAdminToken    = "X-Broker-Admin-Token"
	headerChannelToken  = "X-Broker-Channel-Token"
	headerConsumerID    = "X-Broker-Consumer-ID"
	headerConsumerToken = "X-Broker-Consumer-Token"
	headerProducerID    = "X-Broker-Producer-ID"
	headerProducerToken = "X-Broker-Producer-Token"
)

var (
	errTokenMissing = problem.New(fasthttp.StatusUnauthorized, "token_missing",
		"This route needs a token: X-Broker-Admin-Token, or where a consumer or producer has access, its token and the token of the channel.")
	errAdminToken = problem.New(fasthttp.StatusForbidden, "admin_token_mismatch",
		"X-Broker-Admin-Token does not match.")
	errNoAdmin = problem.New(fasthttp.StatusForbidden, "admin_disabled",
		"This route needs an admin token, and this broker has none configured.")
)

// admit checks the access of a request before its body is read. The handler checks a token
// in the body (AccessForm).
func (a *API) admit(ctx context.Context, rc *fasthttp.RequestCtx, access Access) error {
	switch access {
	case AccessAdmin:
		return a.checkAdmin(rc)
	case AccessReceiver:
		return a.admitReceiver(ctx, rc)
	case AccessManagement, AccessOwn, AccessPublished, AccessJob, AccessSender:
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

// admitReader admits every request while management is open, and else requests with
// tokens. It admits a producer to the channel only: publisher tells the handler whose
// messages it may show.
func (a *API) admitReader(ctx context.Context, rc *fasthttp.RequestCtx, access Access) error {
	var refusal error
	if a.o.OpenManagement {
		if refusal = a.checkOpen(rc); refusal == nil {
			answer.SetKey(rc, share.Management(share.AddressOf(rc.RemoteAddr())))
			return nil
		}
	}
	h := &rc.Request.Header
	sent := func(name string) bool { return len(h.Peek(name)) > 0 }
	switch {
	case sent(headerAdminToken):
		return a.checkAdmin(rc)
	case access == AccessSender && sent(headerProducerToken):
		return a.admitSender(ctx, rc)
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
	h := &rc.Request.Header
	st, err := a.o.Catalogue.AdmitConsumer(ctx, param(rc, "channel"), h.Peek(headerChannelToken), param(rc, "consumer"), h.Peek(headerConsumerToken))
	if err == nil {
		answer.SetKey(rc, share.Consumer(st.Consumer.No))
		rc.SetUserValue(standingKey, &st)
	}
	return err
}

// standingKey is the user value with what a request was admitted with.
const standingKey = "standing"

// standing returns what the request was admitted with, nil where that is not a resource that may
// change: the admin token, or open management.
func standing(rc *fasthttp.RequestCtx) *catalogue.Standing {
	st, _ := rc.UserValue(standingKey).(*catalogue.Standing)
	return st
}

// publisherKey is the user value with the producer that admitProducer found.
const publisherKey = "publisher"

func (a *API) admitProducer(ctx context.Context, rc *fasthttp.RequestCtx) error {
	h := &rc.Request.Header
	st, err := a.o.Catalogue.AdmitProducer(ctx, param(rc, "channel"), h.Peek(headerChannelToken), h.Peek(headerProducerID), h.Peek(headerProducerToken))
	if err != nil {
		return err
	}
	rc.SetUserValue(publisherKey, st.Producer)
	rc.SetUserValue(standingKey, &st)
	answer.SetKey(rc, share.Producer(st.Producer.No))
	return nil
}

// publisher returns the producer with whose tokens the request was admitted. nil: the
// request may read the messages of all producers.
func publisher(rc *fasthttp.RequestCtx) *durable.Producer {
	p, _ := rc.UserValue(publisherKey).(*durable.Producer)
	return p
}

// forProducer reports whether an answer is for a producer, and so shows no callbacks and no texts that
// may name one: the request was admitted with its tokens, or has its token while management is open.
func forProducer(rc *fasthttp.RequestCtx) bool {
	h := &rc.Request.Header
	return publisher(rc) != nil || len(h.Peek(headerProducerToken)) > 0 && len(h.Peek(headerConsumerToken)) == 0 && !byAdmin(rc)
}

// byAdmin reports whether the request has an admin token, right or wrong.
func byAdmin(rc *fasthttp.RequestCtx) bool { return len(rc.Request.Header.Peek(headerAdminToken)) > 0 }

// checkAdmin returns nil when the request has the right admin token. Without a configured
// token it refuses every request.
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
	answer.SetKey(rc, share.Management(share.AddressOf(rc.RemoteAddr())))
	return nil
}
