package hotpath

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/failpoint"
	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/redisq"
)

const (
	// fanoutLinger is the least time between two flushes: nobody waits for
	// fan-out, and larger batches are worth 1.3 times the throughput at 64
	// connections (measured on 2 cores). After a pause the first flush is at once.
	fanoutLinger = 3 * time.Millisecond
	// fanoutRetry is the pause after Redis refused a flush.
	fanoutRetry = 100 * time.Millisecond
	// fanoutPending bounds the messages that wait for Redis. Past it they are
	// left to the reconciler, which needs no list to find them.
	fanoutPending = 100_000
	// fanoutFresh is the age up to which the reconciler cannot have offered the
	// job already, and somebody delivered it: its horizon is twice this.
	fanoutFresh = time.Second
)

// An Enqueuer is the part of redisq.Queue that fan-out needs.
type Enqueuer interface {
	Generation() uint64
	Epoch(consumer uint32) string
	EnqueueMany(ctx context.Context, batches []redisq.Batch) ([]redisq.Enqueued, []error)
	EnqueueAgain(ctx context.Context, batches []redisq.Batch) []error
	Notify(ctx context.Context, consumers []uint32) error
}

// A Node is the part of cluster.Node that fan-out needs.
type Node interface {
	NowMs() int64 // the clock of the store, Unix ms
	Alone() bool  // no other broker shares the store
}

// A fanout makes one job per consumer of each committed message. The process
// may die between the commit and this: then the reconciler of any broker finds
// the message missing from Redis, so nothing here needs to be remembered.
type fanout struct {
	queue     Enqueuer
	push      *dispatcher // may take jobs on their way
	catalogue *catalogue.Catalogue
	payloads  *verify.Cache
	node      Node
	wake      func(consumer uint32) // there is new work for a consumer
	log       *slog.Logger
	metrics   *metrics.Metrics

	mu         sync.Mutex
	pending    []committed
	since      uint64                     // the generation of the queue when the first of pending came
	repeat     map[offeredTo][]redisq.Job // offered before with an unknown result
	repeatJobs int                        // in repeat
	signal     chan struct{}              // capacity 1
}

// A committed is what fan-out needs of a message. It has no payload: while Redis is
// away what waits for it must not keep that in memory, beside the bounded cache.
type committed struct {
	durable.Head
	channelNo uint32
}

// An offeredTo is the state of a consumer in Redis that jobs were offered to. They are
// offered again to no other one: they may be under way, and a state that came after
// a loss may not have their leases yet. The walk of the store comes after those.
type offeredTo struct {
	consumer uint32
	epoch    string
}

func newFanout(queue Enqueuer, push *dispatcher, cat *catalogue.Catalogue, p *verify.Cache, node Node, wake func(uint32), m *metrics.Metrics, log *slog.Logger) *fanout {
	return &fanout{queue: queue, push: push, catalogue: cat, payloads: p, node: node, wake: wake, metrics: m, log: log, signal: make(chan struct{}, 1)}
}

// Add takes over committed messages. It never blocks.
func (f *fanout) Add(msgs []*durable.Message) {
	if f.keep(msgs) {
		select {
		case f.signal <- struct{}{}:
		default:
		}
	}
}

// keep adds to what waits, and reports whether anything does.
func (f *fanout) keep(msgs []*durable.Message) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range msgs {
		if m.Audience == 0 {
			continue
		}
		if len(f.pending) >= fanoutPending {
			f.metrics.FanoutDeferred.Inc()
			continue
		}
		f.payloads.Put(m)
		if len(f.pending) == 0 {
			f.since = f.queue.Generation()
		}
		f.pending = append(f.pending, committed{durable.Head{ID: m.ID, Audience: m.Audience, Priority: m.Priority}, m.ChannelNo})
	}
	return len(f.pending) > 0
}

// Pending returns how many messages wait for fan-out.
func (f *fanout) Pending() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pending)
}

// Run flushes until ctx ends, then flushes what is left once more.
func (f *fanout) Run(ctx context.Context) error {
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			final, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			f.flush(final)
			return nil
		case <-f.signal:
		}
		if wait := fanoutLinger - time.Since(last); wait > 0 {
			time.Sleep(wait)
		}
		last = time.Now()
		if !f.flush(ctx) {
			select {
			case <-time.After(fanoutRetry):
			case <-ctx.Done():
			}
			select {
			case f.signal <- struct{}{}:
			default:
			}
		}
	}
}

// flush offers everything that waits to Redis and reports whether Redis took it.
// Part of Redis may be away, a master of a Cluster: what the others hold goes on.
func (f *fanout) flush(ctx context.Context) bool {
	f.mu.Lock()
	msgs, since := f.pending, f.since
	repeat := make([]redisq.Batch, 0, len(f.repeat))
	for t, jobs := range f.repeat {
		repeat = append(repeat, redisq.Batch{Consumer: t.consumer, Jobs: jobs, Epoch: t.epoch})
	}
	f.pending, f.repeat, f.repeatJobs = nil, nil, 0
	f.mu.Unlock()
	away := map[uint32]bool{} // consumers whose Redis did not take something
	f.offerAgain(ctx, repeat, away)
	if len(msgs) == 0 {
		return len(away) == 0
	}
	msgs, late := f.splitLate(msgs, since)
	f.offerAgain(ctx, late, away)
	if len(msgs) > 0 {
		f.offer(ctx, msgs, since, away)
	}
	return len(away) == 0
}

// offerAgain offers jobs that may have been offered before, except to those away,
// whose jobs wait for the next flush, and adds to them who did not take theirs.
func (f *fanout) offerAgain(ctx context.Context, batches []redisq.Batch, away map[uint32]bool) {
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

// offer offers messages that were never offered, and adds to away who did not
// take theirs.
func (f *fanout) offer(ctx context.Context, msgs []committed, since uint64, away map[uint32]bool) {
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
	failpoint.At(failpoint.BeforeFanout)
	generation := f.queue.Generation()
	reservations := make([]*reservation, len(batches))
	for i := range batches {
		if reservations[i] = f.push.reserveRoom(batches[i].Consumer, len(batches[i].Jobs)); reservations[i] != nil {
			batches[i].Lease = f.push.lease(reservations[i].consumer)
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
	// Asked again: a process that was paused on the way offers jobs that the
	// reconciler of another broker may have offered long ago.
	bound := f.lateBefore()
	for _, m := range msgs {
		if m.ID.Millis() >= bound && (len(doubtful) == 0 || !f.concerns(m, doubtful)) {
			f.payloads.SetFresh(m.ID, generation)
		}
	}
	consumers := make([]uint32, 0, len(batches))
	for i, b := range batches {
		reserved := reservations[i] != nil
		if reserved {
			reservations[i].start(ctx, results[i].Leases)
		}
		if len(results[i].Leases) == len(b.Jobs) {
			continue
		}
		if reserved || errs[i] == nil {
			f.wake(b.Consumer)
		}
		if errs[i] == nil {
			consumers = append(consumers, b.Consumer)
		}
	}
	f.metrics.FannedOut.Add(float64(len(msgs)))
	if !f.node.Alone() && len(consumers) > 0 {
		// Lossy by design: a broker that misses it polls.
		_ = guard.Do("hint to the others", func() error { return f.queue.Notify(ctx, consumers) })
	}
}

// enqueueMany is that of the queue. After a panic it is not known what came of the
// offers: they are repeated to the state that they were made for.
func (f *fanout) enqueueMany(ctx context.Context, batches []redisq.Batch) (results []redisq.Enqueued, errs []error) {
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

func (f *fanout) enqueueAgain(ctx context.Context, batches []redisq.Batch) (errs []error) {
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
func (f *fanout) concerns(m committed, consumers map[uint32]bool) bool {
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
func (f *fanout) splitLate(msgs []committed, since uint64) (fresh []committed, late []redisq.Batch) {
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
func (f *fanout) lateBefore() int64 { return f.node.NowMs() - fanoutFresh.Milliseconds() }

// giveBack keeps jobs for the next flush, as far as there is room.
func (f *fanout) giveBack(b redisq.Batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.repeatJobs+len(b.Jobs) > fanoutPending {
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
func (f *fanout) batches(msgs []committed) []redisq.Batch {
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
