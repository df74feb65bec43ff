package simulation

import (
	"context"
	"slices"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// Exchanges.

func (t storeSeam) Exchanges(ctx context.Context, consumerNo uint32, ids []ident.ID) ([]durable.Exchange, error) {
	return ask(ctx, t, "Exchanges", consumerNo, func(ctx context.Context) ([]durable.Exchange, error) {
		return t.s.Exchanges(ctx, consumerNo, ids)
	})
}

func (t storeSeam) NextWork(ctx context.Context, after uint32) (uint32, int64, error) {
	return askTwo(ctx, t, "NextWork", 0, func(ctx context.Context) (uint32, int64, error) {
		return t.s.NextWork(ctx, after)
	})
}

func (t storeSeam) DueWork(ctx context.Context, consumerNo uint32, nowMs int64, limit int) ([]durable.Work, error) {
	return ask(ctx, t, "DueWork", consumerNo, func(ctx context.Context) ([]durable.Work, error) {
		return t.s.DueWork(ctx, consumerNo, nowMs, limit)
	})
}

func (t storeSeam) DelayWork(ctx context.Context, consumerNo uint32, state durable.ExchangeState, ids []ident.ID,
	dueMs int64, tries int) error {
	ids = slices.Clone(ids)
	return t.do(ctx, "DelayWork", consumerNo, func(ctx context.Context) error {
		return t.s.DelayWork(ctx, consumerNo, state, ids, dueMs, tries)
	})
}

func (t storeSeam) RestReplies(ctx context.Context, consumerNo uint32, rest []durable.Awaiting, nowMs,
	retentionMs int64) error {
	rest = slices.Clone(rest)
	return t.do(ctx, "RestReplies", consumerNo, func(ctx context.Context) error {
		return t.s.RestReplies(ctx, consumerNo, rest, nowMs, retentionMs)
	})
}

func (t storeSeam) NextAwaited(ctx context.Context, after uint32) (uint32, error) {
	return ask(ctx, t, "NextAwaited", 0, func(ctx context.Context) (uint32, error) {
		return t.s.NextAwaited(ctx, after)
	})
}

func (t storeSeam) WakeReplies(ctx context.Context, producerNo uint32, limit int) ([]uint32, error) {
	return ask(ctx, t, "WakeReplies", 0, func(ctx context.Context) ([]uint32, error) {
		return t.s.WakeReplies(ctx, producerNo, limit)
	})
}

func (t storeSeam) ForgetAwaiting(ctx context.Context, consumerNo uint32, ids []ident.ID) error {
	ids = slices.Clone(ids)
	return t.do(ctx, "ForgetAwaiting", consumerNo, func(ctx context.Context) error {
		return t.s.ForgetAwaiting(ctx, consumerNo, ids)
	})
}

func (t storeSeam) DropResponses(ctx context.Context, consumerNo uint32, ids []ident.ID, nowMs int64) error {
	ids = slices.Clone(ids)
	return t.do(ctx, "DropResponses", consumerNo, func(ctx context.Context) error {
		return t.s.DropResponses(ctx, consumerNo, ids, nowMs)
	})
}

func (t storeSeam) PostExchange(ctx context.Context, e durable.Exchange) error {
	return t.do(ctx, "PostExchange", 0, func(ctx context.Context) error {
		return t.s.PostExchange(ctx, e)
	})
}

func (t storeSeam) MoveExchange(ctx context.Context, e durable.Exchange, from durable.ExchangeState) (bool, error) {
	return ask(ctx, t, "MoveExchange", e.ConsumerNo, func(ctx context.Context) (bool, error) {
		moved, err := t.s.MoveExchange(ctx, e, from)
		t.l.note("exchange "+e.State.String(), e.ConsumerNo, e.ID, map[bool]string{true: "moved",
			false: "was moved before"}[moved])
		return moved, err
	})
}
