package publishrate

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/redisq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A source is a catalogue with one producer, one channel and one group.
type source struct{ changes durable.Changes }

func (s *source) Changes(context.Context, int64) (durable.Changes, error) { return s.changes, nil }
func (s *source) Extent(context.Context) (durable.Extent, error)          { return durable.Extent{}, nil }
func (s *source) Touch(context.Context, durable.Numbers) error            { return nil }

// A queue counts in windows of its own, or fails.
type queue struct {
	windows map[string]*window
	err     error
	calls   int
}

func (q *queue) TakePlaces(_ context.Context, n int, rates []redisq.PublishRate) (redisq.Places, error) {
	q.calls++
	if q.err != nil {
		return redisq.Places{}, q.err
	}
	return places(q.windows, n, rates, time.Now()), nil
}

func record(t *testing.T, merge func(string, map[string]string) (string, error), rate string) string {
	out, err := merge("", map[string]string{"publishRate": rate})
	require.NoError(t, err)
	return out
}

// limiter returns a limiter with publish rates of a producer, a channel and its group; "" is none.
func limiter(t *testing.T, producer, channel, group string) (*Limiter, *queue, *catalogue.Channel, *durable.Producer) {
	s := &source{durable.Changes{Version: 1,
		Producers: []durable.Producer{{No: 1, ID: "p", Settings: record(t, policy.MergeSender, producer)}},
		Channels:  []durable.Channel{{No: 2, ID: "c", Group: "g", Intake: record(t, policy.MergeIntake, channel)}},
		Groups:    []durable.Group{{No: 3, ID: "g", Settings: record(t, policy.MergeGroup, group)}}}}
	c := catalogue.New(s, slog.New(slog.DiscardHandler))
	require.NoError(t, c.Refresh(t.Context()))
	q := &queue{windows: map[string]*window{}}
	return New(Options{Queue: q, Catalogue: c, Log: slog.New(slog.DiscardHandler)}), q, c.Channel("c"), c.Producer("p")
}

func TestWhatHasNoRateIsFree(t *testing.T) {
	l, q, ch, p := limiter(t, "", "", "")
	ctx := t.Context()
	for _, l := range []*Limiter{l, nil} {
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if n, err := l.Take(ctx, ch, p, 7); n != 7 || err != nil {
				t.Error(n, err)
			}
		}))
	}
	require.Zero(t, q.calls)
}

func TestEachRateRefusesWhenItIsUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for of, rates := range map[string][3]string{"producer": {"3/10s", "9/1s", ""}, "channel": {"", "3/10s", "4/10s"},
			"group": {"5/1s", "", "3/10s"}} {
			l, q, ch, p := limiter(t, rates[0], rates[1], rates[2])
			n, err := l.Take(t.Context(), ch, p, 2)
			require.NoError(t, err)
			require.Equal(t, 2, n)
			n, err = l.Take(t.Context(), ch, p, 4)
			require.Equal(t, 1, n, "the first of four has the last place")
			var refused *problem.Problem
			require.ErrorAs(t, err, &refused)
			require.Equal(t, 429, refused.Status)
			require.Equal(t, "publish_rate_exceeded", refused.Code)
			require.Contains(t, refused.Detail, "of the "+of+", 3/10s,")
			require.GreaterOrEqual(t, refused.RetryAfter, 10)
			require.LessOrEqual(t, refused.RetryAfter, 11)
			require.Equal(t, 2, q.calls, "one round trip each, whatever the number of messages and rates")
			time.Sleep(time.Duration(refused.RetryAfter) * time.Second)
			n, err = l.Take(t.Context(), ch, p, 1)
			require.NoError(t, err, "after Retry-After there is a place")
			require.Equal(t, 1, n)
		}
	})
}

func TestWithoutRedisABrokerCountsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, q, ch, p := limiter(t, "", "5/1m", "")
		q.err = errors.New("away")
		accepted := 0
		for range 20 {
			n, _ := l.Take(t.Context(), ch, p, 1)
			accepted += n
		}
		require.Equal(t, 5, accepted)
		require.Equal(t, 1, q.calls, "Redis is not asked for every message")
		time.Sleep(aloneFor)
		n, err := l.Take(t.Context(), ch, p, 1)
		require.Zero(t, n)
		require.Error(t, err)
		require.Equal(t, 2, q.calls)
		q.err = nil
		time.Sleep(aloneFor)
		n, err = l.Take(t.Context(), ch, p, 1)
		require.NoError(t, err, "Redis has counted none")
		require.Equal(t, 1, n)
		require.Nil(t, l.windows)
	})
}

// In no window of the length of a rate more than its number is accepted, whenever messages come.
func TestAWindowNeverHoldsMoreThanTheRate(t *testing.T) {
	r := redisq.PublishRate{Name: "c1", N: 7, Per: 640 * time.Millisecond}
	windows, now := map[string]*window{}, time.UnixMilli(1_000_000_003)
	var taken []time.Time
	for i := range 5000 {
		now = now.Add(time.Duration(i*i%37) * time.Millisecond)
		for range places(windows, 1+i%3, []redisq.PublishRate{r}, now).N {
			taken = append(taken, now)
		}
	}
	require.Greater(t, len(taken), 500)
	for i := r.N; i < len(taken); i++ {
		require.GreaterOrEqual(t, taken[i].Sub(taken[i-r.N]), r.Per, strconv.Itoa(i))
	}
	require.LessOrEqual(t, len(*windows["c1"]), 66)
}
