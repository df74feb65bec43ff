package reaper

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/failpoint"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// A walk is a consumer with a copy of its ledger that only this loop changes.
type walk struct {
	ledger
	k       *durable.Consumer
	epoch   string // of the state in Redis that the walk completes
	outside bool   // the queue takes jobs to be outside its window
	open    int    // jobs that were offered and were not over
}

// begin returns the consumer's ledger, restarted where Redis lost state; nil when
// that was a moment ago.
func (r *Reaper) begin(k *durable.Consumer) *walk {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Now().Before(r.resting[k.No]) {
		return nil
	}
	delete(r.resting, k.No)
	l := r.ledgers[k.No]
	if l == nil {
		l = &ledger{}
		l.restart()
		r.ledgers[k.No] = l
	}
	if l.lost {
		l.restart()
	}
	if l.spilled && l.levels == nil { // only a walk by priority takes that back
		l.levels = map[int]ident.ID{}
	}
	l.spilled = false
	return &walk{ledger: *l, k: k}
}

// save writes the marks back, unless Redis lost state meanwhile: then what was
// seen in it counts for nothing and the next round begins again.
func (r *Reaper) save(w *walk, change func(l *ledger)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&w.ledger)
	if l := r.ledgers[w.k.No]; l != nil && !l.lost {
		change(l)
	}
}

// unlessLost returns err, but nil where Redis lost its state under a walk: Lost has
// been told, and the walk begins again.
func unlessLost(err error) error {
	if errors.Is(err, redisq.ErrLost) {
		return nil
	}
	return err
}

// stillThere meets the consumer's state in Redis before anything is put into it,
// and reports whether it has not been lost: a loss that is noticed only by putting a
// job back leaves its holder no time.
func (r *Reaper) stillThere(ctx context.Context, w *walk) (bool, error) {
	stats, err := r.Queue.Stats(ctx, w.k.No)
	if err != nil {
		return false, err
	}
	w.epoch = stats.Epoch
	r.mu.Lock()
	defer r.mu.Unlock()
	_, lost := r.resting[w.k.No]
	return !lost, nil
}

// walkCommon checks messages in the order of their IDs, one read for all
// consumers of the channel. A consumer whose Redis fails leaves the walk; the last
// such error is returned.
func (r *Reaper) walkCommon(ctx context.Context, ch *catalogue.Channel, walks []*walk, through ident.ID) (failure error) {
	for len(walks) > 0 {
		from := walks[0].checked
		for _, w := range walks {
			if w.checked.Compare(from) < 0 {
				from = w.checked
			}
		}
		heads, err := r.Store.Heads(ctx, ch.No, from, through, pageSize)
		if err != nil {
			return err
		}
		last := through
		if len(heads) == pageSize {
			last = heads[len(heads)-1].ID
		}
		var rest []*walk
		for _, w := range walks {
			if w.checked.Compare(last) >= 0 {
				rest = append(rest, w)
				continue
			}
			upto, err := r.present(ctx, ch, w, heads, last)
			if err != nil {
				failure = cmp.Or(unlessLost(err), failure)
				continue
			}
			if upto != last || w.outside { // no room, or there was none: go on by priority
				r.save(w, func(l *ledger) { l.checked, l.levels = upto, map[int]ident.ID{} })
				r.poke()
				continue
			}
			r.save(w, func(l *ledger) { l.checked = last })
			if last != through {
				rest = append(rest, w)
			}
		}
		if last == through {
			return failure
		}
		walks = rest
	}
	return failure
}

// present puts those heads that concern the consumer, are newer than its mark
// and are missing from Redis into Redis. It returns the mark up to which all is
// accounted for: last, or just before the first that found no room.
func (r *Reaper) present(ctx context.Context, ch *catalogue.Channel, w *walk, heads []durable.Head, last ident.ID) (ident.ID, error) {
	mine := make([]durable.Head, 0, len(heads))
	for _, h := range heads {
		if h.ID.Compare(w.checked) > 0 && w.k.Concerns(h) {
			mine = append(mine, h)
		}
	}
	upto, err := r.offer(ctx, ch, w, mine)
	if err != nil || upto == len(mine) {
		return last, err
	}
	return before(mine, upto, w.checked), nil
}

// before is the mark in front of heads[i].
func before(heads []durable.Head, i int, mark ident.ID) ident.ID {
	if i == 0 {
		return mark
	}
	return heads[i-1].ID
}

// offer puts what is missing into Redis, here or through the re-trigger
// endpoint, and returns how many heads are accounted for.
func (r *Reaper) offer(ctx context.Context, ch *catalogue.Channel, w *walk, heads []durable.Head) (int, error) {
	if len(heads) == 0 {
		return 0, nil
	}
	if r.Retrigger != nil && w.levels == nil {
		return len(heads), r.retrigger(ctx, ch, w, heads)
	}
	p, err := r.Desk.Recover(ctx, w.k.No, w.epoch, heads)
	if err != nil {
		return 0, err
	}
	failpoint.At(failpoint.AfterPage)
	w.outside = w.outside || p.Outside
	w.open += len(heads) - p.Over
	if p.Added > 0 {
		r.recovered.Add(float64(p.Added))
		r.Touch(w.k.No)
		r.Log.Info("jobs that Redis did not have are back", "consumer", r.name(w.k.No), "jobs", p.Added)
	}
	return p.Upto, nil
}
