package api

import (
	"context"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/apitype"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/problem"
)

func viewChannel(ch *durable.Channel) apitype.Channel {
	path := channelPath(ch.ID)
	return apitype.Channel{
		ID: ch.ID, Name: ch.Name, Token: ch.Token, ChangedAt: changedAt(ch.ChangedAt),
		ConsumersURL: path + "/consumers", MessagesURL: path + "/messages", BroadcastURL: path + "/broadcast",
	}
}

func channelPath(id string) string { return "/channel/" + id }

func (a *API) putChannel(ctx context.Context, rc *fasthttp.RequestCtx) error {
	put, _, err := readPut(rc, param(rc, "channel"), channelFields)
	if err != nil {
		return err
	}
	err = a.preconditions(ctx, rc, &put, func() (*revision, error) {
		ch := a.o.Catalogue.Channel(put.ID)
		if ch == nil {
			return nil, nil
		}
		return &revision{viewChannel(&ch.Channel), ch.ChangedAt}, nil
	})
	if err != nil {
		return err
	}
	ch, created, err := a.o.Store.PutChannel(ctx, put)
	if err != nil {
		return err
	}
	a.changed(ctx, rc)
	return answerPut(rc, created, channelPath(ch.ID), viewChannel(&ch), ch.ChangedAt)
}

// channel returns the channel that the path names, from a fresh catalogue.
func (a *API) channel(ctx context.Context, rc *fasthttp.RequestCtx) (*catalogue.Channel, error) {
	if err := a.fresh(ctx); err != nil {
		return nil, err
	}
	ch := a.o.Catalogue.Channel(param(rc, "channel"))
	if ch == nil {
		return nil, catalogue.ErrUnknownChannel
	}
	return ch, nil
}

// consumer returns the channel and the consumer that the path names.
func (a *API) consumer(ctx context.Context, rc *fasthttp.RequestCtx) (*catalogue.Channel, *durable.Consumer, error) {
	ch, err := a.channel(ctx, rc)
	if err != nil {
		return nil, nil, err
	}
	k := a.o.Catalogue.Consumer(ch.ID, param(rc, "consumer"))
	if k == nil {
		return nil, nil, problem.New(fasthttp.StatusNotFound, "consumer_not_found", "The channel has no such consumer.")
	}
	return ch, k, nil
}

// authorizeConsumer returns the channel and the consumer that the path names when the
// request has the tokens of both.
func (a *API) authorizeConsumer(ctx context.Context, rc *fasthttp.RequestCtx) (*catalogue.Channel, *durable.Consumer, error) {
	h := &rc.Request.Header
	return a.o.Catalogue.AuthorizeConsumer(ctx, param(rc, "channel"), h.Peek(headerChannelToken), param(rc, "consumer"), h.Peek(headerConsumerToken))
}

func (a *API) getChannel(ctx context.Context, rc *fasthttp.RequestCtx) error {
	ch, err := a.channel(ctx, rc)
	if err != nil {
		return err
	}
	return answerResource(rc, fasthttp.StatusOK, viewChannel(&ch.Channel), ch.ChangedAt, true)
}

func (a *API) listChannels(ctx context.Context, rc *fasthttp.RequestCtx) error {
	q, err := readPage(rc, defaultPage, maxPage)
	if err != nil {
		return err
	}
	if err := a.fresh(ctx); err != nil {
		return err
	}
	entries := []entry{}
	for _, ch := range a.o.Catalogue.Channels(q.First, q.Size+1) {
		entries = append(entries, entry{ch.ID, channelPath(ch.ID), ch.ChangedAt})
	}
	return answerList(rc, q, "/channels", entries, noTime, true)
}
