package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// While messages keep coming and Redis is emptied again and again, the retention
// takes what is over and old, and nothing else: not what is open, not a dead letter.
func TestFaultRetentionUnderLoadTakesOnlyWhatIsOver(t *testing.T) {
	parallel(t)
	w := realWorld(t).with(quick...).with("BROKER_RETENTION=60500ms") // the shortest that there is
	var mended atomic.Bool
	sink := newSink(t, func(_ int, r received) int {
		if strings.HasPrefix(r.body, "m-bad") && !mended.Load() {
			return http.StatusInternalServerError
		}
		return http.StatusNoContent
	})
	brokers := []*process{w.start(), w.start()}
	push, pull := brokers[0].stage(t, "k="+sink.URL), brokers[0].stage(t, "k")
	var good, bad, waiting, taken []string
	for i := range 20 {
		bad = append(bad, push.publish(fmt.Sprint("m-bad-", i)))
		good = append(good, push.publish(fmt.Sprint("m-good-", i), "X-Broker-Message-ID", fmt.Sprint("good-", i)))
		pull.publish(fmt.Sprint("m-pulled-", i))
	}
	for i, j := range pull.awaitQueued("k", 20) {
		path := pull.path("/message/", j.Message.MessageID)
		if i%2 == 0 {
			waiting = append(waiting, path)
			continue
		}
		taken = append(taken, path)
		pull.claim("k", j.ID)
		require.Equal(t, 202, pull.move("k", j.ID, to("DELIVERED")).status)
	}
	require.Len(t, taken, 10)

	l := startSteady(push, 2, func(n int) *process { return brokers[n] })
	removed := func() (n float64) {
		for _, p := range brokers {
			n += p.gauge(t, "penstock_purged_messages_total")
		}
		return n
	}
	eventually(t, "the first removals", func() bool { return removed() > 0 })
	flushes := w.flushed(sink)
	for range 5 {
		n := removed()
		flushes.flushall()
		l.progress(50)
		eventually(t, "more removals", func() bool { return removed() > n })
	}
	eventually(t, "all that is over to be gone", func() bool {
		return push.do("GET", good[len(good)-1], "").status == 404 && pull.do("GET", taken[len(taken)-1], "").status == 404
	})
	for _, path := range append(good, taken...) {
		require.Equal(t, 404, push.do("GET", path, "").status, path)
	}
	for _, path := range append(bad, waiting...) {
		require.Equal(t, 200, push.do("GET", path, "").status, path)
	}
	require.Equal(t, 201, push.post("m-good-again", "X-Broker-Message-ID", "good-0").status, "its ID is free again")
	pull.awaitQueued("k", len(waiting))

	mended.Store(true)
	require.Equal(t, 202, push.redriveAll("k", "k-token").status)
	l.finish()
	eventually(t, "the dead letters to be delivered after all", func() bool {
		for i := range bad {
			if sink.times(fmt.Sprint("m-bad-", i)) < 4 { // three attempts, and the redrive
				return false
			}
		}
		return true
	})
	w.requireAll(sink, l.bodies())
	flushes.requireNoMore()
}
