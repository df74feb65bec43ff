package hotpath

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/catalogue"
	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/ident"
	"github.com/penstock-broker/penstock/problem"
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
	gate      *gate
	metrics   *Metrics

	maxBody             int // bytes of a payload
	contentTypes        contentTypes
	tokenHeader         string // of deliveries: never carried as metadata
	maxWrites, maxBytes int64
	writes, bytes       atomic.Int64 // waiting for the store
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
	p.metrics.published.Inc()
	p.metrics.publishBytes.Add(float64(len(msg.Payload)))
	ctx.SetStatusCode(fasthttp.StatusCreated)
	return nil
}

// commit reads the payload and waits for the store, inside the bounds of what
// may wait. The gate comes after the payload: a client that is slow to send one
// holds no place that others could use.
func (p *publisher) commit(ctx *fasthttp.RequestCtx, msg *durable.Message) error {
	payload, held, err := p.readPayload(ctx)
	if err != nil {
		return err
	}
	defer func() { p.bytes.Add(-held) }()
	msg.Payload = payload
	complete := time.Now()
	if !p.gate.enter(1, gatePatience) {
		return problem.ErrOverloaded
	}
	defer p.gate.leave(1)
	rest := int64(size(msg)) - held
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
	// Both are added before they are compared, so that taking both back fits.
	w, b := p.writes.Add(writes), p.bytes.Add(bytes)
	if w > p.maxWrites || b > p.maxBytes {
		p.writes.Add(-writes)
		p.bytes.Add(-bytes)
		return false
	}
	return true
}

// reserve is for batches: it waits for room, as the sender is held back by its
// connection meanwhile. It gives up at a time, or when gone is closed.
func (p *publisher) reserve(writes, bytes int64, until time.Time, gone <-chan struct{}) bool {
	if !p.gate.enter(int(writes), time.Until(until)) {
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
		p.gate.leave(int(writes))
		return false
	}
	return true
}

// unreserve is the end of reserve.
func (p *publisher) unreserve(writes, bytes int64) {
	p.release(writes, bytes)
	p.gate.leave(int(writes))
}

func (p *publisher) release(writes, bytes int64) {
	p.writes.Add(-writes)
	p.bytes.Add(-bytes)
}

var (
	errBodyTooLarge = problem.New(413, "body_too_large", "The body is larger than this broker accepts.")
	errBodyBroken   = problem.New(400, "bad_request", "The body of the request did not arrive whole.")
	errBodySlow     = problem.New(408, "request_timeout", "The request did not arrive in time.")
)

// The first piece of memory for a body, bytes: of a known length, and in chunks.
// Most messages fit into it.
const firstOfLength, firstOfChunks = 16 << 10, 1 << 10

// readPayload reads the body into memory of its own: the request's memory is
// used again as soon as the handler returns. The memory is counted in p.bytes,
// and held is how much to take off there when the payload is done with; after an
// error it is 0.
func (p *publisher) readPayload(ctx *fasthttp.RequestCtx) (payload []byte, held int64, err error) {
	stream, n := ctx.RequestBodyStream(), ctx.Request.Header.ContentLength()
	b := growing{p: p}
	switch {
	case n > p.maxBody:
		return nil, 0, errBodyTooLarge
	case stream == nil:
		return append([]byte{}, ctx.Request.Body()...), 0, nil
	case n >= 0:
		err = b.read(stream, min(n, firstOfLength), n)
	default: // one byte more shows that it is too large
		err = b.read(stream, min(p.maxBody+1, firstOfChunks), p.maxBody+1)
	}
	if err = p.judge(ctx, n, len(b.payload), err); err != nil {
		p.bytes.Add(-b.held)
		return nil, 0, err
	}
	if cap(b.payload)-len(b.payload) > len(b.payload)/4 { // it may be kept for its deliveries
		b.payload = bytes.Clone(b.payload)
	}
	return b.payload, b.held, nil
}

// judge tells what is wrong with a body of which got bytes came before err; n is
// its announced length, negative for chunks.
func (p *publisher) judge(ctx *fasthttp.RequestCtx, n, got int, err error) error {
	whole := n < 0 && err == io.EOF // elsewhere than between chunks the error is another one
	switch {
	case got == n:
		return nil
	case errors.Is(err, problem.ErrOverloaded):
		return err
	case got > p.maxBody:
		return errBodyTooLarge
	case !whole:
		return brokenBody(ctx, err)
	case cutShort(ctx.Conn()):
		return brokenBody(ctx, io.ErrUnexpectedEOF)
	}
	return nil
}

// A growing is a body whose memory follows what has arrived, four times as much at
// each step: a client that announces a large one and does not send it takes none
// from others.
type growing struct {
	p       *publisher
	payload []byte
	held    int64 // bytes counted
}

// read reads until there are most bytes or the stream ends; room is the size of
// the first piece.
func (b *growing) read(stream io.Reader, room, most int) error {
	for {
		more := int64(room - cap(b.payload))
		if !b.p.tryReserve(0, more) {
			return problem.ErrOverloaded
		}
		b.held += more
		b.payload = append(make([]byte, 0, room), b.payload...)[:len(b.payload):room]
		for len(b.payload) < room {
			got, err := stream.Read(b.payload[len(b.payload):room])
			b.payload = b.payload[:len(b.payload)+got]
			if err != nil {
				return err
			}
		}
		if len(b.payload) == most {
			return nil
		}
		room = min(4*room, most)
	}
}

// cutShort reports whether the client had stopped sending when its body in
// chunks ended: then the last chunk is missing, which fasthttp forgives. Only
// the connections of api.Listen can tell.
func cutShort(c net.Conn) bool {
	e, ok := c.(interface{ Ended() bool })
	return ok && e.Ended()
}

// brokenBody is the refusal of a body that could not be read to its end. Nobody
// knows where the next request would start, so there is none.
func brokenBody(ctx *fasthttp.RequestCtx, err error) error {
	ctx.SetConnectionClose()
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return errBodySlow
	}
	return errBodyBroken
}

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
	metadata, err := collectMetadata(h.Peek("X-Broker-Metadata-Headers"), p.tokenHeader, h.Peek)
	if err != nil {
		return nil, err
	}
	return &durable.Message{
		ChannelNo: ch.No, ProducerNo: producer.No, Audience: ch.Audience,
		Priority: priority, Key: key, ContentType: contentType, Headers: metadata,
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
