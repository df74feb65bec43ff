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
	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/answer"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/cloudevents"
	"github.com/penstock-broker/penstock/internal/intake"
	"github.com/penstock-broker/penstock/internal/policy"
	"github.com/penstock-broker/penstock/internal/problem"
	"github.com/penstock-broker/penstock/internal/quota"
	"github.com/penstock-broker/penstock/internal/share"
	"github.com/penstock-broker/penstock/redisq"
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

	maxBody      int
	contentTypes contentTypes
	tokenHeader  string
	answers      *share.Bound
	scheduler    scheduler
	replies      Replies
	receipts     ReceiptStore
	quota        *quota.Quota
}

// New returns the routes. Nothing is stored before Run.
func New(o Options) *Publisher {
	c := newCommitter(o, intake.AnswerWithin-commitLeast)
	p := &Publisher{Submitter: newSubmitter(c, o.Admission, o.Bodies), catalogue: o.Catalogue, metrics: o.Metrics,
		maxBody: o.MaxBody, tokenHeader: o.TokenHeader, scheduler: newScheduler(o), receipts: o.Receipts, replies: o.Replies, answers: o.Answers, quota: o.Quota}
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

func (p *Publisher) publish(ctx *fasthttp.RequestCtx, channelID string) error {
	h := &ctx.Request.Header
	from, err := p.sender(ctx, channelID)
	if err != nil {
		return err
	}
	if from.ch.Paused {
		if err := p.stillPaused(from.ch.No); err != nil {
			return err
		}
	}
	times, err := timesOf(h)
	if err != nil {
		return err
	}
	mode, err := eventMode(h)
	if err != nil {
		return err
	}
	if mode == cloudevents.Batch {
		return p.batch(ctx, from, true)
	}
	msg, err := p.message(ctx, from, mode)
	if err != nil {
		return err
	}
	if times != (times0) {
		return p.publishLater(ctx, from, mode, msg, times)
	}
	receipt, err := p.store(ctx, &from, mode, msg)
	ch := from.ch
	if errors.Is(err, durable.ErrDuplicate) {
		stored, status := replayed(msg, ch.Intake, err)
		ctx.Response.Header.SetBytesV("Location", appendMessageURL(nil, ch.ID, &stored))
		ctx.Response.Header.Set(AckHeader, Committed(ch.Intake.Ack).String())
		if status > 0 {
			p.answerRepeat(ctx, status)
			return nil
		}
	}
	p.metrics.Answer(ch.Intake.Ack, receipt != "", err)
	if err != nil {
		return err
	}
	p.answerStored(ctx, ch, msg, receipt)
	return nil
}

// answerStored answers that the message is stored, or that the journal has it under a receipt.
func (p *Publisher) answerStored(ctx *fasthttp.RequestCtx, ch *catalogue.Channel, msg *durable.Message, receipt string) {
	if receipt != "" {
		ctx.Response.Header.Set("Location", receipt)
		ctx.Response.Header.Set(AckHeader, policy.AckJournal.String())
		ctx.SetStatusCode(fasthttp.StatusAccepted)
		return
	}
	var url [128]byte
	ctx.Response.Header.SetBytesV("Location", appendMessageURL(url[:0], ch.ID, msg))
	ctx.Response.Header.Set(AckHeader, Committed(ch.Intake.Ack).String())
	if p.reachesNobody(ch, msg) {
		ctx.Response.Header.Set(RecipientsHeader, "0")
	}
	ctx.SetStatusCode(fasthttp.StatusCreated)
}

// answerRepeat answers with success to a message that was stored before.
func (p *Publisher) answerRepeat(ctx *fasthttp.RequestCtx, status int) {
	p.metrics.Repeats.Inc()
	ctx.Response.Header.Set(ReplayedHeader, "true")
	ctx.SetStatusCode(status)
}

// readPayload reads the payload of a message and checks its signature where the producer has a
// secret. The sender is judged again after the payload, which may have come slowly. A structured
// event gives the message its Key. The caller gives the held bytes back, also after an error.
func (p *Publisher) readPayload(ctx *fasthttp.RequestCtx, from *sender, mode cloudevents.Mode, msg *durable.Message) (held int64, err error) {
	if msg.Payload, held, err = intake.Read(ctx, p.bytes, from.key(), p.maxBody); err == nil {
		err = from.judge()
	}
	if secret := from.producer.PublishSecret; err == nil && secret != "" {
		err = checkSignature(ctx.Request.Header.Peek("X-Broker-Signature"), secret, msg.Payload, time.Now())
	}
	if err == nil && mode == cloudevents.Structured {
		var id cloudevents.ID
		if id, err = p.parseCodedEvent(from.key(), msg); err == nil && msg.Key == "" {
			msg.Key = eventKey(id, from.ch, from.producer)
		}
	}
	return held, err
}

// store reads the payload and waits for the store, inside the bounds of what may wait. Admission
// comes after the payload: a client that is slow to send one holds no place that others could use.
// It returns the path of a receipt where the journal took the message.
func (p *Publisher) store(ctx *fasthttp.RequestCtx, from *sender, mode cloudevents.Mode, msg *durable.Message) (receipt string, err error) {
	held, err := p.readPayload(ctx, from, mode, msg)
	defer p.bytes.Give(from.key(), held)
	if err != nil {
		return "", err
	}
	taken, err := p.quota.Take(from.producer.No, msg.Kept(), 0, 0)
	if err != nil {
		return "", err
	}
	terms := Terms{Patience: admissionPatience, Since: time.Now(), Counted: held}
	terms.acknowledged(from.ch.Intake)
	msg.Replicated = from.ch.Intake.Ack == policy.AckReplicated
	sub := p.Submit(context.Background(), terms, msg)
	sub.WaitOrJournal()
	if r, ok := sub.Receipt(0); ok {
		receipt = receiptPath + r.String()
	}
	err = sub.Outcome(0)
	tookIn(taken, msg, receipt != "", err)
	sub.Release()
	return receipt, err
}

// The refusals of a body that batches share.
var errBodyTooLarge, errBodyBroken = intake.ErrTooLarge, intake.ErrBroken

// message builds the message from the request, all but its payload.
func (p *Publisher) message(ctx *fasthttp.RequestCtx, from sender, mode cloudevents.Mode) (*durable.Message, error) {
	return p.messageAs(ctx, from, mode, identity)
}

// messageAs is message with a Key that identify returns.
func (p *Publisher) messageAs(ctx *fasthttp.RequestCtx, from sender, mode cloudevents.Mode, identify func(*fasthttp.RequestHeader, *catalogue.Channel, *durable.Producer) (string, error)) (*durable.Message, error) {
	h := &ctx.Request.Header
	priority, err := parsePriority(h.Peek("X-Broker-Message-Priority"))
	if err != nil {
		return nil, err
	}
	ttl, err := parseTTL(h.Peek(ttlHeader), errTTL)
	if err != nil {
		return nil, err
	}
	key, err := identify(h, from.ch, from.producer)
	if err != nil {
		return nil, err
	}
	var attributes []string
	if mode == cloudevents.Binary {
		var id cloudevents.ID
		if id, attributes, err = binaryEvent(h); err != nil {
			return nil, err
		}
		if key == "" {
			key = eventKey(id, from.ch, from.producer)
		}
	}
	contentType, err := p.contentTypes.of(h.ContentType())
	if err != nil {
		return nil, err
	}
	carried, err := p.carried(h, attributes)
	if err != nil {
		return nil, err
	}
	addressed, err := p.addressedBy(h, from.ch)
	if err != nil {
		return nil, err
	}
	return &durable.Message{
		ChannelNo: from.ch.No, ProducerNo: from.producer.No, Addressed: addressed,
		Priority: priority, Key: key, TTLMs: ttl, ContentType: contentType, Headers: carried,
	}, nil
}

// carried returns the headers that go with the message of a request, in stored form: the attributes
// of an event in binary mode, those that describe the payload, and those that the producer names.
func (p *Publisher) carried(h *fasthttp.RequestHeader, attributes []string) ([]byte, error) {
	codings, err := codingOf(h)
	if err != nil {
		return nil, err
	}
	names := append(attributes, descriptions(h)...)
	carried, err := metadata.Collect(carriedNames(h.Peek(metadata.ListHeader), names), p.tokenHeader, metadata.Of(h))
	if err != nil {
		return nil, err
	}
	carried = durable.EncodingLine(codings, carried)
	if key := h.Peek(durable.OrderingHeader); len(key) > 0 {
		if err := checkOrderingKey(key); err != nil {
			return nil, err
		}
		carried = durable.OrderingLine(string(key), carried)
	}
	return carried, nil
}

var (
	errOrdering = problem.New(400, "invalid_ordering_key", "X-Broker-Ordering-Key must be 1 to 255 bytes, without control characters and without blanks around it.")
	errPriority = problem.Newf(400, "invalid_priority", "The priority must be an integer from 0 to %d.", redisq.MaxPriority)
)

// checkOrderingKey refuses what could not be sent on as a header, unchanged.
func checkOrderingKey[T string | []byte](key T) error {
	if len(key) == 0 || len(key) > 255 || key[0] == ' ' || key[len(key)-1] == ' ' {
		return errOrdering
	}
	for i := range len(key) {
		if key[i] < 0x20 || key[i] == 0x7f {
			return errOrdering
		}
	}
	return nil
}

// checkContentType refuses what could not be sent on as a header.
func checkContentType(s string) error {
	if len(s) > 255 {
		return problem.New(400, "invalid_content_type", "The content type is longer than 255 bytes.")
	}
	for i := range len(s) {
		if s[i] < 0x20 && s[i] != '\t' || s[i] == 0x7f {
			return problem.New(400, "invalid_content_type", "The content type holds a control character.")
		}
	}
	return nil
}

// parsePriority reads an integer 0..1023; absent is 0.
func parsePriority(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' || len(b) > 4 {
			n = redisq.MaxPriority + 1
			break
		}
		n = n*10 + int(c-'0')
	}
	if n > redisq.MaxPriority {
		return 0, errPriority
	}
	return n, nil
}
