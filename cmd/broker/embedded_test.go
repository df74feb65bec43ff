package main

import (
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestTheEmbeddedRedisIsForThisProcessOnly(t *testing.T) {
	e, err := startEmbeddedRedis()
	require.NoError(t, err)
	o, err := redis.ParseURL(e.URL())
	require.NoError(t, err)
	host, _, err := net.SplitHostPort(o.Addr)
	require.NoError(t, err)
	require.True(t, isLoopback(host))

	mine := redis.NewClient(o)
	defer mine.Close()
	require.NoError(t, mine.Ping(t.Context()).Err())
	for _, password := range []string{"", "guess"} {
		stranger := redis.NewClient(&redis.Options{Addr: o.Addr, Password: password, MaxRetries: -1})
		require.Error(t, stranger.Set(t.Context(), "k", "v", 0).Err())
		require.NoError(t, stranger.Close())
	}

	other, err := startEmbeddedRedis()
	require.NoError(t, err)
	require.NotEqual(t, e.password, other.password)
	require.NotEqual(t, e.server.Addr(), other.server.Addr())
	other.Close()
	e.Close()
	require.Error(t, mine.Ping(t.Context()).Err())
}
