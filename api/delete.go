package api

import (
	"context"
	"errors"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// The routes of this file exist only with Options.AllowDelete.

var (
	errNoProducer   = problem.New(fasthttp.StatusNotFound, "producer_not_found", "There is no such producer.")
	errNoConsumer   = problem.New(fasthttp.StatusNotFound, "consumer_not_found", "The channel has no such consumer.")
	errHasConsumers = problem.New(fasthttp.StatusConflict, "channel_has_consumers",
		"The channel has consumers: delete them first.")
	errBySetting = problem.New(fasthttp.StatusBadRequest, "reserved_name", "Consumers whose names begin with ~ belong to "+
		"the broker: a setting decides whether there is one. The first start without the setting deletes it.")
	errNotDead = problem.New(fasthttp.StatusConflict, "job_not_dead", "The job is no dead letter, so it is not deleted.")
)

func (a *API) deleteProducer(ctx context.Context, rc *fasthttp.RequestCtx) error {
	put := durable.Put{ID: param(rc, "producer")}
	if ident.Reserved(put.ID) {
		return errReservedName
	}
	err := a.preconditions(ctx, rc, &put, func() (*revision, error) {
		p := a.o.Catalogue.Producer(put.ID)
		if p == nil {
			return nil, errNoProducer
		}
		return &revision{a.producerFor(rc, p), p.ChangedAt}, nil
	})
	if err != nil {
		return err
	}
	_, err = a.o.Store.DeleteProducer(ctx, put)
	if errors.Is(err, durable.ErrNotFound) {
		return errNoProducer
	}
	if err != nil {
		return err
	}
	a.deleted(ctx, rc, "producer", "producer", put.ID)
	return nil
}

func (a *API) deleteChannel(ctx context.Context, rc *fasthttp.RequestCtx) error {
	put := durable.Put{ID: param(rc, "channel")}
	if ident.Reserved(put.ID) {
		return errReservedName
	}
	err := a.preconditions(ctx, rc, &put, func() (*revision, error) {
		ch := a.o.Catalogue.Channel(put.ID)
		if ch == nil {
			return nil, catalogue.ErrUnknownChannel
		}
		return &revision{a.channelFor(rc, &ch.Channel), ch.ChangedAt}, nil
	})
	if err != nil {
		return err
	}
	_, err = a.o.Store.DeleteChannel(ctx, put)
	switch {
	case errors.Is(err, durable.ErrNotFound):
		return catalogue.ErrUnknownChannel
	case errors.Is(err, durable.ErrHasConsumers):
		return errHasConsumers
	case err != nil:
		return err
	}
	if a.leads() {
		a.o.Stores.Deleted(ctx, put.ID)
	}
	a.deleted(ctx, rc, "channel", "channel", put.ID)
	return nil
}

func (a *API) deleteConsumer(ctx context.Context, rc *fasthttp.RequestCtx) error {
	put, channelID := durable.Put{ID: param(rc, "consumer")}, param(rc, "channel")
	if ident.Reserved(put.ID) {
		return errBySetting
	}
	err := a.preconditions(ctx, rc, &put, func() (*revision, error) {
		_, k, err := a.known(channelID, put.ID)
		if err != nil {
			return nil, err
		}
		return &revision{a.consumerFor(rc, channelID, k), k.ChangedAt}, nil
	})
	if err != nil {
		return err
	}
	_, err = a.o.Store.DeleteConsumer(ctx, channelID, put)
	if errors.Is(err, durable.ErrNotFound) {
		if err := a.fresh(ctx); err != nil {
			return err
		}
		if a.o.Catalogue.Channel(channelID) == nil {
			return catalogue.ErrUnknownChannel
		}
		return errNoConsumer
	}
	if err != nil {
		return err
	}
	a.deleted(ctx, rc, "consumer", "channel", channelID, "consumer", put.ID)
	return nil
}

// deleted answers 204 after the deletion of a resource. args name it in the log. It waits until
// the other brokers have noticed: a new resource under the same ID is then not taken for the old
// one.
func (a *API) deleted(ctx context.Context, rc *fasthttp.RequestCtx, kind string, args ...any) {
	a.forgotten(ctx, rc, kind, args...)
	rc.SetStatusCode(fasthttp.StatusNoContent)
}

// forgotten is deleted without the answer.
func (a *API) forgotten(ctx context.Context, rc *fasthttp.RequestCtx, kind string, args ...any) {
	a.metrics.deleted.WithLabelValues(kind).Inc()
	a.log.Info("a "+kind+" was deleted", append(args, "request_id", requestID(rc))...)
	a.changed(ctx, rc)
	if a.o.AwaitOthers != nil {
		a.o.AwaitOthers(ctx)
	}
}

// deadPage is the number of dead letters that one transaction of deleteDLQ removes.
const deadPage = 500

// deleteDLQ removes all dead letters of a consumer. What it removed before an error stays removed,
// and a repeated request removes the rest.
func (a *API) deleteDLQ(ctx context.Context, rc *fasthttp.RequestCtx) error {
	ch, k, err := a.consumer(ctx, rc)
	if err != nil {
		return err
	}
	total := 0
	for from := (ident.ID{}); ; {
		page, next, err := a.o.Store.DeadHeads(ctx, k.No, from, deadPage)
		if err != nil {
			return err
		}
		n, err := a.discard(ctx, k, page)
		if err != nil {
			return err
		}
		total += n
		if from = next; next.IsZero() {
			break
		}
	}
	a.discarded(rc, ch, k, total)
	return nil
}

func (a *API) deleteDeadJob(ctx context.Context, rc *fasthttp.RequestCtx) error {
	ch, k, err := a.consumer(ctx, rc)
	if err != nil {
		return err
	}
	m, err := a.jobInPath(ctx, rc, ch, k)
	if err != nil {
		return err
	}
	page, _, err := a.o.Store.DeadHeads(ctx, k.No, m.ID, 1)
	if err != nil {
		return err
	}
	if len(page) == 0 || page[0].ID != m.ID {
		return errNotDead
	}
	n, err := a.discard(ctx, k, page)
	if err != nil {
		return err
	}
	if n == 0 { // removed before
		return errUnknownJob
	}
	a.discarded(rc, ch, k, n)
	return nil
}

// discard removes those dead letters that were not removed before, and counts them. The rows stay
// until retention removes the message: without them the jobs would be open.
func (a *API) discard(ctx context.Context, k *durable.Consumer, page []durable.DeadHead) (int, error) {
	var dead []durable.DeadHead
	for _, d := range page {
		if d.Disposal != durable.Discarded {
			dead = append(dead, d)
		}
	}
	return len(dead), a.o.Store.Dispose(ctx, k.No, dead, durable.Discarded)
}

// discarded answers 204 after the removal of dead letters.
func (a *API) discarded(rc *fasthttp.RequestCtx, ch *catalogue.Channel, k *durable.Consumer, n int) {
	a.metrics.deleted.WithLabelValues("dead_letter").Add(float64(n))
	a.log.Info("dead letters were deleted", "channel", ch.ID, "consumer", k.ID, "jobs", n, "request_id", requestID(rc))
	rc.SetStatusCode(fasthttp.StatusNoContent)
}
