package simulation

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// Redrives and replays.

func (t storeSeam) BusyRedrivings(ctx context.Context, consumerNo, no uint32, limit int) ([]durable.Redriving, error) {
	return ask(ctx, t, "BusyRedrivings", 0, func(ctx context.Context) ([]durable.Redriving, error) {
		return t.s.BusyRedrivings(ctx, consumerNo, no, limit)
	})
}

func (t storeSeam) DeadAmong(ctx context.Context, of durable.DeadSelection, ids []ident.ID) ([]durable.DeadHead,
	error) {
	return ask(ctx, t, "DeadAmong", 0, func(ctx context.Context) ([]durable.DeadHead, error) {
		return t.s.DeadAmong(ctx, of, ids)
	})
}

func (t storeSeam) RedrivePicks(ctx context.Context, r *durable.Redriving, after ident.ID, limit int) ([]ident.ID,
	error) {
	return ask(ctx, t, "RedrivePicks", 0, func(ctx context.Context) ([]ident.ID, error) {
		return t.s.RedrivePicks(ctx, r, after, limit)
	})
}

func (t storeSeam) RedrivenJobs(ctx context.Context, r *durable.Redriving, after ident.ID,
	limit int) ([]durable.RedrivenJob, error) {
	return ask(ctx, t, "RedrivenJobs", 0, func(ctx context.Context) ([]durable.RedrivenJob, error) {
		return t.s.RedrivenJobs(ctx, r, after, limit)
	})
}

func (t storeSeam) RedriveLetters(ctx context.Context, consumerNo, no uint32, ids []ident.ID) ([]ident.ID, error) {
	return ask(ctx, t, "RedriveLetters", consumerNo, func(ctx context.Context) ([]ident.ID, error) {
		return t.s.RedriveLetters(ctx, consumerNo, no, ids)
	})
}

func (t storeSeam) ReplayCounts(ctx context.Context, r *durable.Replay) (durable.ReplayCounts, error) {
	return ask(ctx, t, "ReplayCounts", 0, func(ctx context.Context) (durable.ReplayCounts, error) {
		return t.s.ReplayCounts(ctx, r)
	})
}

func (t storeSeam) Replays(ctx context.Context, k durable.Consumer, from uint32, limit int) ([]durable.Replay,
	error) {
	return ask(ctx, t, "Replays", k.No, func(ctx context.Context) ([]durable.Replay, error) {
		return t.s.Replays(ctx, k, from, limit)
	})
}

func (t storeSeam) Replay(ctx context.Context, no uint32) (durable.Replay, error) {
	return ask(ctx, t, "Replay", no, func(ctx context.Context) (durable.Replay, error) {
		return t.s.Replay(ctx, no)
	})
}

func (t storeSeam) DeadLetters(ctx context.Context, of durable.DeadSelection, from ident.ID, down bool,
	limit int) ([]durable.DeadJob, ident.ID, error) {
	return askTwo(ctx, t, "DeadLetters", of.ConsumerNo, func(ctx context.Context) ([]durable.DeadJob, ident.ID, error) {
		return t.s.DeadLetters(ctx, of, from, down, limit)
	})
}

func (t storeSeam) Redrive(ctx context.Context, consumerNo uint32, ids []ident.ID, nowMs int64) ([]durable.OpenJob,
	error) {
	ids = slices.Clone(ids)
	return t.reopen(ctx, "Redrive", consumerNo, func(ctx context.Context) ([]durable.OpenJob, error) {
		return t.s.Redrive(ctx, consumerNo, slices.Clone(ids), nowMs)
	})
}

func (t storeSeam) RedriveAgain(ctx context.Context, consumerNo uint32, ids []ident.ID,
	nowMs int64) ([]durable.OpenJob,
	error) {
	ids = slices.Clone(ids)
	return t.reopen(ctx, "Redrive", consumerNo, func(ctx context.Context) ([]durable.OpenJob, error) {
		return t.s.RedriveAgain(ctx, consumerNo, slices.Clone(ids), nowMs)
	})
}

func (t storeSeam) Reopen(ctx context.Context, consumerNo uint32, id ident.ID, nowMs int64) (durable.OpenJob, error) {
	moved, err := t.reopen(ctx, "Reopen", consumerNo, func(ctx context.Context) ([]durable.OpenJob, error) {
		j, err := t.s.Reopen(ctx, consumerNo, id, nowMs)
		if err != nil {
			return nil, err
		}
		return []durable.OpenJob{j}, nil
	})
	if err != nil {
		return durable.OpenJob{}, err
	}
	return moved[0], nil
}

// reopen makes a call that opens dead letters.
func (t storeSeam) reopen(ctx context.Context, op string, consumerNo uint32,
	f func(ctx context.Context) ([]durable.OpenJob, error)) ([]durable.OpenJob, error) {
	return ask(ctx, t, op, consumerNo, func(ctx context.Context) ([]durable.OpenJob, error) {
		moved, err := f(ctx)
		t.opened(op, consumerNo, moved)
		return moved, err
	})
}

// opened records dead letters that are open jobs again.
func (t storeSeam) opened(what string, consumerNo uint32, moved []durable.OpenJob) {
	for _, j := range moved {
		k := jobKey{consumerNo, j.ID}
		delete(t.s.died, k)
		t.l.note(what, consumerNo, j.ID, "")
		t.l.w.checker.reopened(k)
	}
}

func (t storeSeam) AdvanceRedriving(ctx context.Context, p durable.RedriveStep) ([]durable.OpenJob, durable.Redriving,
	error) {
	return askTwo(ctx, t, "AdvanceRedriving", p.ConsumerNo, func(ctx context.Context) ([]durable.OpenJob,
		durable.Redriving, error) {
		moved, r, err := t.s.AdvanceRedriving(ctx, p)
		t.opened("redriven by "+r.ID(), p.ConsumerNo, moved)
		for _, j := range moved {
			t.l.w.checker.redrivenBy(redriveKey{p.ConsumerNo, p.No}, j.ID)
		}
		return moved, r, err
	})
}

func (t storeSeam) SettleRedriving(ctx context.Context, consumerNo, no uint32,
	ends []durable.RedriveEnd) (durable.Redriving, error) {
	ends = slices.Clone(ends)
	return t.changed(ctx, "SettleRedriving", consumerNo, func(ctx context.Context) (durable.Redriving, error) {
		return t.s.SettleRedriving(ctx, consumerNo, no, ends)
	})
}

func (t storeSeam) ChangeRedriving(ctx context.Context, consumerNo, no uint32,
	f func(r *durable.Redriving) bool) (durable.Redriving, error) {
	return t.changed(ctx, "ChangeRedriving", consumerNo, func(ctx context.Context) (durable.Redriving, error) {
		return t.s.ChangeRedriving(ctx, consumerNo, no, f)
	})
}

func (t storeSeam) changed(ctx context.Context, op string, consumerNo uint32,
	f func(ctx context.Context) (durable.Redriving, error)) (durable.Redriving, error) {
	return ask(ctx, t, op, consumerNo, func(ctx context.Context) (durable.Redriving, error) {
		r, err := f(ctx)
		t.l.note(op, consumerNo, none, r.ID()+" "+r.State.String())
		return r, err
	})
}

// CreateReplay returns the replay that runs, too, where there is one.
func (t storeSeam) CreateReplay(ctx context.Context, r durable.Replay) (durable.Replay, error) {
	var running durable.Replay
	out, err := ask(ctx, t, "CreateReplay", r.ConsumerNo, func(ctx context.Context) (durable.Replay, error) {
		out, err := t.s.CreateReplay(ctx, r)
		if err == nil {
			t.s.began[out.No] = time.Now()
			t.l.note("replay begins", r.ConsumerNo, none, out.ID()+" of "+r.Of.String())
		}
		running = out
		return out, err
	})
	if errors.Is(err, durable.ErrReplayRunning) {
		return running, err
	}
	return out, err
}

func (t storeSeam) AdvanceReplay(ctx context.Context, no uint32, from, to ident.ID, jobs, bytes int64) (bool, error) {
	return ask(ctx, t, "AdvanceReplay", no, func(ctx context.Context) (bool, error) {
		moved, err := t.s.AdvanceReplay(ctx, no, from, to, jobs, bytes)
		t.l.note("replay settled", no, to, map[bool]string{true: "", false: "elsewhere"}[moved])
		return moved, err
	})
}

func (t storeSeam) SetReplayState(ctx context.Context, no uint32, to durable.ReplayState) (durable.Replay, error) {
	return ask(ctx, t, "SetReplayState", no, func(ctx context.Context) (durable.Replay, error) {
		r, err := t.s.SetReplayState(ctx, no, to)
		t.l.note("replay "+r.State.String(), no, none, "")
		return r, err
	})
}
