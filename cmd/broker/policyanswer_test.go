package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each answer is retried or not as the policy says. A redirect is an answer, and is not followed.
func retriedStatuses(t *testing.T, p *process) {
	for _, tc := range []struct {
		status  int
		retryOn string
		reason  string
	}{
		{404, "5xx", "rejected"}, {500, "5xx", "attempts_exhausted"}, {404, "404", "attempts_exhausted"},
		{403, "4xx", "attempts_exhausted"},
		{501, "500", "rejected"}, {599, "599", "attempts_exhausted"}, {302, "5xx", "rejected"},
		{301, "all", "attempts_exhausted"},
		{408, "404", "attempts_exhausted"}, {425, "404", "attempts_exhausted"}, {429, "404", "attempts_exhausted"},
		{503, "404", "attempts_exhausted"},
		{400, "all", "attempts_exhausted"}, {200, "2xx", ""},
	} {
		followed := newSink(t, nil)
		url := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) {
			w.Header().Set("Location", followed.URL)
			w.WriteHeader(tc.status)
		})
		s := p.stage(t, "k="+url)
		s.put(s.path("/consumer/k"), "retryOn", tc.retryOn, "maxRetries", "1", "backoff", "constant:50ms")
		want, attempts := "DEAD", 1
		if tc.reason == "" {
			want = "DELIVERED"
		} else if tc.reason == "attempts_exhausted" {
			attempts = 2
		}
		j := s.awaitStatus(s.publish("body"), want).Jobs[0]
		require.Equal(t, tc.reason, j.ReasonCode, tc)
		require.Equal(t, attempts, j.Attempts, tc)
		require.Zero(t, followed.count(), tc)
	}
}

func deadByConsumer(t *testing.T, p *process) {
	s := p.stage(t, "k")
	at := s.publish("body")
	job := s.awaitQueued("k", 1)[0].ID
	s.claim("k", job)
	require.Equal(t, 202, s.move("k", job, to("DEAD")).status)
	require.Equal(t, "by_consumer", s.awaitStatus(at, "DEAD").Jobs[0].ReasonCode)
	require.Equal(t, "by_consumer", s.dead("k", 10)[0].ReasonCode)
}

// The headers of a consumer are sent as they are, whatever is in them, and never replace one of the
// broker's.
func headersOfPolicy(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	long := strings.Repeat("v", 3000)
	s.put(s.path("/consumer/k"), "headers", "X-Letters: é\u2028日本\n X-Blanks :\ta  b\t\nX-Empty:\r\n\nAccept: "+
		"text/plain\nX-Long: "+long+"\nX-Mine: of the consumer")
	s.awaitStatus(s.publish("body", "X-Broker-Metadata-Headers", "X-Mine", "X-Mine", "of the producer"), "DELIVERED")
	h := sink.all()[0].header
	require.Equal(t, "é\u2028日本", h.Get("X-Letters"))
	require.Equal(t, "a  b", h.Get("X-Blanks"))
	require.Equal(t, []string{""}, h["X-Empty"])
	require.Equal(t, "text/plain", h.Get("Accept"))
	require.Equal(t, long, h.Get("X-Long"))
	require.Equal(t, []string{"of the consumer"}, h["X-Mine"])
	require.Equal(t, "k-token", h.Get("X-Broker-Consumer-Token"))
}

// A consumer's own headers do not replace the one in which the installation sends its token. Its
// credentials take the place of the token where both are in Authorization, in deliveries and in
// questions to the status URL.
func TestTheHeaderOfTheTokenIsNotReplaced(t *testing.T) {
	parallel(t)
	for header, want := range map[string]string{"X-Api-Key": "k-token", "Authorization": "Bearer t"} {
		t.Run(header, func(t *testing.T) {
			parallel(t)
			w := embeddedWorld(t).with(quick...).with("BROKER_CONSUMER_TOKEN_HEADER=" + header)
			s := w.start().stage(t)
			asked := make(chan string, 10)
			url := serveHTTP(t, func(w http.ResponseWriter, r *http.Request, _ <-chan struct{}) {
				asked <- r.Method + " " + strings.Join(r.Header[http.CanonicalHeaderKey(header)], "|")
				if r.Method == http.MethodPost {
					panic(http.ErrAbortHandler)
				}
			})
			s.join("k=" + url)
			s.put(s.path("/consumer/k"), "headers", "x-api-key: forged", "authorization", "bearer t", "statusUrl",
				url+"/{messageID}")
			s.awaitStatus(s.publish("body"), "DELIVERED")
			require.Equal(t, "POST "+want, <-asked)
			require.Equal(t, "GET "+want, <-asked)
		})
	}
}
