package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newBothSink is a server that speaks HTTP/1.1 and HTTP/2 without TLS and hands over each request.
func newBothSink(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, body string)) string {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		answer(w, r, string(body))
	}))
	server.Config.Protocols = &protocols
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// tellsNothing requires that a request has no name of the broker's records and no token. Questions are
// marked as made by a broker, so that none takes them for a user's.
func tellsNothing(t *testing.T, h http.Header, but ...string) {
	t.Helper()
	for name, values := range h {
		folded := strings.ToLower(name)
		require.False(t, strings.HasPrefix(folded, "x-broker-") && !slices.Contains(but, folded) || folded == "x-request-id",
			"%s: %s", name, values)
		require.NotContains(t, strings.Join(values, ","), "-token", name)
	}
}

// A consumer with identity=minimal gets the payload, what describes it, and webhook-id and
// webhook-timestamp: over both protocols, signed or not, at a repetition, in an event, and where the
// broker asks for a status or a result.
func TestAConsumerDecidesWhatItIsTold(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start(append(quick, "BROKER_CONSUMER_TOKEN_HEADER=X-Api-Key")...)
		for name, protocol := range map[string]string{"http1": "", "http2": "h2"} {
			t.Run(name, func(t *testing.T) { parallel(t); minimalDeliveries(t, p, protocol) })
		}
		t.Run("status and result", func(t *testing.T) { parallel(t); minimalQuestions(t, p) })
		t.Run("a dead letter of another channel", func(t *testing.T) { parallel(t); minimalForward(t, p) })
	})
}

func minimalDeliveries(t *testing.T, p *process, protocol string) {
	got := make(chan *http.Request, 100)
	failed := false
	url := newBothSink(t, func(w http.ResponseWriter, r *http.Request, body string) {
		got <- r
		if body == "repeated" && !failed {
			failed = true
			w.WriteHeader(500)
		}
	})
	s := p.stage(t, "k="+url)
	s.put(s.path("/consumer/k"), "identity", "minimal", "protocol", protocol)
	require.Equal(t, "minimal", s.do("GET", s.path("/consumer/k"), "").json(t)["Policy"].(map[string]any)["Identity"])
	next := func(id string) http.Header {
		t.Helper()
		r := <-got
		want := 1
		if protocol == "h2" {
			want = 2
		}
		require.Equal(t, want, r.ProtoMajor)
		tellsNothing(t, r.Header)
		require.Empty(t, r.Header.Get("X-Api-Key"))
		require.Equal(t, id, r.Header.Get("Webhook-Id"))
		require.NotEmpty(t, r.Header.Get("Webhook-Timestamp"))
		return r.Header
	}
	s.publish("a", "X-Broker-Message-ID", "m1", "Content-Type", "text/x", "Content-Encoding", "br", "Content-Language",
		"de", "X-Broker-Ordering-Key", "o",
		"X-Broker-Message-Priority", "3", "X-Broker-Metadata-Headers", "X-Tenant", "X-Tenant", "T")
	h := next("m1")
	require.Equal(t, []string{"text/x", "br", "de", "T"}, []string{h.Get("Content-Type"), h.Get("Content-Encoding"),
		h.Get("Content-Language"), h.Get("X-Tenant")})
	require.Empty(t, h.Get("Webhook-Signature"))
	require.NotEmpty(t, h.Get("User-Agent"))

	s.publish("repeated", "X-Broker-Message-ID", "m2")
	next("m2")
	next("m2")
	s.post("", "X-Broker-Message-ID", "m3", "ce-id", "e1", "ce-specversion", "1.0", "ce-source", "/s", "ce-type", "t")
	h = next("m3")
	require.Equal(t, "t", h.Get("Ce-Type"), "a binary event is its headers")

	s.put(s.path("/consumer/k"), "signingSecret", "generate", "headers", "X-Own: a", "authorization", "bearer own")
	s.publish("signed", "X-Broker-Message-ID", "m4")
	h = next("m4")
	require.Equal(t, "a", h.Get("X-Own"))
	require.Equal(t, "Bearer own", h.Get("Authorization"))
	require.Len(t, h.Values("Webhook-Id"), 1)
	require.Len(t, h.Values("Webhook-Timestamp"), 1)
	require.True(t, strings.HasPrefix(h.Get("Webhook-Signature"), "v1,"))

	s.put(s.path("/consumer/k"), "identity", "", "signingSecret", "")
	s.publish("full", "X-Broker-Message-ID", "m5")
	r := <-got
	require.Equal(t, "k-token", r.Header.Get("X-Api-Key"))
	require.Equal(t, "m5", r.Header.Get("X-Broker-Message-ID"))
	require.Empty(t, r.Header.Get("Webhook-Id"))

	s.put(s.path("/consumer/k"), "type", "pull")
	r2 := s.do("PUT", s.path("/consumer/k"), "identity=minimal", "Content-Type", "application/x-www-form-urlencoded")
	requireProblem(t, r2, 400, "unknown_field")
}

func minimalQuestions(t *testing.T, p *process) {
	asked := make(chan http.Header, 100)
	url := newBothSink(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		switch {
		case r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, "/async"):
			w.WriteHeader(202)
		case r.Method == http.MethodPost:
			panic(http.ErrAbortHandler) // it may have been processed
		default:
			asked <- r.Header
		}
	})
	s := p.stage(t, "status="+url)
	s.put(s.path("/consumer/status"), "identity", "minimal", "statusUrl", url+"/{messageID}")
	s.awaitStatus(s.publish("a"), "DELIVERED")
	tellsNothing(t, <-asked, "x-broker-made-by")

	s = p.stage(t, "result="+url+"/async")
	s.put(s.path("/consumer/result"), "identity", "minimal", "responses", "store", "async", "true", "resultUrl",
		url+"/{messageID}")
	s.publish("b")
	select {
	case h := <-asked:
		tellsNothing(t, h, "x-broker-made-by")
		require.Empty(t, h.Get("X-Api-Key"))
	case <-time.After(time.Minute):
		t.Fatal("no result was asked for")
	}
}

// The headers that a forward adds name a job, a consumer and a channel: a consumer with identity=minimal
// gets none of them, and those of the producer as ever.
func minimalForward(t *testing.T, p *process) {
	fails, minimal, full := newSink(t, func(int, received) int { return 500 }), newSink(t, nil), newSink(t, nil)
	to := p.stage(t, "k="+minimal.URL, "full="+full.URL)
	to.put(to.path("/consumer/k"), "identity", "minimal")
	s := p.stage(t, "k="+fails.URL)
	s.put(s.path("/consumer/k"), "dlq", "forward:"+to.channel, "maxRetries", "0")
	s.publish("body", "X-Broker-Message-ID", "m", "X-Broker-Metadata-Headers", "X-Mine,X-Dead", "X-Mine", "yes",
		"X-Dead", "no")
	eventually(t, "the forward", func() bool { return minimal.count() == 1 && full.count() == 1 })
	h := minimal.all()[0].header
	tellsNothing(t, h)
	for name := range h {
		require.False(t, strings.HasPrefix(name, "X-Dead-"), name)
	}
	require.Equal(t, [2]string{"yes", "no"}, [2]string{h.Get("X-Mine"), h.Get("X-Dead")})
	require.NotEmpty(t, h.Get("Webhook-Id"))
	require.Equal(t, "k", full.all()[0].header.Get("X-Dead-Consumer-ID"))

	// What a producer names so is its own.
	to.publish("own", "X-Broker-Metadata-Headers", "X-Dead-Tree", "X-Dead-Tree", "yes")
	eventually(t, "the message", func() bool { return minimal.count() == 2 })
	require.Equal(t, "yes", minimal.all()[1].header.Get("X-Dead-Tree"))
}
