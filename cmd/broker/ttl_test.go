package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// A job older than its time to live is dead, whoever does or does not ask for it.
func TestJobsExpire(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_RATIONAL_DELAY=500ms", "BROKER_RETRY_BACKOFF=100ms", "BROKER_MAX_RETRIES=1000",
			"BROKER_RETRY_MAX_DELAY=500ms")
		for name, story := range map[string]func(*testing.T, *process){
			"a pull job that nobody claims":        expireUnclaimed,
			"a pull job at its claim":              expireAtClaim,
			"a push job that fails until then":     expireWhileFailing,
			"a job of a consumer that is paused":   expireWhilePaused,
			"one message of its own":               expireOneMessage,
			"a job counts from its redrive":        expireAfterRedrive,
			"a time to live that cannot be is 400": refuseTTL,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

func expireUnclaimed(t *testing.T, p *process) {
	s := p.stage(t, "k", "other")
	s.put(s.path("/consumer/k"), "ttl", "2s")
	var at []string
	for i := range 30 {
		at = append(at, s.publish(fmt.Sprint(i)))
	}
	begun := time.Now()
	for _, at := range at {
		eventually(t, "the expiry", func() bool { return s.message(at).Jobs[0].Status == "DEAD" })
		jobs := s.message(at).Jobs
		require.Equal(t, "expired", jobs[0].ReasonCode)
		require.Zero(t, jobs[0].Attempts)
		require.Equal(t, "QUEUED", jobs[1].Status)
		require.Empty(t, jobs[1].ReasonCode)
	}
	require.Less(t, time.Since(begun), 17*time.Second)
	require.Empty(t, s.queued("k", ""))
	require.Len(t, s.queued("other", "limit=100"), 30)
	dead := s.dead("k", 100)
	require.Len(t, dead, 30)
	require.Equal(t, "expired", dead[0].ReasonCode)
	require.Empty(t, s.job("k", dead[0].ID).AttemptHistory, "no attempt was made")
}

func expireAtClaim(t *testing.T, p *process) {
	s := p.stage(t, "k", "batch")
	at := s.publish("body")
	id := s.awaitQueued("k", 1)[0].ID
	s.awaitQueued("batch", 1)
	s.put(s.path("/consumer/k"), "ttl", "100ms")
	s.put(s.path("/consumer/batch"), "ttl", "100ms")
	time.Sleep(150 * time.Millisecond)
	require.Equal(t, 400, s.move("k", id, to("INFLIGHT")).status)
	r := s.do("POST", s.path("/consumer/batch/claim"), "", consumerTokens("batch")...)
	require.Contains(t, []string{`{"Result":[]}`, `{"Result":[],"Why":"loading"}`}, strings.TrimSpace(r.body),
		"while it expires it is still a job that is not loaded")
	s.awaitStatus(at, "DEAD")
	require.Equal(t, "expired", s.message(at).Jobs[0].ReasonCode)
}

func expireWhileFailing(t *testing.T, p *process) {
	sink := newSink(t, func(int, received) int { return 500 })
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path("/consumer/k"), "ttl", "3s")
	at := s.publish("body")
	j := s.awaitStatus(at, "DEAD").Jobs[0]
	require.Equal(t, "expired", j.ReasonCode)
	require.Equal(t, sink.count(), j.Attempts)
	require.GreaterOrEqual(t, j.Attempts, 2)
	history := s.job("k", j.ID).AttemptHistory
	require.Len(t, history, j.Attempts)
	r := s.message(at)
	for _, a := range history { // the broker's own times: on a busy machine the sink is late
		require.NotNil(t, a.DurationMs)
		begun := a.At.Add(-time.Duration(*a.DurationMs) * time.Millisecond)
		require.Less(t, begun.Sub(r.ReceivedAt.Time), 3100*time.Millisecond)
	}
}

func expireWhilePaused(t *testing.T, p *process) {
	sink := newSink(t, func(int, received) int { return 204 })
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path("/consumer/k"), "ttl", "2s")
	require.Equal(t, 200, s.do("POST", s.path("/consumer/k/pause"), "", consumerTokens("k")...).status)
	time.Sleep(1200 * time.Millisecond) // every broker has heard of it
	at := s.publish("body")
	j := s.awaitStatus(at, "DEAD").Jobs[0]
	require.Equal(t, "expired", j.ReasonCode)
	require.Zero(t, sink.count())
	require.Equal(t, 200, s.do("POST", s.path("/consumer/k/resume"), "", consumerTokens("k")...).status)
	s.awaitStatus(s.publish("another"), "DELIVERED")
	require.Equal(t, 1, sink.count())
}

func expireOneMessage(t *testing.T, p *process) {
	sink := newSink(t, func(int, received) int { return 503 })
	s := p.stage(t, "k="+sink.URL, "pull")
	mortal := s.publish("mortal", "X-Broker-Message-TTL", "2s")
	short := s.publish("short", "X-Broker-Message-TTL", "720h")
	s.put(s.path("/consumer/pull"), "ttl", "1500ms")
	eventual := s.publish("eventual")
	s.awaitStatus(mortal, "DEAD")
	for _, j := range s.message(mortal).Jobs {
		require.Equal(t, "expired", j.ReasonCode)
	}
	eventually(t, "the shorter one to count", func() bool {
		return s.message(short).Jobs[1].Status == "DEAD" && s.message(eventual).Jobs[1].Status == "DEAD"
	})
	for _, at := range []string{eventual, short} { // its retries may be under way
		require.Contains(t, []string{"QUEUED", "INFLIGHT"}, s.message(at).Jobs[0].Status)
	}
	r := s.lines(`{"Payload":"line","TTL":"1s"}`, `{"Payload":"x","TTL":"soon"}`)
	require.Equal(t, 201, r[0].Status)
	require.Equal(t, 400, r[1].Status)
	require.Contains(t, r[1].Detail, "TTL")
	s.awaitStatus(r[0].Location, "DEAD")
}

func expireAfterRedrive(t *testing.T, p *process) {
	s := p.stage(t, "k")
	s.put(s.path("/consumer/k"), "ttl", "1s")
	at := s.publish("body", "X-Broker-Message-TTL", "20s")
	s.awaitStatus(at, "DEAD")
	s.put(s.path("/consumer/k"), "ttl", "6s")
	time.Sleep(2 * time.Second)
	require.Equal(t, "DEAD", s.message(at).Jobs[0].Status, "a longer one brings nothing back")
	begun := time.Now()
	require.Equal(t, 202, s.redriveAll("k", "k-token").status)
	require.Len(t, s.awaitQueued("k", 1), 1)
	s.awaitStatus(at, "DEAD")
	require.GreaterOrEqual(t, time.Since(begun), 5*time.Second)
	require.Equal(t, "expired", s.message(at).Jobs[0].ReasonCode)
}

func refuseTTL(t *testing.T, p *process) {
	s := p.stage(t, "k")
	for _, ttl := range []string{"soon", "2", "-2s", "0", "1ms", "9000h", "1e3s"} {
		r := s.post("body", "X-Broker-Message-TTL", ttl)
		requireProblem(t, r, 400, "invalid_ttl")
		require.Contains(t, r.body, "X-Broker-Message-TTL")
	}
	require.Empty(t, s.queued("k", ""))
}

// A lost Redis, a restart, and a broker that dies between the lease and the death, hide no
// expired job, and a job outside the window expires too.
func TestFaultJobsExpireThroughLossAndRestart(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with(quick...).with("BROKER_QUEUE_WINDOW=5")
		p := w.start(envKill + "=" + failpoint.AfterExpiryLease + ":1")
		s := p.stage(t, "k")
		s.put(s.path("/consumer/k"), "ttl", "4s")
		var at []string
		for i := range 20 {
			var headers []string
			if i%2 == 0 {
				headers = []string{"X-Broker-Message-TTL", "3s"}
			}
			at = append(at, s.publish(fmt.Sprint(i), headers...))
		}
		if w.redis != nil {
			w.flushall()
		}
		p.awaitEnd()
		s = s.on(w.start())
		for _, at := range at {
			s.awaitStatus(at, "DEAD")
			require.Equal(t, "expired", s.message(at).Jobs[0].ReasonCode)
		}
		require.Len(t, s.dead("k", 100), 20)
		require.Empty(t, s.queued("k", ""))
	})
}

// What becomes of dead letters is said by their consumer.
func TestDeadLettersGoWhereThePolicySays(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_RATIONAL_DELAY=500ms", "BROKER_RETRY_BACKOFF=100ms", "BROKER_MAX_RETRIES=0")
		for name, story := range map[string]func(*testing.T, *process){
			"they are redriven after a success": redriveAfterSuccess,
			"they go to another channel":        forwardToChannel,
			"they go away":                      discardDeadLetters,
			"a forward that cannot be is 400":   refuseForward,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

func redriveAfterSuccess(t *testing.T, p *process) {
	sink := newSwitchSink(t)
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path("/consumer/k"), "dlq", "redrive", "retryOn", "4xx")
	var at []string
	for i := range 5 {
		at = append(at, s.publish(fmt.Sprint(i)))
	}
	eventually(t, "all dead", func() bool { return len(s.dead("k", 100)) == 5 })
	require.Equal(t, "attempts_exhausted", s.dead("k", 1)[0].ReasonCode)
	time.Sleep(5 * time.Second)
	require.Equal(t, 5, sink.count(), "nothing is sent without a success")
	sink.works.Store(true)
	s.awaitStatus(s.publish("works"), "DELIVERED")
	for _, at := range at {
		s.awaitStatus(at, "DELIVERED")
	}
	require.Empty(t, s.dead("k", 100))

	refuses := newSink(t, func(n int, r received) int {
		if r.body == "no" {
			return 400
		}
		return 204
	})
	s = p.stage(t, "k="+refuses.URL)
	s.put(s.path("/consumer/k"), "dlq", "redrive", "retryOn", "5xx")
	no := s.publish("no")
	s.awaitStatus(no, "DEAD")
	s.awaitStatus(s.publish("yes"), "DELIVERED")
	time.Sleep(5 * time.Second)
	require.Equal(t, 2, refuses.count(), "what it refuses it would refuse again")
	require.Equal(t, "rejected", s.message(no).Jobs[0].ReasonCode)
}

func forwardToChannel(t *testing.T, p *process) {
	sink, target := newSink(t, func(int, received) int { return 500 }), newSink(t, func(int, received) int { return 204 })
	to := p.stage(t, "k="+target.URL)
	s := p.stage(t, "k="+sink.URL, "other="+sink.URL)
	s.put(s.path("/consumer/k"), "dlq", "forward:"+to.channel)
	s.publish("body", "Content-Type", "text/x-mine", "X-Broker-Message-ID", "own", "X-Broker-Message-Priority", "7",
		"X-Broker-Metadata-Headers", "X-Mine", "X-Mine", "yes")
	eventually(t, "the forward", func() bool { return target.count() == 1 })
	got := target.all()[0]
	require.Equal(t, "body", got.body)
	require.Equal(t, "text/x-mine", got.header.Get("Content-Type"))
	require.Equal(t, "yes", got.header.Get("X-Mine"))
	require.Equal(t, "7", got.header.Get("X-Broker-Message-Priority"))
	dead := s.dead("k", 100)
	require.Len(t, dead, 1, "it stays a dead letter")
	require.Equal(t, dead[0].ID, got.header.Get("X-Dead-Job-ID"))
	require.Equal(t, "k", got.header.Get("X-Dead-Consumer-ID"))
	require.Equal(t, s.channel, got.header.Get("X-Dead-Channel-ID"))
	require.Equal(t, "own", got.header.Get("X-Dead-Message-ID"))
	require.Equal(t, "attempts_exhausted", got.header.Get("X-Dead-Reason"))
	require.Equal(t, 202, s.redriveAll("k", "k-token").status)
	eventually(t, "its second death to be forwarded", func() bool { return target.count() == 2 })
	time.Sleep(5 * time.Second)
	require.Equal(t, 2, target.count())

	// A circle ends.
	back := newSink(t, func(int, received) int { return 500 })
	a, b := p.stage(t, "k="+back.URL), p.stage(t, "k="+back.URL)
	a.put(a.path("/consumer/k"), "dlq", "forward:"+b.channel)
	b.put(b.path("/consumer/k"), "dlq", "forward:"+a.channel)
	a.publish("round")
	eventually(t, "five forwards", func() bool { return back.count() == 6 })
	time.Sleep(5 * time.Second)
	require.Equal(t, 6, back.count())
}

func discardDeadLetters(t *testing.T, p *process) {
	sink := newSwitchSink(t)
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path("/consumer/k"), "dlq", "expire:3s")
	at := s.publish("body")
	s.awaitStatus(at, "DEAD")
	require.Len(t, s.dead("k", 10), 1)
	eventually(t, "an empty DLQ", func() bool { return len(s.dead("k", 10)) == 0 })
	sink.works.Store(true)
	require.Equal(t, 202, s.redriveAll("k", "k-token").status)
	time.Sleep(time.Second)
	require.Equal(t, 1, sink.count())
	require.Equal(t, "DEAD", s.message(at).Jobs[0].Status)
}

func refuseForward(t *testing.T, p *process) {
	s := p.stage(t, "k")
	for _, channel := range []string{s.channel, "no-such-channel"} {
		r := s.do("PUT", s.path("/consumer/k"), "dlq=forward:"+channel, "Content-Type", "application/x-www-form-urlencoded",
			"X-Broker-Admin-Token", adminToken, "X-Broker-Channel-Token", "token")
		requireProblem(t, r, 400, "invalid_policy")
		require.Contains(t, r.body, "The field dlq")
	}
	require.False(t, strings.Contains(s.do("GET", s.path("/consumer/k"), "").body, "forward:"))
}

// A broker that dies between the forward and its note forwards nothing twice.
func TestFaultForwardedOnce(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		sink, target := newSink(t, func(int, received) int { return 500 }), newSink(t, func(int, received) int { return 204 })
		w.with(quick...).with("BROKER_MAX_RETRIES=0")
		p := w.start(envKill + "=" + failpoint.AfterForward + ":1")
		to := p.stage(t, "k="+target.URL)
		to.put(to.path("/consumer/k"), "maxRetries", "5") // the broker may die during its delivery
		s := p.stage(t, "k="+sink.URL)
		s.put(s.path("/consumer/k"), "dlq", "forward:"+to.channel)
		s.publish("body")
		p.awaitEnd()
		to = to.on(w.start())
		eventually(t, "the forward", func() bool { return target.distinct() == 1 })
		time.Sleep(6 * time.Second)
		require.Equal(t, 1, target.distinct())
		require.Equal(t, 1, strings.Count(to.do("GET", "/channel/"+to.channel+"/messages", "").body, "/message/dead."))
	})
}
