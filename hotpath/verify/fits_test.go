package verify

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAConsumerIsAskedForFewLargeJobsUntilTheyAreSmall(t *testing.T) {
	var f Fits
	require.Equal(t, 500, f.Of(1, 500))
	f.Learn(1, 500, 500)
	require.Equal(t, 500, f.Of(1, 500))
	f.Learn(1, 500, 3)
	require.Equal(t, 6, f.Of(1, 500))
	require.Equal(t, 2, f.Of(1, 2))
	require.Equal(t, 500, f.Of(2, 500), "others are not concerned")
	f.Learn(1, 2, 2)
	require.Equal(t, 6, f.Of(1, 500), "a small claim proves nothing")
	f.Learn(1, 6, 0)
	require.Equal(t, 2, f.Of(1, 500))
	for range 4 {
		f.Learn(1, f.Of(1, 500), f.Of(1, 500))
	}
	require.Equal(t, 500, f.Of(1, 500))
	require.Empty(t, f.most)
}
