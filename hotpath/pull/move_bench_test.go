package pull

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/redisq"
)

// A quick stores and acknowledges outcomes at once.
type quick struct{ outcome.Queue }

func (quick) Record(context.Context, []durable.Outcome) error { return nil }

func (quick) AckMany(_ context.Context, done []redisq.Done) ([]int, []error) {
	return make([]int, len(done)), make([]error, len(done))
}

// moving returns a function that reports the job of a leased queue as delivered, on the route of one job.
func moving(tb testing.TB) (move func()) {
	log, m := slog.New(slog.DiscardHandler), metrics.New(prometheus.NewRegistry())
	committer := outcome.New(outcome.Options{Store: quick{}, Queue: quick{}, Metrics: m, Log: log})
	p := New(Options{Policies: policy.NewBook(policy.Policy{}), Catalogue: catalogue.New(nil, nil), Queue: leasedQueue{},
		Store: oneMessage{}, Verifier: verifierOf(oneMessage{}, 1<<20), Outcomes: committer, NowMs: func() int64 { return 7 },
		Metrics: m, Log: log})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = committer.Run(ctx, 0) })
	tb.Cleanup(func() {
		cancel()
		running.Wait()
	})
	rc := &fasthttp.RequestCtx{}
	rc.SetUserValue("job", ident.AtMillis(1).Job(0).String())
	rc.Request.Header.Set(LeaseHeader, "token")
	rc.Request.SetBodyString(`{"NextState":"DELIVERED"}`)
	ch := &catalogue.Channel{Channel: durable.Channel{No: 1}}
	k := &durable.Consumer{No: 1, ChannelNo: 1, Type: durable.Pull}
	return func() {
		_, err := p.moveJob(rc, ch, k)
		require.NoError(tb, err)
	}
}

func BenchmarkMove(b *testing.B) {
	move := moving(b)
	b.ReportAllocs()
	for b.Loop() {
		move()
	}
}

// A report on the route of one job is a batch of one. It allocates what the request needs: two contexts,
// a question to Redis that others share, an outcome in its batch.
func TestAMoveAllocatesLittle(t *testing.T) {
	move := moving(t)
	for range 100 {
		move()
	}
	require.LessOrEqual(t, testing.AllocsPerRun(1000, move), 27.0)
}
