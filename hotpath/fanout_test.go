package hotpath

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/catalogue"
	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/redisq"
)

// slowQueue is a Redis that a fan-out reaches after a while.
type slowQueue struct{ reached func() }

func (q *slowQueue) Generation() uint64 { return 7 }

func (q *slowQueue) EnqueueMany(_ context.Context, batches []redisq.Batch) ([]redisq.Enqueued, []error) {
	q.reached()
	return make([]redisq.Enqueued, len(batches)), make([]error, len(batches))
}

func (q *slowQueue) EnqueueAgain(_ context.Context, batches []redisq.Batch) []error {
	return make([]error, len(batches))
}

func (q *slowQueue) Notify(context.Context, []uint32) error { return nil }

// subscribedStore is a fakeStore with a consumer in its only channel.
type subscribedStore struct{ *fakeStore }

func (s subscribedStore) Changes(ctx context.Context, after int64) (durable.Changes, error) {
	c, err := s.fakeStore.Changes(ctx, after)
	if after < 1 {
		c.Consumers = []durable.Consumer{{No: 1, ChannelNo: 1, ID: "k", Version: 1}}
	}
	return c, err
}

// A process may be paused between its look at the clock and the arrival of its
// jobs in Redis. By then the reconciler of another broker may have offered them
// and somebody delivered them, so they may not be sent without asking the store.
func TestAFanOutThatWasPausedOnItsWayIsNotFresh(t *testing.T) {
	for name, c := range map[string]struct {
		pause time.Duration
		fresh uint64
	}{"in time": {0, 7}, "paused": {2 * fanoutFresh, 0}} {
		t.Run(name, func(t *testing.T) {
			store := subscribedStore{&fakeStore{version: 1, channels: []durable.Channel{{No: 1, ID: "c", Audience: 1, Version: 1}}}}
			cat := catalogue.New(store, slog.New(slog.DiscardHandler))
			require.NoError(t, cat.Refresh(t.Context()))
			node, err := NewNode(t.Context(), store, "test", slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			cache := newPayloads(1 << 20)
			later := func() {
				now := *node.clock.Load()
				now.ms += c.pause.Milliseconds()
				node.clock.Store(&now)
			}
			f := newFanout(&slowQueue{later}, cat, cache, node, func(uint32) {}, NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
			msg := &durable.Message{ID: node.IDs().Next(), ChannelNo: 1, Audience: 1}
			f.Add([]*durable.Message{msg})
			require.True(t, f.flush(t.Context()))
			got, generation := cache.get(msg.ID)
			require.Same(t, msg, got)
			require.Equal(t, c.fresh, generation)
		})
	}
}
