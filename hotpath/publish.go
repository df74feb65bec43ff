package hotpath

import (
	"context"
	"errors"
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

// AnswerWithin bounds how long a request waits for a store: after it the answer
// is 503, never silence.
const AnswerWithin = 4500 * time.Millisecond

const defaultContentType = "application/octet-stream"

// A publisher is the door for producers.
type publisher struct {
	catalogue *catalogue.Catalogue
	committer *committer
	admission *admission
	metrics   *metrics.Metrics

	maxBody      int // bytes of a payload
	contentTypes contentTypes
	tokenHeader  string // of deliveries: never carried as metadata
	maxWrites    int64
	writes       atomic.Int64  // waiting for the store
	bytes        *intake.Bound // of what waits for the store, or still comes
	unread       atomic.Int64  // of bytes: answers of batches that wait for their clients
}

// Broadcast is POST /channel/{channel}/broadcast. A 201 means that the message
// is committed and flushed; every other answer means that it is not, or, for
// 503 outcome_unknown, that it may be.
func (p *publisher) Broadcast(ctx *fasthttp.RequestCtx, channelID string) {
	if err := p.publish(ctx, channelID); err != nil {
		problem.Write(ctx, err)
	}
}

func (p *publisher) publish(ctx *fasthttp.RequestCtx, channelID string) error {
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
	err = p.commit(ctx, msg)
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

// commit reads the payload and waits for the store, inside the bounds of what
// may wait. Admission comes after the payload: a client that is slow to send one
// holds no place that others could use.
func (p *publisher) commit(ctx *fasthttp.RequestCtx, msg *durable.Message) error {
	payload, held, err := p.bytes.Read(ctx, p.maxBody)
	if err != nil {
		return err
	}
	defer func() { p.bytes.Give(held) }()
	msg.Payload = payload
	complete := time.Now()
	if !p.admission.enter(1, admissionPatience) {
		return problem.ErrOverloaded
	}
	defer p.admission.leave(1)
	rest := int64(msg.Bytes()) - held
	if !p.tryReserve(1, rest) {
		return problem.ErrOverloaded
	}
	held += rest
	w := p.committer.newWrite(msg, complete)
	err = p.committer.Add(w)
	p.committer.release(w)
	p.writes.Add(-1)
	return err
}

// tryReserve counts writes that will wait for the store, unless that would be
// too many.
func (p *publisher) tryReserve(writes, bytes int64) bool {
	if p.writes.Add(writes) <= p.maxWrites && p.bytes.Take(bytes) {
		return true
	}
	p.writes.Add(-writes)
	return false
}

// reserve is for batches: it waits for room, as the sender is held back by its
// connection meanwhile. It gives up at a time, or when gone is closed.
func (p *publisher) reserve(writes, bytes int64, until time.Time, gone <-chan struct{}) bool {
	if !p.admission.enterUnless(int(writes), time.Until(until), gone) {
		return false
	}
	for !p.tryReserve(writes, bytes) {
		select {
		case <-time.After(2 * time.Millisecond):
			if time.Now().Before(until) {
				continue
			}
		case <-gone:
		}
		p.admission.leave(int(writes))
		return false
	}
	return true
}

// unreserve is the end of reserve.
func (p *publisher) unreserve(writes, bytes int64) {
	p.release(writes, bytes)
	p.admission.leave(int(writes))
}

func (p *publisher) release(writes, bytes int64) {
	p.writes.Add(-writes)
	p.bytes.Give(bytes)
}

// The refusals of a body that batches share.
var errBodyTooLarge, errBodyBroken = intake.ErrTooLarge, intake.ErrBroken

// message builds the message from the request, all but its payload.
func (p *publisher) message(ctx *fasthttp.RequestCtx, ch *catalogue.Channel, producer *durable.Producer) (*durable.Message, error) {
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

// MessageURL is the path of a message.
func MessageURL(channelID string, m *durable.Message) string {
	return string(appendMessageURL(nil, channelID, m))
}

func appendMessageURL(b []byte, channelID string, m *durable.Message) []byte {
	b = append(b, "/channel/"...)
	b = append(b, channelID...)
	b = append(b, "/message/"...)
	if m.Key != "" {
		return append(b, m.Key...)
	}
	return m.ID.AppendText(b)
}
