package exchange

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/coding"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// reply publishes the responses that go back to producers, with the machinery of messages. The
// message ID of a reply is that of its exchange, so a broker that dies before it has noted the
// publication repeats it, and is refused.
func (w *Worker) reply(ctx context.Context, k *durable.Consumer, due []durable.Work, ids []ident.ID) error {
	for len(ids) > 0 {
		n, size := 0, 0
		for n < len(ids) && n < 128 && (n == 0 || size <= replyBytes) {
			for i := range due {
				if due[i].ID == ids[n] {
					size += due[i].Bytes
				}
			}
			n++
		}
		if err := w.replyTo(ctx, k, ids[:n]); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

func (w *Worker) replyTo(ctx context.Context, k *durable.Consumer, ids []ident.ID) error {
	found, err := w.Store.Exchanges(ctx, k.No, ids)
	if err != nil {
		return err
	}
	var rest []durable.Awaiting
	var msgs []*durable.Message
	var of []durable.Exchange
	for _, e := range found {
		if e.State != durable.ResponseReceived {
			continue
		}
		m, p, err := w.asked(ctx, k, e.ID)
		switch {
		case err != nil:
			return err
		case p == nil:
			if err := w.failOne(ctx, e, noProducer); err != nil {
				return err
			}
			continue
		case policy.SenderOf(p.Settings).ReplyURL != "":
		case durable.EndOfWait(e.ReceivedMs, e.KeepMs, w.Retention.Milliseconds()) <= w.NowMs():
			if err := w.giveUp(ctx, p, e); err != nil {
				return err
			}
			continue
		default:
			rest = append(rest, durable.Awaiting{ID: e.ID, ProducerNo: p.No})
			continue
		}
		ch, err := w.Ensure(ctx, p)
		if err != nil {
			return err
		}
		msgs, of = append(msgs, w.message(k, ch, m, &e)), append(of, e)
	}
	if len(rest) > 0 {
		w.replies.WithLabelValues("waits for a replyUrl").Add(float64(len(rest)))
		err = w.rest(ctx, k, rest)
	}
	return errors.Join(err, w.publish(ctx, k, msgs, of))
}

// asked returns the message of an exchange, without payload, and its producer, nil where it has none
// any more.
func (w *Worker) asked(ctx context.Context, k *durable.Consumer, id ident.ID) (*durable.Message,
	*durable.Producer, error) {
	found, err := w.Store.ListMessages(ctx, k.ChannelNo, id, 1)
	if err != nil || len(found) == 0 || found[0].ID != id {
		return nil, nil, err
	}
	m := &found[0]
	p := w.Catalogue.ProducerByNo(m.ProducerNo)
	if p == nil && m.ProducerNo != 0 {
		if err := w.Catalogue.Refresh(ctx); err != nil {
			return nil, nil, err
		}
		p = w.Catalogue.ProducerByNo(m.ProducerNo)
	}
	if p != nil && p.Deleted {
		p = nil
	}
	return m, p, nil
}

// message is the reply of an exchange.
func (w *Worker) message(k *durable.Consumer, channelNo uint32, m *durable.Message,
	e *durable.Exchange) *durable.Message {
	var headers []byte
	contentType, codings := "application/octet-stream", ""
	set := func(name, value string) {
		headers = append(append(append(append(headers, name...), ':'), value...), '\n')
	}
	set(InReplyTo, m.PublicID())
	set(ConsumerID, k.ID)
	set(ResponseStatus, strconv.Itoa(e.Status))
	if e.Truncated {
		set(ResponseCut, "true")
	}
	if ch := w.Catalogue.ChannelByNo(k.ChannelNo); ch != nil {
		set(RepliedChannel, ch.ID)
	}
	for line := range bytes.Lines(e.Headers) {
		name, value, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), ":")
		switch {
		case name == "Content-Type" && len(value) <= 255:
			contentType = value
		case name == coding.Header:
			codings = value
		case name != "Content-Type" && !ReplyHeader(name):
			set(name, value)
		}
	}
	return &durable.Message{ChannelNo: channelNo, Key: ReplyID(durable.ExchangeKey{ConsumerNo: k.No, ID: e.ID}),
		ContentType: contentType, Headers: durable.EncodingLine(codings, headers), Payload: e.Body}
}

// publish publishes replies and notes that.
func (w *Worker) publish(ctx context.Context, k *durable.Consumer, msgs []*durable.Message,
	of []durable.Exchange) (failure error) {
	if len(msgs) == 0 {
		return nil
	}
	failpoint.At(failpoint.BeforeReply)
	var done []durable.Awaiting
	for i, err := range w.Publish(ctx, msgs) {
		switch {
		case err == nil, errors.Is(err, durable.ErrDuplicate), errors.Is(err, durable.ErrConflict): // before a crash
			done = append(done, durable.Awaiting{ID: of[i].ID})
		case errors.Is(err, durable.ErrRejected):
			failure = errors.Join(failure, w.failOne(ctx, of[i], "the response cannot be stored as a message"))
		default:
			failure = err
		}
	}
	failpoint.At(failpoint.AfterReply)
	if len(done) == 0 {
		return failure
	}
	w.replies.WithLabelValues("published").Add(float64(len(done)))
	return errors.Join(failure, w.rest(ctx, k, done))
}

// Ensure makes the channel of replies to a producer, or changes it to what the producer wants, and
// returns its number. Batches of status events go there as well. Each step may be repeated; the next
// message repeats those that a crash left out. A change of the producer changes it in one transaction
// with the producer, see Follow.
func (w *Worker) Ensure(ctx context.Context, p *durable.Producer) (uint32, error) {
	want := policy.SenderOf(p.Settings)
	id := ident.Replies(p.No)
	ch, k := w.Catalogue.Channel(id), w.Catalogue.Consumer(id, ident.Sender)
	if ch != nil && k != nil && k.CallbackURL == string(want.ReplyURL) &&
		w.Policies.Of(k.Policy).SigningSecret == want.SigningSecret {
		return ch.No, nil
	}
	stored, _, err := w.Store.PutChannel(ctx, durable.Put{ID: id, NewToken: rand.Text()})
	if err != nil {
		return 0, err
	}
	to, push := string(want.ReplyURL), durable.Push
	_, _, err = w.Store.PutConsumer(ctx, durable.ConsumerPut{
		Put: durable.Put{ID: ident.Sender, NewToken: rand.Text()}, ChannelID: id, CallbackURL: &to, Type: &push,
		Policy: func(record string) (string, error) { return w.signing(record, want) },
	})
	if err != nil {
		return 0, err
	}
	if err := w.Catalogue.Refresh(ctx); err != nil {
		return 0, err
	}
	if w.Announce != nil {
		w.Announce()
	}
	return stored.No, nil
}

// signing returns the policy record of a consumer of replies with the secret of the producer.
func (w *Worker) signing(record string, want policy.Sender) (string, error) {
	return w.Policies.Merge(record, map[string]string{"signingSecret": string(want.SigningSecret)},
		time.UnixMilli(w.NowMs()))
}

// Follow returns the consumer of replies to a producer that has these settings. Without a reply URL it
// is a pull consumer, which nobody asks for jobs: replies wait, and nothing is sent anywhere.
func (w *Worker) Follow(settings string, k durable.Consumer) (durable.Consumer, error) {
	want := policy.SenderOf(settings)
	if k.CallbackURL, k.Type = string(want.ReplyURL), durable.Push; k.CallbackURL == "" {
		k.Type = durable.Pull
	}
	if w.Policies.Of(k.Policy).SigningSecret == want.SigningSecret {
		return k, nil
	}
	record, err := w.signing(k.Policy, want)
	k.Policy = record
	return k, err
}
