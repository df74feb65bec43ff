package api

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/sqs"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

var errTooManyKeys = problem.Newf(fasthttp.StatusConflict, "too_many_sqs_keys",
	"The channel has %d access keys, as many as it may have: end one with DELETE /channel/{channel}/sqs-key/{key}.",
	durable.MaxSQSKeys)

// makeKey makes an access key of a channel. Its secret is in this answer and in no other.
func (a *API) makeKey(ctx context.Context, rc *fasthttp.RequestCtx) error {
	if err := noForm(rc); err != nil {
		return err
	}
	if err := cmp.Or(free(rc, "channel"), maySetToken(rc)); err != nil {
		return err
	}
	channelID := param(rc, "channel")
	k, err := a.o.Store.CreateSQSKey(ctx, channelID, sqs.NewKey())
	switch {
	case errors.Is(err, durable.ErrNotFound):
		return catalogue.ErrUnknownChannel
	case errors.Is(err, durable.ErrTooManySQSKeys):
		return errTooManyKeys
	case err != nil:
		return err
	}
	a.changed(ctx, rc)
	a.log.Info("an access key for SQS clients was made", "channel", channelID, "key", k.ID, "request_id", requestID(rc))
	setLocation(rc, channelPath(channelID)+"/sqs-key/"+k.ID)
	return answerJSON(rc, fasthttp.StatusCreated, apitype.SQSKey{AccessKeyID: k.ID, SecretAccessKey: k.Secret})
}

// listKeys lists the access keys of a channel, without their secrets.
func (a *API) listKeys(ctx context.Context, rc *fasthttp.RequestCtx) error {
	q, err := readPage(rc, defaultPage, maxPage)
	if err != nil {
		return err
	}
	ch, err := a.channel(ctx, rc)
	if err != nil {
		return err
	}
	all, err := a.o.Store.SQSKeys(ctx, ch.No, q.First, q.Size+1)
	if err != nil {
		return err
	}
	view := apitype.SQSKeyList{Result: []apitype.ListedSQSKey{}}
	for i, k := range all {
		if i == q.Size {
			view.Pages = q.next(channelPath(ch.ID)+"/sqs-key", k.ID)
			break
		}
		view.Result = append(view.Result, apitype.ListedSQSKey{AccessKeyID: k.ID,
			CreatedAt: apitype.Time{Time: time.UnixMilli(k.CreatedMs)}})
	}
	return answerResource(rc, fasthttp.StatusOK, view, time.UnixMilli(a.o.NowMs()), false)
}

func (a *API) endKeys(ctx context.Context, rc *fasthttp.RequestCtx) error {
	return a.endSQSKeys(ctx, rc, "")
}

func (a *API) endKey(ctx context.Context, rc *fasthttp.RequestCtx) error {
	return a.endSQSKeys(ctx, rc, param(rc, "key"))
}

// endSQSKeys ends an access key of a channel, or all.
func (a *API) endSQSKeys(ctx context.Context, rc *fasthttp.RequestCtx, id string) error {
	channelID := param(rc, "channel")
	err := a.o.Store.EndSQSKeys(ctx, channelID, id)
	switch {
	case errors.Is(err, durable.ErrNotFound):
		if _, err := a.channel(ctx, rc); err != nil {
			return err
		}
		return durable.ErrNotFound
	case err != nil:
		return err
	}
	which := id
	if which == "" {
		which = "all"
	}
	a.log.Info("access keys for SQS clients were ended", "channel", channelID, "key", which, "request_id", requestID(rc))
	a.changed(ctx, rc)
	if a.o.AwaitOthers != nil {
		a.o.AwaitOthers(ctx) // no broker takes the key after the answer
	}
	rc.SetStatusCode(fasthttp.StatusNoContent)
	return nil
}
