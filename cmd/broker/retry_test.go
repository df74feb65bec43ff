package main

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

func TestRetry(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=3s", "BROKER_RETRY_BACKOFF=300ms,600ms",
			"BROKER_MAX_RETRIES=3")
		for name, story := range map[string]func(*testing.T, *process){
			"the attempts are exactly the retries and one": exactAttempts,
			"a consumer that comes up later gets the job":  refusedAtFirst,
			"no answer in time is a failure":               tooSlow,
			"half an answer in time is none":               halfAnAnswer,
			"Retry-After is obeyed":                        retryAfter,
			"a retry does not wait for other jobs":         retryAmongOthers,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

func exactAttempts(t *testing.T, p *process) {
	sink := newSink(t, func(int, received) int { return 500 })
	s := p.stage(t, "k="+sink.URL)
	at := s.publish("body", "X-Broker-Message-ID", "doomed")
	j := s.awaitStatus(at, "DEAD").Jobs[0]
	require.Equal(t, 4, j.Attempts)
	require.Equal(t, 500, j.StatusCode)
	s.awaitRest(sink)
	got := sink.all()
	require.Len(t, got, 4)
	requests := map[string]bool{}
	// the last one doubles
	waits := []time.Duration{300 * time.Millisecond, 600 * time.Millisecond, 1200 * time.Millisecond}
	for i, r := range got {
		require.Equal(t, strconv.Itoa(i+1), r.header.Get("X-Broker-Attempt"))
		require.Equal(t, "doomed", r.header.Get("X-Broker-Message-ID"))
		require.Equal(t, j.ID, r.header.Get("X-Broker-Job-ID"))
		require.Equal(t, "body", r.body)
		requests[r.header.Get("X-Request-ID")] = true
		if i > 0 {
			require.GreaterOrEqual(t, r.at.Sub(got[i-1].at), waits[i-1], "before attempt %d", i+1)
		}
	}
	require.Len(t, requests, 4, "each attempt is a request of its own")
	require.Contains(t, p.log.String(), j.ID, "the log names a job as the API does")
}

func refusedAtFirst(t *testing.T, p *process) {
	addr := freeAddr(t)
	s := p.stage(t, "k=http://"+addr)
	at := s.publish("body")
	var waiting apitype.Job
	eventually(t, "the first refusal", func() bool {
		waiting = s.message(at).Jobs[0]
		return waiting.Attempts > 0 && waiting.Status == "QUEUED"
	})
	require.Contains(t, waiting.Reason, "refused")
	require.NotEmpty(t, waiting.NextAttemptAt)
	listener, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	attempt := make(chan string, 8)
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		attempt <- r.Header.Get("X-Broker-Attempt")
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	j := s.awaitStatus(at, "DELIVERED").Jobs[0]
	require.Greater(t, j.Attempts, waiting.Attempts, "refused connections are attempts")
	require.Equal(t, strconv.Itoa(j.Attempts), <-attempt)
}

func tooSlow(t *testing.T, p *process) {
	type call struct {
		attempt string
		at      time.Time
	}
	calls := make(chan call, 8)
	hanging := serveHTTP(t, func(w http.ResponseWriter, r *http.Request, over <-chan struct{}) {
		calls <- call{r.Header.Get("X-Broker-Attempt"), time.Now()}
		if r.Header.Get("X-Broker-Attempt") == "1" {
			<-over
		}
	})
	s := p.stage(t, "k="+hanging)
	at := s.publish("body")
	first := <-calls
	require.Equal(t, "INFLIGHT", s.message(at).Jobs[0].Status)
	second := <-calls
	require.Equal(t, []string{"1", "2"}, []string{first.attempt, second.attempt})
	require.GreaterOrEqual(t, second.at.Sub(first.at), 3*time.Second,
		"delivery timeout and backoff, less the time to connect")
	require.Equal(t, 2, s.awaitStatus(at, "DELIVERED").Jobs[0].Attempts)
}

// halfAnAnswer begins a success in time and does not end it.
func halfAnAnswer(t *testing.T, p *process) {
	callback := serveHTTP(t, func(w http.ResponseWriter, r *http.Request, over <-chan struct{}) {
		if r.Header.Get("X-Broker-Attempt") == "1" {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "part")
			_ = http.NewResponseController(w).Flush()
			<-over
		}
	})
	s := p.stage(t, "k="+callback)
	at := s.publish("body")
	require.Equal(t, 2, s.awaitStatus(at, "DELIVERED").Jobs[0].Attempts)
}

func retryAfter(t *testing.T, p *process) {
	for _, status := range []int{429, 503} {
		times := make(chan time.Time, 8)
		callback := serveHTTP(t, func(w http.ResponseWriter, r *http.Request, _ <-chan struct{}) {
			times <- time.Now()
			if r.Header.Get("X-Broker-Attempt") == "1" {
				w.Header().Set("Retry-After", "2")
				w.WriteHeader(status)
			}
		})
		s := p.stage(t, "k="+callback)
		s.publish("body")
		first := <-times
		require.GreaterOrEqual(t, (<-times).Sub(first), 2*time.Second)
	}
}

func retryAmongOthers(t *testing.T, p *process) {
	sink := newSink(t, func(_ int, r received) int {
		if strings.HasPrefix(r.body, "bad") {
			return 500
		}
		return 204
	})
	s := p.stage(t, "k="+sink.URL)
	for i := range 20 {
		s.publish("bad " + strconv.Itoa(i))
		s.publish("good " + strconv.Itoa(i))
	}
	eventually(t, "the bad ones to be dead", func() bool { return len(s.dead("k", 100)) == 20 })
	for i := range 20 {
		require.Equal(t, 4, sink.times("bad "+strconv.Itoa(i)))
		require.Equal(t, 1, sink.times("good "+strconv.Itoa(i)))
	}
}

// A success that is heard of after the job was declared dead is a success.
func TestRetryALateSuccessWinsOverDeathOnRealServers(t *testing.T) {
	parallel(t)
	w := realWorld(t).with("BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=60s", "BROKER_MAX_RETRIES=0")
	p := w.start()
	var once sync.Once
	arrived, release := make(chan struct{}), make(chan struct{})
	callback := serveHTTP(t, func(w http.ResponseWriter, r *http.Request, over <-chan struct{}) {
		first := false
		once.Do(func() { first = true })
		if !first {
			w.WriteHeader(500) // the copy sent after Redis had forgotten the first
			return
		}
		close(arrived)
		select {
		case <-release:
		case <-over:
		}
	})
	s := p.stage(t, "k="+callback)
	at := s.publish("body")
	<-arrived
	// A broker that sleeps cannot give Redis its lease back: another one sends a copy.
	p.freeze()
	s = s.on(w.start())
	w.flushall()
	s.awaitStatus(at, "DEAD")
	require.Len(t, s.dead("k", 10), 1)
	p.thaw()
	close(release)
	s.awaitStatus(at, "DELIVERED")
	require.Empty(t, s.dead("k", 10))
	require.Equal(t, 202, s.redriveAll("k", "k-token").status)
	s.awaitWalk()
	require.Equal(t, "DELIVERED", s.message(at).Jobs[0].Status, "there is nothing to redrive")
}
