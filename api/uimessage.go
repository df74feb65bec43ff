package api

import (
	"context"
	"errors"
	"net/url"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/exchange"
	"github.com/penstock-broker/penstock/internal/feature/tracing"
	"github.com/penstock-broker/penstock/internal/feature/ui"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/answer"
)

// mostPageJobs is the number of jobs of a message that a page shows.
const mostPageJobs = 200

// Message says what became of a message. It costs three statements: the message, its steps, and why; one more where
// the ID is that of a producer.
func (p pages) Message(ctx context.Context, channel, id, first string, responses bool) (m ui.Message, err error) {
	ch := p.o.Catalogue.Channel(channel)
	if ch == nil {
		return m, catalogue.ErrUnknownChannel
	}
	stored, err := p.wholeMessage(ctx, ch, id)
	if err != nil {
		return m, err
	}
	if m, err = p.viewPage(ch, stored); err != nil {
		return m, err
	}
	for _, k := range ch.Consumers {
		switch {
		case !shown(ch, stored.Head(), k.Position) || k.Deleted():
		case len(m.Jobs) < mostPageJobs:
			m.Jobs = append(m.Jobs, ui.MessageJob{Consumer: k.ID, ID: stored.ID.Job(k.Position).String()})
		default:
			m.MoreJobs = true
		}
	}
	m.Responding = len(exchange.Responders(ch, p.o.Policies)) > 0 && p.o.Responses != nil
	if responses && m.Responding {
		view, _, err := p.o.Responses.Responses(ctx, ch, stored.Head(), 0, false)
		if m.Responses = &view; err != nil {
			m.Missing = append(m.Missing, "The responses cannot be read now.")
		}
	}
	t := &timeline{a: p.API, ch: ch, m: stored, path: messagePath(ch.ID, stored.PathID()), size: timelineSteps}
	if err := p.tell(ctx, t, first, &m, t.consumers); err != nil {
		return m, err
	}
	w, _, found, err := p.o.Why.Message(ctx, ch, stored.ID)
	switch {
	case err != nil:
		m.Why = p.o.Why.Unavailable()
	case found:
		m.Why = w
	default:
		m.Why = p.o.Why.NoConsumers()
	}
	return m, nil
}

// Job says what became of a job. It costs three statements, as a message does.
func (p pages) Job(ctx context.Context, channel, consumer, id, first string) (m ui.Message, err error) {
	ch, k, err := p.known(channel, consumer)
	if err != nil {
		return m, err
	}
	job, err := ident.Parse(id)
	message, pos, ok := job.Split()
	if err != nil || !ok || pos != k.Position {
		return m, errUnknownJob
	}
	stored, err := p.wholeMessage(ctx, ch, message.String())
	if errors.Is(err, errUnknownMessage) || err == nil && (stored.ID != message || !k.Concerns(stored.Head()) &&
		!k.LeftOut(stored.Head())) {
		return m, errUnknownJob
	}
	if err != nil {
		return m, err
	}
	if m, err = p.viewPage(ch, stored); err != nil {
		return m, err
	}
	m.Job = &ui.MessageJob{Consumer: k.ID, ID: id}
	t := &timeline{a: p.API, ch: ch, m: stored, path: jobPathOf(ch, k, id), size: timelineSteps, pos: k.Position}
	one := func() ([]*durable.Consumer, string) { return []*durable.Consumer{k}, "" }
	if err := p.tell(ctx, t, first, &m, one); err != nil {
		return m, err
	}
	w, _, found, err := p.o.Why.Job(ctx, ch, k, stored.ID)
	if m.Why = w; err != nil || !found {
		m.Why = p.o.Why.Unavailable()
	}
	return m, nil
}

func jobPathOf(ch *catalogue.Channel, k *durable.Consumer, id string) string {
	return consumerPath(ch.ID, k.ID) + "/job/" + id
}

// wholeMessage returns a message with its payload, by the ID of the broker or of its producer.
func (p pages) wholeMessage(ctx context.Context, ch *catalogue.Channel, id string) (*durable.Message, error) {
	if internal, err := ident.Parse(id); err == nil {
		found, err := p.o.Store.Messages(ctx, ch.No, []ident.ID{internal})
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			return &found[0], nil
		}
	}
	internal, err := p.o.Store.MessageByKey(ctx, ch.No, id)
	if errors.Is(err, durable.ErrNotFound) {
		return nil, errUnknownMessage
	}
	if err != nil {
		return nil, err
	}
	found, err := p.o.Store.Messages(ctx, ch.No, []ident.ID{internal})
	if err == nil && len(found) == 0 {
		err = errUnknownMessage
	}
	if err != nil {
		return nil, err
	}
	return &found[0], nil
}

// viewPage is what a page shows of a message alone. The memory of its payload counts as that of an answer, until
// the page is made.
func (p pages) viewPage(ch *catalogue.Channel, stored *durable.Message) (m ui.Message, err error) {
	if *p.held, err = answer.Open(p.o.Answers, answer.KeyOf(p.rc), len(stored.Payload)); err != nil {
		return m, err
	}
	view := viewMessage(stored, "", nil)
	m = ui.Message{Channel: ch.ID, ID: stored.PathID(), Own: stored.ID.String(), At: stored.ID.Time().UTC(),
		Priority: stored.Priority, ContentType: view.ContentType, Coding: view.ContentEncoding, Headers: view.Headers,
		Payload: stored.Payload}
	if producer := p.o.Catalogue.ProducerByNo(stored.ProducerNo); producer != nil {
		m.Producer = producer.ID
	}
	return m, nil
}

// tell reads a page of a timeline into m. The headers of its message are read already.
func (p pages) tell(ctx context.Context, t *timeline, first string, m *ui.Message, of func() ([]*durable.Consumer,
	string)) error {
	own := t.pos
	if err := t.begin(first); err != nil {
		return err
	}
	if m.Job != nil && t.pos != own {
		return errUnknownStep
	}
	t.parent, t.traced = tracing.ParentOf(t.m.Headers)
	consumers, rest := of()
	view, err := t.view(ctx, pageQuery{First: first, keep: url.Values{}}, consumers, rest)
	if err != nil {
		m.Missing = append(m.Missing, "What became of it cannot be read now.")
		view = apitype.Timeline{}
	}
	m.Timeline = view
	return nil
}
