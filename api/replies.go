package api

import (
	"context"
	"errors"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/exchange"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/credentials"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

var errNoReplies = problem.New(fasthttp.StatusNotFound, "no_replies",
	"The producer has got no replies and no status batches yet: it has no replyUrl, or nothing was sent to it.")

// admitSender checks the token of the producer that the path names.
func (a *API) admitSender(ctx context.Context, rc *fasthttp.RequestCtx) error {
	h := &rc.Request.Header
	if id := h.Peek(headerProducerID); len(id) > 0 && string(id) != param(rc, "producer") {
		return catalogue.ErrProducerToken
	}
	if err := a.fresh(ctx); err != nil {
		return err
	}
	token, err := credentials.Of(h, headerProducerToken)
	if err != nil {
		return err
	}
	p := a.o.Catalogue.Producer(param(rc, "producer"))
	if p == nil || !a.o.Catalogue.ProducerTokenMatches(token, p) {
		return catalogue.ErrProducerToken
	}
	answer.SetKey(rc, share.Producer(p.No))
	return nil
}

// replies returns the channel of replies and status batches to the producer that the path names, with its
// consumer.
func (a *API) replies(ctx context.Context, rc *fasthttp.RequestCtx) (*durable.Producer, *catalogue.Channel,
	*durable.Consumer, error) {
	if err := a.fresh(ctx); err != nil {
		return nil, nil, nil, err
	}
	p := a.o.Catalogue.Producer(param(rc, "producer"))
	if p == nil {
		return nil, nil, nil, errNoProducer
	}
	ch := a.o.Catalogue.Channel(ident.Replies(p.No))
	if ch == nil {
		return p, nil, nil, errNoReplies
	}
	k := a.o.Catalogue.Consumer(ch.ID, ident.Sender)
	if k == nil {
		return p, nil, nil, errNoReplies
	}
	return p, ch, k, nil
}

// getReplyDLQ lists the replies and status batches that the producer did not take.
func (a *API) getReplyDLQ(ctx context.Context, rc *fasthttp.RequestCtx) error {
	q, err := readPage(rc, defaultPage, maxPage)
	if err != nil {
		return err
	}
	p, ch, k, err := a.replies(ctx, rc)
	if err == errNoReplies {
		return answerResource(rc, fasthttp.StatusOK, noDeadLetters, p.ChangedAt, false)
	}
	if err != nil {
		return err
	}
	return a.answerDLQ(ctx, rc, q, dlqOf{ch: ch, k: k, path: producerPath(p.ID) + "/dlq", replies: true})
}

// describeReply names the message that a reply answers, its channel, and the consumer that responded.
// The reply has them in its headers, which are read with its body only where the ID of the reply does
// not lead to them any more. A status batch answers nothing: its channel is that of all batches.
func (a *API) describeReply(ctx context.Context, ch *catalogue.Channel, id ident.ID, v *apitype.Job) error {
	m, err := a.headline(ctx, ch, id)
	if errors.Is(err, errUnknownMessage) {
		return nil
	}
	if err != nil {
		return err
	}
	answered := exchange.ParseReplyID(m.Key)
	if answered.ConsumerNo == 0 {
		v.ChannelID = ident.StatusChannel
		return nil
	}
	if k := a.o.Catalogue.ConsumerByNo(answered.ConsumerNo); k != nil {
		if of := a.o.Catalogue.ChannelByNo(k.ChannelNo); of != nil {
			asked, err := a.headline(ctx, of, answered.ID)
			if err == nil {
				v.InReplyTo, v.ChannelID, v.ConsumerID = asked.PublicID(), of.ID, k.ID
			}
			if !errors.Is(err, errUnknownMessage) {
				return err
			}
		}
	}
	found, err := a.o.Store.Messages(ctx, ch.No, []ident.ID{id})
	if err != nil || len(found) == 0 {
		return err
	}
	headers := headersOf(found[0].Headers)
	v.InReplyTo, v.ChannelID, v.ConsumerID = headers[exchange.InReplyTo], headers[exchange.RepliedChannel],
		headers[exchange.ConsumerID]
	return nil
}

// redriveReplies gives the dead replies and status batches to a producer new attempts.
func (a *API) redriveReplies(ctx context.Context, rc *fasthttp.RequestCtx) error {
	token, err := requeueToken(rc, headerProducerToken)
	if err != nil {
		return err
	}
	p, _, k, err := a.replies(ctx, rc)
	if p == nil {
		return err
	}
	if scoped(rc) == nil && !a.o.Catalogue.ProducerTokenMatches(token, p) {
		return problem.New(fasthttp.StatusBadRequest, "requeue_token_mismatch",
			"The field requeue, or without it X-Broker-Producer-Token or Authorization: Bearer, must be the producer's token.").
			OfToken()
	}
	if err == errNoReplies {
		return accepted(rc)
	}
	if err != nil {
		return err
	}
	if _, err := a.o.Jobs.RedriveAll(ctx, k.No); err != nil {
		return err
	}
	if err := a.release(ctx, k.No); err != nil {
		return err
	}
	return accepted(rc)
}
