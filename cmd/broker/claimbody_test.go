package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// claimWith claims with a body, sent as curl -d sends it when contentType is "".
func (s *stage) claimWith(query, body, contentType string) reply {
	s.t.Helper()
	if contentType == "" {
		contentType = formType
	}
	return s.do("POST", s.path("/consumer/k/claim", query), body, append(consumerTokens("k"), "Content-Type",
		contentType)...)
}

func TestAClaimTakesItsParametersAsJSON(t *testing.T) {
	p := embeddedWorld(t).with("BROKER_STOP_TIMEOUT=30s").start()
	s := p.stage(t, "k")
	for i := range 6 {
		s.publish(fmt.Sprint(i))
	}
	s.awaitQueued("k", 6)
	claimed := func(r reply, n int, atLeast time.Duration) {
		t.Helper()
		require.Equal(t, 200, r.status, r.body)
		var page apitype.ClaimedJobs
		require.NoError(t, json.Unmarshal([]byte(r.body), &page))
		require.Len(t, page.Result, n)
		for _, j := range page.Result {
			require.Greater(t, time.Until(j.Deadline), atLeast)
		}
	}
	claimed(s.claimWith("", `{"Limit":1,"Timeout":3600}`, "application/json"), 1, 30*time.Minute)
	claimed(s.claimWith("", `{"limit":1}`, ""), 1, 0)
	claimed(s.claimWith("?timeout=3600", `{"Limit":2}`, "application/json; charset=utf-8"), 2, 30*time.Minute)
	for body, code := range map[string]string{
		`{"Limt":1}`: "invalid_body", `limit=1`: "invalid_body", `[1]`: "invalid_body", `{"Limit":"1"}`: "invalid_limit",
		`{"Wait":"soon"}`: "invalid_wait", `{"Timeout":0}`: "invalid_timeout",
	} {
		requireProblem(t, s.claimWith("", body, "application/json"), 400, code)
	}
	requireProblem(t, s.claimWith("?limit=1", `{"Limit":1}`, "application/json"), 400, "duplicate_field")
	require.Contains(t, s.claimWith("", `{"Limt":1}`, "application/json").body, "Did you mean Limit?")
	require.Equal(t, 403, s.do("POST", s.path("/consumer/k/claim"), `{"Limt":1}`, "X-Broker-Channel-Token",
		"c-token").status, "tokens come first")
	require.Len(t, s.queued("k", "limit=100"), 2, "what is refused claims nothing")

	// The example of the page, with a wait that the two jobs end at once.
	page, err := os.ReadFile("../../docs/consuming.md")
	require.NoError(t, err)
	example := regexp.MustCompile(`(?m)^\{"Limit":.*\}$`).Find(page)
	require.NotEmpty(t, example)
	claimed(s.claimWith("", string(example), "application/json"), 2, 30*time.Second)

	// A wait that stands in the body is one.
	late := make(chan reply, 1)
	go func() {
		r, _ := s.try("POST", s.path("/consumer/k/claim"), `{"Wait":"20s"}`, consumerTokens("k")...)
		late <- r
	}()
	s.publish("late")
	claimed(<-late, 1, 0)
}
