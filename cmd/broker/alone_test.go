package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/test/servers"
)

func TestBrokersOnOneMySQLHaveOneRealRedis(t *testing.T) {
	parallel(t)
	w := &world{t: t, env: []string{"BROKER_MYSQL_DSN=" + servers.MySQL(t)}}
	redis := "BROKER_REDIS_URL=" + servers.StartRedis(t).URL()
	refused := func(env ...string) {
		t.Helper()
		p := w.launch(env...)
		p.awaitEnd()
		require.Equal(t, exitStart, p.cmd.ProcessState.ExitCode(), p.log)
		require.Contains(t, p.log.String(), "is alive on the same MySQL")
		require.Contains(t, p.log.String(), "BROKER_REDIS_URL")
	}
	first := w.start()
	refused()
	refused(redis)
	require.Equal(t, 200, first.do("GET", "/readyz", "").status)
	first.kill()
	second := w.start() // its lease goes on for a while, it does not
	require.Equal(t, exitClean, second.stop())
	real := w.start(redis)
	refused()
	beside := w.start(redis, "BROKER_REAPER=false")
	refused()
	require.Equal(t, exitClean, real.stop())
	require.Equal(t, exitClean, beside.stop())
	require.Equal(t, exitClean, w.start().stop())
}

// A broker that was paused past its lease finds another one at its place.
func TestAPausedBrokerWithAnEmbeddedRedisEndsWhenAnotherHasStarted(t *testing.T) {
	parallel(t)
	w := &world{t: t, env: []string{"BROKER_MYSQL_DSN=" + servers.MySQL(t)}}
	paused := w.start()
	paused.freeze()
	real := w.start("BROKER_REDIS_URL=" + servers.StartRedis(t).URL())
	paused.thaw()
	paused.awaitEnd()
	require.Equal(t, exitStart, paused.cmd.ProcessState.ExitCode(), paused.log)
	require.Contains(t, paused.log.String(), "must be alone")
	require.Equal(t, 200, real.do("GET", "/readyz", "").status)
	require.Equal(t, exitClean, real.stop())

	paused = w.start()
	paused.freeze()
	second := w.start()
	paused.thaw()
	var left *process
	select {
	case <-paused.done:
		left = second
	case <-second.done:
		left = paused
	case <-time.After(patience):
		t.Fatalf("both go on\n%s\n%s", paused.log, second.log)
	}
	require.Equal(t, 200, left.do("GET", "/readyz", "").status)
	require.Equal(t, exitClean, left.stop())
}

func TestWhichBrokersAreInTheWay(t *testing.T) {
	node := func(token byte, name string, alive bool) durable.Node {
		return durable.Node{Name: name, Alive: alive, Token: [16]byte{token}}
	}
	embedded := nodeName("h", 1, config{Reaper: false})
	require.Equal(t, "h:1 (embedded Redis) (no fail-safe)", embedded)
	require.Equal(t, "h:1", nodeName("h", 1, config{RedisURL: "redis://r", Reaper: true}))
	own := [16]byte{1}
	for _, tc := range []struct {
		embedded bool
		other    durable.Node
		refused  bool
	}{
		{true, node(1, embedded, true), false}, // ourselves
		{true, node(2, embedded, false), false},
		{true, node(2, embedded, true), true},
		{true, node(2, "h:2", true), true}, // also of a release that did not say
		{false, node(2, "h:2", true), false},
		{false, node(2, embedded, true), true},
		{false, node(2, embedded, false), false},
	} {
		_, err := conflict(own, tc.embedded, []durable.Node{node(1, "h:1", true), tc.other})
		require.Equal(t, tc.refused, err != nil, "%+v", tc)
	}
}
