package main

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An asked is a server of results that notes what asks for them.
type asked struct {
	*httptest.Server
	mu    sync.Mutex
	polls map[string][]received // by path
}

// newAsked answers a message with 202, and the Location that places has for its ID, and each poll of a
// path but the first with its result.
func newAsked(t *testing.T, places map[string]string) *asked {
	a := &asked{polls: map[string][]received{}}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if q.Method == "POST" {
			if to := places[q.Header.Get("X-Broker-Message-ID")]; to != "" {
				w.Header().Set("Location", to)
			}
			w.WriteHeader(202)
			return
		}
		a.polls[q.URL.Path] = append(a.polls[q.URL.Path], received{q.Header.Clone(), "", time.Now()})
		switch {
		case q.URL.Path == "/never":
			w.WriteHeader(202)
		case len(a.polls[q.URL.Path]) == 1:
			w.Header().Set("Retry-After", "3") // longer than the backoff
			w.WriteHeader(503)
		default:
			_, _ = w.Write([]byte("result"))
		}
	}))
	t.Cleanup(a.Close)
	return a
}

// A result is asked for at the place that the receiver or the policy names, if the egress rules allow
// it, with the credentials of the consumer at its own places only, and until the deadline.
func TestResultsAreAskedForWhereTheyMayBe(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with(quick...).with(fetchInside)
		elsewhere := newAsked(t, nil)
		a := newAsked(t, map[string]string{"metadata": "http://169.254.169.254/latest", "other": elsewhere.URL + "/other",
			"never": "/never"})
		s := w.start().stage(t)
		async := []string{"callbackUrl", a.URL + "/in", "responses", "store", "async", "true"}
		s.put(s.path("/consumer/k"), append(async, "resultUrl", a.URL+"/of/{messageID}")...)
		s.put(s.path("/consumer/brief"), append(async, "resultDeadline", "2s")...)
		s.put(s.path("/consumer/short"), append(async, "resultUrl", a.URL+"/short/{messageID}", "responseTTL", "1s")...)
		for _, id := range []string{"metadata", "never", "other", "named"} {
			s.publish(id, "X-Broker-Message-ID", id)
		}
		for _, id := range []string{"other", "named"} {
			eventually(t, "the result of "+id, func() bool { return s.responses(id, "").Result[0].Body == "result" })
		}
		for _, id := range []string{"named", "never", "metadata"} {
			eventually(t, "the deadline", func() bool { return s.responses(id, "").Result[1].State == "FAILED" })
			require.Equal(t, "no result came by the deadline", s.responses(id, "").Result[1].Reason)
		}
		eventually(t, "the end of a response", func() bool { return s.responses("named", "").Result[2].Reason != "" })
		gone := s.responses("named", "").Result[2]
		require.Equal(t, "RESPONSE_RECEIVED_FROM_RECEIVER", gone.State)
		require.Empty(t, gone.Body)
		for _, id := range []string{"metadata", "never"} {
			require.Equal(t, "DELIVERED_TO_RECEIVER", s.responses(id, "").Result[0].State)
		}
		a.requireWaits(t, "/of/named")
		require.NotEmpty(t, a.first("/of/named").Get("X-Broker-Consumer-Token"))
		require.Empty(t, elsewhere.first("/other").Get("X-Broker-Consumer-Token"))
	})
}

// first returns the header of the first poll of a path.
func (a *asked) first(path string) http.Header {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.polls[path][0].header
}

// requireWaits requires that a path was polled twice, and not earlier than Retry-After said.
func (a *asked) requireWaits(t *testing.T, path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Len(t, a.polls[path], 2)
	require.GreaterOrEqual(t, a.polls[path][1].at.Sub(a.polls[path][0].at), 3*time.Second)
}
