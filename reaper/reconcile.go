package reaper

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/penstock-broker/penstock/catalogue"
	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/ident"
	"github.com/penstock-broker/penstock/internal/failpoint"
	"github.com/penstock-broker/penstock/redisq"
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
	failing := false
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
		if err != nil && ctx.Err() == nil && !failing {
			r.Log.Warn("reconcile round failed; trying again", "error", err)
		}
		failing = err != nil
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

// rereadMarks takes over, after brokers came or went, how far others have settled
// their consumers since: what they leave to us is then walked from there on, and
// not from where it stood when this process began.
func (r *Reaper) rereadMarks(ctx context.Context) error {
	r.mu.Lock()
	reread := r.reread
	r.reread = false
	r.mu.Unlock()
	if !reread {
		return nil
	}
	err := r.readMarks(ctx)
	if err != nil {
		r.mu.Lock()
		r.reread = true
		r.mu.Unlock()
	}
	return err
}

func (r *Reaper) readMarks(ctx context.Context) error {
	marks, err := r.Store.Marks(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for consumer, mark := range marks {
		l := r.ledgers[consumer]
		if l == nil {
			l = &ledger{settled: mark}
			l.restart()
			r.ledgers[consumer] = l
		}
		if mark.Compare(l.settled) > 0 {
			l.settled = mark
		}
	}
	return nil
}

func (r *Reaper) loadMarks(ctx context.Context) bool {
	for {
		err := r.readMarks(ctx)
		if err == nil {
			return true
		}
		r.Log.Warn("settled marks cannot be read; trying again", "error", err)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(r.tick()):
		}
	}
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

// forget drops the ledger of a consumer that another broker looks after.
func (r *Reaper) forget(consumer uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.resting, consumer)
	if l := r.ledgers[consumer]; l != nil {
		l.lost = true
	}
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
		if h.ID.Compare(w.checked) > 0 && w.k.Position < h.Audience {
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
