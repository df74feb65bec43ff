package importer

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/hotpath/publish"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/coding"
	"github.com/penstock-broker/penstock/internal/tool/sentence"
	"github.com/penstock-broker/penstock/redisq"
)

// A plan is what becomes of a message of the old database.
type plan struct {
	*message
	ch       *catalogue.Channel
	producer *durable.Producer
	to       durable.Positions // never "", which would be all consumers
	ends     []plannedJob
	key      string
	stored   ident.ID // zero: it is not here
	fresh    bool     // this pass has stored it
	gone     bool     // the old broker has pruned it meanwhile
	refused  error
}

type plannedJob struct {
	*job
	k *durable.Consumer
}

// plan decides what becomes of a message, without its payload.
func (im *Importer) plan(m *message) *plan {
	p := &plan{message: m, ch: im.channel(m.channel.String), producer: im.producer(m.producer.String)}
	switch {
	case p.ch == nil:
		p.refused = refuse("its channel %s is not here", quoted(m.channel.String))
	case p.producer == nil:
		p.refused = refuse("its producer %s is not here", quoted(m.producer.String))
	case m.status.Int64 != acknowledged && m.status.Int64 != dispatched:
		p.refused = refuse("its status is %d, neither 101 nor 102", m.status.Int64)
	case m.id.String == "":
		p.refused = refuse("it has no ID")
	case !m.size.Valid:
		p.refused = refuse("it has no payload")
	}
	if p.refused != nil {
		return p
	}
	if p.key, p.refused = publish.KeyOf(m.id.String, p.ch, p.producer); p.refused != nil {
		p.refused = refuse("%s", problem.From(p.refused).Detail)
		return p
	}
	p.refused = im.address(p)
	return p
}

// address finds the consumers of the jobs of a message. One that the old broker has not dispatched is for all
// consumers that its channel has there.
func (im *Importer) address(p *plan) error {
	var set durable.PositionSet
	add := func(t *target, of string) (*durable.Consumer, error) {
		switch {
		case t == nil:
			return nil, refuse("%s has an unknown consumer", of)
		case t.refused != nil:
			return nil, refuse("%s has the consumer %s, which is not imported", of, quoted(t.id))
		case t.channel != p.ch.ID:
			return nil, refuse("%s has a consumer of another channel", of)
		}
		k := im.o.Catalogue.Consumer(t.channel, t.id)
		if k == nil {
			return nil, refuse("%s has the consumer %s, which is not here", of, quoted(t.id))
		}
		set.Add(k.Position)
		return k, nil
	}
	for i := range p.jobs {
		j := &p.jobs[i]
		of := "its job " + quoted(j.row)
		if j.status < queued || j.status > dead {
			return refuse("%s has the status %d, none of 1001 to 1004", of, j.status)
		}
		k, err := add(named(im.targets, j.consumer), of)
		if err != nil {
			return err
		}
		p.ends = append(p.ends, plannedJob{j, k})
	}
	if p.status.Int64 == acknowledged && len(p.jobs) == 0 {
		for _, t := range im.targets {
			if t.channel != p.ch.ID && fold(t.channel) != fold(p.channel.String) {
				continue
			}
			if _, err := add(t, "its channel"); err != nil {
				return err
			}
		}
	}
	if p.to = set.Positions(); p.to == "" {
		p.to = durable.NoPositions
	}
	return nil
}

// draft describes a message as a publish of its producer. Its error is a *refusal.
func (im *Importer) draft(ctx context.Context, p *plan) (*publish.Drafter, *publish.Draft, error) {
	w, err := im.o.Publisher.Rows(p.ch.No, p.producer.No, publish.Defaults{Addressed: []byte(p.to)}, im.o.NowMs())
	if err != nil {
		return nil, nil, err
	}
	d := w.Draft()
	w.Complete(ctx, d, im.describe(d, p))
	if err := d.Err(); err != nil {
		d.Free()
		return nil, nil, refusalOf(err)
	}
	return w, d, nil
}

// describe sets the properties of a draft.
func (im *Importer) describe(d *publish.Draft, p *plan) error {
	payload, text := "Payload", string(p.payload)
	if !utf8.Valid(p.payload) {
		payload, text = "PayloadBase64", base64.StdEncoding.EncodeToString(p.payload)
	}
	if n := p.priority.Int64; n > redisq.MaxPriority || n < -redisq.MaxPriority {
		im.tell.tell("note: priorities above %d become %d", redisq.MaxPriority, redisq.MaxPriority)
	}
	set := [][2]string{{"MessageID", p.id.String}, {"Priority", strconv.Itoa(priorityOf(p.message))},
		{"ContentType", p.mediaType.String}}
	if len(p.payload) > 0 {
		set = append(set, [2]string{payload, text})
	}
	if p.dueMs > 0 {
		set = append(set, [2]string{"ScheduledFor", time.UnixMilli(p.dueMs).UTC().Format(time.RFC3339)})
	}
	headers := map[string]string{}
	if len(p.message.headers) > 0 && string(p.message.headers) != "null" {
		if err := json.Unmarshal(p.message.headers, &headers); err != nil {
			return refuse("its headers are no JSON object of texts")
		}
	}
	for name, value := range headers {
		switch {
		case strings.EqualFold(name, coding.Header):
			set = append(set, [2]string{"ContentEncoding", value})
		case metadata.Reserved(name, im.o.TokenHeader):
			im.tell.tell("note: the header %s is left out of messages: it belongs to the broker, to the connection or to "+
				"credentials", quoted(name))
		default:
			set = append(set, [2]string{"Header:" + name, value})
		}
	}
	for _, one := range set {
		if err := d.Set(one[0], one[1]); err != nil {
			return err
		}
	}
	return nil
}

// priorityOf returns the priority of a message. The older implementation takes the amount of a negative one.
func priorityOf(m *message) int {
	n := int(min(max(m.priority.Int64, -redisq.MaxPriority), redisq.MaxPriority))
	return max(n, -n)
}

// refusalOf returns the *refusal of an error that is about the row, and any other error as it is.
func refusalOf(err error) error {
	var no *refusal
	if err == nil || errors.As(err, &no) {
		return err
	}
	switch {
	case errors.Is(err, durable.ErrConflict):
		return refuse("this broker has another message with its ID in the channel")
	case errors.Is(err, durable.ErrRejected):
		return refuse("the store does not take it: %s", sentence.Of(err))
	case problem.Paused(err):
		return err
	}
	if p := problem.From(err); p.Status >= 400 && p.Status < 500 && p.Status != 429 {
		return refuse("%s", p.Detail)
	}
	return err
}

// store stores messages that are not here, whose contents were read. Its error is that of the store.
func (im *Importer) store(ctx context.Context, all []*plan) error {
	type sending struct {
		*plan
		d *publish.Draft
		s publish.Sent
	}
	var sent []*sending
	defer func() {
		for _, one := range sent {
			one.d.Free()
		}
	}()
	for _, p := range all {
		if p.gone = !p.whole; p.gone {
			continue
		}
		w, d, err := im.draft(ctx, p)
		var no *refusal
		switch {
		case errors.As(err, &no):
			p.refused = no
			continue
		case err != nil:
			return err
		case im.o.DryRun:
			d.Free()
			continue
		}
		one := &sending{plan: p, d: d}
		one.s = w.Submit(ctx, accept.Terms{Patience: accept.LinePatience, Lines: true}, []*publish.Draft{d})
		sent = append(sent, one)
	}
	var failed error
	for _, one := range sent {
		one.s.Wait()
		err := one.d.Err()
		var dup *durable.DuplicateError
		var no *refusal
		switch {
		case err == nil:
			one.stored, one.fresh = one.d.Stored(), true
		case errors.As(err, &dup):
			one.stored = dup.ID
		case errors.As(refusalOf(err), &no):
			one.refused = no
		default:
			failed = err
		}
	}
	return failed
}
