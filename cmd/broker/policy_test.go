package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
)

// Each consumer of a channel is delivered to as it has set itself, and as the
// installation says where it has set nothing.
func TestEachConsumerHasItsPolicy(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=5s", "BROKER_RETRY_BACKOFF=100ms",
			"BROKER_MAX_RETRIES=2", "BROKER_RETRY_MAX_DELAY=1s")
		for name, story := range map[string]func(*testing.T, *process){
			"attempts and waits":          attemptsOfPolicy,
			"an answer it does not retry": rejectedByPolicy,
			"a timeout of its own":        timeoutOfPolicy,
			"leases of pull jobs":         attemptsOfPullPolicy,
			"signatures and credentials":  signedByPolicy,
			"tokens of OAuth 2":           tokensByPolicy,
			"phases of a failure":         phasesOfFailures,
			"a status URL":                statusURLOfPolicy,
			"signed publishes":            signedPublishes,
			"statuses that are retried":   retriedStatuses,
			"a pull worker gives up":      deadByConsumer,
			"headers of a consumer":       headersOfPolicy,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
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
	sink, _ := newHeldSink(t, 204)
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
		r := s.do("POST", s.path("/consumer/k/claim?timeout=5"), "", consumerTokens("k")...)
		_, rest, found := strings.Cut(r.body, `"ID":"`)
		id, _, _ = strings.Cut(rest, `"`)
		return found
	})
	require.Equal(t, id, s.awaitStatus(at, "DEAD").Jobs[0].ID, "its only lease ended")
	require.Equal(t, "worker_lost", s.message(at).Jobs[0].ReasonCode)
	require.Contains(t, s.message(at).Jobs[0].Reason, "1 leases ended without a word, of which the policy bears 0")
}

// The reference library of Standard Webhooks verifies real deliveries, during a change of
// the secret with both of them.
func signedByPolicy(t *testing.T, p *process) {
	const first, second = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	sink := newSink(t, func(int, received) int { return 204 })
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path("/consumer/k"), "signingSecret", first, "headers", "X-Tenant: a", "authorization", "bearer t0ken")
	s.awaitStatus(s.publish("one"), "DELIVERED")
	s.put(s.path("/consumer/k"), "signingSecret", second)
	s.awaitStatus(s.publish("two"), "DELIVERED")
	got := sink.all()
	require.Len(t, got, 2)
	accepts := func(secret string, r received) error {
		w, err := standardwebhooks.NewWebhook(secret)
		require.NoError(t, err)
		return w.Verify([]byte(r.body), r.header)
	}
	require.NoError(t, accepts(first, got[0]))
	require.Error(t, accepts(second, got[0]))
	require.NoError(t, accepts(first, got[1]))
	require.NoError(t, accepts(second, got[1]))
	require.Equal(t, "a", got[0].header.Get("X-Tenant"))
	require.Equal(t, "Bearer t0ken", got[0].header.Get("Authorization"))
	shown := s.do("GET", s.path("/consumer/k"), "").body
	require.Contains(t, shown, `"SigningSecret":"whsec_***","SigningSecretPrevious":"whsec_***"`)
	require.Contains(t, shown, `"Authorization":"bearer ***"`)
	require.NotContains(t, shown, "t0ken")
}

// A token is asked for once, shared by the attempts, and renewed once when the consumer
// refuses it. Neither the token nor the client's secret is shown.
func tokensByPolicy(t *testing.T, p *process) {
	var asked atomic.Int64
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		if id != "client" || secret != "s3cret" || r.FormValue("scope") != "a b" {
			http.Error(w, "s3cret", 400)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"access_token":"t%d","token_type":"Bearer","expires_in":3600}`, asked.Add(1))
	}))
	t.Cleanup(endpoint.Close)
	var valid atomic.Int64
	valid.Store(1)
	sink := newSink(t, func(_ int, r received) int {
		if r.header.Get("Authorization") != fmt.Sprintf("Bearer t%d", valid.Load()) {
			return 401
		}
		return 204
	})
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path("/consumer/k"), "authorization", "oauth2 "+endpoint.URL+"/token?q=s3cret client s3cret a b",
		"maxRetries", "0")
	s.awaitStatus(s.publish("one"), "DELIVERED")
	s.awaitStatus(s.publish("two"), "DELIVERED")
	require.EqualValues(t, 1, asked.Load())
	valid.Store(2)
	j := s.awaitStatus(s.publish("three"), "DELIVERED").Jobs[0]
	require.Equal(t, 1, j.Attempts, "the renewal belongs to the attempt")
	require.EqualValues(t, 2, asked.Load())
	valid.Store(0)
	require.Equal(t, 401, s.awaitStatus(s.publish("four"), "DEAD").Jobs[0].StatusCode)

	s.put(s.path("/consumer/k"), "authorization", "oauth2 "+endpoint.URL+"/token?q=s3cret client wrong")
	before := sink.count()
	j = s.awaitStatus(s.publish("five"), "DEAD").Jobs[0]
	require.Contains(t, j.Reason, "the token endpoint answered 400")
	require.NotContains(t, j.Reason, "s3cret")
	require.Equal(t, before, sink.count())
	require.NotContains(t, s.do("GET", s.path("/consumer/k"), "").body, "s3cret")
}

// A failure before the request was sent is told from one after it.
func phasesOfFailures(t *testing.T, p *process) {
	silent := newSink(t, nil)
	silent.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	})
	closed := httptest.NewServer(nil)
	closed.Close()
	answers := newSink(t, func(int, received) int { return 500 })
	s := p.stage(t, "silent="+silent.URL, "closed="+closed.URL, "answers="+answers.URL)
	m := s.awaitStatus(s.publish("body"), "DEAD")
	for i, want := range []string{"maybe_processed", "not_sent", ""} {
		got := s.job(m.Jobs[i].ConsumerID, m.Jobs[i].ID).AttemptHistory
		require.Len(t, got, 3)
		for _, a := range got {
			require.Equal(t, want, a.Phase, a)
		}
	}
}

// After an attempt that the consumer may have processed, the broker asks before it sends the
// message again.
func statusURLOfPolicy(t *testing.T, p *process) {
	var status, asked atomic.Int64
	var path atomic.Value
	sink := newSink(t, nil)
	posts := make(chan string, 100)
	var accepting atomic.Bool
	sink.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			asked.Add(1)
			path.Store(r.URL.Path + " " + r.Header.Get("Authorization"))
			w.WriteHeader(int(status.Load()))
			return
		}
		posts <- r.Header.Get("X-Broker-Message-ID")
		if accepting.Load() {
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	})
	s := p.stage(t, "k="+sink.URL)
	require.Equal(t, 400, s.do("PUT", s.path("/consumer/k"), "statusUrl=http://127.0.0.1/none", "Content-Type",
		"application/x-www-form-urlencoded").status)
	s.put(s.path("/consumer/k"), "statusUrl", sink.URL+"/status/{messageID}", "authorization", "bearer t")

	status.Store(200)
	j := s.awaitStatus(s.publish("processed", "X-Broker-Message-ID", "m1"), "DELIVERED").Jobs[0]
	require.Equal(t, "/status/m1 Bearer t", path.Load())
	require.Len(t, posts, 1)
	history := s.job("k", j.ID).AttemptHistory
	require.Len(t, history, 2, "each attempt stands there once")
	require.Equal(t, 2, history[1].Attempt)
	require.Contains(t, history[1].Error, "the status URL answered 200")

	status.Store(404)
	at := s.publish("lost", "X-Broker-Message-ID", "m2")
	eventually(t, "an inquiry", func() bool { return len(posts) >= 2 })
	accepting.Store(true)
	s.awaitStatus(at, "DELIVERED")
	require.GreaterOrEqual(t, len(posts), 3, "404 sends it again")

	accepting.Store(false)
	status.Store(503)
	before := len(posts)
	j = s.awaitStatus(s.publish("unknown", "X-Broker-Message-ID", "m3"), "DEAD").Jobs[0]
	require.Equal(t, 3, j.Attempts, "inquiries are inside the budget")
	require.Equal(t, before+1, len(posts))
	require.Contains(t, j.Reason, "the status URL answered 503")

	// Nothing reached the consumer: there is nothing to ask.
	n := asked.Load()
	sink.Close()
	s.awaitStatus(s.publish("refused"), "DEAD")
	require.Equal(t, n, asked.Load())
}

// A producer with a secret has to sign, and its secret is not shown.
func signedPublishes(t *testing.T, p *process) {
	const secret = "s3cret-of-the-producer"
	s := p.stage(t, "k")
	s.put("/producer/signer", "token", "signer-token", "publishSecret", secret)
	require.Contains(t, s.do("GET", "/producer/signer", "").body, `"Signed":true`)
	require.NotContains(t, s.do("GET", "/producer/signer", "").body, secret)
	post := func(path, body, signature string) reply {
		return s.do("POST", s.path(path), body, "X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID", "signer",
			"X-Broker-Producer-Token", "signer-token", "Content-Type", "text/plain", "X-Broker-Signature", signature)
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(now + ".body"))
	signature := "t=" + now + ",v1=" + hex.EncodeToString(mac.Sum(nil))
	require.Equal(t, 401, post("/broadcast", "body", "").status)
	require.Equal(t, 403, post("/broadcast", "other", signature).status)
	require.Equal(t, 403, post("/batch", `{"Payload":"x"}`, signature).status)
	r := post("/broadcast", "body", signature)
	require.Equal(t, 201, r.status, r.body)
	s.put("/producer/signer", "publishSecret", "")
	require.Equal(t, 201, post("/broadcast", "body", "").status)
}
