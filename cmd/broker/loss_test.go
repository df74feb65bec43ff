package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Redis is emptied while requests are in flight, which takes the attempts and the
// leases with it. The brokers give them back, so that every message arrives once.
func TestFaultFlushallRepeatsNothingThatIsInFlight(t *testing.T) {
	parallel(t)
	for brokers := 1; brokers <= 2; brokers++ {
		t.Run(fmt.Sprintf("%d on real servers", brokers), func(t *testing.T) {
			parallel(t)
			w := realWorld(t).with("BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=30s",
				"BROKER_CONSUMER_CONCURRENCY=20")
			s := newSink(t, func(int, received) int { time.Sleep(2 * time.Second); return 204 })
			var ps []*process
			for range brokers {
				ps = append(ps, w.start())
			}
			ps[0].sample("k=" + s.URL)
			n := 60 * brokers // three rounds of requests
			for i := range n {
				ps[i%brokers].publish(fmt.Sprintf("m-%d", i))
			}
			for _, reached := range []int{1, n / 2, n - 1} {
				eventually(t, "requests in flight", func() bool { return s.count() >= reached })
				time.Sleep(500 * time.Millisecond)
				w.flushall()
			}
			eventually(t, "every message", func() bool { return s.distinct() == n })
			w.awaitRest(s)
			require.Equal(t, n, s.count(), "nothing twice")
			for _, r := range s.all() {
				require.Equal(t, "1", r.header.Get("X-Broker-Attempt"), r.body)
			}
		})
	}
}
