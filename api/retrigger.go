package api

import (
	"context"
	"errors"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/catalogue"
	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/ident"
	"github.com/penstock-broker/penstock/jobs"
	"github.com/penstock-broker/penstock/problem"
)

func headOf(m *durable.Message) durable.Head {
	return durable.Head{ID: m.ID, Audience: m.Audience, Priority: m.Priority}
}

// retriggerMessage runs the dispatch of a message once more: jobs that are
// neither over nor queued are queued.
func (a *API) retriggerMessage(ctx context.Context, rc *fasthttp.RequestCtx) error {
	ch, m, err := a.messageInPath(ctx, rc)
	if err != nil {
		return err
	}
	if err := a.o.Desk.RetriggerMessage(ctx, ch, headOf(m)); err != nil {
		return err
	}
	return accepted(rc)
}

// retriggerJob makes a job due now. The admin may do that at any time, its
// consumer when the job is dead.
func (a *API) retriggerJob(ctx context.Context, rc *fasthttp.RequestCtx) error {
	admin := len(rc.Request.Header.Peek(headerAdminToken)) > 0
	if admin {
		if err := a.checkAdmin(rc); err != nil {
			return err
		}
	} else if len(rc.Request.Header.Peek(headerConsumerToken)) == 0 {
		return errTokenMissing
	}
	ch, m, err := a.messageInPath(ctx, rc)
	if err != nil {
		return err
	}
	id, err := ident.Parse(param(rc, "job"))
	if err != nil {
		return errUnknownJob
	}
	message, pos, ok := id.Split()
	if !ok || message != m.ID || pos >= m.Audience || pos >= len(ch.Consumers) {
		return errUnknownJob
	}
	k := ch.Consumers[pos]
	if !admin && !catalogue.TokenMatches(rc.Request.Header.Peek(headerConsumerToken), k.Token) {
		return catalogue.ErrConsumerToken
	}
	return a.redrive(ctx, rc, k, m, !admin)
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

func (a *API) redrive(ctx context.Context, rc *fasthttp.RequestCtx, k *durable.Consumer, m *durable.Message, onlyDead bool) error {
	_, err := a.o.Desk.RetriggerJob(ctx, k.No, headOf(m), onlyDead)
	if errors.Is(err, jobs.ErrNotDead) {
		return problem.New(fasthttp.StatusBadRequest, "job_not_dead", "The job is not dead, so its consumer cannot redrive it.")
	}
	if err != nil {
		return err
	}
	return accepted(rc)
}
