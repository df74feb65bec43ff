package hotpath

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/ident"
	"github.com/penstock-broker/penstock/internal/failpoint"
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
	metrics *Metrics

	mu      sync.Mutex
	pending []result
	waiting int           // pending and in the transaction under way
	signal  chan struct{} // capacity 1
	rush    chan struct{} // capacity 1: an urgent one waits
}

func newOutcomes(store Recorder, queue Settler, wake func(uint32, time.Duration), m *Metrics, log *slog.Logger) *outcomes {
	return &outcomes{store: store, queue: queue, wake: wake, metrics: m, log: log, signal: make(chan struct{}, 1), rush: make(chan struct{}, 1)}
}

// Add takes over a result; r.ended and r.stored are called when its fate is known.
func (o *outcomes) Add(r result) {
	o.mu.Lock()
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

// Room reports how many more outcomes may wait before claiming must stop.
func (o *outcomes) Room() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return outcomeSlots - o.waiting
}

// Run stores outcomes until ctx ends and what was added before is stored, or
// grace has passed after that.
func (o *outcomes) Run(ctx context.Context, grace time.Duration) error {
	// The end of ctx must not abort the transaction under way.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	defer stop()
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

// flush stores one batch, trying until ctx ends, and reports whether there was one.
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
	rows := make([]durable.Outcome, n)
	for i := range batch {
		rows[i] = batch[i].outcome
	}
	o.metrics.outcomeBatch.Observe(float64(n))
	err := o.store.Record(ctx, rows)
	for failing := false; err != nil && ctx.Err() == nil; err = o.store.Record(ctx, rows) {
		if !failing {
			o.log.Warn("outcomes cannot be stored; trying again", "outcomes", n, "error", err)
			failing = true
		}
		select {
		case <-time.After(outcomePause):
		case <-ctx.Done():
		}
	}
	// Before Redis is told: a lease of a job that is over is not taken anew.
	for i := range batch {
		if batch[i].ended != nil {
			batch[i].ended()
		}
	}
	if err == nil {
		failpoint.At(failpoint.AfterOutcome)
		o.settle(ctx, batch)
		failpoint.At(failpoint.AfterSettle)
	} else {
		o.log.Error("outcomes were not stored; their leases will end and the jobs are tried again", "outcomes", n, "error", err)
	}
	// After Redis: who is told that a job is over may ask for its next state at once.
	for i := range batch {
		if batch[i].stored != nil {
			batch[i].stored(err)
		}
	}
	o.mu.Lock()
	o.waiting -= n
	o.mu.Unlock()
	return true
}

// settle ends the leases of stored outcomes. Redis may fail here without harm.
func (o *outcomes) settle(ctx context.Context, batch []result) {
	acks := map[uint32][]ident.ID{}
	type nacks struct {
		leases []redisq.Lease
		delays []time.Duration
	}
	retries := map[uint32]*nacks{}
	for _, r := range batch {
		k := r.outcome.ConsumerNo
		if r.outcome.Kind != durable.OutcomeRetry {
			acks[k] = append(acks[k], r.outcome.ID)
			continue
		}
		n := retries[k]
		if n == nil {
			n = &nacks{}
			retries[k] = n
		}
		n.leases = append(n.leases, r.lease)
		n.delays = append(n.delays, r.delay)
	}
	if len(acks) > 0 {
		batches := make([]redisq.Done, 0, len(acks))
		for k, ids := range acks {
			batches = append(batches, redisq.Done{Consumer: k, IDs: ids})
		}
		if _, errs := o.queue.AckMany(ctx, batches); firstError(errs) != nil {
			o.metrics.settleErrors.Inc()
			o.log.Debug("acks not taken by Redis; the leases will end", "error", firstError(errs))
		}
	}
	for k, n := range retries {
		if _, err := o.queue.Nack(ctx, k, n.leases, n.delays); err != nil {
			o.metrics.settleErrors.Inc()
			o.log.Debug("nacks not taken by Redis; the leases will end", "error", err)
			continue
		}
		for _, d := range n.delays {
			o.wake(k, d)
		}
	}
}
