package redisq

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestScoreIsExactAndOrdersByPriorityThenTime(t *testing.T) {
	const last = int64(1)<<readyBits - 1
	for _, priority := range []int{0, 1, 511, 1022, 1023} {
		for _, ms := range []int64{0, 1, 1_763_658_000_123, last} {
			s := readyScore(priority, 0, ms)
			require.Equal(t, s, int64(float64(s)), "a double holds it")
			require.Less(t, s, int64(1)<<52)
			require.Equal(t, priority, priorityOf(s))
			require.Equal(t, ms, readyMillisOf(s))
		}
	}
	require.Less(t, readyScore(1, 0, last), readyScore(0, 0, 0), "priority beats time")
	require.Less(t, readyScore(5, 0, 1), readyScore(5, 0, 2))
	require.Less(t, readyScore(0, 0, last), readyScore(MaxPriority, 1, 0), "first attempts before retries")
	require.Equal(t, int64(1)<<53-1, readyScore(0, 1, last))
}

func TestLongestDelayFitsTheScore(t *testing.T) {
	year2099 := time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	require.Less(t, year2099+millis(maxDelay), int64(1)<<readyBits)
	require.Equal(t, millis(maxDelay), millis(1<<63-1))
	require.Equal(t, int64(0), millis(-time.Hour))
	require.Equal(t, int64(1), millis(1), "rounded up: never early")
	require.Equal(t, int64(2), millis(2*time.Millisecond))
}
