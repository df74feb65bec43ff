package fanout

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/redisq"
)

// panicQueue is a Redis whose first answer cannot be read.
type panicQueue struct {
	slowQueue
	again []string
}

func (*panicQueue) EnqueueMany(context.Context, []redisq.Batch) ([]redisq.Enqueued, []error) {
	panic("boom")
}

func (q *panicQueue) EnqueueAgain(_ context.Context, batches []redisq.Batch) []error {
	for _, b := range batches {
		q.again = append(q.again, b.Epoch)
	}
	return make([]error, len(batches))
}

func TestAPanicOfAnOfferRepeatsItWithCare(t *testing.T) {
	q := &panicQueue{}
	f, msg := oneToFanOut(t, q)
	require.False(t, f.Flush(t.Context()))
	_, incarnation := f.cache.Get(msg.ID)
	require.Zero(t, incarnation, "it may be known to Redis: not fresh")
	require.True(t, f.Flush(t.Context()))
	require.Equal(t, []string{"now"}, q.again)
}
