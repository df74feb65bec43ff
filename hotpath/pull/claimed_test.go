package pull

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/ident"
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
