package verify

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// A bench notes, in their order, what a settler does with leases.
type bench struct {
	done   []string
	broken error // of AckLeases and Release
}

func (b *bench) note(what string, leases []redisq.Lease) {
	for _, l := range leases {
		what += " " + l.Token
	}
	b.done = append(b.done, what)
}

func (b *bench) AckLeases(_ context.Context, _ uint32, leases []redisq.Lease) ([]bool, error) {
	b.note("ack", leases)
	return make([]bool, len(leases)), b.broken
}

func (b *bench) Release(ctx context.Context, _ uint32, leases []redisq.Lease) ([]bool, error) {
	b.note("release", leases)
	if b.broken != nil {
		panic(b.broken)
	}
	return make([]bool, len(leases)), ctx.Err()
}

func (b *bench) SetAside(_ context.Context, _ *durable.Consumer, cs []Candidate, leases []redisq.Lease) {
	var aside []redisq.Lease
	for i := range cs {
		if cs[i].Verdict.SetAside() {
			aside = append(aside, leases[i])
		}
	}
	b.note("aside", aside)
}

// settlerOf returns a settler whose consumer has a lease for each verdict, named by its token.
func settlerOf(b *bench) (s Settler, cs []Candidate, leases []redisq.Lease) {
	for i, v := range []struct {
		verdict Verdict
		token   string
	}{{Deliver, "deliver"}, {Over, "over"}, {Blocked, "blocked"}, {Expired, "expired"}, {Lost, "lost"},
		{Removed, "removed"}, {DeadKey, "deadkey"}, {Undecided, "undecided"}} {
		id := ident.AtMillis(int64(i + 1))
		cs = append(cs, Candidate{ID: id, Verdict: v.verdict, State: durable.JobState{Attempts: 4}})
		leases = append(leases, redisq.Lease{ID: id, Token: v.token, Attempt: 3, Priority: 9})
	}
	return Settler{Verifier: &Verifier{Cache: NewCache(1 << 20), NowMs: func() int64 { return 77 }}, Queue: b, Order: b,
		Metrics: metrics.New(prometheus.NewRegistry())}, cs, leases
}

func TestEachLeaseThatNobodyGetsEndsByItsVerdict(t *testing.T) {
	b := &bench{}
	s, cs, leases := settlerOf(b)
	var died outcome.Entry
	ended, err := s.Settle(t.Context(), &durable.Consumer{No: 5}, cs, leases, func(r outcome.Entry) error {
		b.note("store", []redisq.Lease{r.Lease})
		died = r
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, 2, ended)
	require.Equal(t, []string{"store expired", "aside blocked deadkey", "ack over removed"}, b.done)
	require.Equal(t, durable.Expiration(5, cs[3].ID, 9, 4, 77), died.Outcome)
	require.Equal(t, 1.0, testutil.ToFloat64(s.Metrics.Dead.WithLabelValues(durable.Expired.String())))
}

func TestJobsThatAreAllDeliveredAreNoCallToRedis(t *testing.T) {
	b := &bench{}
	s, cs, leases := settlerOf(b)
	s.Order = nil // as without ordered consumers
	ended, err := s.Settle(t.Context(), &durable.Consumer{No: 5}, cs[:1], leases[:1], nil)
	require.NoError(t, err)
	require.Zero(t, ended)
	require.Empty(t, b.done)
}

// What is not settled is left to the end of its lease. A death that is not stored is not counted.
func TestAStoreOrRedisThatFailsLeavesTheLeases(t *testing.T) {
	refusal := errors.New("no")
	b := &bench{}
	s, cs, leases := settlerOf(b)
	_, err := s.Settle(t.Context(), &durable.Consumer{No: 5}, cs, leases, func(outcome.Entry) error { return refusal })
	require.ErrorIs(t, err, refusal)
	require.Empty(t, b.done)
	require.Zero(t, testutil.ToFloat64(s.Metrics.Dead.WithLabelValues(durable.Expired.String())))

	b.broken = refusal
	ended, err := s.Settle(t.Context(), &durable.Consumer{No: 5}, cs[:2], leases[:2], nil)
	require.ErrorIs(t, err, refusal)
	require.Equal(t, 1, ended, "the lease of a job that is over may have ended")
}

func TestLeasesAreGivenBackAlsoWhereTheirRequestIsOver(t *testing.T) {
	b := &bench{}
	s, _, leases := settlerOf(b)
	require.NoError(t, s.GiveBack(5, leases[:2]))
	require.Equal(t, []string{"release deliver over"}, b.done)
	require.Equal(t, 2.0, testutil.ToFloat64(s.Metrics.Released))
	b.broken = errors.New("boom")
	require.Error(t, s.GiveBack(5, leases), "a panic is an error")
}
