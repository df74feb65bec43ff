package push

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Consumers that hang or answer slowly share a part of the slots; those that answer quickly take what
// they need.
func TestSlowConsumersShareThreeQuartersOfTheSlots(t *testing.T) {
	d := &Dispatcher{settings: Settings{Concurrency: 80}, lanes: map[uint32]*lane{}}
	for no := range uint32(5) {
		d.lanes[no] = &lane{no: no, limit: 64}
	}
	quick, late, hangs, idle, first := d.lanes[0], d.lanes[1], d.lanes[2], d.lanes[3], d.lanes[4]
	quick.service.Store(int64(time.Millisecond))
	require.Equal(t, 64, d.fair(quick, 64))

	late.service.Store(int64(time.Second))
	require.Equal(t, 60, d.fair(late, 64), "one alone has all of the part")
	late.posting = 5
	require.Equal(t, 55, d.fair(late, 64))
	require.Equal(t, 3, d.fair(late, 3))

	hangs.posting, hangs.moved = 40, time.Now()
	require.False(t, hangs.slow(), "it may answer yet")
	hangs.moved = time.Now().Add(-time.Second)
	require.True(t, hangs.slow())
	require.Equal(t, 30-5, d.fair(late, 64), "two share it")
	require.Equal(t, 30-40, d.fair(hangs, 64), "and what it has too much goes as its requests end")
	idle.service.Store(int64(time.Second))
	require.Equal(t, 30-5, d.fair(late, 64), "one without a slot takes no part yet")
	require.Equal(t, 20, d.fair(idle, 64))
	require.Equal(t, 64, d.fair(first, 64), "nothing is known of a new one")
	require.Equal(t, 64, d.fair(quick, 64))

	d.settings.Concurrency = 2
	require.Equal(t, 1, d.fair(idle, 64), "each gets one")
}
