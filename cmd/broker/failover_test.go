package main

import (
	"io"
	"net"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/servers"
)

// A relay is an address that stands for one server after another, as the name of a
// primary does.
type relay struct {
	net.Listener
	mu    sync.Mutex
	to    string
	conns []net.Conn
}

func startRelay(t *testing.T, to string) *relay {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{Listener: l, to: to}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { r.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close() // once
		r.turn("")
		serving.Wait()
	})
	return r
}

func (r *relay) serve(conn net.Conn) {
	defer conn.Close()
	r.mu.Lock()
	to := r.to
	r.conns = append(r.conns, conn)
	r.mu.Unlock()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	go func() { _, _ = io.Copy(server, conn); _ = server.Close() }()
	_, _ = io.Copy(conn, server)
}

// turn leads every connection elsewhere: those that there are break.
func (r *relay) turn(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
	for _, c := range r.conns {
		_ = c.Close() // perhaps it has ended
	}
	r.conns = nil
}

// The primary dies under load, and its semi-synchronous replica takes its place, read-only
// at first: what was acknowledged is there, and what was delivered stays delivered.
func TestMySQLFailoverToASemiSynchronousReplicaLosesNothing(t *testing.T) {
	t.Parallel()
	pair := servers.StartMySQLPair(t)
	at := func(s *servers.MySQLServer) string { return "127.0.0.1:" + strconv.Itoa(s.Port()) }
	dsn := pair.Primary.UserDSN("penstock")
	r := startRelay(t, at(pair.Primary))
	port := regexp.MustCompile(`127\.0\.0\.1:\d+`)
	redis := servers.StartRedis(t)
	w := &world{t: t, redis: redis, env: []string{"BROKER_MYSQL_DSN=" + port.ReplaceAllString(dsn, r.Addr().String()), "BROKER_REDIS_URL=" + redis.URL(),
		"BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=10s"}}
	brokers := []*process{w.start(), w.start()}
	sink := newSink(t, nil)
	s := brokers[0].stage(t, "k="+sink.URL)
	l := startSteady(s, 16, func(n int) *process { return brokers[n%2] })
	l.progress(500)
	eventually(t, "deliveries", func() bool { return sink.count() > 200 })
	pair.Primary.Kill()
	died := time.Now()
	r.turn(at(pair.Replica))
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
