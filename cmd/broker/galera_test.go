//go:build galera

package main

import (
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/servers"
)

// A galeraWorld has a Galera cluster, and a broker on each of its nodes.
type galeraWorld struct {
	*world
	nodes   []*servers.MySQLServer
	brokers []*process
}

// startGalera starts three nodes and, at one moment, a broker on each: one of them makes the tables.
func startGalera(t *testing.T) *galeraWorld {
	nodes, redis := servers.StartGalera(t, 3), servers.StartRedis(t)
	w := &galeraWorld{nodes: nodes, world: &world{t: t, redis: redis, env: append([]string{"BROKER_REDIS_URL=" +
		redis.URL()}, quick...)}}
	cfg, err := mysql.ParseDSN(nodes[0].DSN())
	require.NoError(t, err)
	for _, n := range nodes {
		cfg.Addr = fmt.Sprintf("127.0.0.1:%d", n.Port())
		w.brokers = append(w.brokers, w.launch("BROKER_MYSQL_DSN="+cfg.FormatDSN()))
	}
	for _, p := range w.brokers {
		p.awaitReady()
	}
	return w
}

// count asks a node.
func (w *galeraWorld) count(node int, query string) (n int) {
	w.t.Helper()
	cfg, err := mysql.ParseDSN(w.nodes[node].RootDSN())
	require.NoError(w.t, err)
	db, err := sql.Open("mysql", cfg.FormatDSN())
	require.NoError(w.t, err)
	defer db.Close()
	var database string
	require.NoError(w.t, db.QueryRow("SELECT table_schema FROM information_schema.tables WHERE table_name = "+
		"'message_keys'").Scan(&database))
	require.NoError(w.t, db.QueryRow(fmt.Sprintf(query, database)).Scan(&n))
	return n
}

// A consumer that was registered at one node gets every message that is published at another one afterwards,
// and a message that was published at two nodes at once is stored once.
func TestGaleraEachNodeObeysWhatWasAnsweredAtAnother(t *testing.T) {
	w := startGalera(t)
	w.brokers[0].sample()
	sink := newSink(t, nil)
	const rounds = 40
	for i := range rounds {
		w.brokers[i%3].put(fmt.Sprintf("/channel/c/consumer/k%d", i), "token", "k", "callbackUrl", sink.URL)
		w.brokers[(i+1)%3].publish(fmt.Sprint("after-", i))
	}
	for i := range rounds { // both are of one identity
		var wg sync.WaitGroup
		var answers [2]int
		for j := range answers {
			wg.Go(func() {
				r, err := w.brokers[(i+j)%3].try("POST", "/channel/c/broadcast", fmt.Sprint("twin-", i),
					append(append([]string{}, producerTokens...), "X-Broker-Message-ID", fmt.Sprint("twin-", i))...)
				if err == nil {
					answers[j] = r.status
				}
			})
		}
		wg.Wait()
		require.ElementsMatch(t, []int{201, 409}, answers[:], "round %d", i)
	}
	eventually(t, "each consumer has each message that came after it", func() bool {
		for i := range rounds {
			if sink.times(fmt.Sprint("after-", i)) != i+1 || sink.times(fmt.Sprint("twin-", i)) != rounds {
				return false
			}
		}
		return true
	})
	require.Equal(t, 2*rounds, w.count(2, "SELECT COUNT(*) FROM %s.messages"))
}

// Nodes are killed, join again and stand still under load, each with its broker: nothing is lost, and nothing is
// stored twice.
func TestGaleraFaultsOfNodesLoseNothing(t *testing.T) {
	w := startGalera(t)
	sink := newSink(t, nil)
	w.brokers[0].sample("k=" + sink.URL)
	l := startLoad(100_000, func() []*process { return w.brokers })
	progress := func(n int) {
		t.Helper()
		before := l.count()
		eventually(t, "messages go on", func() bool { return l.count() >= before+n })
	}
	for round := range 2 {
		progress(200)
		killed, paused := w.nodes[1+round%2], w.nodes[2-round%2]
		killed.Kill()
		progress(200) // at the others
		killed.Restart()
		killed.AwaitSynced(3)
		progress(200)
		paused.Pause()
		time.Sleep(8 * time.Second) // longer than the others wait for it
		progress(100)
		paused.Resume()
		paused.AwaitSynced(3)
	}
	progress(200)
	acked := l.finish()
	eventually(t, "all is delivered", func() bool { return sink.hasAll(acked) })
	for _, body := range acked {
		require.Equal(t, 1, sink.jobsOf(body), body)
	}
	stored := w.count(1, "SELECT COUNT(*) FROM %s.messages")
	require.Equal(t, stored, w.count(1, "SELECT COUNT(DISTINCT payload) FROM %s.messages"), "a message is stored twice")
	require.GreaterOrEqual(t, stored, len(acked))
	t.Logf("%d acknowledged, %d stored", len(acked), stored)
}
