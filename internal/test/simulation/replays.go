package simulation

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// replay is people who replay the past to consumers, and pause, resume and cancel that. Consumers
// with a rate are left out: the model of the queue counts a replay apart from its consumer.
func (w *world) replay() {
	r := draw(w.seed, word("replay"))
	for w.plan.replays {
		time.Sleep(r.between(w.plan.active/10, w.plan.active/3))
		consumers := w.store.consumers()
		k := consumers[r.below(len(consumers))]
		act, back, b := r.below(5), r.between(0, w.plan.active), w.broker(r.below(w.plan.brokers))
		if w.now() >= w.plan.active {
			return
		}
		if b == nil || k.Type != durable.Push || policies.Of(k.Policy).RateLimit.N > 0 ||
			ident.Reserved(w.store.channel(k.ChannelNo).ID) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		store, now := storeSeam{b.life, w.store}, w.store.nowMs()
		running, err := store.CreateReplay(ctx, durable.Replay{ChannelNo: k.ChannelNo, ConsumerNo: k.No,
			Of:    durable.ReplayOf(r.below(3)),
			After: ident.Before(now - back.Milliseconds()), Through: ident.Before(now + 1)})
		if err != nil && running.No != 0 { // it has one
			_, _ = store.SetReplayState(ctx, running.No, []durable.ReplayState{durable.ReplayRunning, durable.ReplayRunning,
				durable.ReplayPaused, durable.ReplayPaused, durable.ReplayCancelled}[act])
		}
		_ = b.catalogue.Refresh(ctx)
		cancel()
	}
}

// resume lets all replays go on, after the last fault.
func (w *world) resume() {
	for _, r := range w.store.replays() {
		if r.State == durable.ReplayPaused {
			_, _ = within(w.store, func(ctx context.Context) (durable.Replay, error) {
				return w.store.SetReplayState(ctx, r.No, durable.ReplayRunning)
			})
		}
	}
}

// copied checks a copy of a replay, and returns the consumer as the replay delivers to it: without
// its policy, since a replay keeps no order (I18).
func (w *world) copied(k durable.Consumer, id ident.ID, replay string) (durable.Consumer, bool) {
	no, err := strconv.ParseUint(replay, 10, 32)
	r, missing := within(w.store, func(ctx context.Context) (durable.Replay, error) {
		return w.store.Replay(ctx, uint32(no))
	})
	if err = errors.Join(err, missing); err != nil || r.ConsumerNo != k.No || id.Compare(r.After) <= 0 ||
		id.Compare(r.Through) > 0 {
		w.checker.report(id, "I18: consumer %d got a copy of replay %q, which does not have the message: it is of "+
			"consumer %d, after %s, through %s (%v)", k.No, replay, r.ConsumerNo, r.After, r.Through, err)
		return k, false
	}
	k.No, k.Policy = r.No, ""
	return k, true
}

// replaying finds a replay that has not ended.
func (w *world) replaying() string {
	for _, r := range w.store.replays() {
		if !r.State.Ended() {
			return fmt.Sprintf("replay %d of consumer %d is %s, with %d jobs up to %s", r.No, r.ConsumerNo, r.State,
				r.Jobs, r.Settled)
		}
	}
	return ""
}

// checkReplays checks that a replay which is done has repeated each message of its time that was
// over when it began, and that its counts are those of the outcomes (I18). That a copy is not
// delivered twice is I2.
func (w *world) checkReplays() {
	s := w.store
	p := s.look()
	for _, r := range s.replays() {
		if r.State != durable.ReplayDone || w.plan.retention > 0 {
			continue
		}
		k, began := s.consumer(r.ConsumerNo), s.began[r.No].Sub(w.start)
		for _, m := range p.of(r.ChannelNo) {
			if m.ID.Compare(r.After) <= 0 || m.ID.Compare(r.Through) > 0 || !concerns(m.ID, m.Audience, k) {
				continue
			}
			t := w.checker.trace(jobKey{k.No, m.ID})
			job := p.state(jobKey{k.No, m.ID})
			was := r.Of != durable.ReplayDead && t.storedAt > 0 && t.storedAt < began ||
				r.Of != durable.ReplayDelivered && job.Status == durable.Dead && t.storedAt == 0 && t.reopened == 0 &&
					job.ChangedMs < r.CreatedMs
			if status := p.state(jobKey{r.No, m.ID}).Status; was && status != durable.Delivered && status != durable.Dead {
				w.checker.report(m.ID, "I18: replay %d of consumer %d is done and has left the message out", r.No, k.No)
			}
		}
		if delivered, dead := p.ended(r.No); delivered+dead != r.Matched || r.Jobs > r.Matched ||
			r.Delivered != delivered || r.Dead != dead {
			w.checker.report(none, "I18: replay %d has %d jobs, %d on its way, %d delivered and %d dead; its outcomes are %d "+
				"and %d", r.No, r.Matched, r.Jobs, r.Delivered, r.Dead, delivered, dead)
		}
	}
}
