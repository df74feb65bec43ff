package main

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/proxy"
	"github.com/penstock-broker/penstock/internal/test/servers"
)

// The primary dies under load, and its semi-synchronous replica takes its place, read-only
// at first: what was acknowledged is there, and what was delivered stays delivered.
func TestMySQLFailoverToASemiSynchronousReplicaLosesNothing(t *testing.T) {
	parallel(t)
	pair := servers.StartMySQLPair(t)
	at := func(s *servers.MySQLServer) string { return "127.0.0.1:" + strconv.Itoa(s.Port()) }
	dsn := pair.Primary.UserDSN("penstock")
	r, err := proxy.Start(at(pair.Primary)) // as the name of a primary does, it leads to one server after another
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	port := regexp.MustCompile(`127\.0\.0\.1:\d+`)
	redis := servers.StartRedis(t)
	w := &world{t: t, redis: redis, env: []string{"BROKER_MYSQL_DSN=" + port.ReplaceAllString(dsn, r.Addr()),
		"BROKER_REDIS_URL=" + redis.URL(),
		"BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=10s"}}
	brokers := []*process{w.start(), w.start()}
	sink := newSink(t, nil)
	s := brokers[0].stage(t, "k="+sink.URL)
	l := startSteady(s, 16, func(n int) *process { return brokers[n%2] })
	l.progress(500)
	eventually(t, "deliveries", func() bool { return sink.count() > 200 })
	pair.Primary.Kill()
	died := time.Now()
	r.Turn(at(pair.Replica))
	l.awaitRefusal(died)
	pair.Promote()
	promoted := time.Now()
	recovery := l.recovery(promoted)
	l.progress(500)
	sum := l.finish()
	l.requireAllOf(port.ReplaceAllString(dsn, at(pair.Replica)), sink, 0)
	t.Logf("%d acknowledged, %d refused, slowest answer %v, first 201 %v after the promotion", sum.acked, sum.refused,
		sum.slowest.Round(time.Millisecond), recovery.Round(time.Millisecond))
}
