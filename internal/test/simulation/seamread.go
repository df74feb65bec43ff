package simulation

import (
	"context"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The reads of jobs and messages that a broker makes.

func (t storeSeam) JobStates(ctx context.Context, consumerNo uint32,
	ids []ident.ID) (map[ident.ID]durable.JobState, error) {
	return ask(ctx, t, "JobStates", consumerNo, func(ctx context.Context) (map[ident.ID]durable.JobState, error) {
		return t.s.JobStates(ctx, consumerNo, ids)
	})
}

func (t storeSeam) Job(ctx context.Context, k *durable.Consumer, id ident.ID) (durable.StoredJob, error) {
	return ask(ctx, t, "Job", k.No, func(ctx context.Context) (durable.StoredJob, error) {
		return t.s.Job(ctx, k, id)
	})
}

func (t storeSeam) Messages(ctx context.Context, channelNo uint32, ids []ident.ID) ([]durable.Message, error) {
	return ask(ctx, t, "Messages", channelNo, func(ctx context.Context) ([]durable.Message, error) {
		return t.s.Messages(ctx, channelNo, ids)
	})
}

func (t storeSeam) Attempts(ctx context.Context, consumerNo uint32, id ident.ID, limit int) ([]durable.Attempt,
	error) {
	return ask(ctx, t, "Attempts", consumerNo, func(ctx context.Context) ([]durable.Attempt, error) {
		return t.s.Attempts(ctx, consumerNo, id, limit)
	})
}

func (t storeSeam) ListMessages(ctx context.Context, channelNo uint32, from ident.ID,
	limit int) ([]durable.Message, error) {
	return ask(ctx, t, "ListMessages", channelNo, func(ctx context.Context) ([]durable.Message, error) {
		return t.s.ListMessages(ctx, channelNo, from, limit)
	})
}

func (t storeSeam) HeadsOf(ctx context.Context, channelNo uint32, ids []ident.ID) ([]durable.Head, error) {
	return ask(ctx, t, "HeadsOf", channelNo, func(ctx context.Context) ([]durable.Head, error) {
		return t.s.HeadsOf(ctx, channelNo, ids)
	})
}

func (t storeSeam) Levels(ctx context.Context, channelNo uint32) ([]int, error) {
	return ask(ctx, t, "Levels", channelNo, func(ctx context.Context) ([]int, error) {
		return t.s.Levels(ctx, channelNo)
	})
}

func (t storeSeam) LatestMessages(ctx context.Context, afterChannel uint32, limit int) ([]durable.Latest, error) {
	return ask(ctx, t, "LatestMessages", 0, func(ctx context.Context) ([]durable.Latest, error) {
		return t.s.LatestMessages(ctx, afterChannel, limit)
	})
}

func (t storeSeam) Links(ctx context.Context, channelNo uint32, ids []ident.ID) (map[ident.ID]durable.Link, error) {
	return ask(ctx, t, "Links", channelNo, func(ctx context.Context) (map[ident.ID]durable.Link, error) {
		return t.s.Links(ctx, channelNo, ids)
	})
}

func (t storeSeam) Successors(ctx context.Context, channelNo uint32, ids []ident.ID) ([]durable.Head, error) {
	return ask(ctx, t, "Successors", channelNo, func(ctx context.Context) ([]durable.Head, error) {
		return t.s.Successors(ctx, channelNo, ids)
	})
}

func (t storeSeam) Tasks(ctx context.Context, channelNo uint32, ids []ident.ID) (map[ident.ID]string, error) {
	return ask(ctx, t, "Tasks", channelNo, func(ctx context.Context) (map[ident.ID]string, error) {
		return t.s.Tasks(ctx, channelNo, ids)
	})
}

func (t storeSeam) MessageByKey(ctx context.Context, channelNo uint32, key string) (ident.ID, error) {
	return ask(ctx, t, "MessageByKey", channelNo, func(ctx context.Context) (ident.ID, error) {
		return t.s.MessageByKey(ctx, channelNo, key)
	})
}

func (t storeSeam) OpenJobs(ctx context.Context, consumerNo uint32, from ident.ID, limit int) ([]durable.OpenJob,
	error) {
	return ask(ctx, t, "OpenJobs", consumerNo, func(ctx context.Context) ([]durable.OpenJob, error) {
		return t.s.OpenJobs(ctx, consumerNo, from, limit)
	})
}

func (t storeSeam) DeadJobs(ctx context.Context, consumerNo uint32, from ident.ID, limit int) ([]durable.DeadJob,
	error) {
	return ask(ctx, t, "DeadJobs", consumerNo, func(ctx context.Context) ([]durable.DeadJob, error) {
		return t.s.DeadJobs(ctx, consumerNo, from, limit)
	})
}

func (t storeSeam) DeadHeads(ctx context.Context, consumerNo uint32, from ident.ID, limit int) ([]durable.DeadHead,
	ident.ID, error) {
	return askTwo(ctx, t, "DeadHeads", consumerNo, func(ctx context.Context) ([]durable.DeadHead, ident.ID, error) {
		return t.s.DeadHeads(ctx, consumerNo, from, limit)
	})
}

func (t storeSeam) Backlog(ctx context.Context, k durable.Consumer, limit int) (durable.Backlog, error) {
	return ask(ctx, t, "Backlog", k.No, func(ctx context.Context) (durable.Backlog, error) {
		return t.s.Backlog(ctx, k, limit)
	})
}

func (t storeSeam) LastDelivery(ctx context.Context, consumerNo uint32) (int64, error) {
	return ask(ctx, t, "LastDelivery", consumerNo, func(ctx context.Context) (int64, error) {
		return t.s.LastDelivery(ctx, consumerNo)
	})
}

func (t storeSeam) Expiring(ctx context.Context, after durable.Expiry, nowMs int64, limit int) ([]durable.Expiry,
	error) {
	return ask(ctx, t, "Expiring", 0, func(ctx context.Context) ([]durable.Expiry, error) {
		return t.s.Expiring(ctx, after, nowMs, limit)
	})
}

// MessagesUpTo has no use for a budget: payloads are small here. It reads less than
// all now and then, as if they were not.
func (t storeSeam) MessagesUpTo(ctx context.Context, channelNo uint32, ids []ident.ID, _ int) ([]durable.Message,
	int, error) {
	n := len(ids)
	if n > 1 && ids[0][ident.Size-1]%4 == 0 {
		n = 1 + n/2
	}
	msgs, err := t.Messages(ctx, channelNo, ids[:n])
	return msgs, n, err
}

// Heads and those below walk messages.

func (t storeSeam) Heads(ctx context.Context, channelNo uint32, after, through ident.ID, limit int) ([]durable.Head,
	error) {
	return ask(ctx, t, "Heads", channelNo, func(ctx context.Context) ([]durable.Head, error) {
		t.l.w.checker.walked(t.l, channelNo, through)
		return t.s.Heads(ctx, channelNo, after, through, limit)
	})
}

func (t storeSeam) LevelHeads(ctx context.Context, channelNo uint32, priority int, after, through ident.ID,
	limit int) ([]durable.Head, error) {
	return ask(ctx, t, "LevelHeads", channelNo, func(ctx context.Context) ([]durable.Head, error) {
		t.l.w.checker.walked(t.l, channelNo, through)
		return t.s.LevelHeads(ctx, channelNo, priority, after, through, limit)
	})
}

func (t storeSeam) AllDelivered(ctx context.Context, k durable.Consumer, after, through ident.ID) (durable.Tally,
	bool, error) {
	return askTwo(ctx, t, "AllDelivered", k.No, func(ctx context.Context) (durable.Tally, bool, error) {
		t.l.w.checker.walked(t.l, k.ChannelNo, through)
		return t.s.AllDelivered(ctx, k, after, through)
	})
}

func (t storeSeam) LevelDelivered(ctx context.Context, k durable.Consumer, priority int, after, through ident.ID,
	limit int) (ident.ID, bool, error) {
	return askTwo(ctx, t, "LevelDelivered", k.No, func(ctx context.Context) (ident.ID, bool, error) {
		t.l.w.checker.walked(t.l, k.ChannelNo, through)
		return t.s.LevelDelivered(ctx, k, priority, after, through, limit)
	})
}

func (t storeSeam) Sizes(ctx context.Context, channelNo uint32, after, through ident.ID, limit int) ([]durable.Sized,
	error) {
	return ask(ctx, t, "Sizes", channelNo, func(ctx context.Context) ([]durable.Sized, error) {
		t.l.w.checker.walked(t.l, channelNo, through)
		return t.s.Sizes(ctx, channelNo, after, through, limit)
	})
}
