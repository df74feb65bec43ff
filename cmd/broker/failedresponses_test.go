package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// A producer learns which message a reply answers that it did not take, and a request why there will
// be no response.
func TestWhatHasFailedSaysWhatAndWhy(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.with(quick...).start("BROKER_MAX_RETRIES=0")
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/reply":
				w.WriteHeader(400)
			case "/broken":
				w.WriteHeader(500)
			case "/later":
				w.WriteHeader(202)
			default:
				fmt.Fprint(w, "the answer")
			}
		}))
		t.Cleanup(server.Close)
		t.Run("a dead reply", func(t *testing.T) { parallel(t); deadReply(t, p, server.URL) })
		t.Run("a request", func(t *testing.T) { parallel(t); failedRequests(t, p, server.URL) })
	})
}

func deadReply(t *testing.T, p *process, url string) {
	s := p.stage(t)
	sender := s.channel + "-sender"
	s.put("/producer/"+sender, "token", "t", "replyUrl", url+"/reply")
	s.put(s.path("/consumer/billing"), "token", "kt", "callbackUrl", url+"/ok", "responses", "callback")
	from := []string{"X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID", sender, "X-Broker-Producer-Token", "t"}
	for _, id := range []string{"X-Broker-Message-ID", "Idempotency-Key"} {
		require.Equal(t, 201, s.do("POST", s.path("/broadcast"), "x", append(from, id, "order-1")...).status)
	}
	var list apitype.DeadLetters
	eventually(t, "two dead replies", func() bool {
		r := s.do("GET", "/producer/"+sender+"/dlq", "", "X-Broker-Producer-Token", "t")
		require.Equal(t, 200, r.status, r.body)
		list = apitype.DeadLetters{}
		require.NoError(t, json.Unmarshal([]byte(r.body), &list))
		return len(list.DeadJobs) == 2
	})
	answered := []string{list.DeadJobs[0].InReplyTo, list.DeadJobs[1].InReplyTo}
	require.Contains(t, answered, "order-1", "in any order: the two replies are sent side by side")
	require.NotEqual(t, answered[0], answered[1])
	for _, j := range list.DeadJobs {
		require.Equal(t, "billing", j.ConsumerID)
		require.Equal(t, s.channel, j.ChannelID)
		r := s.do("GET", s.path("/message/", j.InReplyTo), "", from...)
		require.Equal(t, 200, r.status, "the message that is answered, as its producer finds it")
	}
}

func failedRequests(t *testing.T, p *process, url string) {
	s := p.stage(t)
	request := func(body string, headers ...string) reply {
		return s.do("POST", s.path("/request"), body, append(append([]string{"Prefer", "wait=30"}, producerTokens...),
			headers...)...)
	}
	s.put(s.path("/consumer/broken"), "token", "kt", "callbackUrl", url+"/broken", "responses", "store")
	r := request("x", "X-Broker-Message-ID", "m")
	requireProblem(t, r, 502, "response_failed")
	require.Contains(t, r.body, "broken failed with attempts_exhausted (status 500)")
	require.NotContains(t, r.body, url, "a producer sees no callback")
	require.Equal(t, s.path("/message/m/responses"), r.header.Get("Location"))
	require.Equal(t, "wait=30", r.header.Get("Preference-Applied"))
	require.Equal(t, "FAILED", s.responses("m", "").Result[0].State)

	// One of two may still answer.
	s.put(s.path("/consumer/pull"), "token", "pull-token", "type", "pull", "responses", "store")
	require.Equal(t, 202, request("x", "Prefer", "wait=0").status)
	s.put(s.path("/consumer/pull"), "responses", "off")

	s.put(s.path("/consumer/late"), "token", "kt", "callbackUrl", url+"/later", "responses", "store", "async", "true",
		"resultDeadline", "1s")
	late := request("x", "X-Broker-Consumers", "late")
	requireProblem(t, late, 504, "response_late")
	require.Contains(t, late.body, "no result came by the deadline")
	both := request("x", "X-Broker-Consumers", "late,broken")
	requireProblem(t, both, 502, "response_failed")

	// Responses that are turned off during the wait end it: there will be none.
	s.put(s.path("/consumer/quiet"), "token", "kt", "type", "pull", "responses", "store")
	answer := make(chan reply)
	go func() {
		r, _ := s.ask("POST", s.path("/request"), "x", append([]string{"Prefer", "wait=50", "X-Broker-Message-ID", "quiet",
			"X-Broker-Consumers", "quiet"}, producerTokens...)...)
		answer <- r
	}()
	eventually(s.t, "the message", func() bool { return s.do("GET", s.path("/message/quiet"), "").status == 200 })
	s.put(s.path("/consumer/quiet"), "responses", "off")
	off := <-answer
	requireProblem(s.t, off, 502, "response_failed")
	require.Contains(s.t, off.body, "no response: quiet, deleted or with responses turned off since.")

	s.put(s.path("/consumer/ok"), "token", "kt", "callbackUrl", url+"/ok", "responses", "store")
	require.Equal(t, "the answer", request("x").body, "a failure of others is none of the request")
}
