package hotpath

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/catalogue"
	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/failpoint"
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
	EnqueueMany(ctx context.Context, batches []redisq.Batch) ([]redisq.Enqueued, []error)
	Enqueue(ctx context.Context, consumer uint32, jobs []redisq.Job, src redisq.Source) (redisq.Enqueued, error)
	Notify(ctx context.Context, consumers []uint32) error
}

// A fanout makes one job per consumer of each committed message. The process
// may die between the commit and this: then the reconciler of any broker finds
// the message missing from Redis, so nothing here needs to be remembered.
type fanout struct {
	queue     Enqueuer
	catalogue *catalogue.Catalogue
	payloads  *payloads
	node      *Node
	wake      func(consumer uint32) // there is new work for a consumer
	log       *slog.Logger
	metrics   *Metrics

	mu      sync.Mutex
	pending []*durable.Message
	repeat  []redisq.Batch // offered before with an unknown result
	signal  chan struct{}  // capacity 1
}

func newFanout(queue Enqueuer, cat *catalogue.Catalogue, p *payloads, node *Node, wake func(uint32), m *Metrics, log *slog.Logger) *fanout {
	return &fanout{queue: queue, catalogue: cat, payloads: p, node: node, wake: wake, metrics: m, log: log, signal: make(chan struct{}, 1)}
}

// Add takes over committed messages. It never blocks.
func (f *fanout) Add(msgs []*durable.Message) {
	f.mu.Lock()
	for _, m := range msgs {
		if m.Audience == 0 {
			continue
		}
		if len(f.pending) >= fanoutPending {
			f.metrics.fanoutDeferred.Inc()
			continue
		}
		f.payloads.put(m)
		f.pending = append(f.pending, m)
	}
	n := len(f.pending)
	f.mu.Unlock()
	if n > 0 {
		select {
		case f.signal <- struct{}{}:
		default:
		}
	}
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
func (f *fanout) flush(ctx context.Context) bool {
	f.mu.Lock()
	msgs, repeat := f.pending, f.repeat
	f.pending, f.repeat = nil, nil
	f.mu.Unlock()
	ok := true
	for i, b := range repeat {
		if _, err := f.queue.Enqueue(ctx, b.Consumer, b.Jobs, redisq.Repeated); err != nil {
			f.giveBack(repeat[i:])
			ok = false
			break
		}
		f.wake(b.Consumer)
	}
	if len(msgs) == 0 {
		return ok
	}
	if !ok { // Redis is away: keep these as they are, never offered
		f.mu.Lock()
		f.pending = append(msgs, f.pending...)
		f.mu.Unlock()
		return false
	}

	msgs, late := f.splitLate(msgs)
	for _, b := range late {
		if _, err := f.queue.Enqueue(ctx, b.Consumer, b.Jobs, redisq.Repeated); err != nil {
			f.giveBack([]redisq.Batch{b})
			ok = false
			continue
		}
		f.wake(b.Consumer)
	}
	if len(msgs) == 0 {
		return ok
	}
	failpoint.At(failpoint.BeforeFanout)
	generation := f.queue.Generation()
	batches := f.batches(msgs)
	results, errs := f.queue.EnqueueMany(ctx, batches)
	failpoint.At(failpoint.AfterFanout)
	whole := true
	for i := range batches {
		switch {
		case errs[i] != nil:
			whole, ok = false, false
			f.metrics.fanoutErrors.Inc()
			f.giveBack(batches[i : i+1])
		case results[i].Spilled > 0:
			whole = false
			f.metrics.spilled.Add(float64(results[i].Spilled))
		}
	}
	if !ok {
		f.log.Warn("fan-out to Redis failed; it is tried again", "messages", len(msgs), "error", firstError(errs))
	}
	for _, m := range msgs {
		if whole {
			f.payloads.setFresh(m.ID, generation)
		}
	}
	consumers := make([]uint32, 0, len(batches))
	for i, b := range batches {
		if errs[i] == nil {
			f.wake(b.Consumer)
			consumers = append(consumers, b.Consumer)
		}
	}
	f.metrics.fannedOut.Add(float64(len(msgs)))
	if !f.node.Alone() && len(consumers) > 0 {
		// Lossy by design: a broker that misses it polls.
		_ = f.queue.Notify(ctx, consumers)
	}
	return ok
}

// splitLate takes out messages that have waited so long, because Redis was
// away, that the reconciler may have been faster. They are offered with care.
func (f *fanout) splitLate(msgs []*durable.Message) (fresh []*durable.Message, late []redisq.Batch) {
	bound := f.node.NowMs() - fanoutFresh.Milliseconds()
	if msgs[0].ID.Millis() >= bound { // the oldest, as good as always
		return msgs, nil
	}
	var old []*durable.Message
	for _, m := range msgs {
		if m.ID.Millis() >= bound {
			fresh = append(fresh, m)
		} else {
			old = append(old, m)
		}
	}
	return fresh, f.batches(old)
}

func (f *fanout) giveBack(batches []redisq.Batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	jobs := 0
	for _, b := range f.repeat {
		jobs += len(b.Jobs)
	}
	for _, b := range batches {
		if jobs += len(b.Jobs); jobs > fanoutPending {
			f.metrics.fanoutDeferred.Inc()
			return
		}
		f.repeat = append(f.repeat, b)
	}
}

// batches turns messages into jobs, grouped by consumer.
func (f *fanout) batches(msgs []*durable.Message) []redisq.Batch {
	var out []redisq.Batch
	index := map[uint32]int{}
	for _, m := range msgs {
		ch := f.catalogue.ChannelByNo(m.ChannelNo)
		if ch == nil {
			continue // impossible: the message was accepted from this catalogue
		}
		for _, k := range ch.Consumers[:min(m.Audience, len(ch.Consumers))] {
			i, known := index[k.No]
			if !known {
				i = len(out)
				index[k.No] = i
				out = append(out, redisq.Batch{Consumer: k.No})
			}
			out[i].Jobs = append(out[i].Jobs, redisq.Job{ID: m.ID, Priority: m.Priority})
		}
	}
	return out
}

func firstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
