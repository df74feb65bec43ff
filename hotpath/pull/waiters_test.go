package pull

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAWakeUpGoesToOneWaiterAndIsPassedOn(t *testing.T) {
	var w waiters
	a, b := w.join(1), w.join(1)
	require.True(t, a.first())
	require.False(t, b.first())
	w.Wake(1)
	require.Len(t, a.wake, 1)
	require.Empty(t, b.wake)
	w.Wake(1)
	require.Len(t, b.wake, 1, "the second wake-up is not lost on the first")
	<-b.wake
	a.leave() // unused: the next one gets it
	require.Len(t, b.wake, 1)
	b.leave()
	require.Empty(t, w.byNo)
	w.Wake(1)
}
