package api

import (
	"context"
	"errors"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/credentials"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// retriggerMessage repeats the dispatch of a message: it queues the jobs that are neither
// over nor queued.
func (a *API) retriggerMessage(ctx context.Context, rc *fasthttp.RequestCtx) error {
	ch, m, err := a.messageInPath(ctx, rc)
	if err != nil {
		return err
	}
	if err := a.audit(rc); err != nil {
		return err
	}
	if err := a.o.Jobs.RetriggerMessage(ctx, ch, m.Head()); err != nil {
		return err
	}
	if string(rc.Request.Header.UserAgent()) != apitype.FailSafe {
		var consumers []uint32
		for _, k := range ch.Consumers {
			if !k.Deleted() && k.Concerns(m.Head()) {
				consumers = append(consumers, k.No)
			}
		}
		if err := a.release(ctx, consumers...); err != nil {
			return err
		}
	}
	return accepted(rc)
}

// retriggerJob makes a job due now. The admin may call it at any time, the job's consumer
// when the job is dead.
func (a *API) retriggerJob(ctx context.Context, rc *fasthttp.RequestCtx) error {
	ch, m, err := a.messageInPath(ctx, rc)
	if err != nil {
		return err
	}
	id, err := ident.Parse(param(rc, "job"))
	if err != nil {
		return errUnknownJob
	}
	message, pos, ok := id.Split()
	if !ok || message != m.ID || pos >= len(ch.Consumers) || ch.Consumers[pos].Deleted() {
		return errUnknownJob
	}
	if k := ch.Consumers[pos]; !k.Concerns(m.Head()) && !k.LeftOut(m.Head()) {
		return errUnknownJob
	}
	who, err := a.callerOf(rc, AccessRetrigger)
	if err != nil {
		return err
	}
	if who == byAdmin { // whose request may change no row
		if err := a.audit(rc); err != nil {
			return err
		}
	}
	return a.redrive(ctx, rc, ch.Consumers[pos], m, who != byAdmin)
}

// admitConsumerOfJob checks that the request has the token of the consumer whose job the
// path names. It finds the consumer by the job ID alone, so a client without that token
// cannot learn which messages and jobs exist.
func (a *API) admitConsumerOfJob(ctx context.Context, rc *fasthttp.RequestCtx) error {
	token, err := credentials.Of(&rc.Request.Header, headerConsumerToken)
	if err != nil {
		return err
	}
	if len(token) == 0 {
		return errTokenMissing
	}
	ch, err := a.channel(ctx, rc)
	if err != nil {
		return err
	}
	var k *durable.Consumer // nil: its token is none
	if id, err := ident.Parse(param(rc, "job")); err == nil {
		if _, pos, ok := id.Split(); ok && pos < len(ch.Consumers) {
			k = ch.Consumers[pos]
		}
	}
	if k == nil || !a.o.Catalogue.ConsumerTokenMatches(token, ch, k) {
		return catalogue.ErrConsumerToken
	}
	return nil
}

// requeueDeadJob redrives one dead letter, of push and pull consumers alike.
func (a *API) requeueDeadJob(ctx context.Context, rc *fasthttp.RequestCtx) error {
	ch, k, err := a.authorizeConsumer(ctx, rc)
	if err != nil {
		return err
	}
	m, err := a.jobInPath(ctx, rc, ch, k)
	if err != nil {
		return err
	}
	return a.redrive(ctx, rc, k, m, true)
}

func (a *API) redrive(ctx context.Context, rc *fasthttp.RequestCtx, k *durable.Consumer, m *durable.Message,
	onlyDead bool) error {
	if k.LeftOut(m.Head()) {
		return problem.New(fasthttp.StatusConflict, "job_filtered", "The filter of the consumer left the message out when "+
			"it was stored: there is nothing to deliver.")
	}
	_, err := a.o.Jobs.RetriggerJob(ctx, k.No, m.Head(), onlyDead)
	if errors.Is(err, jobs.ErrNotDead) {
		return problem.New(fasthttp.StatusBadRequest, "job_not_dead",
			"The job is not dead, so its consumer cannot redrive it.")
	}
	if err != nil {
		return err
	}
	if err := a.release(ctx, k.No); err != nil {
		return err
	}
	return accepted(rc)
}

// release ends the holds of consumers by their answers: a person, or the consumer itself, wants its jobs
// to be sent now.
func (a *API) release(ctx context.Context, consumers ...uint32) error {
	if a.o.Holds == nil {
		return nil
	}
	return a.o.Holds.End(ctx, consumers...)
}
