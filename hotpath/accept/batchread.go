package accept

import (
	"errors"
	"io"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/internal/problem"
)

// A chunk is consecutive lines of one batch request.
type chunk struct {
	lines []line
	cost  int64       // of its messages, bytes
	sub   *Submission // of its messages; nil: it has none
}

// A line holds the message of one line, or the reason why it has none.
type line struct {
	msg *durable.Message
	err error
}

// wait waits until each line has its result.
func (c *chunk) wait() {
	if c.sub != nil {
		c.sub.Wait()
	}
}

// release returns the room of the messages.
func (c *chunk) release() {
	if c.sub != nil {
		c.sub.Release()
	}
}

// read parses lines until the body ends.
func (b *batch) read() error {
	lines := newLineSource(&b.body, b.p)
	defer lines.release()
	for {
		if err := b.awaitRoom(); err != nil {
			return b.refuse(lines, err)
		}
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

// awaitRoom holds the client back while too many of its answers are unread. It returns
// errAnswersUnread where the client does not read at all.
func (b *batch) awaitRoom() error {
	for b.answers.full() {
		b.wire.alive() // the broker holds the client back
		patience := stallPatience - b.answers.stalled()
		if patience <= 0 {
			return errAnswersUnread
		}
		timer := time.NewTimer(patience)
		select {
		case <-b.answers.taken:
		case <-timer.C:
		case <-b.wire.ctx.Done():
		}
		timer.Stop()
		if b.wire.isCut() {
			return errBodyBroken
		}
	}
	return nil
}

// refuse ends the batch with a last line. The client must send the rest before it reads that line,
// so the rest is read and dropped, within bounds. Beyond the bounds the connection is closed, which
// most clients report as a reset.
func (b *batch) refuse(lines *lineSource, refusal error) error {
	if !errors.Is(refusal, errAnswersUnread) {
		return refusal
	}
	last := &chunk{lines: []line{{err: refusal}}}
	select {
	case b.chunks <- last:
	case <-b.wire.ctx.Done():
		return errBodyBroken
	}
	return lines.skip(mostSkipped, time.Now().Add(longestSkip))
}

// readChunk reads the lines that are available, and waits for the first.
func (b *batch) readChunk(lines *lineSource) (*chunk, error) {
	c := &chunk{}
	for len(c.lines) < chunkLines && c.cost < chunkBytes {
		if len(c.lines) > 0 && !lines.ready() {
			return c, nil
		}
		text, err := lines.next()
		switch {
		case errors.Is(err, errLineTooLong):
			c.lines = append(c.lines, line{err: errBodyTooLarge})
			continue
		case errors.Is(err, problem.ErrOverloaded):
			c.lines = append(c.lines, line{err: err})
			continue
		case err != nil:
			return c, err
		case blank(text):
			continue
		}
		msg, err := b.message(text)
		if err != nil {
			c.lines = append(c.lines, line{err: err})
			continue
		}
		c.cost += int64(msg.Bytes())
		c.lines = append(c.lines, line{msg: msg})
	}
	return c, nil
}

// blank reports whether a line is empty or white space. Such a line is no message and gets no
// answer.
func blank(text []byte) bool {
	r := readerOf(text)
	return r.Ends()
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
		if err := checkLineHeaders(l.headers, b.p.tokenHeader); err != nil {
			return nil, err
		}
		headers, err := metadata.Merge(b.defaults.Headers, l.headers, b.p.tokenHeader)
		if err != nil {
			return nil, err
		}
		m.Headers = headers
	}
	return m, nil
}

// submit submits a chunk once the broker has room for it. It reports whether the connection is
// still open.
func (b *batch) submit(c *chunk) bool {
	b.wire.alive()
	msgs := make([]*durable.Message, 0, len(c.lines))
	for _, l := range c.lines {
		if l.msg != nil {
			msgs = append(msgs, l.msg)
		}
	}
	if len(msgs) > 0 {
		c.sub = b.p.Submit(b.wire.ctx, Terms{Patience: batchRoom, Lines: true}, msgs...)
	}
	select {
	case b.chunks <- c:
		return true
	case <-b.wire.ctx.Done():
		c.wait()
		c.release()
		return false
	}
}
