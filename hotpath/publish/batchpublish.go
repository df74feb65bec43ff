package publish

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/cloudevents"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/internal/tool/request"
)

const (
	// chunkLines and chunkBytes bound a chunk, which is read before it is handed to the committer.
	// chunksAhead bounds the chunks of one request that wait for the committer. Together with
	// mostUnread these constants bound the memory of one batch request.
	chunkLines  = 256
	chunkBytes  = 512 << 10
	chunksAhead = 8
	// batchIdle is the longest time for which a batch client may send nothing. batchUnread is the
	// longest time for which it may read nothing while it also sends nothing.
	batchIdle   = 30 * time.Second
	batchUnread = 60 * time.Second
	// batchWrite is the number of bytes of answers that are written at once.
	batchWrite = 32 << 10
	// mostSkipped and longestSkip bound the part of a refused batch that is read and dropped: its
	// client reads the refusal only after it has sent everything.
	mostSkipped = 64 << 20
	longestSkip = 60 * time.Second
)

// BroadcastBatch is POST /channel/{channel}/batch. Request and answer are NDJSON in the same order; the
// request may also be a batch of CloudEvents, of which each is a line of the answer.
// Each line is answered once its message is committed. The request is streamed: any length fits
// into bounded memory. A bad line never fails another line.
func (p *Publisher) BroadcastBatch(rc *fasthttp.RequestCtx) {
	channelID, _ := rc.UserValue("channel").(string)
	ctx := request.Of(rc)
	from, err := p.sender(ctx, rc, channelID)
	if err != nil {
		problem.Write(rc, err)
		return
	}
	mode, err := cloudevents.ModeOf(rc.Request.Header.ContentType())
	if err = eventProblem(err); err == nil {
		err = uncoded(&rc.Request.Header)
	}
	if err == nil {
		err = p.batch(ctx, rc, from, mode == cloudevents.Batch)
	}
	if err != nil {
		problem.Write(rc, err)
	}
}

// batch begins the answer to a batch of lines or of events. Only one of events at the route of single
// messages may have a Content-Encoding.
func (p *Publisher) batch(ctx *request.Context, rc *fasthttp.RequestCtx, from sender, events bool) error {
	if from.producer.PublishSecret != "" {
		return errUnsignedByLine
	}
	h := &rc.Request.Header
	if kind, _, err := mime.ParseMediaType(string(h.ContentType())); !events &&
		(err != nil || kind != "application/x-ndjson") {
		return problem.New(415, "unsupported_media_type", "A batch is application/x-ndjson or "+
			"application/cloudevents-batch+json.")
	}
	w := p.drafter(from)
	err := w.setDefaults(ctx, h)
	if err == nil && !h.IsHTTP11() {
		err = errHTTP10
	}
	if err != nil {
		return err
	}
	b, err := p.openBatch(ctx, rc, w)
	if err != nil {
		return err
	}
	b.events, b.blank.request = events, events
	b.requestID = ctx.ID()
	rc.Response.Header.Set(AckHeader, Committed(from.ch.Intake.Ack).String())
	rc.SetContentType("application/x-ndjson")
	rc.SetStatusCode(fasthttp.StatusOK)
	rc.Response.SetBodyStream(b, -1)
	return nil
}

// openBatch returns the batch of a request, whose body may be coded.
func (p *Publisher) openBatch(ctx context.Context, rc *fasthttp.RequestCtx, from Drafter) (*batch, error) {
	h := &rc.Request.Header
	value, err := codingOf(h)
	if err != nil {
		return nil, err
	}
	body, length := rc.RequestBodyStream(), h.ContentLength()
	if body == nil || length == 0 {
		body = bytes.NewReader(nil)
	}
	var held int64
	if value != "" {
		var text []byte
		if text, held, err = p.decodedBatch(rc, from.key(), value); err != nil {
			p.bytes.Give(from.key(), held)
			return nil, err
		}
		body, length = bytes.NewReader(text), len(text)
	}
	b := newBatch(ctx, from, body, length, rc.Conn())
	b.held = held
	if !b.open() {
		_ = b.Close()
		return nil, problem.ErrOverloaded
	}
	return b, nil
}

var errHTTP10 = problem.New(505, "http_version_not_supported", "A batch is answered in chunks, which HTTP/1.0 does "+
	"not have.")

// A batch is one batch request under way, and the body of its answer. fasthttp calls WriteTo in the
// goroutine of the connection, after the handler and before it releases the request and its
// RequestCtx. Two other goroutines, which read the request and collect the results, run only during
// that call. Therefore no part of a batch touches the connection later, when the connection or its
// memory may belong to another client. None of the three goroutines has the RequestCtx.
type batch struct {
	Drafter        // its sender is checked anew, and so the reader's alone
	events    bool // a JSON array of CloudEvents instead of lines
	requestID string
	held      int64 // bytes of a decoded body
	body      Body
	wire      *wire
	chunks    chan *chunk // read, handed to the committer; closed by the reader
	answers   *answers
}

// newBatch returns a batch of drafts with the defaults of a drafter. length is the size of the body in
// bytes, or negative for a chunked body.
func newBatch(ctx context.Context, from Drafter, body io.Reader, length int, conn net.Conn) *batch {
	w := newWire(ctx, conn)
	return &batch{Drafter: from, body: Body{from: body, wire: w, length: length}, wire: w, chunks: make(chan *chunk,
		chunksAhead), answers: newAnswers(from.ch.ID)}
}

// open counts the buffer of the reader. It reports whether there is room; Close is due in any case.
// Under pressure the slowest batches are ended.
func (b *batch) open() bool {
	b.body.permit = b.p.bytes.Permit(b.key(), b.body.End)
	return b.body.permit.Take(lineBuffer)
}

// Close gives back what the batch holds. fasthttp calls it also where it does not get to WriteTo.
func (b *batch) Close() error {
	b.body.permit.Close()
	b.p.bytes.Give(b.key(), b.held)
	b.held = 0
	return nil
}

// SupportsBodyWriteTo makes fasthttp call WriteTo.
func (b *batch) SupportsBodyWriteTo() bool { return true }

// Read makes a batch an io.Reader, as a body must be. The answer is available only through WriteTo.
func (b *batch) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }

// WriteTo reads the request and writes its answers. An error closes the connection: the answers are
// incomplete, or the start of the next request is unknown.
func (b *batch) WriteTo(w io.Writer) (written int64, err error) {
	b.answers.permit = b.p.answers.Permit(b.key(), b.wire.end)
	defer b.Close()
	var parts sync.WaitGroup
	var read, collected error
	parts.Go(func() {
		defer close(b.chunks)
		read = b.guarded("batch reader", b.read)
	})
	parts.Go(func() {
		defer b.answers.end()
		collected = b.collect()
	})
	err = b.guarded("batch writer", func() (err error) {
		written, err = b.write(w)
		return err
	})
	if err != nil {
		b.wire.cut() // the reader may wait for bytes that will not come
	}
	parts.Wait() // accepted lines are stored despite the error
	b.wire.leave()
	b.answers.drop()
	return written, errors.Join(err, read, collected)
}

// guarded runs a part of the batch whose panic fails only this request.
func (b *batch) guarded(part string, f func() error) error {
	return guard.Do(part, f, "request_id", b.requestID, "channel", b.answers.channelID)
}

// write writes answers until there are no more.
func (b *batch) write(w io.Writer) (written int64, err error) {
	buf := make([]byte, 0, batchWrite)
	for {
		if buf = b.answers.next(buf[:0]); len(buf) == 0 {
			return written, nil
		}
		if err := b.wire.writing(); err != nil {
			return written, err
		}
		n, err := w.Write(buf)
		written += int64(n)
		if err != nil {
			return written, err
		}
		b.answers.wrote(n)
	}
}

// collect takes the results of chunks in the order of the request. After a panic it only waits for
// the remaining chunks: answers that do not match the lines would be worse than none.
func (b *batch) collect() (err error) {
	for c := range b.chunks {
		failed := b.guarded("batch answers", func() error {
			if c.sent.Wait(); err == nil {
				b.record(c)
			}
			return nil
		})
		if err == nil {
			err = failed
		}
		b.drop(c)
	}
	return err
}

// record adds the results of a chunk to the answers and counts those that are refused.
func (b *batch) record(c *chunk) {
	refused := 0
	for _, d := range c.drafts {
		if d.journalled {
			b.answers.addReceipt(d.msg, d.receipt)
			continue
		}
		kind := byte(0)
		if d.later != nil {
			kind = isScheduled
		}
		if repeat := b.answers.add(d.message(), d.err, c.sent.in, kind); d.err != nil && !repeat {
			refused++
		}
	}
	b.answers.flush()
	b.p.metrics.BatchRefused.Add(float64(refused))
}
