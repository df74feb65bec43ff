package push

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestALaneNeverHasMoreRequestsThanItsLimit(t *testing.T) {
	l := &lane{limit: 4, more: true}
	require.Equal(t, 7, l.room(), "three are claimed ahead")
	l.reserve(7)
	started := 0
	for range 7 {
		if l.put(&delivery{}) != nil {
			started++
		}
	}
	require.Equal(t, 4, started)
	require.Zero(t, l.room())
	v, claim := l.next()
	require.NotNil(t, v, "the next request takes the place of the one that ended")
	require.False(t, claim)
	v, claim = l.next()
	require.NotNil(t, v)
	require.True(t, claim, "a quarter of what it may hold is free")
	v, _ = l.next()
	require.NotNil(t, v)
	v, _ = l.next()
	require.Nil(t, v)
	l.leftMore(false, false)
	l.reserve(1)
	l.put(&delivery{})
	_, claim = l.next()
	require.False(t, claim, "nothing was left behind: a wake-up will come")
	l.observe(10 * time.Second)
	require.Equal(t, 1, l.room(), "a slow consumer gets none ahead")
}

func TestALaneOfOneClaimsNothingAhead(t *testing.T) {
	l := &lane{limit: 1, more: true}
	require.Equal(t, 1, l.room())
	l.reserve(1)
	require.NotNil(t, l.put(&delivery{}))
	require.Zero(t, l.room())
	v, claim := l.next()
	require.Nil(t, v)
	require.True(t, claim)
}
