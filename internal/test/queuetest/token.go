package queuetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/redisq"
)

const right = 30 * time.Second

func oneFetchesAToken(t *testing.T, s Server) {
	ctx := context.Background()
	a, b := s.Queue(100), s.Queue(100)
	take := func(q *redisq.Queue, refused, by string, length time.Duration) redisq.Token {
		got, err := q.TakeToken(ctx, "client", refused, by, length)
		require.NoError(t, err)
		return got
	}
	keep := func(q *redisq.Queue, by string, kept time.Duration, ours bool) {
		ok, err := q.KeepToken(ctx, "client", by, []byte("sealed by "+by), kept)
		require.NoError(t, err)
		require.Equal(t, ours, ok)
	}
	require.True(t, take(a, "", "1", right).Fetch)
	wait := take(b, "", "2", right)
	require.False(t, wait.Fetch)
	require.Greater(t, wait.Wait, right-10*time.Second)
	require.LessOrEqual(t, wait.Wait, right)
	require.True(t, take(a, "", "1", right).Fetch, "after a lost answer")
	other, err := b.TakeToken(ctx, "another", "", "2", right)
	require.NoError(t, err)
	require.True(t, other.Fetch, "another client")

	keep(a, "1", time.Hour, true)
	got := take(b, "", "2", right)
	require.Equal(t, "1", got.Version)
	require.Equal(t, "sealed by 1", string(got.Sealed))
	require.Less(t, got.Age, time.Minute)
	require.Greater(t, got.Rest, 50*time.Minute)
	require.LessOrEqual(t, got.Rest, time.Hour)
	keep(b, "2", time.Hour, false)

	require.True(t, take(b, "1", "3", right).Fetch, "a refused token is no token")
	require.Equal(t, "1", take(a, "", "4", right).Version, "for others it is, until there is another one")
	require.Positive(t, take(a, "1", "4", right).Wait)
	keep(b, "3", 0, true) // it failed
	require.True(t, take(a, "1", "4", 2*time.Millisecond).Fetch)
	s.Advance(5 * time.Millisecond)
	require.True(t, take(b, "1", "5", right).Fetch, "the right of one that died ends")
	keep(a, "4", time.Hour, false)
	keep(b, "5", 2*time.Millisecond, true)
	s.Advance(5 * time.Millisecond)
	require.True(t, take(a, "", "6", right).Fetch, "the token has ended")
}
