package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An ordered sink remembers the successful deliveries of each key and what is in flight.
type orderedSink struct {
	*sink
	mu       sync.Mutex
	done     map[string][]int // by key: the numbers of the messages, in the order of success
	over     map[string]bool  // by body
	inFlight map[string]string
	broken   []string
}

// newOrderedSink takes bodies "key n" and fails the given share of attempts.
func newOrderedSink(t testing.TB, share float64) *orderedSink {
	s := &orderedSink{done: map[string][]int{}, over: map[string]bool{}, inFlight: map[string]string{}}
	s.sink = newSink(t, func(_ int, r received) int {
		key, number, _ := strings.Cut(r.body, " ")
		n, _ := strconv.Atoi(number)
		s.mu.Lock()
		if other := s.inFlight[key]; other != "" && other != r.body {
			s.broken = append(s.broken, fmt.Sprintf("%q is in flight with %q", r.body, other))
		}
		if r.header.Get("X-Broker-Ordering-Key") != key {
			s.broken = append(s.broken, fmt.Sprintf("%q has the key %q", r.body, r.header.Get("X-Broker-Ordering-Key")))
		}
		s.inFlight[key] = r.body
		s.mu.Unlock()
		time.Sleep(rand.N(5 * time.Millisecond))
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.inFlight[key] == r.body {
			delete(s.inFlight, key)
		}
		if rand.Float64() < share {
			return 500
		}
		if !s.over[r.body] {
			s.over[r.body] = true
			s.done[key] = append(s.done[key], n)
		}
		return 204
	})
	return s
}

func (s *orderedSink) delivered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.over)
}

// require checks that each key was delivered in order and alone.
func (s *orderedSink) require(t *testing.T, keys, each int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, s.broken)
	require.Len(t, s.done, keys)
	for key, got := range s.done {
		require.Len(t, got, each, key)
		require.IsIncreasing(t, got, key)
	}
}

// Messages of a key reach an ordered consumer one at a time, in the order of their commit,
// through failures, and whatever the consumer does with dead letters is as it has set.
func TestAnOrderedConsumerGetsEachKeyInOrder(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=5s", "BROKER_RETRY_BACKOFF=20ms",
			"BROKER_MAX_RETRIES=2", "BROKER_RETRY_MAX_DELAY=1s")
		for name, story := range map[string]func(*testing.T, *process){
			"through failures":       orderThroughFailures,
			"a dead letter blocks":   deadLetterBlocks,
			"a dead letter is alone": deadLetterIsSkipped,
			"a dead letter kills":    deadLetterKillsItsKey,
			"pull":                   orderOfPull,
			"bad keys":               badOrderingKeys,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

func orderThroughFailures(t *testing.T, p *process) {
	const keys, each = 20, 15
	sink := newOrderedSink(t, 0.2)
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path("/consumer/k"), "ordered", "true", "maxRetries", "1000", "backoff", "constant:10ms")
	var wg sync.WaitGroup
	for key := range keys {
		wg.Go(func() {
			for n := range each {
				s.publish(fmt.Sprintf("key-%d %d", key, n), "X-Broker-Ordering-Key", fmt.Sprintf("key-%d", key))
			}
		})
	}
	wg.Wait()
	// Lines of a batch keep their order too.
	var lines strings.Builder
	for n := range 50 {
		fmt.Fprintf(&lines, `{"Payload":"batch %d","OrderingKey":"batch"}`+"\n", n)
	}
	r := s.do("POST", s.path("/batch"), lines.String(), append([]string{"Content-Type", "application/x-ndjson"},
		producerTokens...)...)
	require.Equal(t, 50, strings.Count(r.body, `"Status":201`), r.body)
	eventually(t, "all deliveries", func() bool { return sink.delivered() == keys*each+50 })
	sink.mu.Lock()
	batch := sink.done["batch"]
	delete(sink.done, "batch")
	sink.mu.Unlock()
	require.IsIncreasing(t, batch)
	require.Len(t, batch, 50)
	sink.require(t, keys, each)
}

// failing returns a sink that refuses the bodies for which bad is true.
func failing(t *testing.T, bad func(body string) bool) *sink {
	return newSink(t, func(_ int, r received) int {
		if bad(r.body) {
			return 500
		}
		return 204
	})
}

// inKey publishes a message of key "x".
func (s *stage) inKey(body string) string { return s.publish(body, "X-Broker-Ordering-Key", "x") }

func deadLetterBlocks(t *testing.T, p *process) {
	var mu sync.Mutex
	broken := true
	sink := failing(t, func(body string) bool { mu.Lock(); defer mu.Unlock(); return body == "head" && broken })
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path("/consumer/k"), "ordered", "true", "maxRetries", "0")
	head := s.inKey("head")
	var behind []string
	for i := range 5 {
		behind = append(behind, s.inKey(fmt.Sprint("behind ", i)))
	}
	s.awaitStatus(head, "DEAD")
	s.awaitStatus(s.publish("other key", "X-Broker-Ordering-Key", "y"), "DELIVERED")
	s.awaitStatus(s.publish("no key"), "DELIVERED")
	time.Sleep(300 * time.Millisecond)
	for _, at := range behind {
		require.NotContains(t, []string{"DELIVERED", "DEAD"}, s.message(at).Jobs[0].Status)
	}
	mu.Lock()
	broken = false
	mu.Unlock()
	dead := s.dead("k", 10)
	require.Len(t, dead, 1)
	r := s.redriveAll("k", "k-token")
	require.Less(t, r.status, 300, r.body)
	for _, at := range behind {
		s.awaitStatus(at, "DELIVERED")
	}
	var got []string
	for _, r := range sink.all() {
		if strings.HasPrefix(r.body, "behind") {
			got = append(got, r.body)
		}
	}
	require.Equal(t, []string{"behind 0", "behind 1", "behind 2", "behind 3", "behind 4"}, got)
}

// A thousand messages wait behind a dead letter, in a queue with a window of fifty. Messages of
// other keys, and without a key, are not kept waiting. After the redrive all of them arrive in
// order.
func TestALongChainBehindADeadLetterHoldsUpNothingElse(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		const long = 1000
		p := w.start("BROKER_RATIONAL_DELAY=500ms", "BROKER_QUEUE_WINDOW=50")
		var broken atomic.Bool
		broken.Store(true)
		sink := failing(t, func(body string) bool { return body == "head" && broken.Load() })
		s := p.stage(t, "k="+sink.URL)
		s.put(s.path("/consumer/k"), "ordered", "true", "maxRetries", "0")
		s.awaitStatus(s.inKey("head"), "DEAD")
		var lines strings.Builder
		for n := range long {
			fmt.Fprintf(&lines, `{"Payload":"behind %04d","OrderingKey":"x"}`+"\n", n)
		}
		r := s.do("POST", s.path("/batch"), lines.String(), append([]string{"Content-Type", "application/x-ndjson"},
			producerTokens...)...)
		require.Equal(t, long, strings.Count(r.body, `"Status":201`))
		for n := range 20 {
			s.awaitStatus(s.publish(fmt.Sprint("other ", n), "X-Broker-Ordering-Key", fmt.Sprint(n%3)), "DELIVERED")
			s.awaitStatus(s.publish(fmt.Sprint("free ", n)), "DELIVERED")
		}
		require.Equal(t, 1+2*20, sink.count(), "nothing of the key")
		broken.Store(false)
		require.Less(t, s.redriveAll("k", "k-token").status, 300)
		eventually(t, "all deliveries", func() bool { return sink.count() == 1+2*20+1+long })
		var got []string
		for _, r := range sink.all() {
			if strings.HasPrefix(r.body, "behind") {
				got = append(got, r.body)
			}
		}
		require.Len(t, got, long)
		require.IsIncreasing(t, got)
	})
}

func deadLetterIsSkipped(t *testing.T, p *process) {
	sink := failing(t, func(body string) bool { return body == "head" })
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path("/consumer/k"), "ordered", "true", "onBlocked", "skip", "maxRetries", "1", "backoff", "constant:300ms")
	head, second, third := s.inKey("head"), s.inKey("second"), s.inKey("third")
	s.awaitStatus(third, "DELIVERED")
	require.Equal(t, "DEAD", s.message(head).Jobs[0].Status)
	require.Equal(t, "DELIVERED", s.message(second).Jobs[0].Status)
	var got []string
	for _, r := range sink.all() {
		got = append(got, r.body)
	}
	require.Equal(t, []string{"head", "head", "second", "third"}, got)
}

func deadLetterKillsItsKey(t *testing.T, p *process) {
	sink := failing(t, func(body string) bool { return body == "head" })
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path("/consumer/k"), "ordered", "true", "onBlocked", "dead-letter-key", "maxRetries", "0")
	s.inKey("head")
	second := s.inKey("second")
	third := s.inKey("third")
	j := s.awaitStatus(second, "DEAD").Jobs[0]
	require.Equal(t, 0, j.Attempts)
	require.Contains(t, j.Reason, "ordering key")
	require.Equal(t, "blocked_key", j.ReasonCode)
	s.awaitStatus(third, "DEAD")
	require.Equal(t, 0, sink.times("second")+sink.times("third"))
	s.awaitStatus(s.publish("y", "X-Broker-Ordering-Key", "y"), "DELIVERED")
}

func orderOfPull(t *testing.T, p *process) {
	s := p.stage(t, "k")
	s.put(s.path("/consumer/k"), "ordered", "true")
	for i := range 4 {
		s.inKey(fmt.Sprint("x", i))
	}
	s.publish("y0", "X-Broker-Ordering-Key", "y")
	claim := func() (bodies, ids []string) {
		r := s.do("POST", s.path("/consumer/k/claim?wait=2s"), "", consumerTokens("k")...)
		require.Equal(t, 200, r.status, r.body)
		for _, j := range r.json(t)["Result"].([]any) {
			job := j.(map[string]any)
			m := job["Message"].(map[string]any)
			bodies = append(bodies, m["Payload"].(string))
			ids = append(ids, job["ID"].(string))
			require.NotEmpty(t, m["Headers"].(map[string]any)["X-Broker-Ordering-Key"])
		}
		return bodies, ids
	}
	got := []string{}
	for len(got) < 5 {
		bodies, ids := claim()
		x := 0
		for i, body := range bodies {
			if strings.HasPrefix(body, "x") {
				x++
			}
			got = append(got, body)
			require.Equal(t, 202, s.move("k", ids[i], to("DELIVERED")).status)
		}
		require.LessOrEqual(t, x, 1, "one of a key at a time")
	}
	var xs []string
	for _, body := range got {
		if strings.HasPrefix(body, "x") {
			xs = append(xs, body)
		}
	}
	require.Equal(t, []string{"x0", "x1", "x2", "x3"}, xs)
}

func badOrderingKeys(t *testing.T, p *process) {
	s := p.stage(t, "k")
	requireProblem(t, s.post("body", "X-Broker-Ordering-Key", strings.Repeat("k", 256)), 400, "invalid_ordering_key")
	r := s.do("POST", s.path("/batch"), `{"Payload":"x","OrderingKey":"a\nb"}`,
		append([]string{"Content-Type", "application/x-ndjson"}, producerTokens...)...)
	require.Contains(t, r.body, "invalid_ordering_key")
	require.Empty(t, s.queued("k", ""))
}
