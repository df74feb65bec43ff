package publish

import (
	"context"
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/internal/feature/journal"
	"github.com/penstock-broker/penstock/internal/feature/tracing"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/cloudevents"
	"github.com/penstock-broker/penstock/internal/model/quota"
)

// A Draft is a message on its way in, as its producer describes it. A way in gets it from a Drafter and
// sets its properties; the Drafter completes it, and stores what it has become with Submit. Drafts are
// used again, their messages are not.
type Draft struct {
	Defaults
	messageID      string
	idempotencyKey string
	event          cloudevents.ID // what identifies the message where it has neither
	contentType    string
	encoding       string // of the payload, as cleanCoding returns it
	orderingKey    string
	task           string
	headers        map[string]string // of a line, beside those of Defaults
	consumers      []string          // nil: not given
	payload        []byte            // its own memory
	hasPayload     bool
	ownAt          bool // its time is not a default
	ownDelay       bool

	request     bool       // its properties are headers of a request, as its refusals call them
	carried     []string   // names of headers that a request carries without listing them
	tokenHeader string     // of deliveries: never carried
	in          lineReader // of a line while it is read

	msg   *durable.Message   // once it is complete: the message,
	later *durable.Scheduled // or its schedule
	err   error              // why there is none, or why it is not stored
	taken quota.Taken
	span  *tracing.Span // nil: it is not recorded

	rated      bool // it has its places in the publish rates
	journalled bool // the journal has it, under the receipt
	receipt    journal.Receipt
	alone      [1]*Draft // the memory of only
}

// Defaults are the properties that all lines of a batch or rows of a bulk may have in common. They are
// stored with a bulk, where Headers have the ordering key and the task in front, as those of a message.
type Defaults struct {
	Priority  int    `json:",omitempty"`
	TTLMs     int64  `json:",omitempty"`
	Headers   []byte `json:",omitempty"`
	Addressed []byte `json:",omitempty"` // durable.Positions; in a Drafter they are apart
	times
}

var drafts = sync.Pool{New: func() any { return new(Draft) }}

// free ends the use of a draft.
func (d *Draft) free() {
	*d = Draft{}
	drafts.Put(d)
}

// message returns the message of a complete draft, or that of its schedule; nil: it has none.
func (d *Draft) message() *durable.Message {
	if d.later != nil {
		return &d.later.Message
	}
	return d.msg
}

// only returns the draft for a submission of its own.
func (d *Draft) only() []*Draft {
	d.alone[0] = d
	return d.alone[:]
}

// A Drafter makes the drafts of a sender and submits them.
type Drafter struct {
	p *Publisher
	sender
	blank Draft             // a draft with the defaults
	to    durable.Positions // whom drafts without Consumers address, "" for all
	nowMs func() int64      // what scheduled messages are later than
	rows  bool              // each is read again with the same result: none repeats another request
}

func (p *Publisher) drafter(from sender) Drafter {
	return Drafter{p: p, sender: from, nowMs: p.planner.nowMs, blank: Draft{contentType: defaultContentType,
		tokenHeader: p.tokenHeader}}
}

// Rows returns the drafter of a bulk. createdMs is when the bulk came: a scheduled message is for a later
// time, however long its row waits, and a delay counts from then. So a row that is read again, by
// another broker after a crash, has the same time.
func (p *Publisher) Rows(channelNo, producerNo uint32, stored Defaults, createdMs int64) (*Drafter, error) {
	ch, producer := p.catalogue.ChannelByNo(channelNo), p.catalogue.ProducerByNo(producerNo)
	switch {
	case ch == nil || ch.Deleted:
		return nil, catalogue.ErrUnknownChannel
	case producer == nil || producer.Deleted:
		return nil, catalogue.ErrUnknownProducer
	}
	w := p.drafter(sender{ch: ch, producer: producer})
	m := durable.Message{Headers: stored.Headers}
	w.to, w.nowMs, w.rows = durable.Positions(stored.Addressed), func() int64 { return createdMs }, true
	w.blank.Defaults, w.blank.orderingKey = stored, string(m.OrderingKey())
	w.blank.task, w.blank.Headers = m.Task(), durable.WithoutTask(m.Metadata())
	return &w, nil
}

// Defaults reads the defaults of a bulk from the headers of its request.
func (p *Publisher) Defaults(ctx context.Context, h *fasthttp.RequestHeader, ch *catalogue.Channel) (Defaults, error) {
	w := p.drafter(sender{ch: ch})
	err := w.setDefaults(ctx, h)
	out := w.blank.Defaults
	out.Addressed = []byte(w.to)
	out.Headers = durable.TaskLine(w.blank.task, out.Headers)
	if key := w.blank.orderingKey; key != "" {
		out.Headers = durable.OrderingLine(key, out.Headers)
	}
	return out, err
}

// setDefaults takes the defaults of lines from the headers of their request.
func (w *Drafter) setDefaults(ctx context.Context, h *fasthttp.RequestHeader) (err error) {
	d := &w.blank
	d.carried = traceHeaders(h)
	if err = d.fill(h, ofLines); err == nil && d.consumers != nil {
		w.to, err = w.p.addressed(ctx, w.ch, d.consumers)
	}
	d.request, d.consumers, d.carried, d.ownAt, d.ownDelay = false, nil, nil, false, false
	return err
}

// draft returns a draft with the defaults.
func (w *Drafter) draft() *Draft {
	d := drafts.Get().(*Draft)
	*d = w.blank
	return d
}

// complete makes a draft the message that it describes, or its schedule.
func (w *Drafter) complete(ctx context.Context, d *Draft) (err error) {
	if len(d.payload) > w.p.maxBody {
		return errBodyTooLarge
	}
	m := &durable.Message{ChannelNo: w.ch.No, ProducerNo: w.producer.No, Addressed: w.to,
		Priority: d.Priority, TTLMs: d.TTLMs, ContentType: d.contentType, Headers: d.Headers, Payload: d.payload}
	if m.Key, err = w.identify(d); err != nil {
		return err
	}
	if len(d.headers) > 0 {
		if err = checkLineHeaders(d.headers, d.tokenHeader); err != nil {
			return err
		}
		if m.Headers, err = metadata.Merge(d.Headers, d.headers, d.tokenHeader); err != nil {
			return err
		}
	}
	if d.consumers != nil {
		if m.Addressed, err = w.p.addressed(ctx, w.ch, d.consumers); err != nil {
			return err
		}
	}
	m.Headers = durable.EncodingLine(d.encoding, durable.TaskLine(d.task, m.Headers))
	if d.orderingKey != "" {
		m.Headers = durable.OrderingLine(d.orderingKey, m.Headers)
	}
	t, err := d.plannedTimes()
	switch {
	case err != nil:
		return err
	case t == times0:
		d.msg = m
		return nil
	}
	d.later, err = w.p.planner.plan(w.nowMs(), *m, t, d.timeNames())
	if err == nil && d.later.Past && (w.rows || m.Key == "" && !d.request) { // the body of a request may have its identity
		err = w.p.planner.tooSoon()
	}
	return err
}

// identify returns the Key of the message of a draft, "" for none.
func (w *Drafter) identify(d *Draft) (string, error) {
	switch {
	case d.idempotencyKey != "":
		return durable.IdempotencyKey(w.producer.No, d.idempotencyKey), nil
	case d.messageID == "" && d.event != (cloudevents.ID{}):
		return eventKey(d.event, w.ch, w.producer), nil
	}
	return KeyOf(d.messageID, w.ch, w.producer)
}
