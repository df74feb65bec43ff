package reaper

import (
	"context"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// walkLevels loads a backlog by priority, highest first, until the window is
// full or everything up to through is accounted for. It reports whether jobs
// remain outside the window. newest is the channel's last message.
func (r *Reaper) walkLevels(ctx context.Context, ch *catalogue.Channel, w *walk, through, newest ident.ID) (bool, error) {
	stats, err := r.Queue.Stats(ctx, w.k.No)
	if err != nil {
		return true, err
	}
	next, err := r.Queue.Peek(ctx, w.k.No, nil, 1)
	if err != nil {
		return true, err
	}
	// What is in the window has to wait for something more urgent outside it:
	// there will be no room before that is brought.
	blocked := stats.Ready > 0 && len(next) == 0
	// Room for a page worth reading comes soon. What is more urgent than where the
	// last walk ended needs none: it may have been too new for that walk. There is
	// enough to hand out meanwhile, so nothing is settled.
	crowded := stats.Ready > r.Queue.Window()*3/4 && !blocked
	if crowded {
		r.save(w, func(l *ledger) { l.heldAt = 0 })
	}
	levels, err := r.Store.Levels(ctx, ch.No)
	if err != nil {
		return true, err
	}
	for _, priority := range append(levels, 0) {
		if crowded && len(w.levels) > 0 && priority <= w.fullAt {
			break
		}
		full, err := r.walkLevel(ctx, ch, w, priority, through)
		if err != nil {
			return true, err
		}
		if full {
			r.save(w, func(l *ledger) { l.fullAt = priority })
			if !crowded && !r.hold(w, stats, through, newest) {
				_, err = r.Queue.SettleSpilled(ctx, w.k.No, priority, stats.Spills)
			}
			return true, err
		}
	}
	if crowded {
		return true, nil
	}
	if r.hold(w, stats, through, newest) {
		return true, nil
	}
	settled, err := r.Queue.SettleSpilled(ctx, w.k.No, -1, stats.Spills)
	if err != nil || !settled { // more was spilled meanwhile: look again
		return true, err
	}
	r.save(w, func(l *ledger) { l.checked, l.levels = through, nil })
	return false, nil
}

// hold reports whether less urgent jobs of the window must go on waiting
// although the walk has brought all that it can: what was spilled last is too
// new to be walked over. They wait until everything spilled before now was, and
// not for ever, because where messages keep coming there is always a newest; only a
// more urgent one lets them wait anew. What counts is how far the walk has come,
// not the time: a slow machine walks late.
func (r *Reaper) hold(w *walk, stats redisq.Stats, through, newest ident.ID) bool {
	if stats.Ready == 0 || stats.SpilledPriority < 0 || newest.Compare(through) <= 0 {
		r.save(w, func(l *ledger) { l.heldAt = 0 })
		return false
	}
	if w.heldAt == 0 || stats.SpilledPriority > w.heldFor {
		r.save(w, func(l *ledger) { l.heldAt, l.heldFor = r.Cluster.NowMs(), stats.SpilledPriority })
	}
	if through.Millis() <= w.heldAt {
		return true
	}
	r.save(w, func(l *ledger) { l.heldAt = 0 })
	return false
}

// A stride is how many messages of a level are compared by counts at once. It
// grows from the first page on that is over, and falls back where something is open.
const firstStride, longestStride = 1000, 32_000

// walkLevel loads one priority and reports whether the window is full. Where a
// backlog is drained by priority whole levels may be over already: stretches of them
// are passed by counts.
func (r *Reaper) walkLevel(ctx context.Context, ch *catalogue.Channel, w *walk, priority int, through ident.ID) (full bool, err error) {
	for stride := 0; ; {
		mark := w.level(priority)
		if mark.Compare(through) >= 0 {
			return false, nil
		}
		if stride > 0 {
			last, over, err := r.Store.LevelDelivered(ctx, *w.k, priority, mark, through, stride)
			if err != nil {
				return false, err
			}
			if over {
				r.save(w, func(l *ledger) { l.setLevel(priority, last) })
				stride = min(2*stride, longestStride)
				continue
			}
			stride = 0
		}
		heads, err := r.Store.LevelHeads(ctx, ch.No, priority, mark, through, pageSize)
		if err != nil {
			return false, err
		}
		last := through
		if len(heads) == pageSize {
			last = heads[len(heads)-1].ID
		}
		mine := make([]durable.Head, 0, len(heads))
		for _, h := range heads {
			if w.k.Concerns(h) {
				mine = append(mine, h)
			}
		}
		open := w.open
		upto, err := r.offer(ctx, ch, w, mine)
		if err != nil {
			return false, err
		}
		if len(heads) == pageSize && w.open == open {
			stride = firstStride
		}
		if upto < len(mine) {
			mark = before(mine, upto, mark)
			r.save(w, func(l *ledger) { l.setLevel(priority, mark) })
			return true, nil
		}
		r.save(w, func(l *ledger) { l.setLevel(priority, last) })
	}
}

func (l *ledger) setLevel(priority int, mark ident.ID) {
	if l.levels == nil {
		return
	}
	l.levels[priority] = mark
}
