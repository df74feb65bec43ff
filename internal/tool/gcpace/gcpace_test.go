package gcpace

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGarbageGathersWhileTheHeapIsSmallOnly(t *testing.T) {
	require.Equal(t, most, percent(0))
	require.Equal(t, most, percent(4<<20))
	require.Equal(t, 200, percent(64<<20))
	require.Equal(t, usual, percent(128<<20))
	require.Equal(t, usual, percent(8<<30))
	runtime.GC()
	require.Positive(t, live(), "this Go knows the metric")
}
