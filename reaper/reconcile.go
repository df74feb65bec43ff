package reaper

import (
	"cmp"
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/ident"
)

const (
	// pageSize is how many messages one statement of a walk reads.
	pageSize = 1000
	// channelPage is how many channels are asked for their newest message at once.
	channelPage = 500
	// refillTick is how often consumers with more jobs than the window are looked at.
	refillTick = 50 * time.Millisecond
	// openEvery is how often all open_jobs rows are offered to Redis again, per
	// thousand consumers: the net under a crash between a row and its place in Redis.
	openEvery = time.Minute
)

// tick is how often channels are looked at for messages past the horizon.
func (r *Reaper) tick() time.Duration {
	return min(max(r.RationalDelay/2, 100*time.Millisecond), time.Second)
}

func (r *Reaper) reconcileLoop(ctx context.Context) {
	if !r.loadMarks(ctx) {
		return
	}
	var failures streak
	lastOpen := time.Now()
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		case <-r.wake:
		}
		if time.Since(lastOpen) >= openEvery*time.Duration(1+r.consumers()/1000) {
			lastOpen = time.Now()
			r.reopen()
		}
		start := time.Now()
		unrenewed := r.renewAll(ctx)
		spilled, err := r.reconcile(ctx)
		err = cmp.Or(err, unrenewed)
		r.walkSeconds.Observe(time.Since(start).Seconds())
		failures.round(ctx, r.Log, "reconcile round failed; trying again", err)
		wait := r.tick()
		if spilled {
			wait = refillTick
		}
		next.Reset(wait)
	}
}

// renewAll gives every consumer a new epoch after another Redis process answered.
// Those whose Redis does not answer get theirs in a later round: one master of a
// Cluster may be away, and the consumers of the others go on. It returns the last
// error.
func (r *Reaper) renewAll(ctx context.Context) (failure error) {
	r.mu.Lock()
	renew := r.renew
	r.renew = false
	r.mu.Unlock()
	if renew {
		r.Log.Warn("another Redis process answers; every job it holds is checked against the store")
		r.unrenewed = r.Catalogue.ConsumerNos()
	}
	var left []uint32
	for _, consumer := range r.unrenewed {
		if err := r.Queue.Renew(ctx, consumer); err != nil {
			failure = err
			left = append(left, consumer)
		}
	}
	r.unrenewed = left
	return failure
}

func (r *Reaper) consumers() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ledgers)
}

// reopen starts another round over the open_jobs rows of all consumers.
func (r *Reaper) reopen() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.ledgers {
		if l.openDone {
			l.openFrom, l.openDone = ident.ID{}, false
		}
	}
}

// through is the newest ID that the walk may rely on: older than the rational
// delay, and than anything that can still be inserted.
func (r *Reaper) through() ident.ID {
	return ident.AtMillis(r.Cluster.PastMs() - r.horizon().Milliseconds())
}

// horizon is the age that through stands for.
func (r *Reaper) horizon() time.Duration { return max(r.RationalDelay, horizonLeast) }

// reconcile does one round over all channels and reports whether any consumer
// has more jobs than its window. A consumer that fails does not keep the others
// waiting; the last error is returned.
func (r *Reaper) reconcile(ctx context.Context) (spilled bool, failure error) {
	if err := r.rereadMarks(ctx); err != nil {
		return false, err
	}
	through := r.through()
	for after := uint32(0); ; {
		page, err := r.Store.LatestMessages(ctx, after, channelPage)
		if err != nil {
			return spilled, err
		}
		for _, latest := range page {
			after = latest.ChannelNo
			more, err := r.reconcileChannel(ctx, latest, through)
			failure = cmp.Or(err, failure)
			spilled = spilled || more
		}
		if len(page) < channelPage {
			return spilled, failure
		}
	}
}

func (r *Reaper) reconcileChannel(ctx context.Context, latest durable.Latest, through ident.ID) (spilled bool, failure error) {
	if latest.ID.IsZero() {
		return false, nil
	}
	ch := r.Catalogue.ChannelByNo(latest.ChannelNo)
	if ch == nil {
		return false, nil // newer than the copy: next round
	}
	if latest.ID.Compare(through) < 0 {
		through = latest.ID
	}
	var common []*walk
	for _, k := range ch.Consumers {
		if !r.Cluster.Owns(k.No) {
			r.forget(k.No)
			continue
		}
		w := r.begin(k)
		if w == nil {
			continue
		}
		more, rest, err := r.reconcileConsumer(ctx, ch, w, through, latest.ID)
		failure = cmp.Or(unlessLost(err), failure)
		spilled = spilled || more
		if rest {
			common = append(common, w)
		}
	}
	return spilled, cmp.Or(r.walkCommon(ctx, ch, common, through), failure)
}

// reconcileConsumer does what concerns one consumer alone. It reports whether the
// consumer has more jobs than its window, and whether it takes part in the walk over
// the channel's messages that is left.
func (r *Reaper) reconcileConsumer(ctx context.Context, ch *catalogue.Channel, w *walk, through, newest ident.ID) (spilled, common bool, err error) {
	behind := w.levels == nil && w.checked.Compare(through) < 0
	if behind {
		over, err := r.allDelivered(ctx, w.k, w.checked, through)
		if err != nil {
			return false, false, err
		}
		if over {
			r.save(w, func(l *ledger) { l.checked = through })
			behind = false
		}
	}
	if w.openDone && w.levels == nil && !behind {
		return false, false, nil
	}
	if same, err := r.stillThere(ctx, w); !same || err != nil {
		return false, false, err
	}
	if !w.openDone {
		if err := r.walkOpen(ctx, w); err != nil {
			return false, false, err
		}
	}
	if w.levels != nil {
		spilled, err = r.walkLevels(ctx, ch, w, through, newest)
	}
	return spilled, behind, err
}

// shortcutSpan is the longest stretch of time before the horizon that is compared by
// counts. A longer one is walked in pages, which hold no locks for long. An older one
// may have lost messages to their retention: then an outcome that came after its message
// was gone would be counted for another one.
const shortcutSpan = durable.MinRetention / 2

// allDelivered reports whether a stretch needs no walk: all of it is delivered,
// as is usual where consumers keep up.
func (r *Reaper) allDelivered(ctx context.Context, k *durable.Consumer, after, through ident.ID) (bool, error) {
	if r.through().Millis()-after.Millis() > shortcutSpan.Milliseconds() {
		return false, nil
	}
	return r.Store.AllDelivered(ctx, *k, after, through)
}
