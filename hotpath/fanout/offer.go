package fanout

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/redisq"
)

// offerAgain offers jobs that may have been offered before. Jobs of consumers in away wait for the
// next flush. It adds to away the consumers whose Redis did not accept their jobs.
func (f *Fanout) offerAgain(ctx context.Context, batches []redisq.Batch, away map[uint32]bool) {
	var here []redisq.Batch
	for _, b := range batches {
		if away[b.Consumer] {
			f.giveBack(b)
			continue
		}
		here = append(here, b)
	}
	if len(here) == 0 {
		return
	}
	for i, err := range f.enqueueAgain(ctx, here) {
		switch {
		case err == nil:
			f.wake(here[i].Consumer)
		// The scan of the store offers the jobs.
		case errors.Is(err, redisq.ErrLost):
		default:
			away[here[i].Consumer] = true
			f.giveBack(here[i])
		}
	}
}

// offer offers messages that were never offered. It adds to away the consumers whose Redis did not
// accept their jobs.
func (f *Fanout) offer(ctx context.Context, msgs []committed, since uint64, away map[uint32]bool) {
	all := f.batches(msgs)
	batches := make([]redisq.Batch, 0, len(all))
	for _, b := range all {
		if !away[b.Consumer] {
			batches = append(batches, b)
		}
	}
	if len(batches) == 0 { // Redis is unavailable: the messages stay pending, never offered
		f.mu.Lock()
		f.pending, f.since = append(msgs, f.pending...), since
		f.mu.Unlock()
		return
	}
	doubtful := map[uint32]bool{} // unverified: a job of these consumers may also be offered on another path
	for _, b := range all {
		if away[b.Consumer] {
			doubtful[b.Consumer] = true
			f.giveBack(b)
		}
		f.metrics.Book.Queued(b.Consumer, len(b.Jobs))
	}
	f.offerNew(ctx, msgs, batches, doubtful, away)
}

// offerNew makes the call. It adds to doubtful the consumers of jobs that may also be offered on
// another path, and to away the consumers that did not accept their jobs.
func (f *Fanout) offerNew(ctx context.Context, msgs []committed, batches []redisq.Batch, doubtful,
	away map[uint32]bool) {
	failpoint.At(failpoint.BeforeFanout)
	incarnation := f.queue.Incarnation()
	reservations := make([]Reservation, len(batches))
	for i := range batches {
		if reservations[i] = f.push.Reserve(batches[i].Consumer, len(batches[i].Jobs)); reservations[i] != nil {
			batches[i].Lease, batches[i].Limits = reservations[i].Lease(), reservations[i].Limits()
		}
	}
	results, errs := f.enqueueMany(ctx, batches)
	failpoint.At(failpoint.AfterFanout)
	for i, b := range batches {
		switch {
		case errs[i] != nil:
			doubtful[b.Consumer], away[b.Consumer] = true, true
			f.metrics.FanoutErrors.Inc()
			b.Epoch = results[i].Epoch
			f.giveBack(b)
		case results[i].Spilled > 0:
			doubtful[b.Consumer] = true
			f.metrics.Spilled.Add(float64(results[i].Spilled))
		}
	}
	if err := cmp.Or(errs...); err != nil {
		f.log.Warn("fan-out to Redis failed; it is tried again", "messages", len(msgs), "error", err)
	}
	f.confirm(msgs, doubtful, incarnation)
	f.metrics.FannedOut.Add(float64(len(msgs)))
	var ready []uint32 // consumers with jobs that every broker may claim
	for i, b := range batches {
		if r := reservations[i]; r != nil {
			r.Start(ctx, results[i].Leases)
		}
		if len(results[i].Leases) == len(b.Jobs) { // no job is left for a claim
			continue
		}
		if reservations[i] != nil || errs[i] == nil {
			f.wake(b.Consumer)
		}
		if errs[i] == nil {
			ready = append(ready, b.Consumer)
		}
	}
	if !f.node.Alone() && len(ready) > 0 {
		// The hint may be lost: a broker that misses it polls.
		_ = guard.Do("hint to the others", func() error { return f.queue.Notify(ctx, ready) })
	}
}

// confirm marks messages as fresh whose jobs were offered on this path only. It reads the clock
// again: if the process was paused, the reconciler of another broker may already have offered the
// jobs.
func (f *Fanout) confirm(msgs []committed, doubtful map[uint32]bool, incarnation uint64) {
	bound := f.lateBefore()
	for _, m := range msgs {
		if m.ID.Millis() >= bound && (len(doubtful) == 0 || !f.concerns(m, doubtful)) {
			f.cache.SetFresh(m.ID, incarnation)
		}
	}
}

// enqueueMany calls the queue's EnqueueMany. After a panic the result of the offers is unknown.
// They are then repeated to the state that they were made for.
func (f *Fanout) enqueueMany(ctx context.Context, batches []redisq.Batch) (results []redisq.Enqueued, errs []error) {
	err := guard.Do("fan-out", func() error {
		results, errs = f.queue.EnqueueMany(ctx, batches)
		return nil
	})
	if err != nil {
		results, errs = make([]redisq.Enqueued, len(batches)), slices.Repeat([]error{err}, len(batches))
		for i := range batches {
			results[i].Epoch = batches[i].Epoch
		}
	}
	return results, errs
}

func (f *Fanout) enqueueAgain(ctx context.Context, batches []redisq.Batch) (errs []error) {
	err := guard.Do("fan-out", func() error {
		errs = f.queue.EnqueueAgain(ctx, batches)
		return nil
	})
	if err != nil {
		errs = slices.Repeat([]error{err}, len(batches))
	}
	return errs
}

// concerns reports whether the message concerns one of the consumers.
func (f *Fanout) concerns(m committed, consumers map[uint32]bool) bool {
	ch := f.catalogue.ChannelByNo(m.channelNo)
	if ch == nil {
		return true
	}
	for _, k := range ch.Recipients(m.Head) {
		if consumers[k.No] {
			return true
		}
	}
	return false
}

// splitLate separates messages that waited so long, while Redis was unavailable, that the
// reconciler may have offered them first. They are offered as repeated jobs. If Redis has lost
// anything since the first of them arrived, they are not offered at all.
func (f *Fanout) splitLate(msgs []committed, since uint64) (fresh []committed, late []redisq.Batch) {
	bound := f.lateBefore()
	if msgs[0].ID.Millis() >= bound { // the oldest message; nearly always
		return msgs, nil
	}
	var old []committed
	for _, m := range msgs {
		if m.ID.Millis() >= bound {
			fresh = append(fresh, m)
		} else {
			old = append(old, m)
		}
	}
	late = f.batches(old)
	if f.queue.Incarnation() != since { // compared after batches has read the epochs
		f.metrics.FanoutDeferred.Add(float64(len(old)))
		return fresh, nil
	}
	return fresh, late
}

// lateBefore returns the time, in Unix ms, before which a message is too old to be fresh.
func (f *Fanout) lateBefore() int64 { return f.node.NowMs() - freshFor.Milliseconds() }

// giveBack keeps jobs for the next flush if there is room. Otherwise the reconciler offers them.
func (f *Fanout) giveBack(b redisq.Batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.repeatJobs+len(b.Jobs) > mostPending {
		f.metrics.FanoutDeferred.Inc()
		return
	}
	if f.repeat == nil {
		f.repeat = map[offeredTo][]redisq.Job{}
	}
	t := offeredTo{b.Consumer, b.Epoch}
	f.repeat[t] = append(f.repeat[t], b.Jobs...)
	f.repeatJobs += len(b.Jobs)
}

// batches makes the jobs of messages, grouped by consumer.
func (f *Fanout) batches(msgs []committed) []redisq.Batch {
	var out []redisq.Batch
	index := map[uint32]int{}
	for _, m := range msgs {
		ch := f.catalogue.ChannelByNo(m.channelNo)
		if ch == nil {
			continue // impossible: the message was accepted from this catalogue
		}
		for _, k := range ch.Recipients(m.Head) {
			i, known := index[k.No]
			if !known {
				i = len(out)
				index[k.No] = i
				out = append(out, redisq.Batch{Consumer: k.No, Epoch: f.queue.Epoch(k.No)})
			}
			out[i].Jobs = append(out[i].Jobs, redisq.Job{ID: m.ID, Priority: m.Priority})
		}
	}
	return out
}
