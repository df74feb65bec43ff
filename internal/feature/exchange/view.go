package exchange

import (
	"cmp"
	"context"
	"encoding/base64"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/jsontext"
)

// viewBytes and viewEntries bound one answer.
const (
	viewBytes   = 8 << 20
	viewEntries = 1000
)

// notKept is the reason of an exchange whose job was over before responses were on.
const notKept = "the job was delivered while responses were off"

// A Reader reads the responses to a message.
type Reader struct {
	Store    Store
	Policies *policy.Book
	Most     int // entries of one answer; 0: viewEntries
}

// Responses returns the responses to a message from the consumers from a position on: one entry for
// each that has responses on. For a producer no entry names a callback. next is the position after the
// last entry; 0: there are no more.
func (r *Reader) Responses(ctx context.Context, ch *catalogue.Channel, h durable.Head, from int,
	forProducer bool) (view apitype.Responses, next int, err error) {
	view.Result = []apitype.Response{}
	responders := Responders(ch, r.Policies)
	counts, err := look(ctx, r.Store, responders, []durable.Head{h})
	if err != nil {
		return view, 0, err
	}
	c := counts[h.ID]
	view.Complete = c.over == c.all
	bytes := 0
	for _, k := range responders {
		if k.Position < from || !k.Concerns(h) {
			continue
		}
		if len(view.Result) == cmp.Or(r.Most, viewEntries) || bytes > viewBytes {
			return view, k.Position, nil
		}
		entry, err := r.entry(ctx, k, h.ID, forProducer)
		if err != nil {
			return view, 0, err
		}
		bytes += len(entry.Body)
		view.Result = append(view.Result, entry)
	}
	return view, 0, nil
}

// First returns the exchange of the consumer whose response came first, nil if there is none.
func (r *Reader) First(ctx context.Context, ch *catalogue.Channel, h durable.Head) (k *durable.Consumer,
	first *durable.Exchange, err error) {
	for _, responder := range Responders(ch, r.Policies) {
		found, err := r.Store.Exchanges(ctx, responder.No, []ident.ID{h.ID})
		if err != nil {
			return nil, nil, err
		}
		for i := range found {
			e := &found[i]
			if (e.State == durable.ResponseReceived || e.State == durable.ResponseDelivered) &&
				(first == nil || e.ReceivedMs < first.ReceivedMs) {
				k, first = responder, e
			}
		}
	}
	return k, first, nil
}

func (r *Reader) entry(ctx context.Context, k *durable.Consumer, id ident.ID, forProducer bool) (v apitype.Response,
	err error) {
	v = apitype.Response{ConsumerID: k.ID, Headers: map[string]string{}, ArrivedAt: apitype.Time{Time: id.Time()}}
	found, err := r.Store.Exchanges(ctx, k.No, []ident.ID{id})
	if err != nil {
		return v, err
	}
	if len(found) == 0 {
		return v, r.derive(ctx, &v, k, id, forProducer)
	}
	e := &found[0]
	v.State, v.Status, v.Truncated, v.Attempt, v.Reason = e.State.String(), e.Status, e.Truncated, e.Attempt, e.Reason
	v.DeliveredAt, v.ReceivedAt, v.EndedAt = at(e.DeliveredMs), at(e.ReceivedMs), at(e.EndedMs)
	for line := range strings.Lines(string(e.Headers)) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":"); ok {
			v.Headers[name] = jsontext.HeaderText(value)
		}
	}
	v.Body = string(e.Body)
	if !utf8.Valid(e.Body) {
		v.Body, v.BodyEncoding = base64.StdEncoding.EncodeToString(e.Body), apitype.Base64
	}
	return v, nil
}

// derive fills the entry of an exchange without a row: its job decides.
func (r *Reader) derive(ctx context.Context, v *apitype.Response, k *durable.Consumer, id ident.ID,
	forProducer bool) error {
	states, err := r.Store.JobStates(ctx, k.No, []ident.ID{id})
	if err != nil {
		return err
	}
	j := states[id]
	v.State, v.Attempt, v.Status = durable.Arrived.String(), j.Attempts, j.StatusCode
	switch j.Status {
	case durable.Dead:
		v.State, v.Reason, v.EndedAt = durable.ExchangeFailed.String(), j.Reason.String(), at(j.ChangedMs)
		if j.Error != "" && !forProducer { // it may name the callback
			v.Reason = strings.TrimPrefix(v.Reason+": "+j.Error, ": ")
		}
	case durable.Delivered:
		// The outcome may have been stored since the exchange was looked for.
		if found, err := r.Store.Exchanges(ctx, k.No, []ident.ID{id}); err != nil || len(found) > 0 {
			v.State, v.DeliveredAt = durable.DeliveredReceiver.String(), at(j.ChangedMs)
			return err
		}
		v.State, v.Reason, v.EndedAt = durable.ExchangeFailed.String(), notKept, at(j.ChangedMs)
	}
	return nil
}

// A Failure is why a message will have no response.
type Failure struct {
	Reason string // of each consumer that has responses on, in the words for a producer
	Late   bool   // no consumer had another reason than that time was over
}

// mostReasons bounds the consumers that a Failure names.
const mostReasons = 5

// Failed returns why a message without a response will have none. It is nil where one may come, and
// where no consumer was asked for one.
func (r *Reader) Failed(ctx context.Context, ch *catalogue.Channel, h durable.Head) (*Failure, error) {
	view, next, err := r.Responses(ctx, ch, h, 0, true)
	if err != nil || next != 0 || len(view.Result) == 0 {
		return nil, err
	}
	f := &Failure{Late: true}
	for i, e := range view.Result {
		if e.State != durable.ExchangeFailed.String() {
			return nil, nil
		}
		f.Late = f.Late && (e.Reason == NoResult || e.Reason == durable.Expired.String())
		switch {
		case i < mostReasons:
			if i > 0 {
				f.Reason += ", "
			}
			f.Reason += e.ConsumerID + " failed with " + e.Reason
			if e.Status > 0 {
				f.Reason += " (status " + strconv.Itoa(e.Status) + ")"
			}
		case i == mostReasons:
			f.Reason += " and others"
		}
	}
	return f, nil
}

// Asked returns the IDs of the consumers of a channel that are to respond to a message.
func Asked(ch *catalogue.Channel, policies *policy.Book, h durable.Head) (ids []string) {
	for _, k := range Responders(ch, policies) {
		if k.Concerns(h) {
			ids = append(ids, k.ID)
		}
	}
	return ids
}

// Named lists consumers in a sentence.
func Named(ids []string) string {
	if len(ids) > mostReasons {
		return strings.Join(ids[:mostReasons], ", ") + " and others"
	}
	return strings.Join(ids, ", ")
}

// at returns a time of a row, nil where it has not come.
func at(ms int64) *apitype.Time {
	if ms == 0 {
		return nil
	}
	return &apitype.Time{Time: time.UnixMilli(ms)}
}
