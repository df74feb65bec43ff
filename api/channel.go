package api

import (
	"cmp"
	"context"
	"errors"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/stores"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/atrest"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/credentials"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

func (a *API) viewChannel(ch *durable.Channel) apitype.Channel {
	path := channelPath(ch.ID)
	in, groupState := policy.IntakeOf(ch.Intake), ""
	if ch.Group != "" {
		groupState = pausedState(ch.GroupPaused)
	}
	return apitype.Channel{
		Store: a.o.StoreName, Group: ch.Group, GroupState: groupState, PublishRate: in.PublishRate.String(),
		State: pausedState(ch.Paused), Duplicates: in.Duplicates.String(), Identity: in.Identity.String(),
		Ack: in.Ack.String(), LatencyBudget: in.Budget.String(), ExpectEvery: in.Rhythm(),
		Retention: in.Keeping.Retention.String(), RetentionMessages: in.Keeping.Messages.String(),
		RetentionBytes: in.Keeping.Bytes.String(), DeadRetention: in.Keeping.DeadRetention.String(),
		AttemptRetention: in.Keeping.AttemptRetention.String(),
		ID:               ch.ID, Name: ch.Name, Token: atrest.Shown(ch.Token), ChangedAt: changedAt(ch.ChangedAt),
		ConsumersURL: path + "/consumers", MessagesURL: path + "/messages", BroadcastURL: path + "/broadcast",
	}
}

// channelFor returns a channel as a request may see it.
func (a *API) channelFor(rc *fasthttp.RequestCtx, ch *durable.Channel) apitype.Channel {
	view := a.viewChannel(ch)
	a.veil(rc, &view.Token)
	return view
}

func channelPath(id string) string { return "/channel/" + id }

// putChannel puts a channel into the store that has it, or that the request names.
func (a *API) putChannel(ctx context.Context, rc *fasthttp.RequestCtx) error {
	if err := free(rc, "channel"); err != nil {
		return err
	}
	put, f, err := readPut(rc, param(rc, "channel"), &channelBody)
	if err != nil {
		return err
	}
	if !a.leads() {
		if store := f.field("store"); store != nil && *store != a.o.StoreName {
			return a.otherStore(put.ID)
		}
		return a.putChannelHere(ctx, rc, put, f)
	}
	to, err := a.o.Stores.Place(ctx, put.ID, f.field("store"))
	if err != nil {
		return err
	}
	if to.API != nil {
		err = to.API.PutChannel(ctx, rc)
	} else {
		err = a.putChannelHere(ctx, rc, put, f)
	}
	to.Done(ctx, err)
	return err
}

// PutChannel answers a PUT of a channel that the API of the first store has let in.
func (a *API) PutChannel(ctx context.Context, rc *fasthttp.RequestCtx) error {
	return a.putChannel(ctx, rc)
}

// otherStore is the answer to a PUT that names a store which is not this one.
func (a *API) otherStore(channelID string) error {
	if a.o.StoreName != "" || a.o.Catalogue.Channel(channelID) != nil {
		return stores.ErrFixed
	}
	return problem.New(fasthttp.StatusBadRequest, "invalid_store", "The field store names a store, and this broker has "+
		"one only, without a name. Nothing was changed.")
}

func (a *API) putChannelHere(ctx context.Context, rc *fasthttp.RequestCtx, put durable.Put, f document) (err error) {
	if err = a.settleChannel(ctx, &f, put.ID); err != nil {
		return err
	}
	put.Intake, err = f.intake()
	if err = cmp.Or(err, mayBring(rc, put.Token)); err != nil {
		return err
	}
	put.Group = f.group()
	err = a.preconditions(ctx, rc, &put, func() (*revision, error) {
		ch := a.o.Catalogue.Channel(put.ID)
		if ch == nil {
			return nil, nil
		}
		return &revision{a.channelFor(rc, &ch.Channel), ch.ChangedAt}, nil
	})
	if err != nil {
		return err
	}
	if err := a.roomInGroup(put.ID, put.Group); err != nil {
		return a.groupRefused(ctx, put.Group, err)
	}
	moves := false
	put.Move = func() error { // the copy of the catalogue may have another group
		moves = true
		return mayMove(rc)
	}
	change := watchRecord(&put.Intake)
	ch, created, err := a.o.Store.PutChannel(ctx, put)
	if err != nil {
		return a.groupRefused(ctx, put.Group, err)
	}
	a.changed(ctx, rc)
	if moves && a.o.AwaitOthers != nil {
		a.o.AwaitOthers(ctx) // no broker takes a token of the group that it left after the answer
	}
	a.markPolicy(ctx, rc, created, change, durable.HistoryMark{ChannelNo: ch.No, Text: "the channel " + ch.ID})
	stable := a.channelFor(rc, &ch)
	view := stable
	showOnce(rc, created || put.Token != nil, &view.Token, brought(put.Token, ch.Token))
	return answerPut(rc, created, channelPath(ch.ID), view, stable, ch.ChangedAt)
}

// intake returns the change that the fields of a channel make to its record; nil, which keeps the
// record, when the form has none.
func (f form) intake() (func(record string) (string, error), error) {
	fields := f.of(policy.IntakeNames())
	if len(fields) == 0 {
		return nil, nil
	}
	merge := func(record string) (string, error) { return policy.MergeIntake(record, fields) }
	_, err := merge("")
	return merge, badField(err)
}

// badField turns the refusal of a field of a policy into a problem.
func badField(err error) error {
	var wrong *policy.FieldError
	if errors.As(err, &wrong) {
		return problem.Newf(fasthttp.StatusBadRequest, "invalid_policy", "The field %s %s.", wrong.Field, wrong.Problem)
	}
	return err
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

// known returns a consumer that the copy of the catalogue has.
func (a *API) known(channelID, id string) (*catalogue.Channel, *durable.Consumer, error) {
	ch := a.o.Catalogue.Channel(channelID)
	if ch == nil {
		return nil, nil, catalogue.ErrUnknownChannel
	}
	k := a.o.Catalogue.Consumer(channelID, id)
	if k == nil {
		return nil, nil, errNoConsumer
	}
	return ch, k, nil
}

// consumer returns the channel and the consumer that the path names.
func (a *API) consumer(ctx context.Context, rc *fasthttp.RequestCtx) (*catalogue.Channel, *durable.Consumer, error) {
	if err := a.fresh(ctx); err != nil {
		return nil, nil, err
	}
	return a.known(param(rc, "channel"), param(rc, "consumer"))
}

// authorizeConsumer returns the channel and the consumer that the path names when the
// request has the tokens of both.
func (a *API) authorizeConsumer(ctx context.Context, rc *fasthttp.RequestCtx) (*catalogue.Channel,
	*durable.Consumer, error) {
	if scoped(rc) != nil { // it was admitted
		return a.consumer(ctx, rc)
	}
	channelToken, token, err := credentials.Both(&rc.Request.Header, headerConsumerToken)
	if err != nil {
		return nil, nil, err
	}
	return a.o.Catalogue.AuthorizeConsumer(ctx, param(rc, "channel"), channelToken, param(rc, "consumer"), token)
}

func (a *API) getChannel(ctx context.Context, rc *fasthttp.RequestCtx) error {
	ch, err := a.channel(ctx, rc)
	if err != nil {
		return err
	}
	return answerResource(rc, fasthttp.StatusOK, a.channelFor(rc, &ch.Channel), ch.ChangedAt, true)
}

func (a *API) listChannels(ctx context.Context, rc *fasthttp.RequestCtx) error {
	q, err := readPage(rc, defaultPage, maxPage)
	if err == nil {
		err = q.readGroup(rc)
	}
	if err != nil {
		return err
	}
	if err := a.freshEverywhere(ctx); err != nil {
		return err
	}
	if q.Group != "" && a.o.Catalogue.Group(q.Group) == nil {
		return errNoGroup
	}
	page := a.channels(q.Group, q.First, q.Size+1)
	entries := []entry{}
	for _, ch := range page {
		entries = append(entries, entry{ch.ID, channelPath(ch.ID), ch.ChangedAt})
	}
	return answerList(rc, q, "/channels", entries, noTime, q.Group == "" && !a.channelsDeleted())
}
