package hotpath

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/failpoint"
	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/redisq"
)

const (
	// outcomeLinger is the least time between two transactions of outcomes, as
	// fanoutLinger: 1.14 times the throughput at 64 connections.
	outcomeLinger = 10 * time.Millisecond
	// outcomeRows bounds one transaction of outcomes.
	outcomeRows = 1024
	// outcomePause is the wait after the store refused a batch.
	outcomePause = 200 * time.Millisecond
	// outcomeSlots bounds the outcomes that wait for the store; past it no new
	// jobs are claimed, so a store that is away stops delivery, not memory.
	outcomeSlots = 8192
	// outcomeLate is how long an outcome may wait before no new jobs are claimed:
	// what is not stored when its broker dies is delivered again. A transaction
	// takes milliseconds; a store that needs this long is not well.
	outcomeLate = time.Second
)

// A Recorder is the part of durable.Store that stores outcomes.
type Recorder interface {
	Record(ctx context.Context, outcomes []durable.Outcome) error
}

// A Settler is the part of redisq.Queue that ends leases.
type Settler interface {
	AckMany(ctx context.Context, done []redisq.Done) ([]int, []error)
	Nack(ctx context.Context, consumer uint32, leases []redisq.Lease, delays []time.Duration) ([]bool, error)
}

// A result is the end of one attempt on its way into the store.
type result struct {
	outcome durable.Outcome
	added   time.Time     // by Add
	lease   redisq.Lease  // of a retry: given back with delay once stored
	delay   time.Duration // of a retry
	urgent  bool          // somebody waits for it: no lingering
	ended   func()        // of a push job: called once when its fate is known, before Redis hears of it
	stored  func(error)   // of a pull job: called once, after Redis was told; nil error: it is on disk
}

// An outcomes is the group committer of outcomes. The order is always store,
// then Redis: a crash in between leaves a lease that ends, and its next claim
// sees the stored outcome and forgets the job.
type outcomes struct {
	store   Recorder
	queue   Settler
	wake    func(consumer uint32, after time.Duration) // a retry is due then
	log     *slog.Logger
	metrics *metrics.Metrics

	mu        sync.Mutex
	pending   []result
	oldest    time.Time     // when the first that is not stored was added; zero: all are
	stored    []result      // Redis was not told yet
	waiting   int           // those that are not stored or not settled
	signal    chan struct{} // capacity 1
	rush      chan struct{} // capacity 1: an urgent one waits
	unsettled chan struct{} // capacity 1: there are stored ones
}

func newOutcomes(store Recorder, queue Settler, wake func(uint32, time.Duration), m *metrics.Metrics, log *slog.Logger) *outcomes {
	return &outcomes{store: store, queue: queue, wake: wake, metrics: m, log: log,
		signal: make(chan struct{}, 1), rush: make(chan struct{}, 1), unsettled: make(chan struct{}, 1)}
}

// Add takes over a result; r.ended and r.stored are called when its fate is known.
func (o *outcomes) Add(r result) {
	r.added = time.Now()
	o.mu.Lock()
	if o.oldest.IsZero() {
		o.oldest = r.added
	}
	o.pending = append(o.pending, r)
	o.waiting++
	o.mu.Unlock()
	wake := o.signal
	if r.urgent {
		wake = o.rush
	}
	select {
	case wake <- struct{}{}:
	default:
	}
}

// Store adds the outcome and waits until it is on disk. When ctx ends first the
// outcome may still be stored later: to the caller it is unknown.
func (o *outcomes) Store(ctx context.Context, out durable.Outcome) error {
	done := make(chan error, 1)
	o.Add(result{outcome: out, urgent: true, stored: func(err error) { done <- err }})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return durable.ErrOutcomeUnknown
	}
}

// Room reports how many more outcomes may wait before claiming must stop: none
// while one has waited for the store for outcomeLate.
func (o *outcomes) Room() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.oldest.IsZero() && time.Since(o.oldest) > outcomeLate {
		return 0
	}
	return outcomeSlots - o.waiting
}

// Run stores and settles outcomes until ctx ends and what was added before is
// stored, or grace has passed after that.
func (o *outcomes) Run(ctx context.Context, grace time.Duration) error {
	// The end of ctx must not abort the transaction under way.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	defer stop()
	var settling sync.WaitGroup
	settling.Go(func() { guard.Vital("settler", func() { o.settleStored(work) }) })
	defer settling.Wait()
	defer close(o.unsettled)
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			for o.flush(work) {
			}
			return nil
		case <-o.signal:
			o.linger(outcomeLinger - time.Since(last))
		case <-o.rush:
		}
		last = time.Now()
		for o.flush(work) {
		}
	}
}

// linger waits for more outcomes, unless somebody waits for one.
func (o *outcomes) linger(wait time.Duration) {
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-o.rush:
	}
}

// flush stores one batch and hands it on to be settled. It reports whether there was
// one.
func (o *outcomes) flush(ctx context.Context) bool {
	o.mu.Lock()
	n := min(len(o.pending), outcomeRows)
	batch := o.pending[:n:n]
	o.pending = o.pending[n:]
	if len(o.pending) == 0 {
		o.pending = nil
	}
	o.mu.Unlock()
	if n == 0 {
		return false
	}
	err := o.record(ctx, batch)
	// Before Redis is told: a lease of a job that is over is not taken anew.
	for i := range batch {
		if batch[i].ended != nil {
			batch[i].ended()
		}
	}
	if err != nil {
		o.pass(nil)
		o.finish(batch, err)
		return true
	}
	failpoint.At(failpoint.AfterOutcome)
	o.pass(batch)
	return true
}

// pass ends the wait of the batch under way and hands what is stored on.
func (o *outcomes) pass(stored []result) {
	o.mu.Lock()
	o.oldest = time.Time{}
	if len(o.pending) > 0 {
		o.oldest = o.pending[0].added
	}
	o.stored = append(o.stored, stored...)
	o.mu.Unlock()
	if len(stored) == 0 {
		return
	}
	select {
	case o.unsettled <- struct{}{}:
	default:
	}
}

// record stores a batch, trying until ctx ends.
func (o *outcomes) record(ctx context.Context, batch []result) error {
	rows := make([]durable.Outcome, len(batch))
	for i := range batch {
		rows[i] = batch[i].outcome
	}
	o.metrics.OutcomeBatch.Observe(float64(len(batch)))
	store := func() error {
		return guard.Do("record of outcomes", func() error { return o.store.Record(ctx, rows) })
	}
	err := store()
	// What panics once does so again: their leases end, and the others go on.
	for failing := false; err != nil && !errors.Is(err, guard.ErrPanic) && ctx.Err() == nil; err = store() {
		if !failing {
			o.log.Warn("outcomes cannot be stored; trying again", "outcomes", len(batch), "error", err)
			failing = true
		}
		select {
		case <-time.After(outcomePause):
		case <-ctx.Done():
		}
	}
	if err != nil {
		o.log.Error("outcomes were not stored; their leases will end and the jobs are tried again", "outcomes", len(batch), "error", err)
	}
	return err
}

// finish tells those who wait for results that they are over.
func (o *outcomes) finish(batch []result, err error) {
	for i := range batch {
		if batch[i].stored != nil {
			batch[i].stored(err)
		}
	}
	o.mu.Lock()
	o.waiting -= len(batch)
	o.mu.Unlock()
}
