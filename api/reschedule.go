package api

import (
	"context"
	"errors"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

var errLateChange = problem.New(fasthttp.StatusConflict, "already_dispatched",
	"The scheduled message is due or sent, so it is not changed.")

// changeScheduled changes times or content of a scheduled message. The data plane reads the request, as
// that of a new message.
func (a *API) changeScheduled(rc *fasthttp.RequestCtx) error {
	var was *durable.Scheduled
	var c durable.ScheduleChange
	err := within(rc, func(ctx context.Context) (err error) {
		if err = a.admit(ctx, rc, AccessPublished); err != nil {
			return err
		}
		ch, err := a.channel(ctx, rc)
		if err != nil {
			return err
		}
		if was, err = a.scheduledFor(ctx, rc, ch, param(rc, "scheduled")); err != nil {
			return err
		}
		c, err = a.scheduleConditions(rc, was)
		return err
	})
	if err != nil {
		return err
	}
	if was.Status != durable.ScheduleWaiting {
		return errLateChange
	}
	var st catalogue.Standing
	if s := standing(rc); s != nil {
		st = *s
	}
	now, err := a.o.Data.Reschedule(rc, st, was, c)
	switch {
	case errors.Is(err, durable.ErrDispatched):
		return errLateChange
	case errors.Is(err, durable.ErrNotFound):
		return errUnknownScheduled
	case err != nil:
		return err
	}
	err = a.answerScheduled(rc, now)
	if errors.Is(err, problem.ErrOverloaded) { // too many of its answers are unread; the change is stored
		rc.SetStatusCode(fasthttp.StatusNoContent)
		return nil
	}
	return err
}

// scheduleConditions returns the change of a schedule with the preconditions of a request. A tag is
// compared with what GET shows now; the transaction then finds whether the schedule is still that one.
func (a *API) scheduleConditions(rc *fasthttp.RequestCtx, was *durable.Scheduled) (durable.ScheduleChange, error) {
	c := durable.ScheduleChange{ID: was.ID}
	match, err := readTags(rc, fasthttp.HeaderIfMatch)
	if err != nil {
		return c, err
	}
	none, err := readTags(rc, fasthttp.HeaderIfNoneMatch)
	if err != nil {
		return c, err
	}
	if match == nil {
		if c.UnmodifiedSince, err = unmodifiedSince(rc); err != nil || none == nil {
			return c, err
		}
	}
	view := a.scheduledView(was)
	_, etag, err := taggedApart(&view.ScheduledMessage, view.payload())
	switch {
	case err != nil:
		return c, err
	case match != nil && !match.strong(etag), none != nil && none.weak(etag):
		return c, durable.ErrPrecondition
	case match != nil && !match.any:
		c.If = was
	}
	return c, nil
}
