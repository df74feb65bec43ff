package main

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

// change posts to a route of a consumer and returns the consumer.
func (s *stage) change(consumer, what string, headers ...string) apitype.Consumer {
	s.t.Helper()
	k := s.decodeConsumer(s.do("POST", s.path("/consumer/", consumer, "/", what), "", headers...))
	if k.Queued == nil || k.InFlight == nil || k.DeadLetters == nil {
		k = s.counted(consumer)
	}
	return k
}

// counted returns a consumer with its counts, which an answer lacks where they take too long.
func (s *stage) counted(id string) (k apitype.Consumer) {
	s.t.Helper()
	eventually(s.t, "the counts of "+id, func() bool {
		k = s.consumer(id)
		return k.Queued != nil && k.InFlight != nil && k.DeadLetters != nil
	})
	return k
}

func (s *stage) consumer(id string) apitype.Consumer {
	s.t.Helper()
	return s.decodeConsumer(s.do("GET", s.path("/consumer/", id), ""))
}

func (s *stage) decodeConsumer(r reply) apitype.Consumer {
	s.t.Helper()
	require.Equal(s.t, 200, r.status, r.body)
	var k apitype.Consumer
	strictjson.Decode(s.t, []byte(r.body), &k)
	return k
}

// awaitState waits until a consumer has the state.
func (s *stage) awaitState(consumer, state string) (k apitype.Consumer) {
	s.t.Helper()
	eventually(s.t, consumer+" to be "+state, func() bool {
		k = s.consumer(consumer)
		return k.State == state
	})
	return k
}

// A consumer has a state, which says whether its jobs are delivered, on both kinds of stores.
func TestConsumersArePausedGoneAndDead(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=5s", "BROKER_RETRY_BACKOFF=100ms",
			"BROKER_MAX_RETRIES=2", "BROKER_RETRY_MAX_DELAY=1s", "BROKER_PUBLIC_URL=https://broker.example/")
		for name, story := range map[string]func(*testing.T, *process){
			"a paused consumer keeps its jobs":          pausedConsumer,
			"a paused pull consumer":                    pausedPullConsumer,
			"410":                                       goneConsumer,
			"failures in a window":                      tombstone,
			"failures outside of the window":            noTombstone,
			"a paused channel":                          pausedChannel,
			"the state stands in the consumer":          shownState,
			"pause and resume in turns lose nothing":    alternation,
			"access to the state":                       accessToState,
			"a job that was in flight finishes a pause": pausedInFlight,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

func pausedConsumer(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	require.Equal(t, "ACTIVE", s.consumer("k").State)
	k := s.change("k", "pause")
	require.Equal(t, "PAUSED", k.State)
	require.NotEmpty(t, k.StateReason)
	first := k.StateChangedAt
	require.Equal(t, first, s.change("k", "pause").StateChangedAt, "nothing changed")
	require.Equal(t, "PAUSED", s.change("k", "revive").State, "revive ends no pause")
	var at []string
	for i := range 20 {
		at = append(at, s.publish(fmt.Sprint("body ", i)))
	}
	time.Sleep(time.Second)
	require.Zero(t, sink.count())
	k = s.counted("k")
	require.Equal(t, 20, *k.Queued)
	require.Zero(t, *k.InFlight)
	require.Zero(t, *k.DeadLetters)
	require.WithinDuration(t, time.Now(), k.OldestQueuedAt.Time, 20*time.Second)
	require.Equal(t, "QUEUED", s.message(at[0]).Jobs[0].Status)
	k = s.change("k", "resume")
	require.Equal(t, "ACTIVE", k.State)
	require.Empty(t, k.StateReason)
	for _, l := range at {
		require.Equal(t, 1, s.awaitStatus(l, "DELIVERED").Jobs[0].Attempts)
	}
	require.Equal(t, 20, sink.count())
	k = s.counted("k")
	require.Zero(t, *k.Queued)
	require.Nil(t, k.OldestQueuedAt)
}

func pausedInFlight(t *testing.T, p *process) {
	sink, free := newHeldSink(t, 204)
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path("/consumer/k"), "timeout", "2m")
	at := s.publish("in flight")
	eventually(t, "the request", func() bool { return sink.count() == 1 })
	k := s.change("k", "pause")
	require.Equal(t, 1, *k.InFlight)
	require.Zero(t, *k.Queued, "what is in flight is not queued")
	later := s.publish("later")
	free()
	s.awaitStatus(at, "DELIVERED")
	require.Equal(t, "QUEUED", s.message(later).Jobs[0].Status)
	require.Equal(t, 1, sink.count())
	s.change("k", "resume")
	s.awaitStatus(later, "DELIVERED")
}

func pausedPullConsumer(t *testing.T, p *process) {
	s := p.stage(t, "k")
	held := s.newJob("k")
	lease := s.claim("k", held)
	s.change("k", "pause")
	s.publish("while paused")
	job := s.awaitQueued("k", 1)[0].ID
	r := s.do("POST", s.path("/consumer/k/claim"), "", consumerTokens("k")...)
	require.Equal(t, 200, r.status, r.body)
	require.Contains(t, r.body, `"Result":[]`)
	require.NotEmpty(t, r.header.Get("Retry-After"))
	r = s.move("k", job, to("INFLIGHT"))
	requireProblem(t, r, 429, "consumer_held")
	require.NotEmpty(t, r.header.Get("Retry-After"))
	require.Equal(t, 202, s.move("k", held, to("INFLIGHT")).status, "it is in flight")
	require.Equal(t, 202, s.move("k", held, to("DELIVERED"), "X-Broker-Lease", lease).status, "outcomes are accepted")
	require.Equal(t, "DELIVERED", s.job("k", held).Status)

	// A long poll gets the job as soon as the consumer is resumed.
	polled := make(chan string)
	go func() {
		r, err := s.try("POST", s.path("/consumer/k/claim?wait=15"), "", consumerTokens("k")...)
		if err != nil {
			r.body = err.Error()
		}
		polled <- r.body
	}()
	time.Sleep(300 * time.Millisecond)
	begun := time.Now()
	s.change("k", "resume")
	require.Contains(t, <-polled, job)
	require.Less(t, time.Since(begun), 10*time.Second)
}

func goneConsumer(t *testing.T, p *process) {
	var gone atomic.Bool
	gone.Store(true)
	sink := newSink(t, func(int, received) int {
		if gone.Load() {
			return 410
		}
		return 204
	})
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path("/consumer/k"), "maxRetries", "0")
	at := s.publish("body")
	k := s.awaitState("k", "GONE")
	require.Contains(t, k.StateReason, s.message(at).Jobs[0].ID)
	require.Contains(t, k.StateReason, "410")
	eventually(t, "the job to be back", func() bool { return *s.counted("k").Queued == 1 })
	require.Equal(t, "QUEUED", s.message(at).Jobs[0].Status)
	later := s.publish("later")
	time.Sleep(500 * time.Millisecond)
	require.Equal(t, 1, sink.count(), "it is held")
	require.Equal(t, "GONE", s.change("k", "pause").State)

	require.Equal(t, "ACTIVE", s.change("k", "resume").State) // it answers 410 again
	k = s.awaitState("k", "GONE")
	gone.Store(false)
	s.change("k", "revive")
	require.Equal(t, 1, s.awaitStatus(at, "DELIVERED").Jobs[0].Attempts,
		"no 410 was charged, although there is one attempt only")
	s.awaitStatus(later, "DELIVERED")
	require.Equal(t, "ACTIVE", s.consumer("k").State)
}

func tombstone(t *testing.T, p *process) {
	var healthy atomic.Bool
	sink := newSink(t, func(int, received) int {
		if healthy.Load() {
			return 204
		}
		return 500
	})
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path("/consumer/k"), "tombstoneAfter", "3", "tombstoneWindow", "1h", "maxRetries", "1000", "backoff",
		"constant:100ms")
	at := s.publish("first")
	k := s.awaitState("k", "DEAD")
	require.Contains(t, k.StateReason, "4 failures within 1h")
	require.Equal(t, 4, sink.count(), "failure 4 was the last call")
	require.Equal(t, 1, strings.Count(p.log.String(), fmt.Sprintf("channel=%s consumer=k state=DEAD", s.channel))+
		strings.Count(p.log.String(), fmt.Sprintf(`"channel":%q,"consumer":"k","state":"DEAD"`, s.channel)), "one transition")
	for i := range 5 {
		s.publish(fmt.Sprint("later ", i))
	}
	time.Sleep(700 * time.Millisecond)
	require.Equal(t, 4, sink.count(), "it is held")
	require.Equal(t, "QUEUED", s.message(at).Jobs[0].Status)
	require.Equal(t, "DEAD", s.change("k", "resume").State, "resume does not revive")

	// A revival is one probe; its failure means dead again.
	k = s.change("k", "revive", consumerTokens("k")...)
	require.Equal(t, "DEAD", k.State)
	eventually(t, "the probe", func() bool { return sink.count() == 5 })
	eventually(t, "its end", func() bool { return strings.Contains(s.consumer("k").StateReason, "the probe") })
	time.Sleep(500 * time.Millisecond)
	require.Equal(t, 5, sink.count())
	require.Equal(t, 6, *s.counted("k").Queued)

	healthy.Store(true)
	s.change("k", "revive")
	s.awaitState("k", "ACTIVE")
	s.awaitStatus(at, "DELIVERED")
	eventually(t, "all jobs", func() bool { return sink.count() == 11 })

	// The failures from before the revival do not count any more.
	healthy.Store(false)
	at = s.publish("again")
	eventually(t, "three failures", func() bool { return sink.count() >= 14 })
	healthy.Store(true)
	s.awaitStatus(at, "DELIVERED")
	require.Equal(t, "ACTIVE", s.consumer("k").State)
	healthy.Store(false)
	s.publish("once more") // the success between has erased nothing
	s.awaitState("k", "DEAD")
}

func noTombstone(t *testing.T, p *process) {
	sink := newSink(t, func(int, received) int { return 500 })
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path("/consumer/k"), "tombstoneAfter", "2", "tombstoneWindow", "1s", "maxRetries", "6", "backoff",
		"constant:700ms")
	s.awaitStatus(s.publish("body"), "DEAD")
	require.Equal(t, "ACTIVE", s.consumer("k").State)
	require.Equal(t, 1, *s.counted("k").DeadLetters)
}

func pausedChannel(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	first := s.publish("first")
	r := s.do("POST", s.path("/pause"), "")
	require.Equal(t, 200, r.status, r.body)
	require.Contains(t, r.body, `"State":"PAUSED"`)
	require.Equal(t, 200, s.do("POST", s.path("/pause"), "").status)
	r = s.post("refused")
	requireProblem(t, r, 503, "channel_paused")
	require.NotEmpty(t, r.header.Get("Retry-After"))
	r = s.do("POST", s.path("/batch"), `{"Payload":"a"}`+"\n"+`{"Payload":"b"}`+"\n",
		append([]string{"Content-Type", "application/x-ndjson"}, producerTokens...)...)
	require.Equal(t, 200, r.status, r.body)
	require.Equal(t, 2, strings.Count(r.body, "channel_paused"), r.body)
	s.awaitStatus(first, "DELIVERED")
	require.Equal(t, 200, s.do("POST", s.path("/resume"), "").status)
	s.awaitStatus(s.publish("second"), "DELIVERED")
	require.Equal(t, 2, sink.count())
}

func shownState(t *testing.T, p *process) {
	s := p.stage(t, "k")
	r := s.do("GET", s.path("/consumer/k"), "")
	tag := r.header.Get("ETag")
	s.publish("body")
	s.awaitQueued("k", 1)
	r = s.do("GET", s.path("/consumer/k"), "")
	require.Equal(t, tag, r.header.Get("ETag"), "counts are not in the tag")
	require.Equal(t, 1, *s.counted("k").Queued)
	require.Equal(t, 304, s.do("GET", s.path("/consumer/k"), "", "If-None-Match", tag).status)
	since := r.header.Get("Last-Modified")
	s.change("k", "pause")
	r = s.do("GET", s.path("/consumer/k"), "", "If-None-Match", tag, "If-Modified-Since", since)
	require.Equal(t, 200, r.status, "the state is")
	require.Equal(t, 200, s.do("PUT", s.path("/consumer/k"), "name=new", "If-Match", r.header.Get("ETag"), "Content-Type",
		"application/x-www-form-urlencoded").status)
	require.Equal(t, "PAUSED", s.consumer("k").State, "a PUT changes no state")
	require.Equal(t, "NORMAL", s.consumer("k").Rate)
}

func accessToState(t *testing.T, p *process) {
	s := p.stage(t, "k")
	require.Equal(t, 404, s.do("POST", s.path("/consumer/none/pause"), "").status)
	require.Equal(t, 404, s.do("POST", "/channel/none-of-these/pause", "").status)
	r := s.do("GET", s.path("/consumer/k/revive/forged.token"), "")
	requireProblem(t, r, 410, "link_invalid")
	requireProblem(t, s.do("POST", s.path("/consumer/k/revive/forged.token"), ""), 410, "link_invalid")
}

func alternation(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	var at []string
	for i := range 60 {
		if i%5 == 0 {
			s.change("k", "pause")
		}
		at = append(at, s.publish(fmt.Sprint("body ", i)))
		if i%5 == 2 {
			s.change("k", "resume")
		}
	}
	s.change("k", "resume")
	for _, l := range at {
		require.Equal(t, 1, s.awaitStatus(l, "DELIVERED").Jobs[0].Attempts)
	}
	require.Equal(t, 60, sink.count())
}

// Within a second of a pause no other broker begins an attempt, and neither a Redis that lost
// everything nor a restart changes a state or loses a job.
func TestAStateHoldsOnEveryBrokerAndThroughALostRedis(t *testing.T) {
	parallel(t)
	w := realWorld(t).with("BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=5s", "BROKER_RETRY_BACKOFF=100ms")
	a, b := w.start(), w.start()
	paused, dead := newSink(t, nil), newSink(t, func(int, received) int { return 500 })
	s := a.stage(t, "paused="+paused.URL, "dead="+dead.URL)
	s.put(s.path("/consumer/dead"), "tombstoneAfter", "2", "maxRetries", "1000", "backoff", "constant:100ms")
	other := s.on(b)
	done, stop := make(chan []string), make(chan struct{})
	go func() {
		var at []string
		for i := 0; ; i++ {
			select {
			case <-stop:
				done <- at
				return
			case <-time.After(5 * time.Millisecond):
			}
			if r, err := other.try("POST", other.path("/broadcast"), fmt.Sprint("body ", i), producerTokens...); err == nil &&
				r.status == 201 {
				at = append(at, r.header.Get("Location"))
			}
		}
	}()
	s.awaitState("dead", "DEAD")
	eventually(t, "deliveries", func() bool { return paused.count() > 50 })
	s.change("paused", "pause")
	time.Sleep(time.Second)
	before, calls := paused.count(), dead.count()
	w.flushall()
	time.Sleep(2 * time.Second)
	require.Equal(t, before, paused.count(), "no attempt on any broker")
	require.Equal(t, calls, dead.count(), "a wiped Redis revives nobody")
	close(stop)
	at := <-done
	requireProblem(t, func() reply {
		require.Equal(t, 200, s.do("POST", s.path("/pause"), "").status)
		return other.post("refused on every broker at once")
	}(), 503, "channel_paused")
	require.Equal(t, 200, other.do("POST", other.path("/resume"), "").status)
	require.Equal(t, 201, s.post("and accepted on every broker at once").status)
	require.Equal(t, 0, b.stop())
	a.kill()
	c, d := w.start(), w.start()
	time.Sleep(2 * time.Second)
	require.Equal(t, before, paused.count())
	require.Equal(t, calls, dead.count())
	s = s.on(c)
	require.Equal(t, "PAUSED", s.consumer("paused").State)
	require.Equal(t, "DEAD", s.consumer("dead").State)

	// Of two brokers one sends the probe of a revival.
	s.on(d).change("dead", "revive")
	eventually(t, "the end of the probe", func() bool {
		return strings.Contains(s.consumer("dead").StateReason, "the probe after")
	})
	time.Sleep(1500 * time.Millisecond)
	require.Equal(t, calls+1, dead.count())
	s.change("paused", "resume")
	for _, l := range at {
		eventually(t, "the delivery of "+l, func() bool { return s.message(l).Jobs[0].Status == "DELIVERED" })
	}
	require.False(t, slices.ContainsFunc(s.message(at[0]).Jobs, func(j apitype.Job) bool { return j.Status == "DEAD" }))
}
