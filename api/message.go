package api

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/jsontext"
)

// maxInlineJobs is the number of jobs that one GET of a message shows. The parameters first
// and size page through the others.
const maxInlineJobs = 1000

var errUnknownMessage = problem.New(fasthttp.StatusNotFound, "message_not_found", "The channel has no such message.")

func messagePath(channelID, id string) string { return channelPath(channelID) + "/message/" + id }

// locate returns the internal ID of a message that a client names. The text of an internal ID names
// the message with that ID and no other one, as long as the channel has it. No producer can give such
// an ID now; one of the time when it could is found where no message of the broker has it. A text of
// that form that names no message is returned as the ID that it is: a list may begin there.
func (a *API) locate(ctx context.Context, ch *catalogue.Channel, id string, producer *durable.Producer) (ident.ID,
	error) {
	internal, err := ident.Parse(id)
	made := err == nil
	if made {
		if _, err := a.headline(ctx, ch, internal); !errors.Is(err, errUnknownMessage) {
			return internal, err
		}
	}
	for _, key := range keysOf(ch, id, producer) {
		held, err := a.o.Store.MessageByKey(ctx, ch.No, key)
		if err == nil || !errors.Is(err, durable.ErrNotFound) {
			return held, err
		}
	}
	if made {
		return internal, nil
	}
	return ident.ID{}, errUnknownMessage
}

// keysOf returns the Keys that an ID of a producer may stand for. An ID that is unique for its
// producer only is found for that producer, which is nil where another one asks.
func keysOf(ch *catalogue.Channel, id string, producer *durable.Producer) []string {
	if producer != nil && ch.Intake.Identity == policy.IdentityProducer {
		return []string{durable.ProducerKey(producer.No, id), id}
	}
	return []string{id}
}

// headline returns a message without payload and headers.
func (a *API) headline(ctx context.Context, ch *catalogue.Channel, id ident.ID) (*durable.Message, error) {
	found, err := a.o.Store.ListMessages(ctx, ch.No, id, 1)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 || found[0].ID != id {
		return nil, errUnknownMessage
	}
	return &found[0], nil
}

// messageInPath returns the channel and the message, without payload, that the
// path names.
func (a *API) messageInPath(ctx context.Context, rc *fasthttp.RequestCtx) (*catalogue.Channel,
	*durable.Message, error) {
	ch, err := a.channel(ctx, rc)
	if err != nil {
		return nil, nil, err
	}
	id, err := a.locate(ctx, ch, param(rc, "message"), a.namer(rc))
	if err != nil {
		return nil, nil, err
	}
	m, err := a.headline(ctx, ch, id)
	return ch, m, err
}

func (a *API) listMessages(ctx context.Context, rc *fasthttp.RequestCtx) error {
	q, err := readPage(rc, defaultPage, maxPage)
	if err != nil {
		return err
	}
	if searches(rc) {
		return a.searchMessages(ctx, rc, q)
	}
	ch, err := a.channel(ctx, rc)
	if err != nil {
		return err
	}
	var from ident.ID
	if q.First != "" {
		from, err = a.firstMessage(ctx, ch, q, a.namer(rc))
		if errors.Is(err, errUnknownMessage) {
			return problem.New(fasthttp.StatusBadRequest, "unknown_first",
				"The parameter first names no message of the channel.")
		} else if err != nil {
			return err
		}
	}
	if q.Since != nil {
		// Delivery of a message begins with its commit, so its status changed at the time
		// that its ID contains.
		if since := firstIDAt(*q.Since); since.Compare(from) > 0 {
			from = since
		}
	}
	none, err := readMessageStatus(rc, q.keep)
	if err != nil {
		return err
	}
	var found []durable.Message
	if !none {
		if found, err = a.o.Store.ListMessages(ctx, ch.No, from, q.Size+1); err != nil {
			return err
		}
	}
	entries := make([]entry, len(found))
	for i := range found {
		id := found[i].PathID()
		entries[i] = entry{id, messagePath(ch.ID, id), found[i].ID.Time()}
	}
	if len(found) > q.Size && found[q.Size].PathID() != found[q.Size].ID.String() {
		q.keep.Set("place", found[q.Size].ID.String())
	}
	return answerList(rc, q, channelPath(ch.ID)+"/messages", entries, ch.ChangedAt, false)
}

// readMessageStatus reads the filter of a list of messages, and adds it to the parameters that links
// carry. A stored message counts as dispatched, as in messages-status; none: no message is asked for.
func readMessageStatus(rc *fasthttp.RequestCtx, keep url.Values) (none bool, err error) {
	for _, b := range rc.QueryArgs().PeekMulti("status") {
		switch string(b) {
		case "101", apitype.Acknowledged:
			none = true
		case "102", apitype.Dispatched:
			keep.Set("status", "102")
		default:
			return false, errMessageStatus
		}
	}
	return none && !keep.Has("status"), nil
}

var errMessageStatus = problem.New(fasthttp.StatusBadRequest, "invalid_status",
	"The parameter status must be 101 or ACKNOWLEDGED, or 102 or DISPATCHED.")

// firstMessage returns the message at which a page begins: that of its place, which retention may have
// removed, or the one that first names.
func (a *API) firstMessage(ctx context.Context, ch *catalogue.Channel, q pageQuery, namer *durable.Producer) (ident.ID,
	error) {
	if at, err := ident.Parse(q.Place); err == nil {
		return at, nil
	}
	id, err := a.locate(ctx, ch, q.First, namer)
	if at, e := ident.Parse(q.First); e == nil && errors.Is(err, errUnknownMessage) {
		return at, nil
	}
	return id, err
}

// firstIDAt returns the smallest ID whose time is not before t.
func firstIDAt(t time.Time) ident.ID {
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++
	}
	const end = 1<<48 - 1 // the last millisecond that an ID can contain, in the year 10889
	return ident.AtMillis(min(ms, end))
}

func (a *API) getMessage(ctx context.Context, rc *fasthttp.RequestCtx) error {
	q, err := readPage(rc, maxInlineJobs, maxInlineJobs)
	if err != nil {
		return err
	}
	ch, err := a.channel(ctx, rc)
	if err != nil {
		return err
	}
	m, err := a.messageFor(ctx, rc, ch)
	if err != nil {
		return err
	}
	held, err := answer.Open(a.o.Answers, answer.KeyOf(rc), len(m.Payload))
	if err != nil {
		return err
	}
	defer held.Drop()
	start := 0
	if q.First != "" {
		if start, err = positionOf(ch, m, q.First); err != nil {
			return err
		}
	}
	path := messagePath(ch.ID, m.PathID())
	page, next, err := a.jobsOf(ctx, ch, m, start, q.Size)
	if err != nil {
		return err
	}
	view := viewMessage(m, path, page)
	if a.forProducer(rc) {
		for i := range view.Jobs {
			hideConsumer(&view.Jobs[i])
		}
	}
	at, over := m.ID.Time(), true
	if p := a.o.Catalogue.ProducerByNo(m.ProducerNo); p != nil {
		view.ProducedBy = p.Name
		at = newest(at, p.ChangedAt)
	}
	end := max(m.Audience, len(ch.Consumers)) // of positions; the copy may be behind
	known := len(page) == 0 && next >= end
	for _, j := range page {
		at = newest(newest(at, j.state.ChangedAt), j.consumer.ChangedAt)
		over = over && j.over()
		known = known || j.known()
	}
	if next < end {
		view.Pages = q.next(path, m.ID.Job(next).String())
	}
	// The store does not record the fan-out. A message counts as dispatched when the queue
	// or the store has a trace of one of its jobs, and from the age at which the fail-safe
	// dispatches it.
	if !known && time.Since(m.ID.Time()) < a.o.RationalDelay {
		view.Status = apitype.Acknowledged
	}
	return answerApart(rc, held, &view, at, over, payload{&view.Payload, m.Payload, view.PayloadEncoding != ""})
}

// namer returns the producer whose ID the request names a message by: the one with whose tokens it
// was admitted, otherwise the one that it names.
func (a *API) namer(rc *fasthttp.RequestCtx) *durable.Producer {
	if p := publisher(rc); p != nil {
		return p
	}
	return a.o.Catalogue.Producer(string(rc.Request.Header.Peek(headerProducerID)))
}

// messageFor returns the message that the path names. A producer sees its own messages only.
func (a *API) messageFor(ctx context.Context, rc *fasthttp.RequestCtx, ch *catalogue.Channel) (*durable.Message,
	error) {
	producer := publisher(rc)
	id, err := a.locate(ctx, ch, param(rc, "message"), a.namer(rc))
	if err != nil {
		return nil, err
	}
	found, err := a.o.Store.Messages(ctx, ch.No, []ident.ID{id})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 || producer != nil && found[0].ProducerNo != producer.No {
		return nil, errUnknownMessage
	}
	return &found[0], nil
}

// shown reports whether the message has a job for the consumer at a position, or one that the filter
// of the consumer left out.
func shown(ch *catalogue.Channel, h durable.Head, position int) bool {
	return position < len(ch.Consumers) && (ch.Consumers[position].Concerns(h) || ch.Consumers[position].LeftOut(h))
}

// positionOf returns the position of the consumer whose job of m has that ID.
func positionOf(ch *catalogue.Channel, m *durable.Message, jobID string) (int, error) {
	id, err := ident.Parse(jobID)
	message, pos, ok := id.Split()
	if err != nil || !ok || message != m.ID || pos >= m.Audience && !shown(ch, m.Head(), pos) {
		return 0, problem.New(fasthttp.StatusBadRequest, "unknown_first", "The parameter first names no job of this message.")
	}
	return pos, nil
}

// viewMessage returns m with a page of its jobs, without its payload.
func viewMessage(m *durable.Message, path string, page []located) apitype.Message {
	at := apitype.Time{Time: m.ID.Time()}
	view := apitype.Message{
		ID: m.PublicID(), ContentType: jsontext.HeaderText(m.ContentType), ContentEncoding: jsontext.HeaderText(
			m.ContentEncoding()), Priority: m.Priority,
		ReceivedAt: at, DispatchedAt: at, Status: apitype.Dispatched,
		Jobs: make([]apitype.Job, len(page)), Headers: headersOf(m.Headers),
	}
	if !utf8.Valid(m.Payload) {
		view.PayloadEncoding = apitype.Base64
	}
	for i, j := range page {
		view.Jobs[i] = j.viewInMessage(path)
	}
	return view
}

// headersOf decodes durable.Message.Headers.
func headersOf(block []byte) map[string]string {
	headers := map[string]string{}
	for line := range strings.Lines(string(block)) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":"); ok {
			headers[name] = jsontext.HeaderText(value)
		}
	}
	return headers
}
