package exchange

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// A response whose producer has no reply URL rests in the store: nothing reads it before its end, unless
// the producer gets a URL or is deleted. The look for such producers costs one comparison while the
// catalogue stays as it is.

const (
	// lookAnyway is the interval of the look without a change, for notes of brokers that died.
	lookAnyway = time.Minute
	// wakeAtOnce and endAtOnce bound the responses of one transaction, and of one page.
	wakeAtOnce, endAtOnce = 500, 500
)

// The reasons of exchanges that no producer can take.
const (
	noProducer = "the message has no producer any more that the response could go to"
	noReplyURL = "the producer had no replyUrl for as long as the response was kept"
)

// seen is the state of the last look at the producers.
type seen struct {
	version int64 // of the catalogue
	at      time.Time
}

// rest lets responses wait for what changes them: a reply URL, the delivery of the reply, their end.
func (w *Worker) rest(ctx context.Context, k *durable.Consumer, all []durable.Awaiting) error {
	return w.Store.RestReplies(ctx, k.No, all, w.NowMs(), w.Retention.Milliseconds())
}

// followProducers wakes the responses that wait for a producer that has a reply URL or is deleted by
// now, and ends the replies to deleted producers.
//
// A broker whose copy showed no URL writes the note before its copy shows one, and looks after that: so
// its look finds the note, or that of another broker within lookAnyway after it died.
func (w *Worker) followProducers(ctx context.Context) error {
	version := w.Catalogue.Version()
	if version == w.seen.version && time.Since(w.seen.at) < lookAnyway {
		return nil
	}
	began := time.Now()
	for after := uint32(0); ; {
		no, err := w.Store.NextAwaited(ctx, after)
		if err != nil {
			return err
		}
		if no == 0 {
			break
		}
		after = no
		p := w.Catalogue.ProducerByNo(no)
		if p == nil || !p.Deleted && policy.SenderOf(p.Settings).ReplyURL == "" {
			continue
		}
		if err := w.awake(ctx, no); err != nil {
			return err
		}
	}
	for _, ch := range w.Catalogue.ReplyChannels() {
		p := w.Catalogue.ProducerByNo(ident.RepliesTo(ch.ID))
		if p == nil || !w.Owns(ch.No) {
			continue
		}
		settle := w.mend
		if p.Deleted {
			settle = w.endReplies
		}
		if err := settle(ctx, p, ch); err != nil {
			return err
		}
	}
	w.seen = seen{version, began}
	return nil
}

// awake makes everything due that waits for a producer.
func (w *Worker) awake(ctx context.Context, producerNo uint32) error {
	for ctx.Err() == nil {
		consumers, err := w.Store.WakeReplies(ctx, producerNo, wakeAtOnce)
		if err != nil || len(consumers) == 0 {
			return err
		}
		for _, no := range consumers {
			w.Stored(no)
		}
	}
	return ctx.Err()
}

// giveUp ends the wait of a response for a reply URL. Its reply may have been published when the
// producer had one: its job ends first, so a crash in between repeats both.
func (w *Worker) giveUp(ctx context.Context, p *durable.Producer, e durable.Exchange) error {
	if err := w.endReply(ctx, p, &e); err != nil {
		return err
	}
	if err := w.Store.ForgetAwaiting(ctx, e.ConsumerNo, []ident.ID{e.ID}); err != nil {
		return err
	}
	e.Headers, e.Body = nil, nil
	return w.failOne(ctx, e, noReplyURL)
}

// endReply makes the job of a published reply a dead letter, unless it is over.
func (w *Worker) endReply(ctx context.Context, p *durable.Producer, e *durable.Exchange) error {
	channel := ident.Replies(p.No)
	ch, k := w.Catalogue.Channel(channel), w.Catalogue.Consumer(channel, ident.Sender)
	if ch == nil || k == nil {
		return nil
	}
	id, err := w.Store.MessageByKey(ctx, ch.No, ReplyID(durable.ExchangeKey{ConsumerNo: e.ConsumerNo, ID: e.ID}))
	if errors.Is(err, durable.ErrNotFound) { // it was never published
		return nil
	}
	if err != nil {
		return err
	}
	states, err := w.Store.JobStates(ctx, k.No, []ident.ID{id})
	if err != nil || states[id].Status.Over() {
		return err
	}
	return w.Store.Record(ctx, []durable.Outcome{durable.Expiration(k.No, id, 0, states[id].Attempts, w.NowMs())})
}

// mend makes the consumer of replies follow its producer where it does not: the first reply made it from
// an older copy of the catalogue, or a request changed it.
func (w *Worker) mend(ctx context.Context, p *durable.Producer, ch *catalogue.Channel) error {
	k := w.Catalogue.Consumer(ch.ID, ident.Sender)
	if k == nil {
		return nil
	}
	want, err := w.Follow(p.Settings, *k)
	if err != nil || want == *k {
		return err
	}
	_, _, err = w.Store.PutConsumer(ctx, durable.ConsumerPut{
		Put: durable.Put{ID: k.ID, NewToken: k.Token}, ChannelID: ch.ID, CallbackURL: &want.CallbackURL, Type: &want.Type,
		Policy: func(string) (string, error) { return want.Policy, nil },
	})
	if err == nil && w.Announce != nil {
		w.Announce()
	}
	return err
}

// endReplies ends the exchanges whose replies were published for a producer that is deleted, and then
// deletes their channel, with which the replies go. A crash before that repeats it.
func (w *Worker) endReplies(ctx context.Context, _ *durable.Producer, ch *catalogue.Channel) error {
	for from := (ident.ID{}); ; { // of two pages the last and the first message are the same
		page, err := w.Store.ListMessages(ctx, ch.No, from, endAtOnce)
		if err != nil {
			return err
		}
		for i := range page {
			if err := w.endPublished(ctx, ParseReplyID(page[i].Key)); err != nil {
				return err
			}
			from = page[i].ID
		}
		if len(page) < endAtOnce {
			break
		}
	}
	_, err := w.Store.DeleteChannel(ctx, durable.Put{ID: ch.ID})
	if err == nil && w.Announce != nil {
		w.Announce()
	}
	return err
}

func (w *Worker) endPublished(ctx context.Context, key durable.ExchangeKey) error {
	if key.ConsumerNo == 0 {
		return nil
	}
	found, err := w.Store.Exchanges(ctx, key.ConsumerNo, []ident.ID{key.ID})
	if err != nil || len(found) == 0 || found[0].State != durable.ResponseReceived {
		return err
	}
	return w.failOne(ctx, found[0], noProducer)
}
