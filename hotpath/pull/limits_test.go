package pull

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/redisq"
)

// While a report or a give-back waits for the store, its lease is kept, and ends no sooner than the
// worker was told: the store may not take it in the end.
func TestAReportThatWaitsForTheStoreShortensNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := policy.NewBook(policy.Policy{})
		own, err := book.Merge("", map[string]string{"timeout": "10m"}, time.Now())
		require.NoError(t, err)
		p := &Puller{policies: book, visible: 5 * time.Second, nowMs: func() int64 { return 0 }, verifier: &verify.Verifier{}}
		for name, c := range map[string]struct {
			policy string
			left   time.Duration
			least  time.Duration
		}{
			"the usual lease, nearly over":     {"", time.Second, 5 * time.Second},
			"a lease of the consumer":          {own, 9 * time.Minute, 10 * time.Minute},
			"a lease that the claim made long": {"", time.Hour, time.Hour},
			"a longer one than the consumer's": {own, 90 * time.Minute, 90 * time.Minute},
			"a lease that is over":             {"", -time.Hour, 5 * time.Second},
			"the clock of Redis is years ahead": {"", 100 * 365 * 24 * time.Hour, MaxIncrementalTimeout*time.Second +
				5*time.Second},
		} {
			k := &durable.Consumer{No: 1, Type: durable.Pull, Policy: c.policy}
			q := redisq.Standing{State: redisq.Leased, Token: "t", Attempts: 1, At: time.Now().Add(c.left)}
			m := move{p: p, k: k, id: ident.AtMillis(1), e: update{NextState: "DELIVERED", Lease: "t"}}
			r, accept, err := m.outcome(t.Context(), q)
			require.NoError(t, err)
			require.True(t, accept)
			u := updating{p: p, k: k, ids: []ident.ID{m.id}, updates: []update{{Lease: "t", NextState: "QUEUED"}}}
			for _, by := range []time.Duration{r.ExtendBy, u.returned(0, q, durable.JobState{}).ExtendBy} {
				require.GreaterOrEqual(t, by, c.least, name)
				require.LessOrEqual(t, by, c.least+time.Second, name)
			}
		}
	})
}
