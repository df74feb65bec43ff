package api

import (
	"context"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/credentials"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/request"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// The headers that say who calls. Package credentials reads those with tokens.
const (
	headerAdminToken    = credentials.Admin
	headerChannelToken  = credentials.Channel
	headerConsumerID    = "X-Broker-Consumer-ID"
	headerConsumerToken = credentials.Consumer
	headerProducerID    = "X-Broker-Producer-ID"
	headerProducerToken = credentials.Producer
)

var (
	errTokenMissing = problem.New(fasthttp.StatusUnauthorized, "token_missing",
		"This route needs a token: X-Broker-Admin-Token, or where a consumer or producer has access, its token and the "+
			"token of the channel. Authorization: Bearer stands for each of them whose header is missing.")
	errAdminToken = problem.New(fasthttp.StatusForbidden, "admin_token_mismatch",
		"The admin token, in X-Broker-Admin-Token or Authorization: Bearer, does not match.").OfToken()
	errNoAdmin = problem.New(fasthttp.StatusForbidden, "admin_disabled",
		"This route needs an admin token, and this broker has none configured.")
)

// admit checks the access of a request before its body is read, and says in its context who makes which change.
// The handler checks a token in the body (AccessForm).
func (a *API) admit(ctx context.Context, rc *fasthttp.RequestCtx, access Access) error {
	err := a.decide(ctx, rc, access)
	if err == nil {
		a.name(rc, access)
	}
	return err
}

func (a *API) decide(ctx context.Context, rc *fasthttp.RequestCtx, access Access) error {
	if g, ok := rc.UserValue(loginKey).(*catalogue.Grant); ok {
		return a.admitGrant(ctx, rc, access, g)
	}
	switch access {
	case AccessAdmin:
		return a.checkAdmin(rc)
	case AccessReceiver:
		return a.admitReceiver(ctx, rc)
	case AccessManagement, AccessOwn, AccessPublished, AccessJob, AccessSender:
		return a.admitReader(ctx, rc, access)
	case AccessTokens:
		return a.admitTokens(ctx, rc)
	case AccessConsumer:
		if token := a.scopedToken(rc, access); token != nil {
			return a.admitScoped(ctx, rc, access, token)
		}
		return a.admitConsumer(ctx, rc)
	case AccessForm:
		if token := a.scopedToken(rc, access); token != nil {
			return a.admitScoped(ctx, rc, access, token)
		}
		return nil
	case AccessRetrigger:
		who, err := a.callerOf(rc, access)
		if err != nil {
			return err
		}
		if who == byAdmin {
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
			answer.SetKey(rc, a.manager(rc))
			return nil
		}
	}
	who, err := a.callerOf(rc, access)
	switch {
	case err != nil:
		return err
	case who == byScope:
		return a.admitScoped(ctx, rc, access, a.scopedToken(rc, access))
	case who == byConsumer:
		return a.strange(rc, a.admitConsumer(ctx, rc))
	case who == byProducer && access == AccessSender:
		return a.strange(rc, a.admitSender(ctx, rc))
	case who == byProducer:
		return a.strange(rc, a.admitProducer(ctx, rc))
	case who == byNobody && refusal != nil:
		return refusal
	default:
		return a.checkAdmin(rc)
	}
}

// strange counts a refusal of a bearer token as one of a wrong token where it names a resource that does not exist: the
// token was compared with that of the admin, too.
func (a *API) strange(rc *fasthttp.RequestCtx, err error) error {
	if err == nil || problem.From(err).Status != fasthttp.StatusNotFound {
		return err
	}
	if bearer, wrong := credentials.Bearer(&rc.Request.Header); wrong != nil || len(bearer) == 0 {
		return err
	}
	if wait := a.o.Lockout.Failed(a.client(rc)); wait > 0 {
		return tooMany(wait)
	}
	return err
}

// A caller is whose tokens a request has, right or wrong.
type caller uint8

const (
	byNobody caller = iota
	byAdmin
	byConsumer
	byProducer
	byScope // an API token, see scoped.go
)

// callerOf returns who calls a route: the owner of the first token that has a header of its own and that
// the route takes. A bearer token is the admin's if it equals the admin token, else that of the owner
// whom the route takes; where it takes both, X-Broker-Producer-ID makes it the producer's.
func (a *API) callerOf(rc *fasthttp.RequestCtx, access Access) (caller, error) {
	h := &rc.Request.Header
	sent := func(name string) bool { return len(h.Peek(name)) > 0 }
	if a.scopedToken(rc, access) != nil {
		return byScope, nil
	}
	consumers, producers, sender := access.forConsumers(), access.forProducers(), access == AccessSender
	switch {
	case sent(headerAdminToken):
		return byAdmin, nil
	case consumers && sent(headerConsumerToken):
		return byConsumer, nil
	case (producers || sender) && sent(headerProducerToken):
		return byProducer, nil
	}
	bearer, err := credentials.Bearer(h)
	if err != nil {
		return byNobody, err
	}
	has := len(bearer) > 0
	if has { // comparing it with the admin token is a guess of that
		if err := a.spared(rc); err != nil {
			return byNobody, err
		}
	}
	switch {
	case has && catalogue.TokenMatches(bearer, a.o.AdminToken):
		return byAdmin, nil
	case producers && sent(headerProducerID), sender && has:
		return byProducer, nil
	case consumers && (has || sent(headerChannelToken)):
		return byConsumer, nil
	case producers && (has || sent(headerChannelToken)):
		return byProducer, nil
	case has:
		return byAdmin, nil
	}
	return byNobody, nil
}

func (access Access) forConsumers() bool {
	return access == AccessOwn || access == AccessJob || access == AccessRetrigger
}
func (access Access) forProducers() bool { return access == AccessPublished || access == AccessJob }

func (a *API) admitConsumer(ctx context.Context, rc *fasthttp.RequestCtx) error {
	channelToken, token, err := credentials.Both(&rc.Request.Header, headerConsumerToken)
	if err != nil {
		return err
	}
	st, err := a.o.Catalogue.AdmitConsumer(request.Of(rc), param(rc, "channel"), channelToken, param(rc, "consumer"),
		token)
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
	channelToken, token, err := credentials.Both(h, headerProducerToken)
	if err != nil {
		return err
	}
	st, err := a.o.Catalogue.AdmitProducer(request.Of(rc), param(rc, "channel"), channelToken, h.Peek(headerProducerID),
		token)
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
func (a *API) forProducer(rc *fasthttp.RequestCtx) bool {
	if publisher(rc) != nil {
		return true
	}
	who, err := a.callerOf(rc, AccessJob)
	if err != nil || who != byProducer {
		return false
	}
	token, err := credentials.Of(&rc.Request.Header, headerProducerToken)
	return err == nil && len(token) > 0
}

// checkAdmin returns nil when the request has the right admin token. Without a configured
// token it refuses every request.
func (a *API) checkAdmin(rc *fasthttp.RequestCtx) error {
	token, err := credentials.Of(&rc.Request.Header, headerAdminToken)
	switch {
	case a.o.AdminToken == "":
		return errNoAdmin
	case err != nil:
		return err
	case len(token) == 0:
		return errTokenMissing
	}
	if err := a.spared(rc); err != nil {
		return err
	}
	if !catalogue.TokenMatches(token, a.o.AdminToken) {
		return errAdminToken
	}
	answer.SetKey(rc, a.manager(rc))
	return nil
}
