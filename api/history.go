package api

import (
	"context"
	"math/rand/v2"
	"net/url"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/history"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// The history costs one statement for the slots and one for the marks, and for a channel or a consumer one
// that refreshes the copy of the catalogue.

// historyQueries are the parameters of the history.
var historyQueries = []string{"from", "to", "step", "channel", "consumer"}

// historyRange is the range of a history without from.
const historyRange = time.Hour

// getHistory answers with what was counted in a range of time.
func (a *API) getHistory(ctx context.Context, rc *fasthttp.RequestCtx) error {
	q, err := a.readHistoryRange(rc)
	if err != nil {
		return err
	}
	if err := a.readHistoryOf(ctx, rc, &q); err != nil {
		return err
	}
	reader := history.Reader{Store: a.o.Store, NowMs: a.o.NowMs}
	view, err := reader.Range(ctx, q)
	if err != nil {
		return err
	}
	return answerResource(rc, fasthttp.StatusOK, view, time.UnixMilli(a.o.NowMs()), false)
}

// readHistoryRange reads from, to and step.
func (a *API) readHistoryRange(rc *fasthttp.RequestCtx) (q history.Query, err error) {
	now := time.UnixMilli(a.o.NowMs()).UTC()
	from, to, err := readTimes(string(rc.URI().QueryString()), now)
	if err != nil {
		return q, err
	}
	if !rc.QueryArgs().Has("from") {
		from = to.Add(-historyRange)
	}
	q.FromMs, q.ToMs = from.UnixMilli(), to.UnixMilli()
	var names []string
	for _, s := range history.Steps {
		names = append(names, s.Name)
	}
	name, err := readOne(rc, pageQuery{keep: url.Values{}}, "step", "", names...)
	if err != nil {
		return q, err
	}
	if name == "" {
		q.Step = history.StepFor(q.FromMs, min(q.ToMs, now.UnixMilli()), now.UnixMilli())
		return q, nil
	}
	q.Step, _ = history.StepNamed(name)
	if n := q.Step.Slots(q.FromMs, q.ToMs); n > history.MaxSlots {
		return q, problem.Newf(fasthttp.StatusBadRequest, "invalid_query",
			"The range has %d slots of %s, and an answer has at most %d: take a longer step, or a shorter range.", n, name,
			history.MaxSlots)
	}
	return q, nil
}

// readHistoryOf reads channel and consumer.
func (a *API) readHistoryOf(ctx context.Context, rc *fasthttp.RequestCtx, q *history.Query) error {
	args := rc.QueryArgs()
	for _, name := range []string{"channel", "consumer"} {
		if len(args.PeekMulti(name)) > 1 {
			return problem.Newf(fasthttp.StatusBadRequest, "invalid_query", "The parameter %s occurs more than once.", name)
		}
	}
	switch {
	case args.Has("consumer") && !args.Has("channel"):
		return problem.New(fasthttp.StatusBadRequest, "invalid_query",
			"The parameter consumer needs the parameter channel: the ID of a consumer is one of its channel.")
	case !args.Has("channel"):
		return nil
	}
	if err := a.fresh(ctx); err != nil {
		return err
	}
	ch := a.o.Catalogue.Channel(string(args.Peek("channel")))
	if ch == nil {
		return catalogue.ErrUnknownChannel
	}
	q.ChannelNo = ch.No
	if args.Has("consumer") {
		_, k, err := a.known(ch.ID, string(args.Peek("consumer")))
		if err != nil {
			return err
		}
		q.ConsumerNo = k.No
	}
	return nil
}

// A recordChange is what a PUT makes of the record of a policy.
type recordChange struct{ was, is string }

// watchRecord learns what merge makes of the stored record. merge is nil where the PUT keeps it.
func watchRecord(merge *func(record string) (string, error)) *recordChange {
	c, inner := &recordChange{}, *merge
	if inner != nil {
		*merge = func(record string) (string, error) {
			is, err := inner(record)
			c.was, c.is = record, is // of the last try, where the transaction was repeated
			return is, err
		}
	}
	return c
}

// markConsumer is markPolicy for a consumer.
func (a *API) markConsumer(ctx context.Context, rc *fasthttp.RequestCtx, created bool, c *recordChange,
	channelID string, k *durable.Consumer) {
	a.markPolicy(ctx, rc, created, c, durable.HistoryMark{ChannelNo: k.ChannelNo, ConsumerNo: k.No,
		Text: "the consumer " + k.ID + " of the channel " + channelID})
}

// markPolicy marks the change of a policy in the history, by the names of its fields alone: some values are
// secrets. A broker that dies before leaves no mark; nothing else depends on it.
func (a *API) markPolicy(ctx context.Context, rc *fasthttp.RequestCtx, created bool, c *recordChange,
	m durable.HistoryMark) {
	fields := policy.Changed(c.was, c.is)
	if created || len(fields) == 0 {
		return
	}
	m.AtMs, m.No, m.Kind = a.o.NowMs(), rand.Uint32(), durable.MarkPolicy
	m.Text = "The policy of " + m.Text + " changed: " + strings.Join(fields, ", ") + "."
	if err := a.o.Store.KeepMark(ctx, m); err != nil {
		a.log.Warn("the change of a policy has no mark in the history", "error", err, "request_id", requestID(rc))
	}
}
