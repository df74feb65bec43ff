package redrive

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// MaxTargetLimit bounds the limit of a redrive to another consumer: the message of the last letter is looked
// for at the begin.
const MaxTargetLimit = 10_000

// follow lets a redrive to another consumer go on: it begins the replay, and then has the counts of it. After
// a crash between the begin of the replay and the note of it, the next round finds the replay by what it has.
func (r *Runner) follow(ctx context.Context, of *durable.Redriving) error {
	if of.State != durable.RedriveRunning {
		return nil
	}
	target := r.target(of)
	if target == nil {
		return r.finish(ctx, of, durable.RedriveCancelled, targetDeleted)
	}
	if of.ReplayNo == 0 {
		return r.begin(ctx, target, of)
	}
	replay, err := r.o.Store.Replay(ctx, of.ReplayNo)
	if errors.Is(err, durable.ErrNotFound) {
		return r.finish(ctx, of, durable.RedriveCancelled, "its replay is not kept any more")
	}
	if err != nil {
		return err
	}
	n, err := r.o.Store.ReplayCounts(ctx, &replay)
	if err != nil {
		return err
	}
	if n.Replayed != of.Redriven || n.Delivered != of.Delivered || n.Dead != of.Dead {
		err := r.change(ctx, of, func(now *durable.Redriving) bool {
			now.Redriven, now.Delivered, now.Dead = n.Replayed, n.Delivered, n.Dead
			return !now.State.Ended()
		})
		if err != nil {
			return err
		}
	}
	switch replay.State {
	case durable.ReplayDone:
		return r.finish(ctx, of, durable.RedriveDone, "")
	case durable.ReplayCancelled:
		// The end of the consumer ends its replay, and the copy of the catalogue may be older.
		if err := r.o.Catalogue.Refresh(ctx); err != nil {
			return err
		}
		if r.target(of) == nil {
			return r.finish(ctx, of, durable.RedriveCancelled, targetDeleted)
		}
		return r.finish(ctx, of, durable.RedriveCancelled, "the replay "+replay.ID()+" of the other consumer was cancelled")
	}
	return nil
}

const targetDeleted = "the other consumer was deleted"

// target is the consumer that gets the letters, nil where it was deleted.
func (r *Runner) target(of *durable.Redriving) *durable.Consumer {
	k := r.o.Catalogue.ConsumerByNo(of.TargetNo)
	if k == nil || k.Deleted() {
		return nil
	}
	return k
}

// begin begins the replay of the letters, or waits for the end of another replay of the consumer.
func (r *Runner) begin(ctx context.Context, target *durable.Consumer, of *durable.Redriving) error {
	known, err := r.o.Store.Replays(ctx, *target, 1<<32-1, knownReplays)
	if err != nil {
		return err
	}
	for _, replay := range known {
		if replay.SourceNo == of.ConsumerNo && replay.RedriveNo == of.No {
			return r.note(ctx, of, replay.No)
		}
	}
	first, last, err := r.extent(ctx, of)
	if err != nil {
		return err
	}
	if first.IsZero() {
		return r.finish(ctx, of, durable.RedriveDone, "")
	}
	replay, err := r.o.Store.CreateReplay(ctx, durable.Replay{ChannelNo: target.ChannelNo, ConsumerNo: target.No,
		After: first.Previous(), Through: last, Of: durable.ReplayDead, Rate: of.Rate, Matched: of.Matched, Estimated: true,
		SourceNo: of.ConsumerNo, RedriveNo: of.No})
	switch {
	case errors.Is(err, durable.ErrReplayRunning):
		reason := fmt.Sprintf("it waits for the end of the replay %s of the other consumer", replay.ID())
		return r.change(ctx, of, func(now *durable.Redriving) bool {
			changes := now.Reason != reason && !now.State.Ended()
			now.Reason = reason
			return changes
		})
	case errors.Is(err, durable.ErrNotFound):
		return r.finish(ctx, of, durable.RedriveCancelled, targetDeleted)
	case err != nil:
		return err
	}
	failpoint.At(failpoint.AfterReplay)
	if err := r.note(ctx, of, replay.No); err != nil {
		return err
	}
	return r.o.Catalogue.Refresh(ctx)
}

// knownReplays is how many replays of the other consumer are looked at for one that a crash left.
const knownReplays = 100

// note stores which replay has the letters. One of a redrive that was cancelled meanwhile is cancelled as well.
func (r *Runner) note(ctx context.Context, of *durable.Redriving, replay uint32) error {
	err := r.change(ctx, of, func(now *durable.Redriving) bool {
		now.ReplayNo, now.Reason = replay, ""
		return true
	})
	if !errors.Is(err, durable.ErrRedriveEnded) {
		return err
	}
	_, err = r.o.Store.SetReplayState(ctx, replay, durable.ReplayCancelled)
	if errors.Is(err, durable.ErrReplayEnded) {
		return nil
	}
	return err
}

// finish ends a redrive to another consumer.
func (r *Runner) finish(ctx context.Context, of *durable.Redriving, to durable.RedrivingState, reason string) error {
	err := r.change(ctx, of, func(now *durable.Redriving) bool {
		now.State, now.Reason = to, reason
		if to == durable.RedriveDone {
			now.Matched, now.Approximate = now.Redriven, false
		}
		return true
	})
	if errors.Is(err, durable.ErrRedriveEnded) {
		return nil
	}
	if err == nil {
		r.o.Log.Info("a redrive to another consumer ended", "consumer", of.ConsumerNo, "redrive", of.ID(), "state",
			of.State.String(), "reason", reason)
	}
	return err
}

// extent returns the messages of the first and of the last letter that is meant, zero without any.
func (r *Runner) extent(ctx context.Context, of *durable.Redriving) (first, last ident.ID, err error) {
	if of.Picked {
		picks, err := r.o.Store.RedrivePicks(ctx, of, ident.ID{}, durable.MaxRedrivePicks)
		if err != nil {
			return first, last, err
		}
		dead, err := r.o.Store.DeadAmong(ctx, of.DeadSelection, picks)
		if err != nil || len(dead) == 0 {
			return first, last, err
		}
		if of.Most > 0 {
			dead = dead[:min(int64(len(dead)), of.Most)]
		}
		return dead[0].ID, dead[len(dead)-1].ID, nil
	}
	most := 1
	if of.Most > 0 {
		most = int(min(of.Most, MaxTargetLimit))
	}
	if first, last, err = r.walk(ctx, of, ident.ID{}, false, most); err != nil || first.IsZero() || of.Most > 0 {
		return first, last, err
	}
	last, _, err = r.walk(ctx, of, ident.Max(), true, 1)
	return first, last, err
}

// walk returns the first and the last of the next most letters.
func (r *Runner) walk(ctx context.Context, of *durable.Redriving, from ident.ID, down bool, most int) (first,
	last ident.ID, err error) {
	for most > 0 {
		letters, next, err := r.o.Store.DeadLetters(ctx, of.DeadSelection, from, down, min(most, page))
		if err != nil {
			return first, last, err
		}
		for _, d := range letters {
			if last = d.ID; first.IsZero() {
				first = d.ID
			}
		}
		if most -= len(letters); next.IsZero() {
			break
		}
		from = next
	}
	return first, last, nil
}
