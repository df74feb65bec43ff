package main

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

// most returns the largest number of times in any window of that length, the begin included and
// the end not.
func most(at []time.Time, window time.Duration) int {
	most, from := 0, 0
	for i := range at {
		for !at[i].Before(at[from].Add(window)) {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

// A lateness is how late a goroutine of this process was, at most, that wanted to sleep for a
// moment. Requests that come to a sink at such a time seem to come together.
type lateness struct {
	stop chan struct{}
	most chan time.Duration
}

func measureLateness() *lateness {
	l := &lateness{make(chan struct{}), make(chan time.Duration)}
	go func() {
		var most time.Duration
		for {
			begun := time.Now()
			select {
			case <-l.stop:
				l.most <- most
				return
			case <-time.After(time.Millisecond):
				most = max(most, time.Since(begun)-time.Millisecond)
			}
		}
	}()
	return l
}

// end stops and returns the largest lateness.
func (l *lateness) end() time.Duration {
	close(l.stop)
	return <-l.most
}

// arrivals returns when requests arrived, in order.
func arrivals(s *sink) []time.Time {
	var out []time.Time
	for _, r := range s.all() {
		out = append(out, r.at)
	}
	slices.SortFunc(out, time.Time.Compare)
	return out
}

// A rate holds at the consumer: with failures, on three brokers of which one is killed, and
// through a lost Redis, which may add one more limit to a window. The broker with the embedded Redis
// runs without the race detector: that Redis sorts the whole window at each attempt.
func TestARateHoldsAtTheConsumer(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		if w.redis == nil {
			w.program = plainProgram(t)
		}
		settings := []string{"BROKER_RATIONAL_DELAY=500ms", "BROKER_RETRY_BACKOFF=100ms", "BROKER_MAX_RETRIES=1000"}
		brokers := []*process{w.start(settings...)}
		if w.redis != nil {
			brokers = append(brokers, w.start(settings...), w.start(settings...))
		}
		type target struct {
			rate   string
			n      int
			window time.Duration
			count  int // messages
			sink   *sink
		}
		targets := []*target{{"1/1s", 1, time.Second, 8, nil}, {"100/1s", 100, time.Second, 500, nil},
			{"500/5s", 500, 5 * time.Second, 1100, nil}, {"5000/1m", 5000, time.Minute, 5300, nil}}
		stalls := measureLateness()
		var all sync.WaitGroup
		stages := make([]*stage, len(targets))
		for i, g := range targets {
			var calls atomic.Int64
			g.sink = newSink(t, func(int, received) int {
				if calls.Add(1)%20 == 0 {
					return 500
				}
				return 204
			})
			stages[i] = brokers[0].stage(t, "k="+g.sink.URL)
			stages[i].put(stages[i].path("/consumer/k"), "rateLimit", g.rate)
		}
		for i, g := range targets {
			all.Go(func() {
				for n := range g.count {
					p := brokers[n%min(len(brokers), 2)] // the third one is killed
					r, err := p.ask("POST", stages[i].path("/broadcast"), strconv.Itoa(n), producerTokens...)
					if err != nil || r.status != 201 {
						t.Errorf("publish: %v %v", r, err)
						return
					}
				}
			})
		}
		all.Wait()
		var lost time.Time
		if len(brokers) == 3 {
			eventually(t, "some deliveries", func() bool { return targets[0].sink.count() >= 3 })
			brokers[2].kill()
			eventually(t, "more deliveries", func() bool { return targets[0].sink.count() >= 5 })
			lost = time.Now()
			w.flushall()
		}
		for _, g := range targets {
			eventually(t, "all deliveries at "+g.rate, func() bool { return g.sink.distinct() == g.count })
		}
		late := stalls.end()
		for _, g := range targets {
			times := arrivals(g.sink)
			window := g.window - min(late, g.window/2)
			before := times
			if !lost.IsZero() {
				i, _ := slices.BinarySearchFunc(times, lost, time.Time.Compare)
				before = times[:i]
				require.LessOrEqual(t, most(times[i:], window), 2*g.n, g.rate)
			}
			require.LessOrEqual(t, most(before, window), g.n, g.rate)
			t.Logf("%s: %d requests in %v, at most %d in a window; this process was %v late", g.rate, len(times),
				times[len(times)-1].Sub(times[0]), most(times, g.window), late)
		}
	})
}

// The concurrency counts the requests of all brokers.
func TestAConcurrencyHoldsAtTheConsumer(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start()
		others := []*process{p}
		if w.redis != nil {
			others = append(others, w.start(), w.start())
		}
		var now, peak atomic.Int64
		published := make(chan struct{})
		release := sync.OnceFunc(func() { close(published) })
		defer release()
		sink := newSink(t, func(int, received) int {
			n := now.Add(1)
			defer now.Add(-1)
			for old := peak.Load(); n > old && !peak.CompareAndSwap(old, n); old = peak.Load() {
			}
			<-published
			time.Sleep(20 * time.Millisecond)
			return 204
		})
		s := p.stage(t, "k="+sink.URL)
		s.put(s.path("/consumer/k"), "concurrency", "3")
		for n := range 60 {
			s.on(others[n%len(others)]).publish(strconv.Itoa(n))
		}
		eventually(t, "as many requests as are allowed", func() bool { return peak.Load() == 3 })
		release()
		eventually(t, "all deliveries", func() bool { return sink.distinct() == 60 })
		require.EqualValues(t, 3, peak.Load())
	})
}

// A pull consumer gets no more jobs than its rate allows, and is told when to come again.
func TestARateOfAPullConsumer(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start()
		s := p.stage(t, "k")
		s.put(s.path("/consumer/k"), "rateLimit", "3/1h")
		for n := range 6 {
			s.publish(strconv.Itoa(n))
		}
		jobs := s.awaitQueued("k", 6)
		claim := func() reply {
			return s.do("POST", s.path("/consumer/k/claim?limit=2"), "", consumerTokens("k")...)
		}
		require.Equal(t, 2, len(claimed(t, claim())))
		require.Equal(t, 202, s.move("k", jobs[5].ID, to("INFLIGHT")).status)
		r := claim()
		require.Empty(t, claimed(t, r))
		wait, err := strconv.Atoi(r.header.Get("Retry-After"))
		require.NoError(t, err)
		require.Greater(t, wait, 3500)
		r = s.move("k", jobs[4].ID, to("INFLIGHT"))
		requireProblem(t, r, 429, "rate_limited")
		wait, err = strconv.Atoi(r.header.Get("Retry-After"))
		require.NoError(t, err)
		require.Greater(t, wait, 3500)
		require.Len(t, s.queued("k", "limit=100"), 3)

		s.put(s.path("/consumer/k"), "rateLimit", "", "concurrency", "3")
		r = claim()
		require.Empty(t, claimed(t, r), "three are in flight")
		require.Equal(t, "1", r.header.Get("Retry-After"))
		requireProblem(t, s.move("k", jobs[4].ID, to("INFLIGHT")), 429, "too_many_in_flight")
		require.Equal(t, 202, s.move("k", jobs[5].ID, to("DELIVERED")).status)
		require.Len(t, claimed(t, claim()), 1)
		for _, bad := range []string{"0/1s", "1/0s", "100", "-1/1s", "1/25h", "x/1s", "1/1x"} {
			r := p.do("PUT", s.path("/consumer/k"), "rateLimit="+bad, "Content-Type", formType)
			require.Equal(t, 400, r.status, bad)
			require.Contains(t, r.body, "rateLimit", bad)
		}
	})
}

// claimed reads the answer to a claim.
func claimed(t *testing.T, r reply) []apitype.ClaimedJob {
	t.Helper()
	require.Equal(t, 200, r.status, r.body)
	var jobs apitype.ClaimedJobs
	strictjson.Decode(t, []byte(r.body), &jobs)
	return jobs.Result
}

// With thousands of retries due, a new message is delivered among the first.
func TestRetriesDoNotHoldUpNewMessages(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_RETRY_BACKOFF=100ms", "BROKER_RETRY_MAX_DELAY=100ms", "BROKER_MAX_RETRIES=10000",
			"BROKER_CONSUMER_CONCURRENCY=4")
		const old, fresh = 400, 20
		sink := newSink(t, func(_ int, r received) int {
			time.Sleep(time.Millisecond)
			if r.body[0] == 'o' {
				return 500
			}
			return 204
		})
		s := p.stage(t, "k="+sink.URL)
		for n := range old {
			s.publish(fmt.Sprint("old ", n), "X-Broker-Message-Priority", "9")
		}
		eventually(t, "retries", func() bool { return sink.count() > old*3/2 })
		for n := range fresh {
			before := sink.count()
			body := fmt.Sprint("new ", n)
			s.publish(body)
			eventually(t, body, func() bool { return sink.times(body) > 0 })
			for i, r := range sink.all()[before:] {
				if r.body == body {
					require.Less(t, i, old/2, "requests before the new message")
				}
			}
		}
	})
}
