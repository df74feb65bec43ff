// Package fanout makes the jobs of committed messages: one for each consumer that the message
// concerns, in Redis.
package fanout

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/penstock-broker/penstock/internal/failpoint"
	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/redisq"
)

// offerAgain offers jobs that may have been offered before, except to those away,
// whose jobs wait for the next flush, and adds to away the consumers whose Redis did not take theirs.
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
		case errors.Is(err, redisq.ErrLost): // the walk of the store brings them
		default:
			away[here[i].Consumer] = true
			f.giveBack(here[i])
		}
	}
}

// offer offers messages that were never offered. It adds to away the consumers whose Redis did
// not take their jobs.
func (f *Fanout) offer(ctx context.Context, msgs []committed, since uint64, away map[uint32]bool) {
	all := f.batches(msgs)
	batches := make([]redisq.Batch, 0, len(all))
	for _, b := range all {
		if !away[b.Consumer] {
			batches = append(batches, b)
		}
	}
	if len(batches) == 0 { // Redis is away: keep these as they are, never offered
		f.mu.Lock()
		f.pending, f.since = append(msgs, f.pending...), since
		f.mu.Unlock()
		return
	}
	doubtful := map[uint32]bool{} // consumers for which a job may go another way as well
	for _, b := range all {
		if away[b.Consumer] {
			doubtful[b.Consumer] = true
			f.giveBack(b)
		}
	}
	f.offerNew(ctx, msgs, batches, doubtful, away)
}

// offerNew makes the call. It adds the consumers of jobs that may go another way as well to
// doubtful, and those that did not take their jobs to away.
func (f *Fanout) offerNew(ctx context.Context, msgs []committed, batches []redisq.Batch, doubtful, away map[uint32]bool) {
	failpoint.At(failpoint.BeforeFanout)
	generation := f.queue.Generation()
	reservations := make([]Reservation, len(batches))
	for i := range batches {
		if reservations[i] = f.push.Reserve(batches[i].Consumer, len(batches[i].Jobs)); reservations[i] != nil {
			batches[i].Lease = reservations[i].Lease()
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
	f.confirm(msgs, doubtful, generation)
	f.metrics.FannedOut.Add(float64(len(msgs)))
	var ready []uint32 // consumers with jobs that any broker may claim
	for i, b := range batches {
		if r := reservations[i]; r != nil {
			r.Start(ctx, results[i].Leases)
		}
		if len(results[i].Leases) == len(b.Jobs) { // none is left for a claim
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
		// Lossy by design: a broker that misses it polls.
		_ = guard.Do("hint to the others", func() error { return f.queue.Notify(ctx, ready) })
	}
}

// confirm marks messages fresh whose offers all went one way. The clock is read again: a process
// that was paused on the way offers jobs that the reconciler of another broker may have offered
// long ago.
func (f *Fanout) confirm(msgs []committed, doubtful map[uint32]bool, generation uint64) {
	bound := f.lateBefore()
	for _, m := range msgs {
		if m.ID.Millis() >= bound && (len(doubtful) == 0 || !f.concerns(m, doubtful)) {
			f.cache.SetFresh(m.ID, generation)
		}
	}
}

// enqueueMany is that of the queue. After a panic it is not known what came of the
// offers: they are repeated to the state that they were made for.
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

// concerns reports whether one of the consumers gets the message.
func (f *Fanout) concerns(m committed, consumers map[uint32]bool) bool {
	ch := f.catalogue.ChannelByNo(m.channelNo)
	if ch == nil {
		return true
	}
	for _, k := range ch.Concerned(m.Head) {
		if consumers[k.No] {
			return true
		}
	}
	return false
}

// splitLate takes out messages that have waited so long, because Redis was
// away, that the reconciler may have been faster. They are offered with care, and
// where Redis has lost anything since the first of them came, not at all.
func (f *Fanout) splitLate(msgs []committed, since uint64) (fresh []committed, late []redisq.Batch) {
	bound := f.lateBefore()
	if msgs[0].ID.Millis() >= bound { // the oldest, as good as always
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
	if f.queue.Generation() != since { // after their epochs were read
		f.metrics.FanoutDeferred.Add(float64(len(old)))
		return fresh, nil
	}
	return fresh, late
}

// lateBefore is the time, in Unix ms, before which a message is too old to be fresh.
func (f *Fanout) lateBefore() int64 { return f.node.NowMs() - freshFor.Milliseconds() }

// giveBack keeps jobs for the next flush, as far as there is room.
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

// batches turns messages into jobs, grouped by consumer.
func (f *Fanout) batches(msgs []committed) []redisq.Batch {
	var out []redisq.Batch
	index := map[uint32]int{}
	for _, m := range msgs {
		ch := f.catalogue.ChannelByNo(m.channelNo)
		if ch == nil {
			continue // impossible: the message was accepted from this catalogue
		}
		for _, k := range ch.Concerned(m.Head) {
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
