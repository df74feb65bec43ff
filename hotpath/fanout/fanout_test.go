package fanout

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/cluster"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/test/memstore"
	"github.com/penstock-broker/penstock/redisq"
)

// slowQueue is a Redis that a fan-out reaches after a while.
type slowQueue struct{ reached func() }

func (q *slowQueue) Incarnation() uint64 { return 7 }
func (q *slowQueue) Epoch(uint32) string { return "now" }

func (q *slowQueue) EnqueueMany(_ context.Context, batches []redisq.Batch) ([]redisq.Enqueued, []error) {
	q.reached()
	return make([]redisq.Enqueued, len(batches)), make([]error, len(batches))
}

func (q *slowQueue) EnqueueAgain(_ context.Context, batches []redisq.Batch) []error {
	return make([]error, len(batches))
}

func (q *slowQueue) Notify(context.Context, []uint32) error { return nil }

// lostQueue is a Redis that does not answer the first offers, and answers again as
// it is told. It loses its memory meanwhile, which another call notices.
type lostQueue struct {
	slowQueue
	again       error
	asked       []string // the epochs of offers made again
	incarnation uint64
}

func (q *lostQueue) Incarnation() uint64 { return q.incarnation }

func (q *lostQueue) EnqueueMany(_ context.Context, batches []redisq.Batch) ([]redisq.Enqueued, []error) {
	return slices.Repeat([]redisq.Enqueued{{Epoch: "then"}}, len(batches)), slices.Repeat([]error{errors.New("no answer")},
		len(batches))
}

func (q *lostQueue) EnqueueAgain(_ context.Context, batches []redisq.Batch) []error {
	for _, b := range batches {
		q.asked = append(q.asked, b.Epoch)
	}
	return slices.Repeat([]error{q.again}, len(batches))
}

// A slowNode is the node of a process that was paused for late, ms.
type slowNode struct {
	*cluster.Node
	late int64
}

func (n *slowNode) NowMs() int64 { return n.Node.NowMs() + n.late }

// A process may be paused between its look at the clock and the arrival of its
// jobs in Redis. By then the reconciler of another broker may have offered them
// and somebody delivered them, so they may not be sent without asking the store.
func TestAFanOutThatWasPausedOnItsWayIsNotFresh(t *testing.T) {
	for name, c := range map[string]struct {
		pause time.Duration
		fresh uint64
	}{"in time": {0, 7}, "paused": {2 * freshFor, 0}} {
		t.Run(name, func(t *testing.T) {
			queue := &slowQueue{}
			f, msg := oneToFanOut(t, queue)
			queue.reached = func() { f.node.(*slowNode).late += c.pause.Milliseconds() }
			require.True(t, f.Flush(t.Context()))
			got, incarnation := f.cache.Get(msg.ID)
			require.Same(t, msg, got)
			require.Equal(t, c.fresh, incarnation)
		})
	}
}

// oneToFanOut returns a fan-out that has one message for one consumer.
func oneToFanOut(t *testing.T, q Queue) (*Fanout, *durable.Message) {
	log := slog.New(slog.DiscardHandler)
	store := memstore.Subscribed()
	cat := catalogue.New(store, log)
	require.NoError(t, cat.Refresh(t.Context()))
	node, err := cluster.New(t.Context(), store, "test", log)
	require.NoError(t, err)
	f := New(Options{Queue: q, Push: noRoom{}, Catalogue: cat, Cache: verify.NewCache(1 << 20),
		Node: &slowNode{Node: node},
		Wake: func(uint32) {}, Metrics: metrics.New(prometheus.NewRegistry()), Log: log})
	msg := &durable.Message{ID: node.IDs().Next(), ChannelNo: 1, Audience: 1}
	f.Add([]*durable.Message{msg})
	return f, msg
}

// noRoom takes no jobs on their way.
type noRoom struct{}

func (noRoom) Reserve(uint32, int) Reservation { return nil }

// An offer that was not answered is repeated where it was made, whatever has been
// noticed since: a Redis that has lost its memory may not have the lease of the job
// back yet.
func TestOffersAreRepeatedWhereTheyWereMade(t *testing.T) {
	for name, c := range map[string]struct {
		again error
		asked []string // in two more flushes
		done  bool
	}{
		"Redis takes it":            {nil, []string{"then"}, true},
		"Redis is away":             {errors.New("away"), []string{"then", "then"}, false},
		"Redis has lost its memory": {redisq.ErrLost, []string{"then"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			queue := &lostQueue{again: c.again}
			f, _ := oneToFanOut(t, queue)
			require.False(t, f.Flush(t.Context()))
			f.Flush(t.Context())
			require.Equal(t, c.done, f.Flush(t.Context()))
			require.Equal(t, c.asked, queue.asked)
			require.Equal(t, c.done, f.repeatJobs == 0)
		})
	}
}

// A message that has waited longer than the reconciler needs to find it may be under
// way already: it is offered to the Redis that was there when it came, or to none.
func TestLateOffersAreLeftToTheScanAfterALoss(t *testing.T) {
	for name, lost := range map[string]bool{"nothing was lost": false, "something was lost": true} {
		t.Run(name, func(t *testing.T) {
			queue := &lostQueue{}
			f, _ := oneToFanOut(t, queue)
			f.node.(*slowNode).late += 2 * freshFor.Milliseconds()
			want := []string{"now"}
			if lost {
				queue.incarnation++
				want = nil
			}
			require.True(t, f.Flush(t.Context()))
			require.Equal(t, want, queue.asked)
		})
	}
}

// From the commit until Redis has its job, a message is said to be missing there.
func TestJobsAreBehindUntilRedisHasThem(t *testing.T) {
	queue := &slowQueue{}
	f, _ := oneToFanOut(t, queue)
	k := &durable.Consumer{No: f.catalogue.ChannelByNo(1).Consumers[0].No, ChannelNo: 1}
	during := false
	queue.reached = func() { during = f.Behind(k) }
	require.True(t, f.Behind(k))
	require.False(t, f.Behind(&durable.Consumer{No: 2, ChannelNo: 1, Position: 1}), "the message is not for it")
	require.False(t, f.Behind(&durable.Consumer{No: 3, ChannelNo: 2}))
	require.True(t, f.Flush(t.Context()))
	require.True(t, during)
	require.False(t, f.Behind(k))

	lost := &lostQueue{again: errors.New("away")}
	f, _ = oneToFanOut(t, lost)
	require.False(t, f.Flush(t.Context()))
	require.True(t, f.Behind(k), "its offer has failed")
	lost.again = nil
	require.True(t, f.Flush(t.Context()))
	require.False(t, f.Behind(k))
}
