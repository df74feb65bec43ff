package publish

import (
	"errors"
	"io"
	"time"

	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// A chunk is consecutive lines of one batch request: drafts, those of refused lines with the reason.
type chunk struct {
	drafts []*Draft
	cost   int64 // of their messages, bytes
	held   int64 // of those, counted in the bound before they are submitted
	sent   Sent
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
		if len(c.drafts) == 0 {
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

// check is sender.check for the next line.
func (b *batch) check() error {
	err := b.sender.check()
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
const batchEnds = " That has changed since the batch began, which ends here: the lines answered above are done " +
	"with, none after them was stored."

// refuse ends the batch with a last line. The client must send the rest before it reads that line,
// so the rest is read and dropped, within bounds. Beyond the bounds the connection is closed, which
// most clients report as a reset.
func (b *batch) refuse(lines source, refusal error) error {
	if !errors.As(refusal, &batchEnd{}) {
		return refusal
	}
	last := &chunk{drafts: []*Draft{{err: refusal}}}
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
	for len(c.drafts) < chunkLines && c.cost < chunkBytes && b.room(c) {
		if len(c.drafts) > 0 && !lines.ready() {
			return c, nil
		}
		text, err := lines.next()
		switch {
		case errors.Is(err, errLineTooLong):
			c.drafts = append(c.drafts, &Draft{err: errBodyTooLarge})
			continue
		case errors.Is(err, problem.ErrOverloaded), errors.Is(err, errArray):
			c.drafts = append(c.drafts, &Draft{err: err})
			continue
		case err != nil:
			return c, err
		case !b.events && blank(text):
			continue
		}
		if err := b.check(); err != nil {
			return c, err
		}
		d := b.draft()
		if d.err = b.parse(d, text); d.err == nil {
			c.cost += int64(d.message().Bytes())
		}
		c.drafts = append(c.drafts, d)
	}
	return c, nil
}

// blank reports whether a line is empty or white space. Such a line is no message and gets no
// answer.
func blank(text []byte) bool {
	r := readerOf(text)
	return r.Ends()
}

// parse makes a draft what a line or an event describes.
func (b *batch) parse(d *Draft, text []byte) error {
	read := d.line
	if b.events {
		read = func(text []byte) error { return b.event(d, text) }
	}
	if err := read(text); err != nil {
		return err
	}
	return b.complete(b.wire.ctx, d)
}

// submit submits a chunk once the broker has room for it. It reports whether the connection is
// still open.
func (b *batch) submit(c *chunk) bool {
	b.wire.alive()
	c.sent = b.Submit(b.wire.ctx, accept.Terms{Patience: accept.LinePatience, Lines: true, Counted: c.held}, c.drafts)
	select {
	case b.chunks <- c:
		return true
	case <-b.wire.ctx.Done():
		c.sent.Wait()
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
	switch permit := b.body.permit; {
	case permit.Take(more):
	case len(c.drafts) > 0:
		return false
	default:
		b.wire.alive()
		if !permit.Await(b.wire.ctx, more, accept.LinePatience) {
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
	for _, d := range c.drafts {
		d.free()
	}
	if c.held > 0 {
		b.body.permit.Give(c.held)
		c.held = 0
	}
}
