package reaper

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A later has a clock that is two hours ahead.
type later struct{ elder }

func (later) PastMs() int64 { return time.Now().Add(2 * time.Hour).UnixMilli() }

// failed stores a failed attempt of each job, now, and what ends the jobs an hour later.
func (r *rig) failed(end durable.OutcomeKind, ids ...ident.ID) {
	r.t.Helper()
	for i, kind := range []durable.OutcomeKind{durable.OutcomeRetry, end} {
		var out []durable.Outcome
		for _, id := range ids {
			out = append(out, durable.Outcome{Kind: kind, ConsumerNo: r.consumer.No, ID: id, Attempts: i + 1, Tracked: true,
				AtMs: time.Now().UnixMilli() + 1000 + int64(i)*time.Hour.Milliseconds()})
		}
		require.NoError(r.t, r.store.Record(r.t.Context(), out))
	}
}

// attemptsOf counts the stored attempts of each job.
func (r *rig) attemptsOf(ids []ident.ID) (n []int) {
	r.t.Helper()
	for _, id := range ids {
		got, err := r.store.Attempts(r.t.Context(), r.consumer.No, id, 10)
		require.NoError(r.t, err)
		n = append(n, len(got))
	}
	return n
}

func TestAttemptsGoBeforeTheirMessages(t *testing.T) {
	for name, c := range map[string]struct {
		installation time.Duration
		fields       []string
		left         []int
	}{
		"kept":                 {0, nil, []int{1, 2, 2}},
		"of the installation":  {time.Hour + time.Minute, nil, []int{0, 1, 2}},
		"of the channel":       {0, []string{"attemptRetention", "30m"}, []int{0, 0, 2}},
		"the channel's counts": {time.Minute, []string{"attemptRetention", "0"}, []int{1, 2, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			r, p := newLimited(t, c.fields...)
			p.AttemptRetention, p.Cluster = c.installation, later{elder{r}}
			ids := r.publish(0, 0, 0)
			r.failed(durable.OutcomeDelivered, ids[0])
			r.failed(durable.OutcomeDead, ids[1])
			r.failed(durable.OutcomeRetry, ids[2])
			require.Equal(t, c.installation > 0 || len(c.fields) > 0, p.limits())
			require.NoError(t, p.round(t.Context()))
			require.Equal(t, c.left, r.attemptsOf(ids))
			require.Equal(t, 3, r.left(ids), "the messages stay")
			before := 5
			for _, n := range c.left {
				before -= n
			}
			require.InDelta(t, before, r.metric("penstock_purged_attempts_total"), 0)
		})
	}
}

// A channel is looked at again after a while, and at once where its age is removed and set.
func TestOldAttemptsAreLookedForNowAndThen(t *testing.T) {
	r, p := newLimited(t, "attemptRetention", "30m")
	p.Cluster = later{elder{r}}
	ids := r.publish(0, 0)
	r.failed(durable.OutcomeDelivered, ids[0])
	require.NoError(t, p.round(t.Context()))
	require.Equal(t, []int{0, 0}, r.attemptsOf(ids))
	r.failed(durable.OutcomeDelivered, ids[1])
	require.NoError(t, p.round(t.Context()))
	require.Equal(t, []int{0, 1}, r.attemptsOf(ids), "not each round")
	p.looked[r.channel.No].began = time.Now().Add(-time.Hour)
	require.NoError(t, p.round(t.Context()))
	require.Equal(t, []int{0, 0}, r.attemptsOf(ids))
}
