package reaper

import (
	"cmp"
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

const (
	// pageSize is the number of messages that one statement of a scan reads.
	pageSize = 1000
	// channelPage is the number of channels whose newest message one statement reads.
	channelPage = 500
	// refillTick is the interval of rounds while a consumer has more jobs than its window.
	refillTick = 50 * time.Millisecond
	// openEvery, per thousand consumers, is the interval at which the reconciler offers
	// all open_jobs rows to Redis again. It repairs a crash after the row was stored and
	// before the job was in Redis.
	openEvery = time.Minute
)

// tick is the interval at which the reconciler looks for messages past the horizon.
func (r *Reaper) tick() time.Duration {
	return min(max(r.RationalDelay/2, 100*time.Millisecond), time.Second)
}

func (r *Reaper) reconcileLoop(ctx context.Context) {
	if !r.loadWatermarks(ctx) {
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
		r.reconcileSeconds.Observe(time.Since(start).Seconds())
		failures.round(ctx, r.Log, "a round of the reconciler failed; it tries again", err)
		wait := r.tick()
		if spilled {
			wait = refillTick
		}
		next.Reset(wait)
	}
}

// renewAll gives every consumer a new epoch after another Redis process answered. A
// consumer whose Redis does not answer gets its epoch in a later round: one master of a
// Cluster may be away, and the consumers of the other masters continue. renewAll returns
// the last error.
func (r *Reaper) renewAll(ctx context.Context) (failure error) {
	r.mu.Lock()
	renew := r.renew
	r.renew = false
	r.mu.Unlock()
	if renew {
		r.Log.Warn("another Redis process answers; the reconciler checks all of its jobs against the store")
		r.unrenewed = r.Catalogue.QueueNos()
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
	return len(r.scanStates)
}

// reopen starts a new round over the open_jobs rows of all consumers.
func (r *Reaper) reopen() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.scanStates {
		if l.openDone {
			l.openFrom, l.openDone = ident.ID{}, false
		}
	}
}

// through is the last ID that a scan may read: it is older than the rational delay, and
// older than every ID that can still be inserted, even if the clock of the store's server goes back.
func (r *Reaper) through() ident.ID {
	past, floor := r.Cluster.PastMs()-r.horizon().Milliseconds(), r.Cluster.FloorMs()-durable.MaxIDAge.Milliseconds()
	return ident.AtMillis(min(past, floor-1))
}

// horizon is the age of through.
func (r *Reaper) horizon() time.Duration { return max(r.RationalDelay, horizonLeast) }

// reconcile does one round over all channels and reports whether any consumer has more
// jobs than its window. After the failure of one consumer it continues with the others.
// It returns the last error.
func (r *Reaper) reconcile(ctx context.Context) (spilled bool, failure error) {
	if err := r.cleanWatermarks(ctx); err != nil {
		return false, err
	}
	if err := r.rereadWatermarks(ctx); err != nil {
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

func (r *Reaper) reconcileChannel(ctx context.Context, latest durable.Latest, through ident.ID) (spilled bool,
	failure error) {
	if latest.ID.IsZero() {
		return false, nil
	}
	ch := r.Catalogue.ChannelByNo(latest.ChannelNo)
	if ch == nil {
		return false, nil // the catalogue's copy lacks the channel: next round
	}
	if latest.ID.Compare(through) < 0 {
		through = latest.ID
	}
	var common []*scan
	for _, k := range ch.Consumers {
		if k.Deleted() {
			continue
		}
		if !r.Cluster.Owns(k.No) {
			r.forget(k.No)
			continue
		}
		if !r.passed(k) {
			continue
		}
		s := r.begin(k)
		if s == nil {
			continue
		}
		more, rest, err := r.reconcileConsumer(ctx, ch, s, through, latest.ID)
		failure = cmp.Or(unlessLost(err), failure)
		spilled = spilled || more
		if rest {
			common = append(common, s)
		}
	}
	return spilled, cmp.Or(r.scanCommon(ctx, ch, common, through), failure)
}

// reconcileConsumer does the part of a round that concerns one consumer alone. It reports
// whether the consumer has more jobs than its window, and whether the common scan of the
// channel must include the consumer.
func (r *Reaper) reconcileConsumer(ctx context.Context, ch *catalogue.Channel, s *scan, through,
	newest ident.ID) (spilled, common bool, err error) {
	behind := s.levels == nil && s.checked.Compare(through) < 0
	if behind {
		_, over, err := r.allDelivered(ctx, s.k, s.checked, through)
		if err != nil {
			return false, false, err
		}
		if over {
			r.save(s, func(l *scanState) { l.checked = through })
			behind = false
		}
	}
	if s.openDone && s.levels == nil && !behind && s.told {
		return false, false, nil
	}
	if same, err := r.stillThere(ctx, s); !same || err != nil {
		return false, false, err
	}
	if !s.openDone {
		if err := r.scanOpen(ctx, s); err != nil {
			return false, false, err
		}
	}
	if s.levels != nil {
		spilled, err = r.scanLevels(ctx, ch, s, through, newest)
	}
	if err == nil && !s.told && s.whole(newest) {
		err = r.complete(ctx, s)
	}
	return spilled, behind, err
}

// complete tells Redis that the scan since a start, a loss or a takeover has ended. A crash
// before it leaves a state that Redis does not call whole, until another broker has scanned it.
func (r *Reaper) complete(ctx context.Context, s *scan) error {
	err := r.Queue.Complete(ctx, s.k.No, s.epoch)
	if err == nil {
		r.save(s, func(l *scanState) { l.told = true })
	}
	return err
}

// shortcutSpan is the longest stretch of time before the horizon that is compared by
// counts. A longer stretch is scanned in pages, which keep no lock for long. In an older
// stretch, retention may have removed messages: the outcome of a removed message would be
// counted for a message that is open.
const shortcutSpan = durable.MinRetention / 2

// allDelivered reports whether a stretch needs no scan because all of its jobs are
// delivered, and counts them. This is the usual case of a consumer that keeps up.
func (r *Reaper) allDelivered(ctx context.Context, k *durable.Consumer, after, through ident.ID) (t durable.Tally,
	all bool, err error) {
	if r.through().Millis()-after.Millis() > shortcutSpan.Milliseconds() {
		return t, false, nil
	}
	return r.Store.AllDelivered(ctx, *k, after, through)
}
