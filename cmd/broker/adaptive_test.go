package main

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An adaptive consumer that fails gets one attempt a second, then one a minute, on all brokers,
// also after a lost Redis and a restart. It gets faster by steps when it succeeds.
func TestAnAdaptiveConsumerIsSpared(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		settings := []string{"BROKER_ADAPTIVE_PERIOD=1s", "BROKER_ADAPTIVE_MAX=8", "BROKER_RETRY_BACKOFF=50ms",
			"BROKER_RETRY_MAX_DELAY=50ms", "BROKER_MAX_RETRIES=10000"}
		p := w.start(settings...)
		brokers := []*process{p}
		if w.redis != nil {
			brokers = append(brokers, w.start(settings...))
		}
		var healthy atomic.Bool
		sink := newSink(t, func(int, received) int {
			if healthy.Load() {
				return 204
			}
			return 503
		})
		ops := newSink(t, nil)
		p.attach("ops", ops)
		s := p.stage(t, "k="+sink.URL)
		s.put(s.path("/consumer/k"), "adaptive", "true")
		for n := range 30 {
			s.publish(strconv.Itoa(n))
		}
		rate := func(want string) {
			t.Helper()
			for _, b := range brokers {
				eventually(t, want, func() bool { return s.on(b).consumer("k").Rate == want })
			}
		}
		// slow waits until the consumer was slow the n-th time. On a busy machine a period may pass
		// between two looks: the log tells then.
		slow := func(n int) {
			t.Helper()
			eventually(t, "SLOW", func() bool {
				if k := s.consumer("k"); k.Rate == "SLOW" {
					if n == 1 {
						require.Equal(t, "1/1s", k.CurrentRate)
					}
					return true
				}
				lines := 0
				for _, b := range w.processes {
					lines += strings.Count(b.log.String(), `"rate":"SLOW","attempts":1,"per":1000000000`)
				}
				return lines >= n
			})
		}
		slow(1)
		rate("HEARTBEAT")
		require.Equal(t, "1/1m", s.consumer("k").CurrentRate)
		require.Contains(t, p.do("GET", "/metrics/consumers", "").body, `penstock_adaptive_rate{channel="`+s.channel+
			`",consumer="k"} 0.016`)
		eventually(t, "the alert", func() bool { return ops.count() > 0 })
		before := sink.count()
		time.Sleep(3 * time.Second)
		alerts, _ := alertsAt(t, ops, s.channel)
		require.Equal(t, []string{"consumer.slow"}, events(alerts), "one for the way down")
		require.Contains(t, alerts[0].Reason, "attempts failed within a period")
		require.LessOrEqual(t, sink.count(), before+1, "a dead endpoint costs a request a minute")
		if w.redis != nil {
			w.flushall()
			p.kill()
			brokers[0] = w.start(settings...)
			s = s.on(brokers[0])
			rate("HEARTBEAT")
			time.Sleep(2 * time.Second)
			require.LessOrEqual(t, sink.count(), before+3, "a lost Redis and a restart may add one each")
		}
		healthy.Store(true)
		slow(2)
		rate("NORMAL")
		eventually(t, "all deliveries", func() bool {
			return strings.HasSuffix(s.consumer("k").CurrentRate, "/1s") || s.consumer("k").CurrentRate == ""
		})
		eventually(t, "an empty queue", func() bool { return *s.counted("k").Queued == 0 })
		s.publish("after")
		eventually(t, "the next one", func() bool { return sink.times("after") == 1 })

		r := brokers[0].do("PUT", s.path("/consumer/k"), "adaptive=maybe", "Content-Type", formType)
		requireProblem(t, r, 400, "invalid_policy")
		require.Contains(t, r.body, "adaptive")
	})
}

// Retry-After of a 429 or 503 holds the whole consumer back, on all brokers, also messages that
// were never attempted. Of another answer it does not.
func TestRetryAfterHoldsTheWholeConsumer(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_RETRY_BACKOFF=50ms")
		brokers := []*process{p}
		if w.redis != nil {
			brokers = append(brokers, w.start("BROKER_RETRY_BACKOFF=50ms"))
		}
		for status, holds := range map[int]bool{429: true, 503: true, 500: false} {
			var first atomic.Pointer[time.Time]
			var early atomic.Int64
			wait := 2 * time.Second
			if !holds { // longer than a busy machine takes to send the next one
				wait = time.Hour
			}
			server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				now := time.Now()
				if first.CompareAndSwap(nil, &now) {
					rw.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)))
					rw.WriteHeader(status)
					return
				}
				if time.Since(*first.Load()) < wait {
					early.Add(1)
				}
				rw.WriteHeader(204)
			}))
			t.Cleanup(server.Close)
			s := p.stage(t, "k="+server.URL)
			at := s.publish("first")
			eventually(t, "an answer", func() bool { return first.Load() != nil })
			eventually(t, "its outcome", func() bool { return s.message(at).Jobs[0].Attempts >= 1 })
			var all []string
			for n := range 6 {
				all = append(all, s.on(brokers[n%len(brokers)]).publish(strconv.Itoa(n)))
			}
			for _, at := range append(all, at) {
				s.awaitStatus(at, "DELIVERED")
			}
			require.Equal(t, holds, early.Load() == 0, "%d: %d requests within %v", status, early.Load(), wait)
		}
	})
}
