package outcome

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/redisq"
)

// An extension is one call of Extend.
type extension struct {
	consumer uint32
	leases   []redisq.Lease
	lease    time.Duration
}

// An extender is a queue that tells its extensions.
type extender struct {
	slowAcks
	extended chan extension
}

func (e extender) Extend(_ context.Context, consumer uint32, leases []redisq.Lease, lease time.Duration) ([]bool,
	error) {
	e.extended <- extension{consumer, leases, lease}
	return nil, nil
}

func TestLeasesOfReportedJobsAreExtendedUntilTheStoreAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := slowRecorder{make(chan struct{})}
		queue := extender{extended: make(chan extension, 100)}
		o, stop := runOutcomes(t, store, queue)
		add := func(consumer uint32, token string, hold time.Duration) {
			o.Add(Entry{Outcome: durable.Outcome{ConsumerNo: consumer}, Lease: redisq.Lease{Token: token}, ExtendBy: hold})
		}
		add(1, "a", 5*time.Second)
		synctest.Wait() // the store has this one
		add(1, "b", 5*time.Second)
		add(2, "c", 5*time.Second)
		add(1, "push", 0)
		add(1, "", 5*time.Second) // reported without a lease

		time.Sleep(2*extendEvery + time.Millisecond)
		synctest.Wait()
		require.GreaterOrEqual(t, len(queue.extended), 2)
		seen := map[uint32][]redisq.Lease{}
		for len(queue.extended) > 0 {
			e := <-queue.extended
			require.Equal(t, 5*time.Second, e.lease)
			seen[e.consumer] = e.leases
		}
		require.Equal(t, map[uint32][]redisq.Lease{1: {{Token: "a"}, {Token: "b"}}, 2: {{Token: "c"}}}, seen)

		store.tokens <- struct{}{}
		store.tokens <- struct{}{}
		synctest.Wait()
		for len(queue.extended) > 0 {
			<-queue.extended
		}
		time.Sleep(4 * extendEvery)
		require.Empty(t, queue.extended, "all is stored")
		stop()
	})
}

func TestManyLeasesAreExtendedInCallsOfABoundedSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := slowRecorder{make(chan struct{})}
		queue := extender{extended: make(chan extension, 100)}
		o, stop := runOutcomes(t, store, queue)
		for range redisq.MaxBatch + 1 {
			o.Add(Entry{Lease: redisq.Lease{Token: "a"}, ExtendBy: time.Second})
		}
		time.Sleep(extendEvery + time.Millisecond)
		synctest.Wait()
		require.Len(t, (<-queue.extended).leases, redisq.MaxBatch)
		require.Len(t, (<-queue.extended).leases, 1)
		for range 2 + redisq.MaxBatch/rowsAtOnce {
			select {
			case store.tokens <- struct{}{}:
			case <-time.After(time.Second):
			}
		}
		stop()
	})
}
