package accept

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/request"
)

// commitRows and commitBytes bound one transaction of published messages. The insert rate of
// MariaDB levels off at 1024 rows. The bytes stay far below max_allowed_packet; the store splits
// further where that is smaller. The server must finish parsing them within durable.MaxIDAge.
const (
	commitRows  = 1024
	commitBytes = 2 << 20
)

// Committers is the number of concurrent transactions of published messages. With two, one batch is
// parsed while the other waits for its flush.
const Committers = 2

// A second transaction begins beside another one only when secondRows messages wait, or the other
// one has taken secondAfter. Below these thresholds one larger batch afterwards costs the store
// less than two small ones now (1.18 times the rate of always two at 64 connections, the same at
// 256; 1, 24 and 96 rows measured as well).
const (
	secondRows  = 48
	secondAfter = 10 * time.Millisecond
)

// A Store is the part of durable.Store that the committer needs.
type Store interface {
	Insert(ctx context.Context, node durable.NodeLease, batch []*durable.Message) []error
	Schedule(ctx context.Context, node durable.NodeLease, batch []*durable.Scheduled) []error
	ChangeScheduled(ctx context.Context, c durable.ScheduleChange) (*durable.Scheduled, error)
}

// Within is the time from a request's arrival to the last try of the store.
const Within = intake.AnswerWithin - commitLeast

// commitLeast is the time that even a late batch gets. Most batches need a few milliseconds, and a
// batch that is refused without a try is never stored.
const commitLeast = 300 * time.Millisecond

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// A Node is the part of cluster.Node that the committer needs.
type Node interface {
	IDs() *ident.Generator
	Lease() (durable.NodeLease, error)
	Renew(ctx context.Context) error
	PastMs() int64
	Clock() durable.Clock // as of the last renewal
}

// A committer combines concurrent publishes into few transactions (group commit). The next batch
// gathers while a transaction is under way, so the batch size follows the load. An idle broker
// commits at once, without a timer.
type committer struct {
	store     Store
	catalogue *catalogue.Catalogue
	node      Node
	ids       *ident.Generator
	committed func([]*durable.Message) // receives messages before callers are answered
	timeout   time.Duration            // from a request's arrival to the last try
	log       *slog.Logger
	metrics   *metrics.Metrics
	filters   *filters
	commits   atomic.Int64 // transactions begun
	watch     Watch        // nil: nobody

	mu      sync.Mutex
	ready   sync.Cond // pending is not empty, or closed
	pending []*write
	busy    int       // transactions under way
	keyed   int       // of them, those that may have a message with an ordering key
	began   time.Time // start of the latest transaction
	alarm   bool      // a wake-up is scheduled
	closed  bool
}

func newCommitter(o Options, timeout time.Duration) *committer {
	c := &committer{store: o.Store, catalogue: o.Catalogue, node: o.Node, ids: o.Node.IDs(), timeout: timeout,
		committed: o.Committed, metrics: o.Metrics, log: o.Log, filters: newFilters(o)}
	c.ready.L = &c.mu
	return c
}

// add takes over writes. Each is finished when its outcome is known.
func (c *committer) add(writes []write) {
	c.mu.Lock()
	closed := c.closed
	if !closed {
		for i := range writes {
			c.pending = append(c.pending, &writes[i])
		}
	}
	c.mu.Unlock()
	if closed {
		for i := range writes {
			writes[i].finish(problem.ErrDraining)
		}
		return
	}
	c.ready.Signal()
}

// Run commits until ctx ends and every added write has its outcome.
func (c *committer) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		c.closed = true
		c.mu.Unlock()
		c.ready.Broadcast()
	})
	defer stop()
	var wg sync.WaitGroup
	for i := range Committers {
		wg.Go(func() { guard.Vital("committer", func() { c.work(ctx, i) }) })
	}
	wg.Wait()
}

func (c *committer) work(ctx context.Context, i int) {
	ctx = context.WithoutCancel(ctx) // shutdown must not abort a transaction whose callers are waiting
	for {
		batch, keyed := c.take()
		if batch == nil {
			return
		}
		c.transact(ctx, i, batch)
		c.ended(keyed)
	}
}

// transact is commit, of which the watch is told.
func (c *committer) transact(ctx context.Context, i int, batch []*write) {
	if c.watch == nil {
		c.commit(ctx, batch)
		return
	}
	c.watch.Begin(i)
	c.watch.End(i, c.commit(ctx, batch))
}

// take waits for work and returns the next batch, or nil once closed and empty. keyed reports
// whether a message of the batch has an ordering key. Only one transaction at a time has such
// messages, so those of one key are committed in the order in which they were submitted.
func (c *committer) take() (batch []*write, keyed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.due() {
		if c.closed && len(c.pending) == 0 {
			return nil, false
		}
		c.ready.Wait()
	}
	c.busy++
	c.began = time.Now()
	n, bytes := 0, 0
	for n < len(c.pending) && n < commitRows && (n == 0 || bytes < commitBytes) {
		if c.pending[n].msg.Keyed() {
			if c.keyed > 0 {
				break
			}
			keyed = true
		}
		bytes += len(c.pending[n].msg.Payload) + len(c.pending[n].msg.Headers)
		n++
	}
	if keyed {
		c.keyed++
	}
	batch = c.pending[:n:n]
	if n == len(c.pending) {
		c.pending = nil
	} else {
		c.pending = c.pending[n:]
		c.ready.Signal() // the other committer may take the rest
	}
	return batch, keyed
}

// due reports whether a transaction should begin now. Where only time is missing, it schedules a
// wake-up of the committers.
func (c *committer) due() bool {
	switch {
	case len(c.pending) == 0:
		return false
	case c.keyed > 0 && c.pending[0].msg.Keyed(): // the end of that transaction wakes
		return false
	case c.busy == 0 || len(c.pending) >= secondRows || c.closed:
		return true
	}
	wait := secondAfter - time.Since(c.began)
	if wait > 0 && !c.alarm {
		c.alarm = true
		time.AfterFunc(wait, func() {
			c.mu.Lock()
			c.alarm = false
			c.mu.Unlock()
			c.ready.Broadcast()
		})
	}
	return wait <= 0
}

// ended records the end of a transaction.
func (c *committer) ended(keyed bool) {
	c.mu.Lock()
	c.busy--
	if keyed {
		c.keyed--
	}
	c.mu.Unlock()
	c.ready.Signal()
}

// commit stores a batch and returns one result each.
func (c *committer) commit(ctx context.Context, batch []*write) []error {
	start := time.Now()
	// The oldest request sets the deadline, so that no caller waits longer than
	// intake.AnswerWithin, however long the previous batch took.
	deadline := start.Add(c.timeout)
	for _, w := range batch {
		if w.until.Before(deadline) {
			deadline = w.until
		}
	}
	ctx, cancel := context.WithDeadline(&transaction{ctx, batch}, maxTime(deadline, start.Add(commitLeast)))
	defer cancel()
	c.commits.Add(1)
	c.metrics.CommitBatch.Observe(float64(len(batch)))

	failpoint.At(failpoint.BeforeCommit)
	results := c.insertGuarded(ctx, batch)
	failpoint.At(failpoint.AfterCommit)
	c.metrics.CommitSeconds.Observe(time.Since(start).Seconds())
	c.handOver(batch, results)
	for i, err := range results {
		batch[i].together = len(batch)
		batch[i].finish(err)
	}
	return results
}

// A transaction is the context of a commit. Until the commit is over it leads to the requests whose
// messages are in it (request.Each): one may end before its messages are stored, and none of them ends it.
type transaction struct {
	context.Context
	batch []*write
}

// Value returns the transaction itself as the work for several requests.
func (t *transaction) Value(key any) any {
	if key == (request.JointKey{}) {
		return t
	}
	return t.Context.Value(key)
}

// Each calls f with the context of each submission, until it returns false.
func (t *transaction) Each(f func(context.Context) bool) {
	var last *Submission
	for _, w := range t.batch {
		if w.of != last && !f(w.of.ctx) {
			return
		}
		last = w.of
	}
}

// insertGuarded is insert, whose panic leaves the outcome of its messages unknown.
func (c *committer) insertGuarded(ctx context.Context, batch []*write) (results []error) {
	err := guard.Do("insert of messages", func() error {
		results = c.insert(ctx, batch)
		return nil
	})
	if err != nil { // the transaction may have been committed
		results = slices.Repeat([]error{durable.ErrOutcomeUnknown}, len(batch))
	}
	return results
}

// handOver gives what was stored to the fan-out.
func (c *committer) handOver(batch []*write, results []error) {
	stored := make([]*durable.Message, 0, len(batch))
	for i, err := range results {
		if err == nil {
			stored = append(stored, batch[i].msg)
		}
	}
	if len(stored) < len(batch) {
		c.tellRejected(batch, results)
	}
	c.stored(stored)
}

// stored counts messages that are stored and gives them to the fan-out. The payload cache and the
// fan-out own the messages from here on. They receive the messages before the callers are answered, so
// a message with a 201 is always known to the broker that answered.
func (c *committer) stored(msgs []*durable.Message) {
	c.count(msgs...)
	_ = guard.Do("hand-over to fan-out", func() error { // on failure the reconciler finds the messages
		c.committed(msgs)
		return nil
	})
}

// count counts stored messages.
func (c *committer) count(msgs ...*durable.Message) {
	bytes := 0
	for _, m := range msgs {
		bytes += len(m.Payload)
	}
	c.metrics.Published.Add(float64(len(msgs)))
	c.metrics.PublishBytes.Add(float64(bytes))
	c.metrics.Book.Stored(msgs)
}

// insert gives each message its ID and its recipients and stores the messages.
func (c *committer) insert(ctx context.Context, writes []*write) []error {
	return storeAll(ctx, c, writes, c.prepare, func(lease durable.NodeLease, writes []*write) []error {
		return c.store.Insert(ctx, lease, messagesOf(writes))
	})
}

// prepare gives a message its recipients and its ID, or returns why it may not be stored.
func (c *committer) prepare(w *write) error {
	m := w.msg
	ch, err := c.destination(m, w.accepted)
	switch {
	case err != nil:
		return err
	case m.Audience != ch.Audience || m.Shape != ch.Shape:
		c.filters.one(ch, m)
	}
	if !w.number(c.ids) {
		return ErrWithheld
	}
	return nil
}
