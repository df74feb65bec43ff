package outcome

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/redisq"
)

// A slowRecorder stores one batch for each token.
type slowRecorder struct{ tokens chan struct{} }

func (r slowRecorder) Record(ctx context.Context, _ []durable.Outcome) error {
	select {
	case <-r.tokens:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A slowAcks acknowledges what it has got a token for; nil acknowledges at once.
type slowAcks chan struct{}

func (s slowAcks) AckMany(_ context.Context, done []redisq.Done) ([]int, []error) {
	if s != nil {
		<-s
	}
	return nil, nil
}

func (s slowAcks) AckLeasesMany(context.Context, []redisq.Ended) []error {
	if s != nil {
		<-s
	}
	return nil
}

func (slowAcks) Extend(context.Context, uint32, []redisq.Lease, time.Duration) ([]bool, error) {
	return nil, nil
}

func (slowAcks) Nack(_ context.Context, _ uint32, leases []redisq.Lease, _ []time.Duration) ([]bool, error) {
	return make([]bool, len(leases)), nil
}

func (slowAcks) GiveBack(_ context.Context, _ uint32, leases []redisq.Lease, _ []time.Duration) ([]bool, error) {
	return make([]bool, len(leases)), nil
}

// A counter is a sink that counts.
type counter struct{ ended, done int }

func (c *counter) Ended(bool)           { c.ended++ }
func (*counter) Retrying(time.Duration) {}
func (c *counter) Done(error)           { c.done++ }

func TestNothingIsClaimedWhileOutcomesAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := slowRecorder{make(chan struct{})}
		o, stop := runOutcomes(t, store, slowAcks(nil))
		add := func() { o.Add(Entry{Outcome: durable.Outcome{Kind: durable.OutcomeDelivered}}) }
		require.Equal(t, slots, o.Room())

		add()
		time.Sleep(late)
		require.Equal(t, slots-1, o.Room())
		add() // waits behind the first
		time.Sleep(time.Millisecond)
		require.Zero(t, o.Room(), "the first is late")

		store.tokens <- struct{}{}
		synctest.Wait()
		require.Equal(t, slots-1, o.Room(), "the second has not waited long")
		time.Sleep(late)
		require.Zero(t, o.Room())
		store.tokens <- struct{}{}
		synctest.Wait()
		time.Sleep(late)
		require.Equal(t, slots, o.Room(), "nothing waits")

		stop()
	})
}

func TestStoringGoesOnWhileRedisHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, queue := slowRecorder{make(chan struct{})}, make(slowAcks)
		o, stop := runOutcomes(t, store, queue)
		var counts counter
		add := func() {
			o.Add(Entry{Outcome: durable.Outcome{Kind: durable.OutcomeDelivered}, Sink: &counts})
		}
		for n := 1; n <= 3; n++ {
			add()
			store.tokens <- struct{}{} // would deadlock if the store was not asked
			synctest.Wait()
			require.Equal(t, n, counts.ended)
		}
		time.Sleep(2 * late)
		require.Equal(t, slots-3, o.Room(), "what is stored is not late, but it is there")
		require.Zero(t, counts.done, "Redis knows of nothing")

		queue <- struct{}{}
		synctest.Wait()
		require.Equal(t, 1, counts.done)
		queue <- struct{}{} // the other two together
		stop()
		require.Equal(t, 3, counts.done)
		require.Equal(t, slots, o.Room())
	})
}

func TestAStopStoresWhatWasAddedBefore(t *testing.T) {
	for range 20 { // a select that has two ready cases takes either
		store := slowRecorder{make(chan struct{}, 1)}
		store.tokens <- struct{}{}
		o := New(Options{Store: store, Queue: slowAcks(nil), Metrics: metrics.New(prometheus.NewRegistry()),
			Log: slog.New(slog.DiscardHandler)})
		told := make(waiter, 1)
		o.Add(Entry{Outcome: durable.Outcome{Kind: durable.OutcomeDelivered}, Sink: told})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, o.Run(ctx, time.Minute))
		require.Len(t, told, 1, "Run returns when everybody has been told")
		require.NoError(t, <-told)
	}
}

// A ctxAcks takes acknowledgements a moment after a stop, unless their context has ended.
type ctxAcks struct{ slowAcks }

func (ctxAcks) AckMany(ctx context.Context, done []redisq.Done) ([]int, []error) {
	select {
	case <-ctx.Done():
		return nil, []error{ctx.Err()}
	case <-time.After(time.Second):
		return nil, nil
	}
}

func TestAStopAcknowledgesWhatItStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := slowRecorder{make(chan struct{}, 1)}
		o, stop := runOutcomes(t, store, ctxAcks{})
		o.Add(Entry{Outcome: durable.Outcome{Kind: durable.OutcomeDelivered}})
		store.tokens <- struct{}{}
		synctest.Wait()
		stop()
		require.Zero(t, testutil.ToFloat64(o.options.Metrics.AcknowledgeErrors))
	})
}

// runOutcomes runs outcomes until stop, which waits for those under way.
func runOutcomes(t *testing.T, store Store, queue Queue) (o *Committer, stop func()) {
	o = New(Options{Store: store, Queue: queue, Metrics: metrics.New(prometheus.NewRegistry()),
		Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- o.Run(ctx, time.Minute) }()
	return o, func() {
		cancel()
		require.NoError(t, <-done)
	}
}
