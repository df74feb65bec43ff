// Package accept takes messages in: the routes of producers, single and batch, and below them
// Submit, which every other way in shares. Messages that come at the same time share a
// transaction (group commit), and a message has been stored when its outcome says so.
package accept

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/cloudevents"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/model/quota"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

const defaultContentType = "application/octet-stream"

// Options assemble the routes of producers and the submitter below them.
type Options struct {
	Store     Store
	Catalogue *catalogue.Catalogue
	Node      Node
	Admission *Admission
	// Committed is told of stored messages before their callers are answered.
	Committed func([]*durable.Message)
	MaxBody   int // bytes of a payload
	// MinSchedule is how far ahead a scheduled message must be. Scheduled, if not nil, is told when
	// one that was stored is due. NowMs is the store's clock; nil: that of this machine.
	MinSchedule time.Duration
	Scheduled   func(dueMs int64)
	NowMs       func() int64
	TokenHeader string       // of deliveries: never carried as metadata
	Bodies      *share.Bound // bytes of those and of all bodies that come
	Answers     *share.Bound // of large answers, and of what batch clients have not read; nil: one of its own
	Replies     Replies      // of requests
	Journal     JournalOptions
	Receipts    ReceiptStore
	Quota       *quota.Quota // what producers may store; nil: any amount
	Metrics     *metrics.Metrics
	Log         *slog.Logger
}

// A Publisher has the routes of producers.
type Publisher struct {
	*Submitter
	catalogue *catalogue.Catalogue
	metrics   *metrics.Metrics

	maxBody     int
	tokenHeader string
	answers     *share.Bound
	scheduler   scheduler
	replies     Replies
	receipts    ReceiptStore
	quota       *quota.Quota
}

// New returns the routes. Nothing is stored before Run.
func New(o Options) *Publisher {
	c := newCommitter(o, intake.AnswerWithin-commitLeast)
	p := &Publisher{Submitter: newSubmitter(c, o.Admission, o.Bodies), catalogue: o.Catalogue, metrics: o.Metrics,
		maxBody: o.MaxBody, tokenHeader: o.TokenHeader, scheduler: newScheduler(o), receipts: o.Receipts, replies: o.Replies,
		answers: o.Answers, quota: o.Quota}
	if p.answers == nil {
		p.answers = answer.NewBound(o.Bodies.Most() / 2)
	}
	p.standby = newStandby(o, &c.pulse)
	return p
}

// Run stores messages until ctx ends and everything that was submitted has its outcome. What is in
// the journal then is left for the next start.
func (p *Publisher) Run(ctx context.Context) {
	var wg sync.WaitGroup
	if p.standby.on() {
		wg.Go(func() { p.keepJournals(ctx) })
	}
	p.committer.Run(ctx)
	wg.Wait()
}

// Broadcast is POST /channel/{channel}/broadcast. A 201 means that the message
// is committed and flushed; every other answer means that it is not, or, for
// 503 outcome_unknown, that it may be.
func (p *Publisher) Broadcast(ctx *fasthttp.RequestCtx, channelID string) {
	if err := p.publish(ctx, channelID); err != nil {
		problem.Write(ctx, err)
	}
}

func (p *Publisher) publish(rc *fasthttp.RequestCtx, channelID string) error {
	h := &rc.Request.Header
	from, err := p.sender(rc, channelID)
	if err != nil {
		return err
	}
	if err := p.takes(from.ch); err != nil {
		return err
	}
	mode, err := eventMode(h)
	if err != nil {
		return err
	}
	if mode == cloudevents.Batch {
		return p.batch(rc, from, true)
	}
	w := p.drafter(from)
	d := w.draft()
	defer d.free()
	if err = d.describe(h, mode, ofMessage); err == nil {
		err = w.complete(d)
	}
	if err != nil {
		return err
	}
	w.store(rc, mode, d)
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
func (w *Drafter) store(rc *fasthttp.RequestCtx, mode cloudevents.Mode, d *Draft) {
	msg, scheduled := d.message(), d.later != nil
	held, err := w.readPayload(rc, mode, msg)
	defer w.p.bytes.Give(w.key(), held)
	if err == nil && scheduled && d.later.FromNow { // now is when the message is whole
		d.later, err = w.p.scheduler.plan(w.nowMs(), *msg, d.times, errHeaderTimes)
	}
	if d.err = err; err != nil {
		if !scheduled {
			w.p.metrics.Answer(w.ch.Intake.Ack, false, err)
		}
		return
	}
	sent := w.Submit(context.Background(), Terms{Patience: admissionPatience, Since: time.Now(), Counted: held}, d.only())
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
		stored, status = replayed(m, ch.Intake, d.err)
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
// secret. The sender is judged again after the payload, which may have come slowly. A structured
// event gives the message its Key. The caller gives the held bytes back, also after an error.
func (w *Drafter) readPayload(rc *fasthttp.RequestCtx, mode cloudevents.Mode, msg *durable.Message) (held int64,
	err error) {
	p := w.p
	if msg.Payload, held, err = intake.Read(rc, p.bytes, w.key(), p.maxBody); err == nil {
		err = w.judge()
	}
	if secret := w.producer.PublishSecret; err == nil && secret != "" {
		err = checkSignature(rc.Request.Header.Peek("X-Broker-Signature"), secret, msg.Payload, time.Now())
	}
	if err == nil && mode == cloudevents.Structured {
		var id cloudevents.ID
		if id, err = p.parseCodedEvent(w.key(), msg); err == nil && msg.Key == "" {
			msg.Key = eventKey(id, w.ch, w.producer)
		}
	}
	return held, err
}

// The refusals of a body that batches share.
var errBodyTooLarge, errBodyBroken = intake.ErrTooLarge, intake.ErrBroken
