package accept

import (
	"errors"
	"io"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/internal/policy"
	"github.com/penstock-broker/penstock/internal/problem"
	"github.com/penstock-broker/penstock/internal/quota"
)

// A chunk is consecutive lines of one batch request.
type chunk struct {
	lines  []line
	cost   int64         // of its messages, bytes
	held   int64         // of those, counted in the bound before they are submitted
	intake policy.Intake // of the channel when it was submitted
	sub    *Submission   // of its messages; nil: it has none
	later  *laterLines   // its scheduled messages; nil: it has none
}

// A line holds the message of one line, or the schedule, or the reason why it has none.
type line struct {
	msg   *durable.Message
	later *durable.Scheduled
	err   error
	taken quota.Taken // of msg
}

// wait waits until each line has its result.
func (c *chunk) wait() {
	if c.sub != nil {
		c.sub.WaitOrJournal()
	}
	if c.later != nil {
		<-c.later.done
	}
}

// release returns the room of the messages, and tells the quota what became of them.
func (c *chunk) release() {
	n := 0
	for i := range c.lines {
		l := &c.lines[i]
		if l.msg == nil {
			continue
		}
		if l.taken.Bounded() {
			_, journalled := c.sub.Receipt(n)
			tookIn(l.taken, l.msg, journalled, c.sub.Outcome(n))
		}
		n++
	}
	if c.sub != nil {
		c.sub.Release()
	}
}

// read parses lines until the body ends.
func (b *batch) read() error {
	from := newLineSource(&b.body, b.p, b.key())
	var lines source = from
	if b.events {
		lines = &arraySource{lineSource: from}
	}
	defer lines.release()
	for {
		if err := b.awaitRoom(); err != nil {
			return b.refuse(lines, err)
		}
		c, err := b.readChunk(lines)
		if len(c.lines) == 0 {
			b.drop(c)
		} else if !b.submit(c) {
			return errBodyBroken
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return b.refuse(lines, err)
		}
	}
}

// awaitRoom holds the client back while too many of its answers are unread. It returns errAnswersUnread
// as the end where the client does not read at all.
func (b *batch) awaitRoom() error {
	for b.answers.full() {
		b.wire.alive() // the broker holds the client back
		patience := stallPatience - b.answers.stalled()
		if patience <= 0 {
			return batchEnd{errAnswersUnread}
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

// A batchEnd is a refusal that ends the batch, with a last line.
type batchEnd struct{ *problem.Problem }

func (e batchEnd) Unwrap() error { return e.Problem }

// judge is sender.judge for the next line.
func (b *batch) judge() error {
	err := b.sender.judge()
	if err == nil && b.producer.PublishSecret != "" {
		err = errSecretSince
	}
	if err == nil {
		return nil
	}
	last := *problem.From(err)
	last.Detail += batchEnds
	return batchEnd{&last}
}

// batchEnds is added to the detail of a refusal that ends a batch.
const batchEnds = " That has changed since the batch began, which ends here: the lines answered above are done with, none after them was stored."

// refuse ends the batch with a last line. The client must send the rest before it reads that line,
// so the rest is read and dropped, within bounds. Beyond the bounds the connection is closed, which
// most clients report as a reset.
func (b *batch) refuse(lines source, refusal error) error {
	if !errors.As(refusal, &batchEnd{}) {
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
func (b *batch) readChunk(lines source) (*chunk, error) {
	c := &chunk{}
	for len(c.lines) < chunkLines && c.cost < chunkBytes && b.room(c) {
		if len(c.lines) > 0 && !lines.ready() {
			return c, nil
		}
		text, err := lines.next()
		switch {
		case errors.Is(err, errLineTooLong):
			c.lines = append(c.lines, line{err: errBodyTooLarge})
			continue
		case errors.Is(err, problem.ErrOverloaded), errors.Is(err, errArray):
			c.lines = append(c.lines, line{err: err})
			continue
		case err != nil:
			return c, err
		case !b.events && blank(text):
			continue
		}
		if err := b.judge(); err != nil {
			return c, err
		}
		l, err := b.parse(text)
		if err != nil {
			c.lines = append(c.lines, line{err: err})
			continue
		}
		if l.msg != nil {
			c.cost += int64(l.msg.Bytes())
		} else {
			c.cost += int64(l.later.Bytes())
		}
		c.lines = append(c.lines, l)
	}
	return c, nil
}

// blank reports whether a line is empty or white space. Such a line is no message and gets no
// answer.
func blank(text []byte) bool {
	r := readerOf(text)
	return r.Ends()
}

// parse returns the message of a line or an event, or its schedule.
func (b *batch) parse(text []byte) (line, error) {
	if b.events {
		return b.event(text)
	}
	return b.line(text)
}

// A lineMaker makes messages from the lines of a producer.
type lineMaker struct {
	p *Publisher
	sender
	defaults durable.Message
	times    times        // of the lines without their own
	nowMs    func() int64 // what scheduled messages are later than
}

func (b *lineMaker) line(text []byte) (line, error) {
	l := b.unset()
	if err := l.parse(text); err != nil {
		return line{}, err
	}
	return b.made(&l)
}

// unset returns a line that has the defaults only.
func (b *lineMaker) unset() batchLine {
	return batchLine{times: b.times, priority: b.defaults.Priority, ttlMs: b.defaults.TTLMs, contentType: b.defaults.ContentType, orderingKey: string(b.defaults.OrderingKey())}
}

// made returns the message of a parsed line, or its schedule.
func (b *lineMaker) made(l *batchLine) (line, error) {
	if len(l.payload) > b.p.maxBody {
		return line{}, errBodyTooLarge
	}
	key, err := keyOf(l.messageID, b.ch, b.producer)
	if err != nil {
		return line{}, err
	}
	m := &durable.Message{ChannelNo: b.ch.No, ProducerNo: b.producer.No, Addressed: b.defaults.Addressed,
		Key: key, Priority: l.priority, TTLMs: l.ttlMs, ContentType: l.contentType, Headers: b.defaults.Metadata(), Payload: l.payload}
	if len(l.headers) > 0 {
		if err := checkLineHeaders(l.headers, b.p.tokenHeader); err != nil {
			return line{}, err
		}
		headers, err := metadata.Merge(b.defaults.Metadata(), l.headers, b.p.tokenHeader)
		if err != nil {
			return line{}, err
		}
		m.Headers = headers
	}
	if l.consumers != nil {
		if m.Addressed, err = b.p.addressed(b.ch, l.consumers); err != nil {
			return line{}, err
		}
	}
	m.Headers = durable.EncodingLine(l.encoding, m.Headers)
	if l.orderingKey != "" {
		m.Headers = durable.OrderingLine(l.orderingKey, m.Headers)
	}
	t, err := l.plan()
	if err != nil {
		return line{}, err
	}
	return b.planned(m, t, errLineTimes)
}

// planned returns the line of a message that is sent at some times.
func (b *lineMaker) planned(m *durable.Message, t times, names timeNames) (line, error) {
	if t == times0 {
		return line{msg: m}, nil
	}
	later, err := b.p.scheduler.plan(b.nowMs(), *m, t, names)
	return line{later: later}, err
}

// submit submits a chunk once the broker has room for it. It reports whether the connection is
// still open.
func (b *batch) submit(c *chunk) bool {
	b.wire.alive()
	msgs := make([]*durable.Message, 0, len(c.lines))
	c.intake = b.ch.Intake
	replicated := c.intake.Ack == policy.AckReplicated
	for i := range c.lines {
		l := &c.lines[i]
		if l.msg != nil {
			if l.taken, l.err = b.p.quota.Take(b.producer.No, l.msg.Kept(), 0, 0); l.err != nil {
				l.msg = nil
				continue
			}
			l.msg.Replicated = replicated
			msgs = append(msgs, l.msg)
		} else if l.later != nil {
			l.later.Replicated = replicated
		}
	}
	if len(msgs) > 0 {
		terms := Terms{Patience: batchRoom, Lines: true, Counted: c.held}
		terms.acknowledged(c.intake)
		c.sub = b.p.Submit(b.wire.ctx, terms, msgs...)
	}
	c.later = b.p.scheduleLines(b.wire.ctx, c.lines)
	select {
	case b.chunks <- c:
		return true
	case <-b.wire.ctx.Done():
		c.wait()
		c.release()
		b.drop(c)
		return false
	}
}

// room counts the messages of a chunk as they are read, in steps. A chunk that has lines is full where
// there is no room for more; one without waits for its turn, and then for what its messages find.
func (b *batch) room(c *chunk) bool {
	if c.cost < c.held {
		return true
	}
	more := c.cost - c.held + roomStep
	switch hold := b.body.hold; {
	case hold.Take(more):
	case len(c.lines) > 0:
		return false
	default:
		b.wire.alive()
		if !hold.Await(b.wire.ctx, more, batchRoom) {
			return true
		}
	}
	c.held += more
	return true
}

// roomStep is how much a chunk counts ahead, bytes.
const roomStep = 16 << 10

// drop gives back what a chunk that has ended holds.
func (b *batch) drop(c *chunk) {
	if c.held > 0 {
		b.body.hold.Give(c.held)
		c.held = 0
	}
}
