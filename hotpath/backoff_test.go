package hotpath

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBackoffFollowsTheListThenDoublesUpToTheCap(t *testing.T) {
	b := Backoff{Waits: []time.Duration{5 * time.Second, 30 * time.Second, time.Minute}, MaxDelay: 5 * time.Minute}
	want := []time.Duration{5 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute}
	for i, w := range want {
		require.Equal(t, w, b.Delay(i+1), "after attempt %d", i+1)
	}
}

func TestBackoffIsNeverEarlierThanConfiguredAndJitterIsBounded(t *testing.T) {
	b := Backoff{Waits: []time.Duration{time.Second}, MaxDelay: time.Hour, Jitter: 0.1}
	different := false
	for range 1000 {
		d := b.Delay(1)
		require.GreaterOrEqual(t, d, time.Second)
		require.LessOrEqual(t, d, 1100*time.Millisecond)
		different = different || d != b.Delay(1)
	}
	require.True(t, different, "jitter spreads retries")
}

func TestBackoffSaturatesForAnyAttempt(t *testing.T) {
	for _, b := range []Backoff{
		{Waits: []time.Duration{time.Second}},
		{Waits: []time.Duration{time.Second}, MaxDelay: time.Hour, Jitter: 1},
		{Waits: []time.Duration{1 << 62}, Jitter: 1},
	} {
		for _, attempt := range []int{-5, 0, 1, 2, 63, 64, 1000, 1_000_000} {
			d := b.Delay(attempt)
			require.Greater(t, d, time.Duration(0))
			require.LessOrEqual(t, d, 2*maxWait)
		}
	}
	require.Zero(t, Backoff{}.Delay(3))
}
