package push

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Consumers that hang, answer slowly or have not answered yet share a part of the slots; those that
// answer quickly take what they need.
func TestLanesThatAreNotQuickShareThreeQuartersOfTheSlots(t *testing.T) {
	d := &Dispatcher{settings: Settings{Concurrency: 80}, slots: 80, lanes: map[uint32]*lane{}}
	for no := range uint32(5) {
		d.lanes[no] = &lane{no: no, limit: 64}
	}
	quick, late, hangs, idle, first := d.lanes[0], d.lanes[1], d.lanes[2], d.lanes[3], d.lanes[4]
	quick.service.Store(int64(time.Millisecond))
	late.service.Store(int64(time.Second))
	require.Equal(t, 40, d.grant(quick, 64), "a half of what is free at once")
	require.Equal(t, 40, d.grant(late, 64), "nobody else needs them")

	late.posting, d.slots = 25, 55
	require.Equal(t, 27, d.grant(late, 64))
	require.Equal(t, 3, d.grant(late, 3))

	hangs.posting, hangs.moved, d.slots = 20, time.Now(), 35
	hangs.service.Store(int64(time.Millisecond))
	_, moves := hangs.standing()
	require.True(t, moves, "it may answer yet")
	require.Equal(t, 17, d.grant(hangs, 64))
	hangs.moved = time.Now().Add(-time.Second)
	_, moves = hangs.standing()
	require.False(t, moves)
	require.Equal(t, 10, d.grant(hangs, 64), "two share it")
	require.Equal(t, 5, d.grant(late, 64))
	idle.service.Store(int64(time.Second))
	require.Equal(t, 5, d.grant(late, 64), "one without a slot takes no part yet")
	require.Equal(t, 15, d.grant(idle, 64), "all together have no more than the part")
	require.Equal(t, 15, d.grant(first, 64), "nothing is known of a new one")
	require.Equal(t, 17, d.grant(quick, 64))

	first.posting, d.slots = 15, 20
	require.Equal(t, 0, d.grant(first, 64), "the part is taken")
	require.Equal(t, 1, d.grant(idle, 64), "but each gets one")
	require.Equal(t, 10, d.grant(quick, 64), "and those that are quick have the rest")
}

// However many consumers that have been quick hang at once, before anybody can know it, there is a
// free slot.
func TestConsumersThatHangAtOnceLeaveSlots(t *testing.T) {
	for lanes, least := range map[int]int{1: 64, 8: 32, 16: 8} {
		d := &Dispatcher{settings: Settings{Concurrency: 512}, slots: 512, lanes: map[uint32]*lane{}}
		for no := range uint32(lanes) {
			d.lanes[no] = &lane{no: no, limit: 512}
			d.lanes[no].service.Store(int64(time.Millisecond))
		}
		for range 100 {
			for _, l := range d.lanes {
				n := d.grant(l, 100)
				l.claims += n
				d.slots -= n
			}
		}
		require.GreaterOrEqual(t, d.slots, least, "%d lanes", lanes)
	}
}
