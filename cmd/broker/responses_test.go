package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// A receiver answers deliveries with responses, and polls of results after some that find none.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	polls   map[string][]time.Time // by path
	replies []received
	refuse  int // replies that are still refused
	pending int // polls that find no result
}

func newReceiver(t *testing.T, pending int) *receiver {
	r := &receiver{polls: map[string][]time.Time{}, pending: pending}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) serve(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case q.URL.Path == "/sync" && string(body) == "dead" && q.Header.Get("X-Broker-Replay") == "":
		w.WriteHeader(400)
	case q.URL.Path == "/sync":
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("X-Result", "yes")
		w.Header().Set("Set-Cookie", "a=b")
		w.WriteHeader(201)
		fmt.Fprintf(w, "re: %s", body)
	case q.URL.Path == "/async":
		w.Header().Set("Location", "result/"+string(body)) // relative to the callback URL
		w.WriteHeader(202)
	case q.URL.Path == "/reply":
		if r.refuse > 0 {
			r.refuse--
			w.WriteHeader(400)
			return
		}
		r.replies = append(r.replies, received{q.Header.Clone(), string(body), time.Now()})
	case strings.HasPrefix(q.URL.Path, "/result/"):
		r.polls[q.URL.Path] = append(r.polls[q.URL.Path], time.Now())
		if len(r.polls[q.URL.Path]) <= r.pending {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(202)
			return
		}
		fmt.Fprintf(w, "result of %s", strings.TrimPrefix(q.URL.Path, "/result/"))
	}
}

// got returns the replies to a message.
func (r *receiver) got(message string) (n int, last received) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.replies {
		if one.header.Get("X-Broker-In-Reply-To") == message {
			n, last = n+1, one
		}
	}
	return n, last
}

// replyIDs returns the message IDs of the replies to a message.
func (r *receiver) replyIDs(message string) map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := map[string]bool{}
	for _, one := range r.replies {
		if one.header.Get("X-Broker-In-Reply-To") == message {
			ids[one.header.Get("X-Broker-Message-ID")] = true
		}
	}
	return ids
}

func (s *stage) responses(message, query string) (v apitype.Responses) {
	s.t.Helper()
	r := s.do("GET", s.path("/message/", message, "/responses", query), "", producerTokens...)
	require.Equal(s.t, 200, r.status, r.body)
	require.NoError(s.t, json.Unmarshal([]byte(r.body), &v))
	return v
}

func TestResponsesComeBack(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with(quick...)
		r := newReceiver(t, 1)
		s := w.start().stage(t)
		s.put("/producer/p", "replyUrl", r.URL+"/reply", "signingSecret", "generate")
		s.put(s.path("/consumer/sync"), "callbackUrl", r.URL+"/sync", "responses", "callback", "responseMaxBytes", "6")
		s.put(s.path("/consumer/async"), "callbackUrl", r.URL+"/async", "responses", "store", "async", "true")
		s.put(s.path("/consumer/off"), "callbackUrl", r.URL+"/sync")

		answer := s.do("POST", s.path("/request"), "m1", append([]string{"X-Broker-Message-ID", "m1", "Prefer", "wait=30"},
			producerTokens...)...)
		require.Equal(t, 200, answer.status, answer.body)
		require.Equal(t, "re: m1", answer.body)
		require.Equal(t, "201", answer.header.Get("X-Broker-Response-Status"))
		require.Equal(t, "sync", answer.header.Get("X-Broker-Consumer-ID"))
		require.Equal(t, "text/plain", answer.header.Get("Content-Type"))

		s.publish("longer", "X-Broker-Message-ID", "m2")
		for _, id := range []string{"m1", "m2"} {
			v := s.responses(id, "?wait=60s&until=all")
			require.Len(t, v.Result, 2)
			require.True(t, v.Complete, "all is the end of every exchange")
			require.Equal(t, "sync", v.Result[0].ConsumerID)
			require.Equal(t, "yes", v.Result[0].Headers["X-Result"])
			require.NotContains(t, v.Result[0].Headers, "Set-Cookie")
			require.Equal(t, "RESPONSE_RECEIVED_FROM_RECEIVER", v.Result[1].State)
		}
		v := s.responses("m2", "")
		require.Equal(t, "re: lo", v.Result[0].Body)
		require.True(t, v.Result[0].Truncated)
		require.Equal(t, "result of longer", v.Result[1].Body)
		r.mu.Lock()
		polls := r.polls["/result/longer"]
		r.mu.Unlock()
		require.GreaterOrEqual(t, polls[1].Sub(polls[0]), 2*time.Second, "Retry-After is never undercut")
		n, reply := r.got("m2")
		require.Equal(t, 1, n)
		require.Equal(t, "re: lo", reply.body)
		require.Equal(t, "sync", reply.header.Get("X-Broker-Consumer-ID"))
		require.Equal(t, "201", reply.header.Get("X-Broker-Response-Status"))
		require.NotEmpty(t, reply.header.Get("webhook-signature"))
		told := s.timeline(s.path("/message/m2/timeline"), producerTokens...)
		of := func(id string) func(apitype.TimelineEvent) bool {
			return func(e apitype.TimelineEvent) bool { return e.ConsumerID == id }
		}
		require.Equal(t, "ATTEMPT DELIVERED RESPONSE_RECEIVED RESPONSE_DELIVERED", eventNames(told, of("sync")))
		require.Equal(t, "ATTEMPT DELIVERED RESPONSE_RECEIVED", eventNames(told, of("async")))

		r.mu.Lock()
		r.refuse = 3
		r.mu.Unlock()
		s.publish("refused", "X-Broker-Message-ID", "m3")
		eventually(t, "a dead reply", func() bool {
			return strings.Contains(s.do("GET", "/producer/p/dlq", "", "X-Broker-Producer-Token", "p-token").body, "reply-")
		})
		require.False(t, s.responses("m3", "").Complete)
		require.Equal(t, 202, s.do("POST", "/producer/p/dlq", "requeue=p-token", "Content-Type",
			"application/x-www-form-urlencoded").status)
		eventually(t, "the redriven reply", func() bool { return s.responses("m3", "").Complete })
		s.replayedResponses(r)
	})
}

// replayedResponses replays all messages: what is answered already stays as it is, and the response to
// a dead letter counts.
func (s *stage) replayedResponses(r *receiver) {
	s.publish("dead", "X-Broker-Message-ID", "m4")
	eventually(s.t, "the dead letter", func() bool { return s.responses("m4", "").Result[0].State == "FAILED" })
	before := s.responses("m1", "")
	path := s.replay("sync", everSince+`,"Only":"all"`)
	eventually(s.t, "the replay", func() bool {
		v := s.replayAt(path)
		return v.State == "DONE" &&
			v.Delivered == v.Matched
	})
	eventually(s.t, "the response to the dead letter", func() bool {
		return s.responses("m4", "").Result[0].State == "RESPONSE_DELIVERED_TO_SENDER"
	})
	require.Equal(s.t, before, s.responses("m1", ""))
	n, _ := r.got("m2")
	require.Equal(s.t, 1, n, "a message has one reply")
}

// A result that does not come in time ends the exchange, and its timeline says so.
func TestTheTimelineTellsOfAnExchangeThatFailed(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		r := newReceiver(t, 1000)
		s := w.with(quick...).start().stage(t)
		s.put(s.path("/consumer/late"), "callbackUrl", r.URL+"/async", "responses", "store", "async", "true",
			"resultDeadline", "1s")
		s.publish("m", "X-Broker-Message-ID", "m")
		eventually(t, "the end of the exchange", func() bool { return s.responses("m", "").Complete })
		told := s.timeline(s.path("/message/m/timeline"), producerTokens...)
		require.Equal(t, "ACCEPTED ATTEMPT DELIVERED FAILED", eventNames(told, func(apitype.TimelineEvent) bool {
			return true
		}))
		require.Equal(t, s.responses("m", "").Result[0].Reason, told[3].Detail)
		require.NotEmpty(t, told[3].Detail)
	})
}

// A broker is killed at every step of responses. Each response comes back all the same, and no
// exchange is stuck.
func TestFaultNoResponseIsLostWhereTheBrokerDies(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with(quick...).with("BROKER_MAX_RETRIES=10")
		r := newReceiver(t, 0)
		p := w.start()
		s := p.stage(t)
		s.put("/producer/p", "replyUrl", r.URL+"/reply")
		s.put(s.path("/consumer/sync"), "callbackUrl", r.URL+"/sync", "responses", "callback")
		s.put(s.path("/consumer/async"), "callbackUrl", r.URL+"/async", "responses", "callback", "async", "true")
		p.stop()
		for i, point := range []string{failpoint.AfterPost, failpoint.AfterOutcome, failpoint.BeforeReply,
			failpoint.AfterReply, failpoint.AfterResult} {
			p := w.start(envKill + "=" + point + ":1")
			id := fmt.Sprint("m", i)
			headers := append([]string{"X-Broker-Message-ID", id}, producerTokens...)
			_, _ = p.try("POST", s.path("/broadcast"), id, headers...) // the broker may die before its answer
			p.awaitEnd()
			p = w.start()
			again := p.do("POST", s.path("/broadcast"), id, headers...)
			require.Contains(t, []int{201, 409}, again.status, again.body)
			on := s.on(p)
			eventually(t, "the end of both exchanges after "+point, func() bool { return on.responses(id, "").Complete })
			for _, e := range on.responses(id, "").Result {
				require.Equal(t, "RESPONSE_DELIVERED_TO_SENDER", e.State, point)
			}
			n, _ := r.got(id)
			require.True(t, n == 2 || n == 3, "%d replies after %s: a reply is sent twice only if it was in flight", n, point)
			require.Len(t, r.replyIDs(id), 2, "after %s: a reply that comes again has the same ID", point)
			p.stop()
		}
	})
}

// What waits for its result, and what Redis had of replies, survives a wiped Redis; another broker
// answers the client that waits.
func TestResponsesSurviveFlushAllAndReachOtherBrokersReal(t *testing.T) {
	parallel(t)
	w := realWorld(t).with(quick...)
	r := newReceiver(t, 2)
	s := w.start().stage(t)
	other := s.on(w.start())
	s.put("/producer/p", "replyUrl", r.URL+"/reply")
	s.put(s.path("/consumer/async"), "callbackUrl", r.URL+"/async", "responses", "callback", "async", "true")
	s.publish("m", "X-Broker-Message-ID", "m")
	eventually(t, "the acceptance", func() bool { return s.responses("m", "").Result[0].State == "DELIVERED_TO_RECEIVER" })
	w.flushall()
	v := other.responses("m", "?wait=60s&until=first")
	require.Equal(t, "result of m", v.Result[0].Body)
	eventually(t, "the reply", func() bool { return other.responses("m", "").Complete })
}
