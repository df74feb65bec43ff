package api

import (
	"context"
	"errors"
	"fmt"
	"html"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/consumerstate"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// countTimeout bounds the counts of a consumer. Without them the answer has all other members.
const countTimeout = 2 * time.Second

// once is what one answer alone tells of a consumer.
type once struct {
	secrets       []string // fields of its policy that are not masked: one of them was generated
	removedBefore *apitype.Time
	token         bool // it was made by the request, or came with it
}

// answerConsumer writes a consumer with its counts. The entity tag leaves the counts out, so that
// a condition in a PUT does not fail because of a message, and what this answer alone tells.
func (a *API) answerConsumer(ctx context.Context, rc *fasthttp.RequestCtx, status int, channelID string,
	k *durable.Consumer, only once) error {
	view := a.consumerFor(rc, channelID, k)
	stable, err := encode(view)
	if err != nil {
		return err
	}
	view = a.consumerFor(rc, channelID, k, only.secrets...)
	showOnce(rc, only.token, &view.Token, k.Token)
	view.RemovedBefore = only.removedBefore
	a.count(ctx, rc, k, &view)
	body, err := encode(view)
	if err != nil {
		return err
	}
	// Last-Modified is the time of the last PUT: after a change of the state it proves nothing.
	byDate := k.StateMs <= k.ChangedAt.UnixMilli()
	return answerTagged(rc, status, body, tagOf(stable), k.ChangedAt, byDate)
}

// count adds the counts and the present rate to a view.
func (a *API) count(ctx context.Context, rc *fasthttp.RequestCtx, k *durable.Consumer, view *apitype.Consumer) {
	if a.o.Rates != nil && view.Policy.Adaptive == "true" {
		view.Rate = a.o.Rates.Mode(k.No).String()
		if r := a.o.Rates.Pace(k.No); r.N > 0 {
			view.CurrentRate = policy.Rate(r).String()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	if a.o.Why != nil {
		a.o.Why.Describe(ctx, k, view)
	}
	b, err := a.o.Jobs.Backlog(ctx, *k)
	if err != nil {
		a.log.Debug("the jobs of a consumer cannot be counted", "consumer", k.No, "error", err, "request_id", requestID(rc))
		return
	}
	view.Queued, view.InFlight, view.DeadLetters = &b.Queued, &b.InFlight, &b.Dead
	if !b.Oldest.IsZero() {
		view.OldestQueuedAt = &apitype.Time{Time: b.Oldest}
	}
}

// held returns until when an answer of the consumer holds it, and which; nil: it is not held.
func (a *API) held(ctx context.Context, consumer uint32) (*apitype.Time, string) {
	if a.o.Holds == nil {
		return nil, ""
	}
	h, ok := a.o.Holds.Of(ctx, consumer)
	if !ok {
		return nil, ""
	}
	return &apitype.Time{Time: h.Until()}, h.By
}

func (a *API) pauseConsumer(ctx context.Context, rc *fasthttp.RequestCtx) error {
	return a.changeState(ctx, rc, States.Pause)
}

func (a *API) resumeConsumer(ctx context.Context, rc *fasthttp.RequestCtx) error {
	return a.changeState(ctx, rc, States.Resume)
}

func (a *API) reviveConsumer(ctx context.Context, rc *fasthttp.RequestCtx) error {
	return a.changeState(ctx, rc, States.Revive)
}

// changeState answers with the consumer after the change, which may have changed nothing.
func (a *API) changeState(ctx context.Context, rc *fasthttp.RequestCtx, change func(States, context.Context,
	*durable.Consumer) (durable.Consumer, error)) error {
	if err := noForm(rc); err != nil {
		return err
	}
	ch, k, err := a.consumer(ctx, rc)
	if err != nil {
		return err
	}
	after, err := change(a.o.States, ctx, k)
	if err != nil {
		return err
	}
	return a.answerConsumer(ctx, rc, fasthttp.StatusOK, ch.ID, &after, once{})
}

func (a *API) pauseChannel(ctx context.Context, rc *fasthttp.RequestCtx) error {
	return a.setChannelPaused(ctx, rc, true)
}

func (a *API) resumeChannel(ctx context.Context, rc *fasthttp.RequestCtx) error {
	return a.setChannelPaused(ctx, rc, false)
}

func (a *API) setChannelPaused(ctx context.Context, rc *fasthttp.RequestCtx, paused bool) error {
	if err := free(rc, "channel"); err != nil {
		return err
	}
	if err := noForm(rc); err != nil {
		return err
	}
	ch, err := a.o.States.PauseChannel(ctx, param(rc, "channel"), paused)
	if errors.Is(err, durable.ErrNotFound) {
		return catalogue.ErrUnknownChannel
	}
	if err != nil {
		return err
	}
	return answerResource(rc, fasthttp.StatusOK, a.channelFor(rc, &ch), ch.ChangedAt, false)
}

// errLink refuses a revive link.
var errLink = problem.New(fasthttp.StatusGone, "link_invalid", "This link revives nothing: it was used, has "+
	"expired, or the consumer has changed its state since.")

// showLink asks for a confirmation. It changes nothing, because mail scanners open links.
func (a *API) showLink(ctx context.Context, rc *fasthttp.RequestCtx) error {
	ch, k, err := a.consumer(ctx, rc)
	if err != nil {
		return errLink // a stranger does not learn which consumers exist
	}
	if err := a.o.States.CheckLink(ctx, k, param(rc, "link")); err != nil {
		return refusedLink(err)
	}
	writePage(rc, fmt.Sprintf(`<p>Consumer <b>%s</b> of channel <b>%s</b> gets no deliveries: %s.</p>
<form method="post"><button>Deliver again</button></form>`, html.EscapeString(k.ID), html.EscapeString(ch.ID), html.EscapeString(k.StateReason)))
	return nil
}

// useLink revives the consumer.
func (a *API) useLink(ctx context.Context, rc *fasthttp.RequestCtx) error {
	ch, k, err := a.consumer(ctx, rc)
	if err != nil {
		return errLink
	}
	after, err := a.o.States.ReviveByLink(ctx, k, param(rc, "link"))
	if err != nil {
		return refusedLink(err)
	}
	writePage(rc, fmt.Sprintf(`<p>Consumer <b>%s</b> of channel <b>%s</b> is revived. %s</p>`,
		html.EscapeString(k.ID), html.EscapeString(ch.ID), html.EscapeString(after.StateReason)))
	return nil
}

func refusedLink(err error) error {
	if errors.Is(err, consumerstate.ErrLink) {
		return errLink
	}
	return err
}

// writePage writes a page that loads nothing and tells no other site its address.
func writePage(rc *fasthttp.RequestCtx, body string) {
	h := &rc.Response.Header
	h.Set(fasthttp.HeaderCacheControl, "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; form-action 'self'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	rc.SetContentType(apitype.MediaHTML + "; charset=utf-8")
	rc.SetBodyString("<!DOCTYPE html>\n<title>Penstock</title>\n" + body + "\n")
}
