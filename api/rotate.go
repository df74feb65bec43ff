package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/auditlog"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/quantity"
	"github.com/penstock-broker/penstock/internal/tool/request"
)

// mostOverlap is how long two tokens of a resource may be valid.
const mostOverlap = 30 * 24 * time.Hour

var (
	rotateBody = bodyKind{fields: []string{"overlap"}}

	errOverlap = problem.New(fasthttp.StatusBadRequest, "invalid_overlap",
		"The field overlap must be a duration from 0 to 30d, like 24h: how long the present token stays valid.")
)

// rotation reads what a request wants: a new token for a resource that exists.
func rotation(rc *fasthttp.RequestCtx, kind string) (put durable.Put, err error) {
	if err := cmp.Or(free(rc, kind), maySetToken(rc)); err != nil {
		return put, err
	}
	f, err := readForm(rc, &rotateBody)
	if err != nil {
		return put, err
	}
	var overlap time.Duration
	asked := "0"
	if text, ok := f.form["overlap"]; ok && text != "0" {
		if overlap, err = quantity.Duration(text); err != nil || overlap < 0 || overlap > mostOverlap {
			return put, errOverlap
		}
		asked = text
	}
	if d := auditlog.Of(request.Of(rc)); d != nil {
		d.Added = map[string]any{"Overlap": asked}
	}
	exists := true
	return durable.Put{ID: param(rc, kind), NewToken: rand.Text(), Rotate: &overlap, Exists: &exists}, nil
}

// rotated answers with the new token, which the resource shows from now on.
func (a *API) rotated(ctx context.Context, rc *fasthttp.RequestCtx, kind, id, token string, f durable.Former) error {
	a.changed(ctx, rc)
	a.log.Info("a "+kind+" got a new token", kind, id, "former_until_ms", f.FormerUntilMs, "request_id", requestID(rc))
	if a.o.AwaitOthers != nil {
		a.o.AwaitOthers(ctx) // no broker refuses the new token, or takes the old one, after the answer
	}
	view := apitype.RotatedToken{Token: token}
	if f.FormerUntilMs > 0 {
		view.FormerEndsAt = &apitype.Time{Time: time.UnixMilli(f.FormerUntilMs)}
	}
	rc.Response.Header.Set(fasthttp.HeaderCacheControl, "no-store")
	return answerJSON(rc, fasthttp.StatusOK, view)
}

// orMissing turns the refusal of a rotation of what does not exist into missing.
func orMissing(err error, missing *problem.Problem) error {
	if errors.Is(err, durable.ErrPrecondition) || errors.Is(err, durable.ErrNotFound) {
		return missing
	}
	return err
}

func (a *API) rotateProducer(ctx context.Context, rc *fasthttp.RequestCtx) error {
	put, err := rotation(rc, "producer")
	if err != nil {
		return err
	}
	p, _, err := a.o.Store.PutProducer(ctx, put)
	if err != nil {
		return orMissing(err, errNoProducer)
	}
	return a.rotated(ctx, rc, "producer", p.ID, p.Token, p.Former)
}

func (a *API) rotateChannel(ctx context.Context, rc *fasthttp.RequestCtx) error {
	put, err := rotation(rc, "channel")
	if err != nil {
		return err
	}
	ch, _, err := a.o.Store.PutChannel(ctx, put)
	if err != nil {
		return orMissing(err, catalogue.ErrUnknownChannel)
	}
	return a.rotated(ctx, rc, "channel", ch.ID, ch.Token, ch.Former)
}

func (a *API) rotateConsumer(ctx context.Context, rc *fasthttp.RequestCtx) error {
	put, err := rotation(rc, "consumer")
	if err != nil {
		return err
	}
	if _, err := a.channel(ctx, rc); err != nil {
		return err
	}
	k, _, err := a.o.Store.PutConsumer(ctx, durable.ConsumerPut{Put: put, ChannelID: param(rc, "channel")})
	if err != nil {
		return orMissing(err, errNoConsumer)
	}
	return a.rotated(ctx, rc, "consumer", k.ID, k.Token, k.Former)
}
