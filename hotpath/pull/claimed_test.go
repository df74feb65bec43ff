package pull

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/redisq"
)

// A renewal of one job is told the end of the lease that it asked for, not that of a usual one.
func TestARenewalOfOneJobShowsTheEndOfItsLease(t *testing.T) {
	for name, c := range map[string]struct {
		e    update
		want time.Duration
	}{
		"as the consumer has it": {update{}, time.Minute},
		"longer":                 {update{IncrementalTimeout: 30}, 90 * time.Second},
		"of its own length":      {update{Timeout: 600}, 10 * time.Minute},
		"of both":                {update{Timeout: 600, IncrementalTimeout: 30}, 630 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			p, _, lease := witnessed(t)
			c.e.ID, c.e.NextState, c.e.Lease = ident.AtMillis(1).Job(0).String(), "INFLIGHT", lease.Token
			rc := &fasthttp.RequestCtx{}
			before := time.Now()
			require.NoError(t, p.moveEntry(t.Context(), rc, portionChannel, portionConsumer, c.e))
			var got struct {
				Claimed  bool
				Lease    string
				Deadline time.Time
			}
			require.NoError(t, json.Unmarshal(rc.Response.Body(), &got))
			require.True(t, got.Claimed)
			require.Equal(t, lease.Token, got.Lease)
			require.WithinRange(t, got.Deadline, before.Add(c.want).Add(-time.Millisecond), time.Now().Add(c.want))
			standings, err := p.queue.Probe(t.Context(), portionConsumer.No, []ident.ID{ident.AtMillis(1)})
			require.NoError(t, err)
			require.WithinRange(t, standings[0].At, before.Add(c.want-time.Minute/2), time.Now().Add(c.want+time.Minute/2),
				"as Redis has it")
		})
	}
}

// tried has a job with three attempts.
type tried struct{ oneMessage }

func (tried) Job(context.Context, *durable.Consumer, ident.ID) (durable.StoredJob, error) {
	j := durable.JobState{Status: durable.Open, Attempts: 3, GivenBack: 2}
	return durable.StoredJob{JobState: j, Stored: true}, nil
}

// Redis may have lost attempts that the store has counted. A lease with their number would be taken for one that is
// over.
func TestAClaimOfOneJobHasTheNumberOfItsAttempt(t *testing.T) {
	p := New(Options{Policies: policy.NewBook(policy.Policy{}), Catalogue: catalogue.New(nil, nil), Queue: &pausedQueue{},
		Store: tried{}, Verifier: verifierOf(tried{}, 1<<20), NowMs: func() int64 { return 7 },
		Touched: func(uint32) {}, Metrics: metrics.New(prometheus.NewRegistry())})
	m := move{p: p, ch: portionChannel, k: portionConsumer, id: ident.AtMillis(1)}
	for at, want := range map[int]int{1: 4, 4: 4, 6: 6} {
		lease, err := m.claimed(t.Context(), redisq.Lease{ID: m.id, Token: "token", Attempt: at})
		require.NoError(t, err)
		require.Equal(t, want, lease.Attempt)
		require.Equal(t, 2, m.state.GivenBack, "as the book has it")
	}
}

// The entries of a batch keep their IDs where one of them names a replay: traces and late reports use them.
func TestABatchWithALeaseOfAReplayKnowsTheJobsOfItsOtherEntries(t *testing.T) {
	p, stored, ch, k := responding(t, nil)
	stored.added = func() { stored.all[0].Sink.Done(nil) }
	id := ident.AtMillis(1)
	u := p.update(t.Context(), ch, k, []update{
		{ID: id.Job(0).String(), NextState: "DELIVERED", Lease: "token"},
		{ID: ident.AtMillis(2).Job(0).String(), NextState: "DELIVERED", Lease: "gone~token"},
	})
	require.Equal(t, []error{nil, errLeaseLost}, u.errs)
	require.Equal(t, []ident.ID{id, {}}, u.ids)
	require.Equal(t, k, u.of[0])
	require.Nil(t, u.of[1])
}
