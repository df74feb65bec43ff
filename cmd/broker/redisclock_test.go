//go:build linux

package main

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/servers"
	"github.com/penstock-broker/penstock/internal/test/tables"
)

// clockedWorld has a Redis whose clock the test sets.
func clockedWorld(t *testing.T) (*world, *servers.ClockedRedisServer) {
	server := servers.StartRedisClocked(t)
	return &world{t: t, redis: server.RedisServer, env: []string{"BROKER_MYSQL_DSN=" + tables.MySQL(t),
		"BROKER_REDIS_URL=" + server.URL()}}, server
}

// jump sets the clock of Redis and requires that scripts see it.
func jump(t *testing.T, server *servers.ClockedRedisServer, by time.Duration) {
	t.Helper()
	a := admin(t, server)
	defer a.Close()
	server.Jump(by)
	now, err := a.Eval(t.Context(), "return redis.call('TIME')[1]", nil).Result()
	require.NoError(t, err)
	seconds, err := strconv.ParseInt(now.(string), 10, 64)
	require.NoError(t, err)
	require.InDelta(t, time.Now().Add(by).Unix(), seconds, 60, "the clock of the scripts has jumped")
}

// The clock of the Redis host jumps forward under load: every lease ends at once
// and every retry is due at once. Nothing is lost, and what is repeated was in flight.
func TestFaultRedisClockJumpsAnHourForward(t *testing.T) {
	parallel(t)
	w, server := clockedWorld(t)
	w.with("BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=20s", "BROKER_CONSUMER_CONCURRENCY=16",
		"BROKER_RETRY_BACKOFF=30m", "BROKER_RETRY_MAX_DELAY=30m")
	var refused atomic.Int32
	sink := newSink(t, func(_ int, r received) int {
		if r.body == "m-later" && refused.Add(1) == 1 {
			return 500
		}
		time.Sleep(50 * time.Millisecond)
		return 204
	})
	p := w.start()
	s, waiting := p.stage(t, "k="+sink.URL), p.stage(t, "k="+sink.URL)
	later := waiting.publish("m-later")
	eventually(t, "the retry to be known", func() bool { return waiting.message(later).Jobs[0].NextAttemptAt != nil })
	release := make(chan struct{})
	held := newSink(t, func(_ int, r received) int {
		if r.header.Get("X-Broker-Attempt") == "1" {
			<-release
		}
		return 204
	})
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	holding := p.stage(t, "k="+held.URL)
	var underWay []string
	for i := range 4 {
		underWay = append(underWay, fmt.Sprint("m-held-", i))
		holding.publish(underWay[i])
	}
	eventually(t, "requests under way", func() bool { return held.count() == len(underWay) })
	l := startSteady(s, 8, only(p))
	l.progress(100)
	jump(t, server, time.Hour)
	l.progress(200)
	eventually(t, "what is under way to be sent again", func() bool { return held.count() == 2*len(underWay) })
	free()
	sum := l.finish()
	require.Equal(t, len(underWay), w.requireAll(held, underWay), "each lease ended once")
	copies := w.requireAll(sink, append(l.bodies(), "m-later"))
	ended := leasesEnded(t, p)
	t.Logf("%d acknowledged, %d leases ended, %d copies", sum.acked, ended, copies)
	l.requireStoredOnce(w.dsn())
	require.LessOrEqual(t, copies, ended-len(underWay), "a copy comes from a lease that the jump has ended")
	require.Equal(t, 2, sink.times("m-later"))
	waiting.awaitStatus(later, "DELIVERED")
}

// It jumps back by an hour. Whatever is published is delivered, before and after,
// each once; a retry and a lease that has ended wait for no clock to come there again,
// and a worker is told that its result counts.
func TestFaultRedisClockJumpsAnHourBack(t *testing.T) {
	parallel(t)
	w, server := clockedWorld(t)
	w.with(quick...).with("BROKER_RETRY_BACKOFF=10s", "BROKER_RETRY_MAX_DELAY=10s")
	failing := atomic.Bool{}
	failing.Store(true)
	sink := newSink(t, func(_ int, r received) int {
		if r.body == "m-later" && failing.Load() {
			return 500
		}
		return 204
	})
	p := w.start()
	s, waiting := p.stage(t, "k="+sink.URL), p.stage(t, "k="+sink.URL, "pull", "lazy")
	l := startSteady(s, 8, only(p))
	l.progress(100)
	later := waiting.publish("m-later")
	eventually(t, "the retry to be known", func() bool { return waiting.message(later).Jobs[0].NextAttemptAt != nil })
	job := waiting.awaitQueued("pull", 1)[0].ID
	require.Equal(t, 202, waiting.move("pull", job, `{"NextState":"INFLIGHT","IncrementalTimeout":300}`).status)
	left := waiting.awaitQueued("lazy", 1)[0].ID
	waiting.claim("lazy", left) // its worker never comes back
	time.Sleep(2 * time.Second) // a look at the clock before it goes back
	jump(t, server, -time.Hour)
	failing.Store(false)
	l.progress(100)
	eventually(t, "the retry", func() bool { return waiting.message(later).Jobs[0].Status == "DELIVERED" })
	waiting.awaitQueued("lazy", 1)
	require.Equal(t, 202, waiting.move("pull", job, to("DELIVERED")).status)
	l.finish()
	require.Zero(t, w.requireAll(sink, append(l.bodies(), "m-later")), "each once, but for the attempt that failed")
	require.Equal(t, 2, sink.times("m-later"))
}
