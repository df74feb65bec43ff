package simulation

import (
	"context"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
)

// The catalogue, node numbers, states and holds of consumers.

func (t storeSeam) Changes(ctx context.Context, after int64) (durable.Changes, error) {
	return ask(ctx, t, "Changes", 0, func(ctx context.Context) (durable.Changes, error) {
		return t.s.Changes(ctx, after)
	})
}

func (t storeSeam) Extent(ctx context.Context) (durable.Extent, error) {
	return ask(ctx, t, "Extent", 0, func(ctx context.Context) (durable.Extent, error) {
		return t.s.Extent(ctx)
	})
}

func (t storeSeam) Touch(ctx context.Context, used durable.Numbers) error {
	return t.do(ctx, "Touch", 0, func(ctx context.Context) error {
		return t.s.Touch(ctx, used)
	})
}

func (t storeSeam) LeaseNode(ctx context.Context, name string, ttl time.Duration) (durable.NodeLease, error) {
	return ask(ctx, t, "LeaseNode", 0, func(ctx context.Context) (durable.NodeLease, error) {
		return t.s.LeaseNode(ctx, name, ttl)
	})
}

func (t storeSeam) ReleaseNode(ctx context.Context, lease durable.NodeLease) error {
	return t.do(ctx, "ReleaseNode", 0, func(ctx context.Context) error {
		return t.s.ReleaseNode(ctx, lease)
	})
}

func (t storeSeam) Nodes(ctx context.Context) ([]durable.Node, error) {
	return ask(ctx, t, "Nodes", 0, func(ctx context.Context) ([]durable.Node, error) {
		return t.s.Nodes(ctx)
	})
}

func (t storeSeam) CheckHistory(ctx context.Context, seen durable.Clock) (durable.Clock, error) {
	return ask(ctx, t, "CheckHistory", 0, func(ctx context.Context) (durable.Clock, error) {
		return t.s.CheckHistory(ctx, seen)
	})
}

func (t storeSeam) PutChannel(ctx context.Context, p durable.Put) (durable.Channel, bool, error) {
	return askTwo(ctx, t, "PutChannel", 0, func(ctx context.Context) (durable.Channel, bool, error) {
		return t.s.PutChannel(ctx, p)
	})
}

func (t storeSeam) DeleteChannel(ctx context.Context, p durable.Put) (durable.Channel, error) {
	return ask(ctx, t, "DeleteChannel", 0, func(ctx context.Context) (durable.Channel, error) {
		return t.s.DeleteChannel(ctx, p)
	})
}

func (t storeSeam) PutConsumer(ctx context.Context, p durable.ConsumerPut) (durable.Consumer, bool, error) {
	return askTwo(ctx, t, "PutConsumer", 0, func(ctx context.Context) (durable.Consumer, bool, error) {
		return t.s.PutConsumer(ctx, p)
	})
}

func (t storeSeam) SetChannelPaused(ctx context.Context, id string, paused bool) (durable.Channel, bool, error) {
	return askTwo(ctx, t, "SetChannelPaused", 0, func(ctx context.Context) (durable.Channel, bool, error) {
		return t.s.SetChannelPaused(ctx, id, paused)
	})
}

func (t storeSeam) SetGroupPaused(ctx context.Context, id string, paused bool) (durable.Group, bool, error) {
	return askTwo(ctx, t, "SetGroupPaused", 0, func(ctx context.Context) (durable.Group, bool, error) {
		return t.s.SetGroupPaused(ctx, id, paused)
	})
}

func (t storeSeam) TakeProbe(ctx context.Context, consumerNo uint32, untilMs int64) (bool, error) {
	return ask(ctx, t, "TakeProbe", consumerNo, func(ctx context.Context) (bool, error) {
		return t.s.TakeProbe(ctx, consumerNo, untilMs)
	})
}

func (t storeSeam) ReturnProbe(ctx context.Context, consumerNo uint32, untilMs int64) error {
	return t.do(ctx, "ReturnProbe", consumerNo, func(ctx context.Context) error {
		return t.s.ReturnProbe(ctx, consumerNo, untilMs)
	})
}

func (t storeSeam) KeepHolds(ctx context.Context, holds []durable.Hold) ([]bool, error) {
	holds = slices.Clone(holds)
	return ask(ctx, t, "KeepHolds", 0, func(ctx context.Context) ([]bool, error) {
		return t.s.KeepHolds(ctx, holds)
	})
}

func (t storeSeam) Holds(ctx context.Context, nowMs int64) ([]durable.Hold, error) {
	return ask(ctx, t, "Holds", 0, func(ctx context.Context) ([]durable.Hold, error) {
		return t.s.Holds(ctx, nowMs)
	})
}

func (t storeSeam) HoldOf(ctx context.Context, consumerNo uint32) (durable.Hold, error) {
	return ask(ctx, t, "HoldOf", consumerNo, func(ctx context.Context) (durable.Hold, error) {
		return t.s.HoldOf(ctx, consumerNo)
	})
}

func (t storeSeam) EndHolds(ctx context.Context, consumers []uint32) error {
	consumers = slices.Clone(consumers)
	return t.do(ctx, "EndHolds", 0, func(ctx context.Context) error {
		return t.s.EndHolds(ctx, consumers)
	})
}

// RenewNode of a store whose clock goes back keeps nothing of the time that the broker knows.
func (t storeSeam) RenewNode(ctx context.Context, lease durable.NodeLease, ttl time.Duration) (durable.NodeLease,
	error) {
	if t.s.flaw == storeClockGoesBack {
		lease.PassedMs = 0
	}
	return ask(ctx, t, "RenewNode", 0, func(ctx context.Context) (durable.NodeLease, error) {
		return t.s.RenewNode(ctx, lease, ttl)
	})
}

func (t storeSeam) SetConsumerState(ctx context.Context, c durable.StateChange) (durable.Consumer, bool, error) {
	return askTwo(ctx, t, "SetConsumerState", c.ConsumerNo, func(ctx context.Context) (durable.Consumer, bool, error) {
		k, changed, err := t.s.SetConsumerState(ctx, c)
		if changed {
			t.l.note("state "+k.State.String(), c.ConsumerNo, none, "")
		}
		return k, changed, err
	})
}

// Secret is the same for all brokers, and for all runs of a seed.
func (t storeSeam) Secret(_ context.Context, name string) ([]byte, error) {
	return []byte(name + time.UTC.String()), nil
}
