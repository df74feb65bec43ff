package api

import (
	"context"
	"errors"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/why"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The routes that say why nothing moves read the copy of the catalogue first: package why learns what has
// changed with the statement that it needs anyway, and answers also while the store cannot be asked.

// nearConsumer returns the channel and the consumer that the path names, from the copy of the catalogue
// where it has them.
func (a *API) nearConsumer(ctx context.Context, rc *fasthttp.RequestCtx) (*catalogue.Channel, *durable.Consumer,
	error) {
	if ch, k, err := a.known(param(rc, "channel"), param(rc, "consumer")); err == nil {
		return ch, k, nil
	}
	return a.consumer(ctx, rc)
}

// nearChannel is nearConsumer for a channel alone.
func (a *API) nearChannel(ctx context.Context, rc *fasthttp.RequestCtx) (*catalogue.Channel, error) {
	if ch := a.o.Catalogue.Channel(param(rc, "channel")); ch != nil {
		return ch, nil
	}
	return a.channel(ctx, rc)
}

func (a *API) consumerWhy(ctx context.Context, rc *fasthttp.RequestCtx) error {
	ch, k, err := a.nearConsumer(ctx, rc)
	if err != nil {
		return err
	}
	return a.answerWhy(rc, a.o.Why.Consumer(ctx, ch, k), newest(k.ChangedAt, time.UnixMilli(k.StateMs)))
}

func (a *API) jobWhy(ctx context.Context, rc *fasthttp.RequestCtx) error {
	ch, k, err := a.nearConsumer(ctx, rc)
	if err != nil {
		return err
	}
	id, err := ident.Parse(param(rc, "job"))
	if err != nil {
		return errUnknownJob
	}
	message, pos, ok := id.Split()
	if !ok || pos != k.Position {
		return errUnknownJob
	}
	w, producer, found, err := a.o.Why.Job(ctx, ch, k, message)
	p := publisher(rc)
	switch {
	case err != nil && p != nil, err != nil && !errors.Is(err, durable.ErrFailed):
		return err
	case err != nil:
		w = a.o.Why.Unavailable()
	case !found, p != nil && producer != p.No:
		return errUnknownJob
	}
	return a.answerWhy(rc, w, message.Time())
}

// whyWithin bounds the questions about a message: without the store there is another answer.
const whyWithin = 3 * time.Second

func (a *API) messageWhy(ctx context.Context, rc *fasthttp.RequestCtx) error {
	ctx, cancel := context.WithTimeout(ctx, whyWithin)
	defer cancel()
	ch, err := a.nearChannel(ctx, rc)
	if err != nil {
		return err
	}
	w, err := a.whyOfMessage(ctx, rc, ch)
	unstored := errors.Is(err, errUnknownMessage) || errors.Is(err, durable.ErrFailed)
	if id := param(rc, "message"); unstored && a.o.Journalled != nil && a.o.Journalled(ch.No, keysOf(ch, id,
		a.namer(rc)), id) {
		w, err = a.o.Why.AcceptedOnly(ch), nil
	}
	if errors.Is(err, durable.ErrFailed) && publisher(rc) == nil {
		w, err = a.o.Why.Unavailable(), nil
	}
	if errors.Is(err, errUnknownMessage) {
		err = a.whyUnknown(ctx, ch, param(rc, "message"))
	}
	if err != nil {
		return err
	}
	return a.answerWhy(rc, w, ch.ChangedAt)
}

func (a *API) whyOfMessage(ctx context.Context, rc *fasthttp.RequestCtx, ch *catalogue.Channel) (apitype.Why, error) {
	id, err := a.locate(ctx, ch, param(rc, "message"), a.namer(rc))
	if err != nil {
		return apitype.Why{}, err
	}
	w, producer, found, err := a.o.Why.Message(ctx, ch, id)
	if err == nil && !found {
		var m *durable.Message
		if m, err = a.headline(ctx, ch, id); err == nil {
			w, producer = a.o.Why.NoConsumers(), m.ProducerNo
		}
	}
	if p := publisher(rc); err == nil && p != nil && producer != p.No {
		err = errUnknownMessage
	}
	return w, err
}

func (a *API) scheduledWhy(ctx context.Context, rc *fasthttp.RequestCtx) error {
	ch, err := a.channel(ctx, rc) // its pause counts
	if err != nil {
		return err
	}
	m, err := a.scheduledFor(ctx, rc, ch, param(rc, "scheduled"))
	if err != nil {
		return err
	}
	return a.answerWhy(rc, a.o.Why.Scheduled(ch, m), m.ChangedAt())
}

// answerWhy answers with reasons. A producer does not see the texts that may name a callback. The entity
// tag leaves the time of the answer out. since is from when on the resource is as it is.
func (a *API) answerWhy(rc *fasthttp.RequestCtx, w apitype.Why, since time.Time) error {
	if a.forProducer(rc) {
		why.Hide(&w)
	}
	body, err := encode(w)
	if err != nil {
		return err
	}
	stable := w
	stable.At = apitype.Time{}
	tagged, err := encode(stable)
	if err != nil {
		return err
	}
	for _, r := range w.Reasons {
		if r.Since != nil {
			since = newest(since, r.Since.Time)
		}
	}
	return answerTagged(rc, fasthttp.StatusOK, body, tagOf(tagged), since, false)
}
