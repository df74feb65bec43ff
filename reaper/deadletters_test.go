package reaper

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Metadata of a producer passes for the count of an earlier forward. It may end a circle of channels
// that forward to each other sooner, and never later.
func TestAProducerCannotProlongACircleOfForwards(t *testing.T) {
	for value, want := range map[string]int{"0": 0, "3": 3, "-5": 0, "-99999999999999999999": 0, "x": 0, "": 0} {
		rest, hops := withoutDead([]byte("X-A:1\nx-dead-HOPS: " + value + "\nX-Dead-Reason:spoofed\n"))
		require.Equal(t, "X-A:1\n", string(rest))
		require.Equal(t, want, hops, value)
	}
	_, hops := withoutDead([]byte("X-Dead-Hops:99999999999999999999\n"))
	require.GreaterOrEqual(t, hops, maxHops)
}
