// Package outcome stores the outcomes of attempts in shared transactions (group commit), and then
// ends their leases in Redis.
package outcome

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/redisq"
)

const (
	// rowsAtOnce bounds the rows of one transaction of outcomes.
	rowsAtOnce = 1024
	// pause is the wait after the store has refused a batch.
	pause = 200 * time.Millisecond
	// slots bounds the outcomes that are not stored or not acknowledged. Beyond it no new jobs are
	// claimed, so an unreachable store stops delivery instead of filling memory.
	slots = 8192
	// late is the longest wait of an outcome for the store before claims stop: a job whose outcome
	// is not stored when its broker dies is delivered again. A transaction normally takes
	// milliseconds.
	late = time.Second
)

// A Store is the part of durable.Store that stores outcomes.
type Store interface {
	Record(ctx context.Context, outcomes []durable.Outcome) error
}

// A Queue is the part of redisq.Queue that ends and extends leases.
type Queue interface {
	AckMany(ctx context.Context, done []redisq.Done) ([]int, []error)
	AckLeasesMany(ctx context.Context, ended []redisq.Ended) []error
	Nack(ctx context.Context, consumer uint32, leases []redisq.Lease, delays []time.Duration) ([]bool, error)
	GiveBack(ctx context.Context, consumer uint32, leases []redisq.Lease, delays []time.Duration) ([]bool, error)
	Extend(ctx context.Context, consumer uint32, leases []redisq.Lease, lease time.Duration) ([]bool, error)
}

// An Entry is the end of one attempt, with the data that storing and acknowledging it need.
type Entry struct {
	Outcome durable.Outcome
	// of a retry or give-back: given back with Delay after the outcome is stored; of a death: ended, if it is known
	Lease    redisq.Lease
	Delay    time.Duration // of a retry or give-back
	ExtendBy time.Duration // while the outcome waits for the store, Lease is extended by this; 0: it is not
	Urgency  Urgency
	Sink     Sink // receives the events of the entry; may be nil
	added    time.Time
}

// A Sink receives the events of an entry, in the order of its methods. No method may block.
type Sink interface {
	// Ended is called once, before the entry is acknowledged in Redis. stored is false where the
	// entry was given up.
	Ended(stored bool)
	// Retrying reports that Redis has taken the job back, due after a delay. It is not called where
	// the lease had ended before.
	Retrying(after time.Duration)
	// Done is called once, after the acknowledgement in Redis was tried, or after the entry was
	// given up. A nil error means that the outcome is on disk.
	Done(err error)
}

// A waiter is the sink of a request that waits for one entry. Its capacity is 1.
type waiter chan error

func (waiter) Ended(bool)             {}
func (waiter) Retrying(time.Duration) {}
func (w waiter) Done(err error)       { w <- err }

// A Committer is the group committer of outcomes. The order is always the store, then Redis: after
// a crash in between the lease expires, and the next claim of the job finds the stored outcome and
// drops the job.
type Committer struct {
	options Options

	mu             sync.Mutex
	pending        []Entry
	storing        []Entry       // the batch that is being stored
	oldest         time.Time     // when the oldest unstored entry was added; zero: none
	stored         []Entry       // stored, not yet handed to the acknowledger
	waiting        int           // entries that are not stored or not acknowledged
	urgency        Urgency       // the highest of pending
	signal         chan struct{} // capacity 1
	rush           chan struct{} // capacity 1: urgency has grown
	unacknowledged chan struct{} // capacity 1: stored is not empty
}

// Options of New. The functions may be nil.
type Options struct {
	Store   Store
	Queue   Queue
	Metrics *metrics.Metrics
	Log     *slog.Logger

	// Tripped is told of consumers that became dead with the outcomes just stored.
	Tripped func(consumer uint32)
	// Node returns 1 + the number of this broker, which the outcomes are stored with.
	Node func() int
	// Answered is told of jobs that ended with a response, or dead. It may not block.
	Answered func(consumer uint32, id ident.ID)
	// Noted is told of the outcomes just stored, which it must not keep. It may not block.
	Noted func(outcomes []durable.Outcome)
}

// New returns a committer. No outcome is stored before Run.
func New(o Options) *Committer {
	return &Committer{options: o,
		signal: make(chan struct{}, 1), rush: make(chan struct{}, 1), unacknowledged: make(chan struct{}, 1)}
}

// Add takes over an entry. Its sink receives the events of the entry.
func (o *Committer) Add(r Entry) {
	r.added = time.Now()
	o.mu.Lock()
	if o.oldest.IsZero() {
		o.oldest = r.added
	}
	o.pending = append(o.pending, r)
	o.waiting++
	wake := o.signal
	if r.Urgency > o.urgency {
		o.urgency, wake = r.Urgency, o.rush
	}
	o.mu.Unlock()
	select {
	case wake <- struct{}{}:
	default:
	}
}

// Store adds an entry and waits until its outcome is on disk. When ctx ends first, the outcome may
// still be stored later, and the error is durable.ErrOutcomeUnknown.
func (o *Committer) Store(ctx context.Context, r Entry) error {
	done := make(waiter, 1)
	r.Urgency, r.Sink = Urgent, done
	o.Add(r)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return durable.ErrOutcomeUnknown
	}
}

// Room returns how many more outcomes may wait before claims must stop. It returns 0 while an
// outcome has waited for the store longer than late.
func (o *Committer) Room() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.oldest.IsZero() && time.Since(o.oldest) > late {
		return 0
	}
	return slots - o.waiting
}

// Run stores and acknowledges outcomes until ctx ends. It then stores the outcomes that were added
// before, for at most grace.
func (o *Committer) Run(ctx context.Context, grace time.Duration) error {
	// The end of ctx must not abort the current transaction.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	defer stop()
	var acknowledging sync.WaitGroup
	acknowledging.Go(func() { guard.Vital("acknowledger", func() { o.acknowledgeStored(work) }) })
	extending, stopExtending := context.WithCancel(work)
	acknowledging.Go(func() { guard.Vital("extension of leases", func() { o.extendWaiting(extending) }) })
	defer acknowledging.Wait()
	defer close(o.unacknowledged)
	defer stopExtending()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			for o.flush(work) {
			}
			return nil
		case <-o.signal:
		case <-o.rush:
		}
		o.linger(last)
		for begun := time.Now(); o.flush(work); {
			last = begun
		}
	}
}

// flush stores one batch and hands it to the acknowledger. It reports whether there was a batch.
func (o *Committer) flush(ctx context.Context) bool {
	o.mu.Lock()
	n := atOnce(o.pending)
	batch := o.pending[:n:n]
	o.pending, o.storing = o.pending[n:], batch
	if len(o.pending) == 0 {
		o.pending, o.urgency = nil, Deferrable
	}
	o.mu.Unlock()
	if n == 0 {
		return false
	}
	err := o.record(ctx, batch)
	// Ended runs before Redis is asked: the lease of a finished job must not be restored.
	for i := range batch {
		if sink := batch[i].Sink; sink != nil {
			sink.Ended(err == nil)
		}
	}
	if err != nil {
		o.pass(nil)
		o.finish(batch, err)
		return true
	}
	failpoint.At(failpoint.AfterOutcome)
	o.tripped(batch)
	o.answered(batch)
	o.pass(batch)
	return true
}

// responsesAtOnce bounds the responses of one transaction of outcomes, bytes.
const responsesAtOnce = 8 << 20

// atOnce returns how many of the entries one transaction stores.
func atOnce(pending []Entry) int {
	bytes := 0
	for i := range pending[:min(len(pending), rowsAtOnce)] {
		if e := pending[i].Outcome.Exchange; e != nil {
			if bytes += e.Bytes(); bytes > responsesAtOnce && i > 0 {
				return i
			}
		}
	}
	return min(len(pending), rowsAtOnce)
}

// answered reports the jobs of the batch for which clients may wait.
func (o *Committer) answered(batch []Entry) {
	if o.options.Answered == nil {
		return
	}
	for i := range batch {
		out := &batch[i].Outcome
		if out.Exchange != nil || out.Kind == durable.OutcomeDead {
			o.options.Answered(out.ConsumerNo, out.ID)
		}
		if out.ReplyTo.ConsumerNo != 0 && out.Kind == durable.OutcomeDelivered {
			o.options.Answered(out.ReplyTo.ConsumerNo, out.ReplyTo.ID)
		}
	}
}

// tripped reports the consumers that the batch made dead, before their next jobs are claimed.
func (o *Committer) tripped(batch []Entry) {
	for i := range batch {
		out := &batch[i].Outcome
		if out.Tombstone != nil && out.Tombstone.Tripped && o.options.Tripped != nil {
			_ = guard.Do("news of a dead consumer", func() error { // the catalogue is polled
				o.options.Tripped(cmp.Or(out.Tombstone.ConsumerNo, out.ConsumerNo))
				return nil
			})
		}
	}
}

// pass ends the wait of the current batch and hands the stored entries to the acknowledger.
func (o *Committer) pass(stored []Entry) {
	o.mu.Lock()
	o.oldest, o.storing = time.Time{}, nil
	if len(o.pending) > 0 {
		o.oldest = o.pending[0].added
	}
	o.stored = append(o.stored, stored...)
	o.mu.Unlock()
	if len(stored) == 0 {
		return
	}
	select {
	case o.unacknowledged <- struct{}{}:
	default:
	}
}

// record stores a batch, and retries until ctx ends.
func (o *Committer) record(ctx context.Context, batch []Entry) error {
	node := 0
	if o.options.Node != nil {
		node = o.options.Node()
	}
	rows := make([]durable.Outcome, len(batch))
	for i := range batch {
		rows[i] = batch[i].Outcome
		rows[i].Node = node
	}
	o.options.Metrics.OutcomeBatch.Observe(float64(len(batch)))
	store := func() error {
		return guard.Do("record of outcomes", func() error { return o.options.Store.Record(ctx, rows) })
	}
	err := store()
	// A batch that panics is not retried, because it would panic again. The leases of its jobs
	// expire, and other batches go on.
	for failing := false; err != nil && !errors.Is(err, guard.ErrPanic) && ctx.Err() == nil; err = store() {
		if !failing {
			o.options.Log.Warn("outcomes cannot be stored; trying again", "outcomes", len(batch), "error", err)
			failing = true
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	if err != nil {
		o.options.Log.Error("outcomes were not stored; their leases will end and the jobs are tried again", "outcomes",
			len(batch), "error", err)
	} else if o.options.Noted != nil {
		_ = guard.Do("notes of outcomes", func() error { o.options.Noted(rows); return nil })
	}
	return err
}

// finish calls Done of each sink of a batch and counts the batch as no longer waiting.
func (o *Committer) finish(batch []Entry, err error) {
	for i := range batch {
		if sink := batch[i].Sink; sink != nil {
			sink.Done(err)
		}
	}
	o.mu.Lock()
	o.waiting -= len(batch)
	o.mu.Unlock()
}
