package exchange

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

func TestRoomForResponsesIsDividedAmongConsumers(t *testing.T) {
	r := NewRoom()
	slow, quick := &durable.Consumer{No: 1}, &durable.Consumer{No: 2}
	var taken []*Taken
	for {
		one := r.Begin(slow, 1<<20, 1<<20)
		if one == nil {
			break
		}
		taken = append(taken, one)
	}
	require.Len(t, taken, 64, "alone a half")
	one := r.Begin(quick, 0, 1<<20)
	require.NotNil(t, one, "another consumer finds room")
	require.EqualValues(t, 64<<20+leastRoom, r.bytes.Taken(), "a response that nothing is known of takes little")
	keep := &egress.Keep{}
	one.For(keep, time.Now().Add(time.Minute))
	require.True(t, keep.Room(1<<20))
	require.False(t, keep.Waited)
	one.Keep(1000)
	require.EqualValues(t, 64<<20+1000, r.bytes.Taken())
	for _, one := range append(taken, one) {
		one.Close()
	}
	require.Zero(t, r.bytes.Taken())
}

func TestAResponseBeyondThePartOfItsConsumerWaitsAndIsReadOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRoom()
		k := &durable.Consumer{No: 1}
		var all []*Taken
		var room []func(int) bool
		for range 64 {
			one, keep := r.Begin(k, 1<<20, 1<<20), &egress.Keep{}
			require.NotNil(t, one)
			one.For(keep, time.Now().Add(10*time.Second))
			all, room = append(all, one), append(room, keep.Room)
		}
		for i := range roomRests / 2 {
			require.True(t, room[i](1<<20), "a place beside the bytes")
		}
		began := time.Now()
		require.False(t, room[63](1<<20), "its consumer has its places")
		require.Equal(t, 10*time.Second, time.Since(began), "it waits as long as it may")
		require.EqualValues(t, (64+roomRests/2)<<20, r.bytes.Taken(), "what came is counted")
		time.AfterFunc(time.Second, all[0].Close)
		require.True(t, func() bool {
			keep := &egress.Keep{}
			all[62].For(keep, time.Now().Add(10*time.Second))
			return keep.Room(1<<20) && keep.Waited
		}(), "a place that is free again")
		for _, one := range all[1:] {
			one.Close()
		}
		require.Zero(t, r.bytes.Taken())
		require.Zero(t, r.rests.Taken())
	})
}

func TestTheUsualSizeFollowsTheResponses(t *testing.T) {
	require.EqualValues(t, 1000, Usual(0, 1000))
	require.EqualValues(t, 875, Usual(1000, 0))
	require.EqualValues(t, 5000, Usual(1000, 5000))
}
