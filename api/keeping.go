package api

import (
	"context"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// kept returns the time before which messages of a channel may have been removed, Unix ms; 0: none. removed
// is what its limits on number and size have removed.
func (a *API) kept(ctx context.Context, ch *catalogue.Channel) (ms int64, removed durable.Removal, err error) {
	own := &ch.Intake.Keeping
	if own.Sized() {
		if removed, err = a.o.Store.Removal(ctx, ch.No); err != nil {
			return 0, removed, err
		}
	}
	return own.Kept(a.o.NowMs(), a.o.Retention, removed.EndMs()), removed, nil
}

// whyUnknown answers for a message that the channel does not have: an ID of the broker has the time of its
// message, which retention may have removed.
func (a *API) whyUnknown(ctx context.Context, ch *catalogue.Channel, message string) error {
	id, err := ident.Parse(message)
	if err != nil {
		return errUnknownMessage
	}
	before, removed, err := a.kept(ctx, ch)
	by := durable.AgeLimit
	switch {
	case err != nil:
		return err
	case id.Compare(removed.Through) <= 0:
		by = removed.By
	case id.Millis() >= ch.Intake.Keeping.Kept(a.o.NowMs(), a.o.Retention, 0):
		return errUnknownMessage
	}
	return problem.Newf(fasthttp.StatusNotFound, "message_not_found", "The channel has no such message. One of that ID "+
		"was removed by retention of the channel (%s), which has removed messages before %s whose jobs were all over.", by,
		time.UnixMilli(before).UTC().Format(time.RFC3339))
}

// missing returns before when messages of a channel that a consumer is to get since a time may be missing. The
// consumer exists already, so a store that does not answer is no failure.
func (a *API) missing(ctx context.Context, channel string, since int64) *apitype.Time {
	ch := a.o.Catalogue.Channel(channel)
	if ch == nil {
		return nil
	}
	removed, err := a.removedAfter(ctx, ch, since)
	if err != nil {
		return nil
	}
	return removedBefore(removed)
}
