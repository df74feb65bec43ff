package simulation

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// trouble makes the faults of the plan at their times.
func (w *world) trouble() {
	events := slices.Clone(w.plan.events)
	slices.SortStableFunc(events, func(a, b trouble) int { return cmp.Compare(a.at, b.at) })
	for _, e := range events {
		time.Sleep(e.at - w.now())
		if !w.faulty() {
			return
		}
		w.note(e.kind.String(), e.span.String())
		w.make(e)
	}
}

func (w *world) make(e trouble) {
	switch e.kind {
	case kill, restart, pause:
		w.strike(e)
	case redrive, retrigger:
		w.acting.Go(func() { w.operate(e) })
	case storeAway:
		w.storeAway.begin(e.span / 2)
	case diskFull:
		w.disk.full.begin(e.span / 2)
	case vacate:
		w.vacate(e.slot)
	case queueAway:
		w.queueAway.begin(e.span / 2)
	case stepBack:
		w.store.stepBack(e.span)
	case keepState:
		w.savedState = w.store.older()
	case goBack:
		w.checker.storeWentBack(w.store.goBack(w.savedState))
	case snapshot:
		w.savedLanes = w.server.snapshot()
	default:
		w.lose(e)
	}
}

// strike hits one broker.
func (w *world) strike(e trouble) {
	w.mu.Lock()
	b := w.brokers[e.slot]
	w.mu.Unlock()
	switch {
	case b == nil || b.life.dead():
	case e.kind == kill:
		b.life.crash("by the world")
	case e.kind == restart:
		b.stop()
	case e.kind == pause:
		b.life.freeze(e.span)
	}
}

// lose hits what Redis knows.
func (w *world) lose(e trouble) {
	w.checker.disturb(0, w.now(), w.now())
	switch e.kind {
	case wipe:
		w.server.wipe(false)
	case restartEmpty:
		w.server.wipe(true)
	case restore:
		w.checker.wentBack()
		w.server.restore(w.savedLanes)
	case clockJump:
		w.server.advance(e.span - 2500*time.Millisecond)
	}
}

// operate is a person who redrives dead letters or re-triggers jobs.
func (w *world) operate(e trouble) {
	b := w.broker(e.slot)
	if b == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	for _, k := range w.store.consumers() {
		if e.kind == redrive {
			if e.span%2 == 0 && w.store.parent(k.No) == 0 {
				w.redriveSome(k.No, e.span%4 == 0)
			} else {
				_, _ = b.service.RedriveAll(ctx, k.No)
			}
			continue
		}
		// A job that is younger may be offered as fresh after it was re-triggered:
		// then it can be in two sets, see redisq.Fresh.
		old := ident.AtMillis(w.store.nowMs() - rationalDelay.Milliseconds())
		for _, h := range must(w.store.Heads(context.Background(), k.ChannelNo, none, old, 3)) {
			if concerns(h.ID, h.Audience, k) {
				_, _ = b.service.RetriggerJob(ctx, k.No, durable.Head{ID: h.ID, Audience: h.Audience, Priority: h.Priority}, false)
			}
		}
	}
}
