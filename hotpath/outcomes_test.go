package hotpath

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

// A slowSettler settles what it has got a token for; nil settles at once.
type slowSettler chan struct{}

func (s slowSettler) AckMany(_ context.Context, done []redisq.Done) ([]int, []error) {
	if s != nil {
		<-s
	}
	return nil, nil
}

func (slowSettler) Nack(context.Context, uint32, []redisq.Lease, []time.Duration) ([]bool, error) {
	return nil, nil
}

func TestNothingIsClaimedWhileOutcomesAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := slowRecorder{make(chan struct{})}
		o, stop := runOutcomes(t, store, slowSettler(nil))
		add := func() { o.Add(result{outcome: durable.Outcome{Kind: durable.OutcomeDelivered}}) }
		require.Equal(t, outcomeSlots, o.Room())

		add()
		time.Sleep(outcomeLate)
		require.Equal(t, outcomeSlots-1, o.Room())
		add() // waits behind the first
		time.Sleep(time.Millisecond)
		require.Zero(t, o.Room(), "the first is late")

		store.tokens <- struct{}{}
		synctest.Wait()
		require.Equal(t, outcomeSlots-1, o.Room(), "the second has not waited long")
		time.Sleep(outcomeLate)
		require.Zero(t, o.Room())
		store.tokens <- struct{}{}
		synctest.Wait()
		time.Sleep(outcomeLate)
		require.Equal(t, outcomeSlots, o.Room(), "nothing waits")

		stop()
	})
}

func TestStoringGoesOnWhileRedisHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, queue := slowRecorder{make(chan struct{})}, make(slowSettler)
		o, stop := runOutcomes(t, store, queue)
		ended, told := 0, 0
		add := func() {
			o.Add(result{outcome: durable.Outcome{Kind: durable.OutcomeDelivered}, ended: func() { ended++ }, stored: func(error) { told++ }})
		}
		for n := 1; n <= 3; n++ {
			add()
			store.tokens <- struct{}{} // would deadlock if the store was not asked
			synctest.Wait()
			require.Equal(t, n, ended)
		}
		time.Sleep(2 * outcomeLate)
		require.Equal(t, outcomeSlots-3, o.Room(), "what is stored is not late, but it is there")
		require.Zero(t, told, "Redis knows of nothing")

		queue <- struct{}{}
		synctest.Wait()
		require.Equal(t, 1, told)
		queue <- struct{}{} // the other two together
		stop()
		require.Equal(t, 3, told)
		require.Equal(t, outcomeSlots, o.Room())
	})
}

func TestAStopStoresWhatWasAddedBefore(t *testing.T) {
	for range 20 { // a select that has two ready cases takes either
		store := slowRecorder{make(chan struct{}, 1)}
		store.tokens <- struct{}{}
		o := newOutcomes(store, slowSettler(nil), nil, metrics.New(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
		told := make(chan error, 1)
		o.Add(result{outcome: durable.Outcome{Kind: durable.OutcomeDelivered}, stored: func(err error) { told <- err }})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, o.Run(ctx, time.Minute))
		require.Len(t, told, 1, "Run returns when everybody has been told")
		require.NoError(t, <-told)
	}
}

// runOutcomes runs outcomes until stop, which waits for those under way.
func runOutcomes(t *testing.T, store Recorder, queue Settler) (o *outcomes, stop func()) {
	o = newOutcomes(store, queue, nil, metrics.New(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- o.Run(ctx, time.Minute) }()
	return o, func() {
		cancel()
		require.NoError(t, <-done)
	}
}
