package publish

import (
	"context"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/cloudevents"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/model/quota"
	"github.com/penstock-broker/penstock/internal/tool/request"
)

var (
	errNoChange = problem.New(400, "invalid_schedule", "The request changes nothing: it has neither "+scheduledHeader+
		", "+delayHeader+" or "+recurrenceHeader+" nor a body.")
	errOneMessage = problem.New(400, "invalid_request", "A scheduled message is one message, and no batch of events; "+
		"nothing was changed.")
)

// Reschedule changes a schedule as a request asks for it, and returns it. was is the schedule as the
// caller has found it, st what the request was admitted with, and c the conditions of the change.
//
// The times of the request replace all of the schedule, and a body all of its content. What the request
// leaves out stays.
func (p *Publisher) Reschedule(rc *fasthttp.RequestCtx, st catalogue.Standing, was *durable.Scheduled,
	c durable.ScheduleChange) (*durable.Scheduled, error) {
	from := sender{ch: p.catalogue.ChannelByNo(was.ChannelNo), producer: p.catalogue.ProducerByNo(was.ProducerNo),
		standing: st}
	if from.ch == nil || from.producer == nil {
		return nil, durable.ErrNotFound
	}
	ctx := request.Of(rc)
	change := rescheduling{Drafter: p.drafter(from), was: was, ScheduleChange: c}
	defer func() { p.bytes.Give(change.key(), change.held) }()
	h, d := &rc.Request.Header, change.draft()
	defer d.free()
	mode, err := eventMode(h)
	if err == nil && mode == cloudevents.Batch {
		err = errOneMessage
	}
	if err == nil {
		err = d.describe(h, mode, ofSchedule)
	}
	t, timed := d.times, d.times != times0 || d.ownDelay // a delay of 0 is now
	if err == nil && timed {
		err = change.setTimes(t)
	}
	if err == nil {
		err = change.setContent(ctx, rc, mode, d)
	}
	if err == nil && timed { // now is when the request is whole
		err = change.setTimes(t)
	}
	switch {
	case err != nil:
		return nil, err
	case change.Times == nil && change.Content == nil:
		return nil, errNoChange
	}
	now, err := change.store(ctx)
	if err == nil {
		rc.Response.Header.Set(AckHeader, Committed(change.ch.Intake.Ack).String())
	}
	return now, err
}

// A rescheduling is one request to change a schedule.
type rescheduling struct {
	Drafter
	durable.ScheduleChange
	was  *durable.Scheduled
	held int64 // bytes of the payload
}

// setTimes gives the schedule other times, under the rules of a new one.
func (r *rescheduling) setTimes(t times) error {
	now := r.nowMs()
	if t == times0 {
		r.Times = &durable.Scheduled{DueMs: now}
		return nil
	}
	var err error
	r.Times, err = r.p.planner.plan(now, durable.Message{Key: r.was.Key, ID: r.was.ID}, t, errHeaderTimes)
	if err == nil && r.Times.Past {
		err = r.p.planner.tooSoon()
	}
	return err
}

// setContent reads the body of a described draft, under the rules of a new message. An empty one is none.
func (r *rescheduling) setContent(ctx context.Context, rc *fasthttp.RequestCtx, mode cloudevents.Mode,
	d *Draft) (err error) {
	h := &rc.Request.Header
	d.times, d.ownAt, d.ownDelay = times0, false, false // they are set
	if err = r.complete(ctx, d); err != nil {
		return err
	}
	if r.was.Key != "" {
		d.msg.Key = r.was.Key
	}
	if h.ContentLength() == 0 || rc.RequestBodyStream() == nil && len(rc.Request.Body()) == 0 {
		return r.without(h)
	}
	if r.held, err = r.readPayload(rc, mode, d); err != nil {
		return err
	}
	if len(d.msg.Payload) == 0 {
		return r.without(h)
	}
	r.Content = d.msg
	return nil
}

// without is the end of a request without a body.
func (r *rescheduling) without(h *fasthttp.RequestHeader) error {
	for _, name := range headersOf(content) {
		if h.Peek(name) != nil {
			return problem.Newf(400, "invalid_schedule", "%s is about a body, and the request has none; nothing was changed.",
				name)
		}
	}
	return r.check()
}

// store stores the change, within what the producer may store.
func (r *rescheduling) store(ctx context.Context) (now *durable.Scheduled, err error) {
	bytes, more := -r.held, int64(0)
	if r.Content != nil {
		bytes += int64(r.Content.Bytes())
		more = max(0, r.Content.Kept()-r.was.Kept())
	}
	var taken quota.Taken
	if more > 0 {
		if taken, err = r.p.quota.Take(r.was.ProducerNo, more, 0, 0); err != nil {
			return nil, err
		}
	}
	r.Replicated = r.ch.Intake.Ack == policy.AckReplicated
	now, err = r.p.ChangeScheduled(ctx, accept.Terms{Patience: accept.Patience, Counted: r.held}, r.key(),
		bytes, r.ScheduleChange)
	taken.Schedule(ident.ID{}, err == nil) // the store's sums have it from the next count on
	return now, err
}
