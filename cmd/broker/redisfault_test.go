package main

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/servers"
	"github.com/penstock-broker/penstock/internal/test/tables"
)

// An addressed Redis is one that tests send commands to.
type addressed interface{ Port() int }

// admin is a client that stays logged in, with one connection.
func admin(t testing.TB, n addressed) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(n.Port())), Protocol: 2,
		PoolSize: 1, MaxRetries: -1,
		DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() }) // its server may be gone
	return c
}

// tell runs one command on a connection of its own.
func tell(t *testing.T, n addressed, args ...any) error {
	t.Helper()
	c := admin(t, n)
	defer c.Close()
	return c.Do(t.Context(), args...).Err()
}

// infoHas reports whether INFO has all these lines.
func infoHas(t *testing.T, n addressed, lines ...string) bool {
	t.Helper()
	c := admin(t, n)
	defer c.Close()
	info, err := c.Info(t.Context()).Result()
	for _, line := range lines {
		if err != nil || !strings.Contains(info, line+"\r\n") {
			return false
		}
	}
	return true
}

// A refusal is a way in which Redis is there and of no use.
type refusal struct {
	args       []string                                // of the server
	before     func(t *testing.T, admin *redis.Client) // nil: nothing
	begin, end func(t *testing.T, server *servers.RedisServer, admin *redis.Client)
	says       string // what a write is answered meanwhile
}

var refusals = map[string]refusal{
	"OOM": {
		begin: func(t *testing.T, _ *servers.RedisServer, a *redis.Client) {
			require.NoError(t, a.ConfigSet(t.Context(), "maxmemory", "1").Err())
		},
		end: func(t *testing.T, _ *servers.RedisServer, a *redis.Client) {
			require.NoError(t, a.ConfigSet(t.Context(), "maxmemory", "0").Err())
		},
		says: "OOM",
	},
	"READONLY": { // it becomes the replica of an empty one, and forgets everything
		begin: func(t *testing.T, _ *servers.RedisServer, a *redis.Client) {
			other := servers.StartRedis(t)
			require.NoError(t, a.ReplicaOf(t.Context(), "127.0.0.1", strconv.Itoa(other.Port())).Err())
		},
		end: func(t *testing.T, _ *servers.RedisServer, a *redis.Client) {
			require.NoError(t, a.ReplicaOf(t.Context(), "no", "one").Err())
		},
		says: "READONLY",
	},
	"wrong password": {
		begin: func(t *testing.T, _ *servers.RedisServer, a *redis.Client) {
			require.NoError(t, a.ConfigSet(t.Context(), "requirepass", "rotated").Err())
			require.NoError(t, a.Do(t.Context(), "client", "kill", "type", "normal").Err()) // all but ourselves
			require.NoError(t, a.Do(t.Context(), "client", "kill", "type", "pubsub").Err())
		},
		end: func(t *testing.T, _ *servers.RedisServer, a *redis.Client) {
			require.NoError(t, a.ConfigSet(t.Context(), "requirepass", "").Err())
		},
		says: "NOAUTH",
	},
	"ACL denied": {
		begin: func(t *testing.T, _ *servers.RedisServer, a *redis.Client) {
			require.NoError(t, a.Do(t.Context(), "acl", "setuser", "default", "resetkeys").Err())
		},
		end: func(t *testing.T, _ *servers.RedisServer, a *redis.Client) {
			require.NoError(t, a.Do(t.Context(), "acl", "setuser", "default", "allkeys").Err())
		},
		says: "NOPERM",
	},
	// Killed and restarted from an old snapshot that takes its time: what came
	// after the snapshot is lost with it.
	"LOADING": {
		args: []string{"--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024"}, // µs for each key
		before: func(t *testing.T, a *redis.Client) {
			require.NoError(t, a.Eval(t.Context(), "for i = 1, 2000 do redis.call('SET', 'filler' .. i, i) end return 1",
				nil).Err())
			require.NoError(t, a.Save(t.Context()).Err())
		},
		begin: func(t *testing.T, s *servers.RedisServer, a *redis.Client) {
			s.Kill()
			var restarted sync.WaitGroup
			restarted.Go(s.Restart) // returns when it has loaded
			t.Cleanup(restarted.Wait)
		},
		end: func(t *testing.T, _ *servers.RedisServer, a *redis.Client) {
			eventually(t, "the snapshot to be loaded", func() bool { return a.Ping(t.Context()).Err() == nil })
		},
		says: "LOADING",
	},
}

// Redis answers and refuses. Publishing goes on, nothing is delivered that Redis
// does not know, and when it is well again everything is.
func TestFaultRedisRefusesForAWhile(t *testing.T) {
	parallel(t)
	for name, r := range refusals {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			server := servers.StartRedis(t, r.args...)
			w := &world{t: t, redis: server, env: []string{"BROKER_MYSQL_DSN=" + tables.MySQL(t), "BROKER_REDIS_URL=" +
				server.URL()}}
			w.with(patient...)
			sink := newSink(t, nil)
			p := w.start()
			p.sample("k="+sink.URL, "pull")
			a := admin(t, server)
			if r.before != nil {
				p.publish("m-before")
				eventually(t, "the first delivery", func() bool { return sink.times("m-before") > 0 })
				finishPull(t, p, "pull", 1)
				r.before(t, a)
			}
			early := p.walkedPast(sink, 10)
			l := startLoad(200, func() []*process { return []*process{p} })
			eventually(t, "load", func() bool { return l.count() > 60 })
			r.begin(t, server, a)
			eventually(t, "the refusal", func() bool {
				err := tell(t, server, "set", "test", "x")
				return err != nil && strings.Contains(err.Error(), r.says)
			})
			var acked []string
			for i := range 30 {
				acked = append(acked, fmt.Sprintf("m-refused-%d", i))
				p.publish(acked[i]) // 201
			}
			acked = append(append(acked, l.wait()...), early...)
			r.end(t, server, a)
			require.Zero(t, w.requireAll(sink, acked), "nothing twice: the broker remembers what it delivers")
			finishPull(t, p, "pull", len(acked))
		})
	}
}

// While Redis refuses, jobs wait; that the test above sees it recover is worth
// nothing unless it was away.
func TestFaultRedisThatIsFullHoldsUpFanOutAlone(t *testing.T) {
	parallel(t)
	w := realWorld(t).with(patient...)
	sink := newSink(t, nil)
	p := w.start()
	p.sample("k=" + sink.URL)
	p.publish("m-before")
	eventually(t, "a delivery", func() bool { return sink.times("m-before") == 1 })
	a := admin(t, w.redis)
	require.NoError(t, a.ConfigSet(t.Context(), "maxmemory", "1").Err())
	p.publish("m-1")
	eventually(t, "the metric that tells of it", func() bool {
		r := p.do("GET", "/metrics", "", "X-Broker-Admin-Token", adminToken)
		return strings.Contains(r.body, "\npenstock_fanout_errors_total ") &&
			!strings.Contains(r.body, "\npenstock_fanout_errors_total 0\n")
	})
	p.awaitWalk()
	require.Zero(t, sink.times("m-1"), "Redis has no room for the job, and the fail-safe finds none either")
	require.NoError(t, a.ConfigSet(t.Context(), "maxmemory", "0").Err())
	eventually(t, "the job", func() bool { return sink.times("m-1") == 1 })
}

// Redis forgets all scripts ten times a second under load: nobody sees it.
func TestFaultRedisScriptFlushIsNotSeen(t *testing.T) {
	parallel(t)
	w := realWorld(t).with(patient...)
	sink := newSink(t, nil)
	p := w.start()
	p.sample("k="+sink.URL, "pull")
	a := admin(t, w.redis)
	stop := make(chan struct{})
	var flusher sync.WaitGroup
	flushes := 0
	flusher.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				if a.ScriptFlush(t.Context()).Err() == nil {
					flushes++
				}
			}
		}
	})
	var mu sync.Mutex
	var acked []string
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 100 {
				body := fmt.Sprintf("m-%d-%d", worker, i)
				if !p.tryPublish(body) {
					t.Errorf("%s was not acknowledged", body)
				}
				mu.Lock()
				acked = append(acked, body)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Zero(t, w.requireAll(sink, acked), "nothing twice")
	finishPull(t, p, "pull", len(acked))
	close(stop)
	flusher.Wait()
	require.Greater(t, flushes, 3)
	require.NotContains(t, p.log.String(), "NOSCRIPT")
	require.NotContains(t, p.log.String(), "fan-out to Redis failed")
}

func TestRedisThatMayEvictIsWarnedOfAtTheStart(t *testing.T) {
	parallel(t)
	const warning = "Redis may evict keys of the queue"
	for policy, warned := range map[string]bool{"allkeys-lru": true, "volatile-ttl": true, "noeviction": false} {
		server := servers.StartRedis(t, "--maxmemory-policy", policy)
		w := &world{t: t, env: []string{"BROKER_DATA_DIR=" + t.TempDir(), "BROKER_REDIS_URL=" + server.URL()}}
		p := w.start()
		if warned {
			require.Contains(t, p.log.String(), warning)
			require.Contains(t, p.log.String(), policy)
		} else {
			require.NotContains(t, p.log.String(), warning)
		}
		require.Zero(t, p.stop())
	}
}
