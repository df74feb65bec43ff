package recent

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheOldestMakesRoomForTheNewest(t *testing.T) {
	m := New[int, string](3)
	for i, v := range []string{"a", "b", "c"} {
		m.Put(i, v)
	}
	m.Put(0, "again") // keeps its place
	m.Put(3, "d")
	for k, want := range map[int]string{0: "", 1: "b", 2: "c", 3: "d"} {
		v, ok := m.Get(k)
		require.Equal(t, want, v, k)
		require.Equal(t, want != "", ok, k)
	}
	for k := range 100 {
		m.Put(k, "x")
	}
	require.Len(t, m.known, 3)
	require.Len(t, m.order, 3)
	_, ok := m.Get(99)
	require.True(t, ok)
}
