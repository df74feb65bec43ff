package hotpath

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/catalogue"
	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/problem"
)

const (
	// chunkLines and chunkBytes bound what is read before it is handed to the
	// committer; chunksAhead bounds how many such chunks of one request wait.
	// Together they are the memory of one batch request.
	chunkLines  = 256
	chunkBytes  = 512 << 10
	chunksAhead = 8
	// batchIdle is how long a batch request may send nothing.
	batchIdle = 30 * time.Second
	// batchRoom is how long a full broker makes a batch wait before it refuses a
	// line: the sender is held back by the connection meanwhile.
	batchRoom = 10 * time.Second
)

// A chunk is consecutive lines of one batch request.
type chunk struct {
	lines    []line
	cost     int64
	reserved int64         // writes that have places at the gate
	left     atomic.Int64  // writes not answered yet
	done     chan struct{} // closed when left is 0
}

// A line is one line's message on its way, or the reason why it has none.
type line struct {
	write *write
	err   error
}

// unreserveChunk gives back what submit reserved.
func (p *publisher) unreserveChunk(c *chunk) {
	if c.reserved > 0 {
		p.unreserve(c.reserved, c.cost)
	}
}

func (c *chunk) finish(n int64) {
	if c.left.Add(-n) == 0 {
		close(c.done)
	}
}

// BroadcastBatch is POST /channel/{channel}/batch: NDJSON in, NDJSON out, in
// the same order, each line answered once its message is committed. The request
// is streamed, any length in bounded memory; one bad line never fails another.
func (p *publisher) BroadcastBatch(rc *fasthttp.RequestCtx) {
	h := &rc.Request.Header
	channelID, _ := rc.UserValue("channel").(string)
	ch, producer, err := p.catalogue.AuthorizeProducer(context.Background(), channelID, h.Peek("X-Broker-Channel-Token"),
		h.Peek("X-Broker-Producer-ID"), h.Peek("X-Broker-Producer-Token"))
	if err != nil {
		problem.Write(rc, err)
		return
	}
	defaults, err := p.batchDefaults(rc)
	if err != nil {
		problem.Write(rc, err)
		return
	}
	var body io.Reader = rc.RequestBodyStream()
	if body == nil || h.ContentLength() == 0 {
		body = bytes.NewReader(nil)
	}
	b := &batch{p: p, rc: rc, ch: ch, producer: producer, defaults: defaults, chunks: make(chan *chunk, chunksAhead), gone: make(chan struct{})}
	rc.SetContentType("application/x-ndjson")
	rc.SetStatusCode(fasthttp.StatusOK)
	rc.SetBodyStreamWriter(func(w *bufio.Writer) { b.run(body, w) })
}

// batchDefaults are what a line has that does not say otherwise.
func (p *publisher) batchDefaults(rc *fasthttp.RequestCtx) (durable.Message, error) {
	h := &rc.Request.Header
	if kind, _, err := mime.ParseMediaType(string(h.ContentType())); err != nil || kind != "application/x-ndjson" {
		return durable.Message{}, problem.New(415, "unsupported_media_type", "A batch is application/x-ndjson.")
	}
	if len(h.Peek("X-Broker-Message-ID")) > 0 {
		return durable.Message{}, problem.New(400, "invalid_message_id", "In a batch each line has its own MessageID.")
	}
	priority, err := parsePriority(h.Peek("X-Broker-Message-Priority"))
	if err != nil {
		return durable.Message{}, err
	}
	if len(h.Peek("X-Broker-Scheduled-For")) > 0 {
		return durable.Message{}, errScheduled
	}
	metadata, err := collectMetadata(h.Peek("X-Broker-Metadata-Headers"), p.tokenHeader, h.Peek)
	return durable.Message{Priority: priority, ContentType: defaultContentType, Headers: metadata}, err
}

// A batch is one batch request under way: one goroutine reads lines and hands
// them to the committer, another writes the answers in order.
type batch struct {
	p        *publisher
	rc       *fasthttp.RequestCtx
	ch       *catalogue.Channel
	producer *durable.Producer
	defaults durable.Message
	chunks   chan *chunk
	gone     chan struct{} // closed when the client takes no more answers
}

func (b *batch) run(body io.Reader, w *bufio.Writer) {
	read := make(chan error, 1)
	go func() { read <- b.read(body) }()
	broken := b.answer(w)
	if broken {
		close(b.gone)
		// The reader may be waiting for bytes that will not come.
		_ = b.rc.Conn().SetReadDeadline(time.Now())
		for range b.chunks { // what was accepted is stored all the same
		}
	}
	if err := <-read; err != nil || broken {
		// What is left of the body must not be taken for the next request.
		_ = w.Flush()
		_ = b.rc.Conn().Close()
	}
}

// read parses lines until the body ends, and closes b.chunks.
func (b *batch) read(body io.Reader) error {
	defer close(b.chunks)
	lines := newLineSource(body, b.rc.Conn(), b.p.maxBody)
	for {
		c, err := b.readChunk(lines)
		if len(c.lines) > 0 && !b.submit(c) {
			return errBodyBroken
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readChunk reads the lines that are there, at least one.
func (b *batch) readChunk(lines *lineSource) (*chunk, error) {
	c := &chunk{done: make(chan struct{})}
	for len(c.lines) < chunkLines && c.cost < chunkBytes {
		if len(c.lines) > 0 && !lines.ready() {
			return c, nil
		}
		text, err := lines.next()
		if errors.Is(err, errLineTooLong) {
			c.lines = append(c.lines, line{err: errBodyTooLarge})
			continue
		}
		if err != nil {
			return c, err
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue // a blank line is nobody's message
		}
		msg, err := b.message(text)
		if err != nil {
			c.lines = append(c.lines, line{err: err})
			continue
		}
		c.cost += int64(size(msg))
		c.lines = append(c.lines, line{write: &write{msg: msg, chunk: c}})
	}
	return c, nil
}

func (b *batch) message(text []byte) (*durable.Message, error) {
	l := batchLine{priority: b.defaults.Priority, contentType: b.defaults.ContentType}
	if err := l.parse(text); err != nil {
		return nil, err
	}
	if len(l.payload) > b.p.maxBody {
		return nil, errBodyTooLarge
	}
	m := &durable.Message{ChannelNo: b.ch.No, ProducerNo: b.producer.No, Audience: b.ch.Audience,
		Key: l.messageID, Priority: l.priority, ContentType: l.contentType, Headers: b.defaults.Headers, Payload: l.payload}
	if len(l.headers) > 0 {
		headers, err := mergeMetadata(b.defaults.Headers, l.headers, b.p.tokenHeader)
		if err != nil {
			return nil, err
		}
		m.Headers = headers
	}
	return m, nil
}

// submit hands a chunk to the committer once the broker has room for it, and
// reports whether the client is still there.
func (b *batch) submit(c *chunk) bool {
	writes := make([]*write, 0, len(c.lines))
	now := time.Now()
	for _, l := range c.lines {
		if l.write != nil {
			writes = append(writes, l.write)
		}
	}
	c.left.Store(int64(len(writes)) + 1)
	if len(writes) > 0 {
		if b.p.reserve(int64(len(writes)), c.cost, now.Add(batchRoom), b.gone) {
			c.reserved = int64(len(writes))
			for _, w := range writes {
				w.since = time.Now()
			}
			b.p.committer.AddAll(writes)
		} else {
			for _, w := range writes {
				w.finish(problem.ErrOverloaded)
			}
		}
	}
	c.finish(1)
	select {
	case b.chunks <- c:
		return true
	case <-b.gone:
		<-c.done
		b.p.unreserveChunk(c)
		return false
	}
}

// answer writes result lines until the reader is done, and reports whether the
// client stopped listening.
func (b *batch) answer(w *bufio.Writer) (broken bool) {
	var buf []byte
	for c := range b.chunks {
		<-c.done
		buf = buf[:0]
		stored := 0
		for _, l := range c.lines {
			err := l.err
			if l.write != nil {
				err = l.write.err
			}
			buf = b.appendResult(buf, l.write, err)
			if err == nil {
				stored++
				b.p.metrics.publishBytes.Add(float64(len(l.write.msg.Payload)))
			}
		}
		b.p.unreserveChunk(c)
		b.p.metrics.published.Add(float64(stored))
		b.p.metrics.batchRefused.Add(float64(len(c.lines) - stored))
		if _, err := w.Write(buf); err != nil {
			return true
		}
		if len(b.chunks) == 0 {
			if err := w.Flush(); err != nil {
				return true
			}
		}
	}
	return false
}

func (b *batch) appendResult(buf []byte, w *write, err error) []byte {
	if err == nil {
		buf = append(buf, `{"Status":201,"MessageID":"`...)
		return b.appendPlace(buf, w.msg)
	}
	p := problem.From(err)
	buf = append(buf, `{"Status":`...)
	buf = strconv.AppendInt(buf, int64(p.Status), 10)
	buf = append(buf, `,"code":`...)
	buf = strconv.AppendQuoteToASCII(buf, p.Code)
	buf = append(buf, `,"detail":`...)
	buf = appendJSONText(buf, p.Detail)
	if errors.Is(err, durable.ErrDuplicate) {
		buf = append(buf, `,"MessageID":"`...)
		return b.appendPlace(buf, w.msg)
	}
	return append(buf, "}\n"...)
}

func (b *batch) appendPlace(buf []byte, m *durable.Message) []byte {
	buf = append(buf, PublicID(m)...)
	buf = append(buf, `","Location":"`...)
	buf = append(buf, MessageURL(b.ch.ID, m)...)
	return append(buf, "\"}\n"...)
}
