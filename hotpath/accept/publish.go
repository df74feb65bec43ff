// Package accept takes messages in: the routes of producers, single and batch, and below them
// Submit, which every other way in shares. Messages that come at the same time share a
// transaction (group commit), and a message has been stored when its outcome says so.
package accept

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/internal/intake"
	"github.com/penstock-broker/penstock/internal/problem"
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
	Committed       func([]*durable.Message)
	MaxBody         int           // bytes of a payload
	TokenHeader     string        // of deliveries: never carried as metadata
	WaitingRequests int64         // messages that may wait for the store
	Bodies          *intake.Bound // bytes of those and of all bodies that come
	Metrics         *metrics.Metrics
	Log             *slog.Logger
}

// A Publisher has the routes of producers.
type Publisher struct {
	*Submitter
	catalogue *catalogue.Catalogue
	metrics   *metrics.Metrics

	maxBody      int
	contentTypes contentTypes
	tokenHeader  string
	unread       atomic.Int64 // of bytes: answers of batches that wait for their clients
}

// New returns the routes. Nothing is stored before Run.
func New(o Options) *Publisher {
	c := newCommitter(o, intake.AnswerWithin-commitLeast)
	return &Publisher{Submitter: newSubmitter(c, o.Admission, o.Bodies, o.WaitingRequests), catalogue: o.Catalogue, metrics: o.Metrics,
		maxBody: o.MaxBody, tokenHeader: o.TokenHeader}
}

// Run stores messages until ctx ends and everything that was submitted has its outcome.
func (p *Publisher) Run(ctx context.Context) { p.committer.Run(ctx) }

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
	ch, producer, err := p.catalogue.AuthorizeProducer(context.Background(), channelID, h.Peek("X-Broker-Channel-Token"),
		h.Peek("X-Broker-Producer-ID"), h.Peek("X-Broker-Producer-Token"))
	if err != nil {
		return err
	}
	msg, err := p.message(ctx, ch, producer)
	if err != nil {
		return err
	}
	err = p.store(ctx, msg)
	if err == nil || errors.Is(err, durable.ErrDuplicate) {
		var url [128]byte
		ctx.Response.Header.SetBytesV("Location", appendMessageURL(url[:0], ch.ID, msg))
	}
	if err != nil {
		return err
	}
	p.metrics.Published.Inc()
	p.metrics.PublishBytes.Add(float64(len(msg.Payload)))
	ctx.SetStatusCode(fasthttp.StatusCreated)
	return nil
}

// store reads the payload and waits for the store, inside the bounds of what
// may wait. Admission comes after the payload: a client that is slow to send one
// holds no place that others could use.
func (p *Publisher) store(ctx *fasthttp.RequestCtx, msg *durable.Message) error {
	payload, held, err := p.bytes.Read(ctx, p.maxBody)
	if err != nil {
		return err
	}
	defer p.bytes.Give(held)
	msg.Payload = payload
	sub := p.Submit(context.Background(), Terms{Patience: admissionPatience, Since: time.Now(), Counted: held}, msg)
	sub.Wait()
	err = sub.Outcome(0)
	sub.Release()
	return err
}

// The refusals of a body that batches share.
var errBodyTooLarge, errBodyBroken = intake.ErrTooLarge, intake.ErrBroken

// message builds the message from the request, all but its payload.
func (p *Publisher) message(ctx *fasthttp.RequestCtx, ch *catalogue.Channel, producer *durable.Producer) (*durable.Message, error) {
	h := &ctx.Request.Header
	priority, err := parsePriority(h.Peek("X-Broker-Message-Priority"))
	if err != nil {
		return nil, err
	}
	key := string(h.Peek("X-Broker-Message-ID"))
	if key != "" && !ident.ValidName(key) {
		return nil, errMessageID
	}
	if len(h.Peek("X-Broker-Scheduled-For")) > 0 {
		return nil, errScheduled
	}
	contentType, err := p.contentTypes.of(h.ContentType())
	if err != nil {
		return nil, err
	}
	carried, err := metadata.Collect(h.Peek("X-Broker-Metadata-Headers"), p.tokenHeader, h.Peek)
	if err != nil {
		return nil, err
	}
	return &durable.Message{
		ChannelNo: ch.No, ProducerNo: producer.No, Audience: ch.Audience,
		Priority: priority, Key: key, ContentType: contentType, Headers: carried,
	}, nil
}

var (
	errMessageID = problem.New(400, "invalid_message_id", `A message ID must be 1 to 255 of A-Z a-z 0-9 . _ ~ : @ -, and neither "." nor "..".`)
	errScheduled = problem.New(400, "scheduling_not_supported", "This broker does not schedule messages; nothing was stored.")
	errPriority  = problem.Newf(400, "invalid_priority", "The priority must be an integer from 0 to %d.", redisq.MaxPriority)
)

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

// appendMessageURL appends the path of a message.
func appendMessageURL(b []byte, channelID string, m *durable.Message) []byte {
	b = append(b, "/channel/"...)
	b = append(b, channelID...)
	b = append(b, "/message/"...)
	if m.Key != "" {
		return append(b, m.Key...)
	}
	return m.ID.AppendText(b)
}
