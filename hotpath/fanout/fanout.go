// Package fanout makes the jobs of committed messages: one for each consumer that the message
// concerns, in Redis.
package fanout

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/redisq"
)

const (
	// linger is the least time between two flushes: no request waits for
	// fan-out, and larger batches are worth 1.3 times the throughput at 64
	// connections (measured on 2 cores). After a pause the first flush is at once.
	linger = 3 * time.Millisecond
	// retryPause is the pause after Redis refused a flush.
	retryPause = 100 * time.Millisecond
	// mostPending bounds the messages that wait for Redis. Past it they are
	// left to the reconciler, which needs no list to find them.
	mostPending = 100_000
	// freshFor is the age up to which the reconciler cannot have offered the
	// job already, and no broker can have delivered it: its horizon is twice this.
	freshFor = time.Second
)

// An Queue is the part of redisq.Queue that fan-out needs.
type Queue interface {
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

// A Pusher may take jobs on their way to Redis: a push.Dispatcher.
type Pusher interface {
	// Reserve returns room for n jobs of a consumer, nil where there is none.
	Reserve(consumer uint32, n int) Reservation
}

// A Reservation is room for jobs that Redis may lease in the step that takes them. It must be
// started, whatever became of the jobs.
type Reservation interface {
	Lease() time.Duration
	Start(ctx context.Context, leases []redisq.Lease)
}

// Options assemble a fan-out.
type Options struct {
	Queue     Queue
	Push      Pusher
	Catalogue *catalogue.Catalogue
	Cache     *verify.Cache
	Node      Node
	Wake      func(consumer uint32) // there is new work for a consumer
	Metrics   *metrics.Metrics
	Log       *slog.Logger
}

// A Fanout makes one job per consumer of each committed message. The process
// may die between the commit and this: then the reconciler of any broker finds
// the message missing from Redis, so nothing here needs to be remembered.
type Fanout struct {
	queue     Queue
	push      Pusher
	catalogue *catalogue.Catalogue
	cache     *verify.Cache
	node      Node
	wake      func(consumer uint32)
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

// New returns a fan-out. Nothing is offered before Run.
func New(o Options) *Fanout {
	return &Fanout{queue: o.Queue, push: o.Push, catalogue: o.Catalogue, cache: o.Cache, node: o.Node, wake: o.Wake,
		metrics: o.Metrics, log: o.Log, signal: make(chan struct{}, 1)}
}

// Add takes over committed messages. It never blocks.
func (f *Fanout) Add(msgs []*durable.Message) {
	if f.keep(msgs) {
		select {
		case f.signal <- struct{}{}:
		default:
		}
	}
}

// keep adds to what waits, and reports whether anything does.
func (f *Fanout) keep(msgs []*durable.Message) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range msgs {
		if m.Audience == 0 {
			continue
		}
		if len(f.pending) >= mostPending {
			f.metrics.FanoutDeferred.Inc()
			continue
		}
		f.cache.Put(m)
		if len(f.pending) == 0 {
			f.since = f.queue.Generation()
		}
		f.pending = append(f.pending, committed{m.Head(), m.ChannelNo})
	}
	return len(f.pending) > 0
}

// Pending returns how many messages wait for fan-out.
func (f *Fanout) Pending() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pending)
}

// Run flushes until ctx ends, then flushes the rest once more.
func (f *Fanout) Run(ctx context.Context) error {
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			final, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			f.Flush(final)
			return nil
		case <-f.signal:
		}
		if wait := linger - time.Since(last); wait > 0 {
			time.Sleep(wait)
		}
		last = time.Now()
		if !f.Flush(ctx) {
			select {
			case <-time.After(retryPause):
			case <-ctx.Done():
			}
			select {
			case f.signal <- struct{}{}:
			default:
			}
		}
	}
}

// Flush offers everything that waits to Redis and reports whether Redis took it.
// Part of Redis may be away, a master of a Cluster: what the others hold goes on.
func (f *Fanout) Flush(ctx context.Context) bool {
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
