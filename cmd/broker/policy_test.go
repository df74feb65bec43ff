package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each consumer of a channel is delivered to as it has set itself, and as the
// installation says where it has set nothing.
func TestEachConsumerHasItsPolicy(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=5s", "BROKER_RETRY_BACKOFF=100ms", "BROKER_MAX_RETRIES=2", "BROKER_RETRY_MAX_DELAY=1s")
		for name, story := range map[string]func(*testing.T, *process){
			"attempts and waits":          attemptsOfPolicy,
			"an answer it does not retry": rejectedByPolicy,
			"a timeout of its own":        timeoutOfPolicy,
			"leases of pull jobs":         attemptsOfPullPolicy,
		} {
			t.Run(name, func(t *testing.T) { t.Parallel(); story(t, p) })
		}
	})
}

func attemptsOfPolicy(t *testing.T, p *process) {
	own := newSink(t, func(int, received) int { return 500 })
	usual := newSink(t, func(int, received) int { return 500 })
	s := p.stage(t, "own="+own.URL, "usual="+usual.URL)
	s.put(s.path("/consumer/own"), "maxRetries", "1", "backoff", "constant:700ms")
	at := s.publish("body")
	jobs := s.awaitStatus(at, "DEAD").Jobs
	require.Equal(t, 2, jobs[0].Attempts)
	require.Equal(t, 3, jobs[1].Attempts)
	got := own.all()
	require.Len(t, got, 2)
	require.GreaterOrEqual(t, got[1].at.Sub(got[0].at), 700*time.Millisecond)

	// A change counts for the next attempts, and goes back to the defaults.
	s.put(s.path("/consumer/own"), "maxRetries", "0")
	require.Equal(t, 1, s.awaitStatus(s.publish("second"), "DEAD").Jobs[0].Attempts)
	s.put(s.path("/consumer/own"), "maxRetries", "", "backoff", "")
	require.Equal(t, 3, s.awaitStatus(s.publish("third"), "DEAD").Jobs[0].Attempts)
}

func rejectedByPolicy(t *testing.T, p *process) {
	sink := newSink(t, func(n int, r received) int {
		switch {
		case r.body == "gone":
			return 404
		case n == 1:
			return 429 // always retried
		}
		return 204
	})
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path("/consumer/k"), "retryOn", "5xx")
	s.awaitStatus(s.publish("busy"), "DELIVERED")
	j := s.awaitStatus(s.publish("gone"), "DEAD").Jobs[0]
	require.Equal(t, 1, j.Attempts)
	require.Equal(t, 404, j.StatusCode)
	require.Contains(t, j.Reason, "does not retry")
}

func timeoutOfPolicy(t *testing.T, p *process) {
	release := make(chan struct{})
	sink := newSink(t, func(int, received) int { <-release; return 204 })
	t.Cleanup(func() { close(release) }) // before the sink is closed
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path("/consumer/k"), "timeout", "200ms", "maxRetries", "0")
	j := s.awaitStatus(s.publish("body"), "DEAD").Jobs[0]
	require.Contains(t, j.Reason, "timeout")

	// A longer one than that of the installation has a lease that covers it: nothing is
	// sent a second time while the first request is under way.
	slow := newSink(t, func(int, received) int { time.Sleep(11 * time.Second); return 204 })
	s.join("slow=" + slow.URL)
	s.put(s.path("/consumer/slow"), "timeout", "1m")
	at := s.publish("long")
	eventually(t, "the slow delivery", func() bool { return s.message(at).Jobs[1].Status == "DELIVERED" })
	s.awaitRest(slow)
	require.Equal(t, 1, slow.count())
}

func attemptsOfPullPolicy(t *testing.T, p *process) {
	s := p.stage(t, "k")
	s.put(s.path("/consumer/k"), "maxRetries", "0")
	at := s.publish("body")
	var id string
	eventually(t, "a lease", func() bool {
		r := s.do("POST", s.path("/consumer/k/claim?timeout=1"), "", consumerTokens("k")...)
		_, rest, found := strings.Cut(r.body, `"ID":"`)
		id, _, _ = strings.Cut(rest, `"`)
		return found
	})
	require.Equal(t, id, s.awaitStatus(at, "DEAD").Jobs[0].ID, "its only lease ended")
	require.Contains(t, s.message(at).Jobs[0].Reason, "attempt 1 of 1")
}
