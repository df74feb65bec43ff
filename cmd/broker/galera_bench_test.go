//go:build galera

package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/servers"
)

// BenchmarkGaleraPublish says what publishing at one node of three costs, beside one server with the same settings:
// with and without message IDs, by 1 and by 32 clients at once, in turns. The nodes share one machine, so all three
// apply each write with the same processors.
//
//	make galera ARGS='-run none -bench GaleraPublish -benchtime 1x'
func BenchmarkGaleraPublish(b *testing.B) {
	const turns, span = 5, 4 * time.Second
	nodes, single := servers.StartGalera(b, 3), servers.StartMySQL(b)
	cfg, err := mysql.ParseDSN(nodes[0].DSN())
	require.NoError(b, err)
	cfg.Addr = fmt.Sprintf("127.0.0.1:%d", nodes[0].Port())
	brokers := map[string]*process{}
	for name, dsn := range map[string]string{"one": single.DSN(), "cluster": cfg.FormatDSN()} {
		redis := servers.StartRedis(b)
		w := &world{t: b, redis: redis, env: []string{"BROKER_REDIS_URL=" + redis.URL()}}
		brokers[name] = w.start("BROKER_MYSQL_DSN=" + dsn)
		brokers[name].sample()
	}
	for b.Loop() {
		for _, clients := range []int{1, 32} {
			for _, ids := range []bool{false, true} {
				rates, halves := map[string][]float64{}, map[string][]float64{}
				for turn := range turns + 1 {
					for name, p := range brokers {
						times := publishFor(b, p, clients, ids, span)
						if turn > 0 { // connections and pages are warm
							rates[name] = append(rates[name], float64(len(times))/span.Seconds())
							halves[name] = append(halves[name], quantile(times, .5))
						}
					}
				}
				ratio := make([]float64, turns)
				for i := range ratio {
					ratio[i] = rates["cluster"][i] / rates["one"][i]
				}
				b.Logf("%d clients, message IDs %v: one server %.0f/s, p50 %.2f ms; cluster %.0f/s, p50 %.2f ms; ratio %.2f",
					clients, ids, middle(rates["one"]), middle(halves["one"]), middle(rates["cluster"]), middle(halves["cluster"]),
					middle(ratio))
				b.ReportMetric(middle(ratio), fmt.Sprintf("ratio-%d-ids-%v", clients, ids))
			}
		}
	}
}

// publishFor returns the times of all publishes that clients made in span.
func publishFor(b *testing.B, p *process, clients int, ids bool, span time.Duration) (times []time.Duration) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			var own []time.Duration
			for end := time.Now().Add(span); time.Now().Before(end); {
				var headers []string
				if ids {
					headers = []string{"X-Broker-Message-ID", fmt.Sprint("id-", published.Add(1))}
				}
				begun := time.Now()
				if !p.tryPublish("a message of some length", headers...) {
					b.Error("a publish failed")
					return
				}
				own = append(own, time.Since(begun))
			}
			mu.Lock()
			defer mu.Unlock()
			times = append(times, own...)
		})
	}
	wg.Wait()
	return times
}

var published atomic.Int64

func middle(of []float64) float64 {
	sorted := append([]float64{}, of...)
	slices.Sort(sorted)
	return sorted[len(sorted)/2]
}
