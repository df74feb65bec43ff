package publish

import (
	"context"
	"errors"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/publishrate"
	"github.com/penstock-broker/penstock/internal/feature/tracing"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/cloudevents"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/model/quota"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/request"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

const defaultContentType = "application/octet-stream"

// Options assemble the routes of producers.
type Options struct {
	Submitter *accept.Submitter
	Standby   Standby // nil: the broker has no journal
	Catalogue *catalogue.Catalogue
	MaxBody   int // bytes of a payload
	// MinSchedule is how far ahead a scheduled message must be. NowMs is the store's clock; nil: that of
	// this machine.
	MinSchedule time.Duration
	NowMs       func() int64
	TokenHeader string       // of deliveries: never carried as metadata
	Bodies      *share.Bound // bytes of all bodies that come
	Answers     *share.Bound // of large answers, and of what batch clients have not read; nil: one of its own
	Replies     Replies      // of requests
	Receipts    ReceiptStore
	Quota       *quota.Quota         // what producers may store; nil: any amount
	Rates       *publishrate.Limiter // nil: no publish rates
	Metrics     *metrics.Metrics
	Traces      *tracing.Tracer // nil: none
}

// A Publisher has the routes of producers. What they bring goes to its Submitter.
type Publisher struct {
	*accept.Submitter
	standby     Standby // nil: none
	catalogue   *catalogue.Catalogue
	metrics     *metrics.Metrics
	maxBody     int
	tokenHeader string
	bytes       *share.Bound
	answers     *share.Bound
	planner     planner
	replies     Replies
	receipts    ReceiptStore
	quota       *quota.Quota
	rates       *publishrate.Limiter
	traces      *tracing.Tracer
}

// New returns the routes.
func New(o Options) *Publisher {
	p := &Publisher{Submitter: o.Submitter, standby: o.Standby, catalogue: o.Catalogue, metrics: o.Metrics,
		maxBody: o.MaxBody, tokenHeader: o.TokenHeader, bytes: o.Bodies, planner: newPlanner(o), receipts: o.Receipts,
		replies: o.Replies, answers: o.Answers, quota: o.Quota, rates: o.Rates, traces: o.Traces}
	if p.answers == nil {
		p.answers = answer.NewBound(o.Bodies.Most() / 2)
	}
	return p
}

// Broadcast is POST /channel/{channel}/broadcast. A 201 means that the message
// is committed and flushed; every other answer means that it is not, or, for
// 503 outcome_unknown, that it may be.
func (p *Publisher) Broadcast(rc *fasthttp.RequestCtx, channelID string) {
	ctx := request.Lend(rc)
	defer ctx.Return()
	if err := p.publish(ctx, rc, channelID); err != nil {
		problem.Write(rc, err)
	}
}

func (p *Publisher) publish(ctx context.Context, rc *fasthttp.RequestCtx, channelID string) error {
	h := &rc.Request.Header
	from, err := p.sender(ctx, rc, channelID)
	if err != nil {
		return err
	}
	if err := p.takes(ctx, from.ch); err != nil {
		return err
	}
	mode, err := eventMode(h)
	if err != nil {
		return err
	}
	if mode == cloudevents.Batch {
		of := request.Of(rc) // it is read after this call
		from.standing = from.standing.In(of)
		return p.batch(of, rc, from, true)
	}
	w := p.drafter(from)
	d := w.draft()
	defer d.free()
	if err = d.describe(h, mode, ofMessage); err == nil {
		err = w.complete(ctx, d)
	}
	if err != nil {
		return err
	}
	w.store(ctx, rc, mode, d)
	return p.answer(rc, w.ch, d)
}

// describe sets the properties of a draft from the headers of a request for one message.
func (d *Draft) describe(h *fasthttp.RequestHeader, mode cloudevents.Mode, kinds kind) (err error) {
	if mode == cloudevents.Binary {
		if d.event, d.carried, err = binaryEvent(h); err != nil {
			return err
		}
	}
	d.carried = append(d.carried, descriptions(h)...)
	return d.fill(h, kinds)
}

// store reads the payload of a draft and waits for the store, inside the bounds of what may wait.
// Admission comes after the payload: a client that is slow to send one holds no place that others could
// use.
func (w *Drafter) store(ctx context.Context, rc *fasthttp.RequestCtx, mode cloudevents.Mode, d *Draft) {
	if w.rate(ctx, d.only()); d.err != nil { // before its body is read
		return
	}
	msg, scheduled := d.message(), d.later != nil
	held, err := w.readPayload(rc, mode, d)
	defer w.p.bytes.Give(w.key(), held)
	if err == nil && scheduled && d.later.FromNow { // now is when the message is whole
		d.later, err = w.p.planner.plan(w.nowMs(), *msg, d.times, errHeaderTimes)
	}
	if err == nil && scheduled && d.later.Past && msg.Key == "" {
		err = w.p.planner.tooSoon()
	}
	if d.err = err; err != nil {
		if !scheduled {
			w.p.metrics.Answer(w.ch.Intake.Ack, false, err)
		}
		return
	}
	sent := w.Submit(ctx, accept.Terms{Patience: accept.Patience, Since: time.Now(), Counted: held}, d.only())
	sent.Wait()
}

// answer answers what became of the draft of a request.
func (p *Publisher) answer(rc *fasthttp.RequestCtx, ch *catalogue.Channel, d *Draft) error {
	h, m, status := &rc.Response.Header, d.message(), fasthttp.StatusCreated
	repeats := errors.Is(d.err, durable.ErrDuplicate)
	switch {
	case d.journalled:
		h.Set("Location", receiptPath+d.receipt.String())
		h.Set(AckHeader, policy.AckJournal.String())
		rc.SetStatusCode(fasthttp.StatusAccepted)
		return nil
	case repeats:
		var stored durable.Message
		stored, status = repeated(m, ch.Intake, d.err)
		m = &stored
	case d.err != nil:
		return d.err
	}
	var url [128]byte
	if d.later != nil {
		h.SetBytesV("Location", appendScheduledURL(url[:0], ch.ID, m))
	} else {
		h.SetBytesV("Location", appendMessageURL(url[:0], ch.ID, m))
	}
	h.Set(AckHeader, Committed(ch.Intake.Ack).String())
	switch {
	case status == 0:
		return d.err
	case repeats:
		h.Set(ReplayedHeader, "true")
	case d.later == nil && p.reachesNobody(ch, m):
		h.Set(RecipientsHeader, "0")
	}
	rc.SetStatusCode(status)
	return nil
}

// readPayload reads the payload of a message and checks its signature where the producer has a
// secret. The sender is checked again after the payload, which may have come slowly. A structured
// event gives the message its Key. The caller gives the held bytes back, also after an error.
func (w *Drafter) readPayload(rc *fasthttp.RequestCtx, mode cloudevents.Mode, d *Draft) (held int64, err error) {
	p, msg := w.p, d.message()
	if msg.Payload, held, err = intake.Read(rc, p.bytes, w.key(), p.maxBody); err == nil {
		err = w.check()
	}
	if secret := w.producer.PublishSecret; err == nil && secret != "" {
		err = checkSignature(rc.Request.Header.Peek("X-Broker-Signature"), secret, msg.Payload, time.Now())
	}
	if err == nil && mode == cloudevents.Structured {
		if d.event, err = p.parseCodedEvent(w.key(), msg); err == nil && msg.Key == "" {
			msg.Key = eventKey(d.event, w.ch, w.producer)
		}
	}
	return held, err
}

// The refusals of a body that batches share.
var errBodyTooLarge, errBodyBroken = intake.ErrTooLarge, intake.ErrBroken
