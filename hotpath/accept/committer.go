package accept

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/failpoint"
	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/internal/problem"
)

// commitRows and commitBytes bound one transaction of published messages. The insert rate of
// MariaDB levels off at 1024 rows. The bytes stay far below max_allowed_packet; the store splits
// further where that is smaller. The server must finish parsing them within durable.MaxIDAge.
const (
	commitRows  = 1024
	commitBytes = 2 << 20
)

// committers is the number of concurrent transactions of published messages. With two, one batch is
// parsed while the other waits for its flush.
const committers = 2

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
}

// commitLeast is the time that even a late batch gets. Most batches need a few milliseconds, and a
// batch that is refused without a try is never stored.
const commitLeast = 300 * time.Millisecond

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// A write is one message on its way into the store.
type write struct {
	msg   *durable.Message
	until time.Time // deadline for the store's answer
	of    *Submission
	err   error // the outcome
}

func (w *write) finish(err error) {
	w.err = err
	w.of.finish(1)
}

// A Node is the part of cluster.Node that the committer needs.
type Node interface {
	IDs() *ident.Generator
	Lease() (durable.NodeLease, error)
	Renew(ctx context.Context) error
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

	mu      sync.Mutex
	ready   sync.Cond // pending is not empty, or closed
	pending []*write
	busy    int       // transactions under way
	began   time.Time // start of the latest transaction
	alarm   bool      // a wake-up is scheduled
	closed  bool
}

func newCommitter(o Options, timeout time.Duration) *committer {
	c := &committer{store: o.Store, catalogue: o.Catalogue, node: o.Node, ids: o.Node.IDs(), timeout: timeout, committed: o.Committed, metrics: o.Metrics, log: o.Log}
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
	for range committers {
		wg.Go(func() { guard.Vital("committer", func() { c.work(ctx) }) })
	}
	wg.Wait()
}

func (c *committer) work(ctx context.Context) {
	for {
		batch := c.take()
		if batch == nil {
			return
		}
		// Shutdown must not abort a transaction whose callers are waiting.
		c.commit(context.WithoutCancel(ctx), batch)
		c.ended()
	}
}

// take waits for work and returns the next batch, or nil once closed and empty.
func (c *committer) take() []*write {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.due() {
		if c.closed && len(c.pending) == 0 {
			return nil
		}
		c.ready.Wait()
	}
	c.busy++
	c.began = time.Now()
	n, bytes := 0, 0
	for n < len(c.pending) && n < commitRows && (n == 0 || bytes < commitBytes) {
		bytes += len(c.pending[n].msg.Payload) + len(c.pending[n].msg.Headers)
		n++
	}
	batch := c.pending[:n:n]
	if n == len(c.pending) {
		c.pending = nil
	} else {
		c.pending = c.pending[n:]
		c.ready.Signal() // the other committer may take the rest
	}
	return batch
}

// due reports whether a transaction should begin now. Where only time is missing, it schedules a
// wake-up of the committers.
func (c *committer) due() bool {
	switch {
	case len(c.pending) == 0:
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
func (c *committer) ended() {
	c.mu.Lock()
	c.busy--
	c.mu.Unlock()
	c.ready.Signal()
}

func (c *committer) commit(ctx context.Context, batch []*write) {
	start := time.Now()
	// The oldest request sets the deadline, so that no caller waits longer than
	// intake.AnswerWithin, however long the previous batch took.
	deadline := start.Add(c.timeout)
	for _, w := range batch {
		if w.until.Before(deadline) {
			deadline = w.until
		}
	}
	ctx, cancel := context.WithDeadline(ctx, maxTime(deadline, start.Add(commitLeast)))
	defer cancel()
	c.metrics.CommitBatch.Observe(float64(len(batch)))

	msgs := make([]*durable.Message, len(batch))
	for i, w := range batch {
		msgs[i] = w.msg
	}
	failpoint.At(failpoint.BeforeCommit)
	var results []error
	err := guard.Do("insert of messages", func() error {
		results = c.insert(ctx, msgs)
		return nil
	})
	if err != nil { // the transaction may have been committed
		results = slices.Repeat([]error{durable.ErrOutcomeUnknown}, len(msgs))
	}
	failpoint.At(failpoint.AfterCommit)
	c.metrics.CommitSeconds.Observe(time.Since(start).Seconds())
	stored := msgs[:0]
	for i, err := range results {
		if err == nil {
			stored = append(stored, batch[i].msg)
		}
	}
	if len(stored) < len(batch) {
		c.tellRejected(batch, results)
	}
	// The payload cache and the fan-out own the messages from here on. They receive the messages
	// before the callers are answered, so a message with a 201 is always known to the broker that
	// answered.
	_ = guard.Do("hand-over to fan-out", func() error { // on failure the reconciler finds the messages
		c.committed(stored)
		return nil
	})
	for i, err := range results {
		batch[i].finish(err)
	}
}

// tellRejected logs why the store rejects a line of a batch request, once for each transaction,
// because the answer of the line does not contain the reason. A single publish that is refused is
// logged with its answer.
func (c *committer) tellRejected(batch []*write, results []error) {
	for i, err := range results {
		if batch[i].of.lines && errors.Is(err, durable.ErrRejected) {
			c.log.WarnContext(batch[i].of.ctx, "the store rejects a line of a batch", "message", batch[i].msg.PublicID(), "error", err)
			return
		}
	}
}

// insert gives each message its ID and audience and stores the messages. Where the store reports
// stale data, it refreshes that data and tries again.
func (c *committer) insert(ctx context.Context, msgs []*durable.Message) []error {
	for try := 0; ; try++ {
		lease, err := c.node.Lease() // before the IDs, see cluster.Node.Renew
		if err != nil {
			return slices.Repeat([]error{err}, len(msgs))
		}
		for _, m := range msgs {
			m.ID = c.ids.Next()
			if ch := c.catalogue.ChannelByNo(m.ChannelNo); ch != nil {
				m.Audience = ch.Audience
			}
		}
		results := c.store.Insert(ctx, lease, msgs)
		stale := 0
		for _, err := range results {
			if errors.Is(err, durable.ErrStale) {
				stale++
			}
		}
		if stale == 0 {
			return results
		}
		if stale < len(msgs) { // parts of a large batch: repeat only the stale ones
			return c.repeatStale(ctx, msgs, results)
		}
		if ctx.Err() != nil {
			return slices.Repeat([]error{problem.ErrUnavailable.Because(durable.ErrStale)}, len(msgs))
		}
		if err := c.refresh(ctx, try); err != nil {
			return slices.Repeat([]error{err}, len(msgs))
		}
	}
}

func (c *committer) repeatStale(ctx context.Context, msgs []*durable.Message, results []error) []error {
	var again []*durable.Message
	var index []int
	for i, err := range results {
		if errors.Is(err, durable.ErrStale) {
			again, index = append(again, msgs[i]), append(index, i)
		}
	}
	if err := c.refresh(ctx, 0); err != nil {
		for _, i := range index {
			results[i] = err
		}
		return results
	}
	for j, err := range c.insert(ctx, again) {
		results[index[j]] = err
	}
	return results
}

// refresh updates the catalogue and the node lease after ErrStale.
func (c *committer) refresh(ctx context.Context, try int) error {
	if try > 0 { // the first refresh is almost always enough
		select {
		case <-time.After(time.Duration(min(try, 20)) * 5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := c.catalogue.Refresh(ctx); err != nil {
		return err
	}
	return c.node.Renew(ctx)
}
