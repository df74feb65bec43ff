package main

import (
	"encoding/json"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

// timeline reads a timeline, all pages of it, and requires that each page is in order of time.
func (s *stage) timeline(path string, headers ...string) []apitype.TimelineEvent {
	s.t.Helper()
	var all []apitype.TimelineEvent
	for range 1000 {
		r := s.do("GET", path, "", headers...)
		require.Equal(s.t, 200, r.status, r.body)
		require.NotEmpty(s.t, r.header.Get("Last-Modified"))
		var v apitype.Timeline
		strictjson.Decode(s.t, []byte(r.body), &v)
		for i := 1; i < len(v.Result); i++ {
			require.False(s.t, v.Result[i].At.Before(v.Result[i-1].At.Time), r.body)
		}
		all = append(all, v.Result...)
		if v.Pages.Next == "" {
			return all
		}
		path = v.Pages.Next
	}
	s.t.Fatal("the pages never end")
	return nil
}

func eventNames(events []apitype.TimelineEvent, of func(apitype.TimelineEvent) bool) string {
	var names []string
	for _, e := range events {
		if of(e) {
			names = append(names, e.Event)
		}
	}
	return strings.Join(names, " ")
}

// A timeline tells what became of a message and of each of its jobs.
func TestTheTimelineOfAMessageTellsWhatBecameOfIt(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with("BROKER_MAX_RETRIES=1", "BROKER_RETRY_BACKOFF=50ms", "BROKER_STOP_TIMEOUT=300ms",
			"BROKER_RATIONAL_DELAY=200ms", "BROKER_ALLOW_DELETE=true")
		var healed atomic.Bool
		sink := newSink(t, func(_ int, r received) int {
			if healed.Load() {
				return 204
			}
			return 503
		})
		p := w.start()
		s := p.stage(t, "push="+sink.URL, "pull", "old")
		m := s.publish("x")
		leased := s.awaitQueued("pull", 1)[0].ID
		eventually(t, "a lease", func() bool { return s.move("pull", leased, to("INFLIGHT")).status == 202 })
		s.do("DELETE", s.path("/consumer/old"), "")
		of := func(id string) func(apitype.TimelineEvent) bool {
			return func(e apitype.TimelineEvent) bool { return e.ConsumerID == id }
		}
		eventually(t, "the death of a job, and the end of a lease", func() bool {
			got := s.timeline(m + "/timeline")
			return strings.HasSuffix(eventNames(got, of("push")), "DEAD") && eventNames(got, of("pull")) == "LEASE_ENDED"
		})
		healed.Store(true)
		require.Equal(t, 202, s.redriveAll("push", "push-token").status)
		eventually(t, "a delivery", func() bool {
			return strings.HasSuffix(eventNames(s.timeline(m+"/timeline"), of("push")), "DELIVERED")
		})
		got := s.timeline(m + "/timeline")
		require.Equal(t, apitype.EventAccepted, got[0].Event)
		require.NotNil(t, got[0].Broker)
		require.Equal(t, "ATTEMPT ATTEMPT DEAD REDRIVEN ATTEMPT DELIVERED", eventNames(got, of("push")))
		require.Equal(t, "DEAD", eventNames(got, of("old")))
		job := ""
		for _, e := range got {
			if e.ConsumerID != "push" {
				continue
			}
			job = e.JobID
			switch e.Event {
			case apitype.EventAttempt:
				require.NotNil(t, e.DurationMs, "%+v", e)
				require.NotNil(t, e.Broker, "%+v", e)
				require.Contains(t, []int{503, 204}, e.Status)
				if e.Status == 503 {
					require.Contains(t, e.Detail, "status 503")
				}
			case apitype.EventDead:
				require.Equal(t, "attempts_exhausted", e.ReasonCode)
			case apitype.EventRedriven:
				require.Equal(t, "by request", e.Detail)
			}
		}
		one := s.path("/consumer/push/job/", job, "/timeline")
		require.Equal(t, "ACCEPTED ATTEMPT ATTEMPT DEAD REDRIVEN ATTEMPT DELIVERED", eventNames(s.timeline(one),
			func(apitype.TimelineEvent) bool { return true }))
		require.Equal(t, "ACCEPTED ATTEMPT ATTEMPT DEAD REDRIVEN ATTEMPT DELIVERED", eventNames(s.timeline(one+"?size=1"),
			func(apitype.TimelineEvent) bool { return true }))
		require.Len(t, s.timeline(m+"/timeline?size=2"), len(got))
		r := s.do("HEAD", m+"/timeline", "")
		require.Equal(t, 200, r.status)
		require.Empty(t, r.body)

		var v apitype.Timeline
		r = s.do("GET", m+"/timeline", "")
		require.Equal(t, 200, r.status, r.body)
		require.NoError(t, json.Unmarshal([]byte(r.body), &v))
		require.Len(t, v.Result, len(got))
		for _, first := range []string{"x", job + ".x", job + ".-1", "v" + job[1:], job + ".99999999999999999999"} {
			requireProblem(t, s.do("GET", one+"?first="+url.QueryEscape(first), ""), 400, "unknown_first")
			requireProblem(t, s.do("GET", m+"/timeline?first="+url.QueryEscape(first), ""), 400, "unknown_first")
		}
		requireProblem(t, s.do("GET", s.path("/message/none/timeline"), ""), 404, "message_not_found")
		requireProblem(t, s.do("GET", s.path("/consumer/pull/job/", job, "/timeline"), ""), 404, "job_not_found")
	})
}

// A timeline is shown to the producer of its message, without what belongs to the consumer, and
// to the consumer of its job.
func TestATimelineIsShownToThoseWhomItConcerns(t *testing.T) {
	parallel(t)
	sink := newSink(t, func(int, received) int { return 503 })
	p := embeddedWorld(t).with("BROKER_MAX_RETRIES=0").start("BROKER_OPEN_MANAGEMENT=")
	s := &stage{process: p, channel: "c"}
	admin := []string{"X-Broker-Admin-Token", adminToken}
	for path, form := range map[string]string{"/producer/p": "token=p-token", "/producer/other": "token=other-token",
		"/channel/c": "token=c-token"} {
		require.Equal(t, 201, s.do("PUT", path, form, append([]string{"Content-Type", apitype.MediaForm},
			admin...)...).status)
	}
	require.Equal(t, 201, s.do("PUT", s.path("/consumer/push"), url.Values{"token": {"push-token"},
		"callbackUrl": {sink.URL}}.Encode(),
		append([]string{"Content-Type", apitype.MediaForm}, admin...)...).status)
	m := s.publish("x")
	eventually(t, "a death", func() bool { return len(s.timeline(m+"/timeline", admin...)) == 3 })
	failed := s.timeline(m+"/timeline", admin...)[1]
	require.Contains(t, failed.Detail, "status 503")
	mine := s.timeline(m+"/timeline", producerTokens...)
	require.Len(t, mine, 3)
	require.NotContains(t, mine[1].Detail, "status")
	require.Equal(t, 503, mine[1].Status)
	require.Equal(t, "attempts_exhausted", mine[2].ReasonCode)

	channel := []string{"X-Broker-Channel-Token", "c-token"}
	other := append([]string{"X-Broker-Producer-ID", "other", "X-Broker-Producer-Token", "other-token"}, channel...)
	consumer := append([]string{"X-Broker-Consumer-Token", "push-token"}, channel...)
	job := s.path("/consumer/push/job/", failed.JobID, "/timeline")
	requireProblem(t, s.do("GET", m+"/timeline", "", other...), 404, "message_not_found")
	requireProblem(t, s.do("GET", job, "", other...), 404, "job_not_found")
	require.Equal(t, 401, s.do("GET", m+"/timeline", "", consumer...).status)
	require.Contains(t, s.timeline(job, consumer...)[1].Detail, "status 503")
	require.Equal(t, 401, s.do("GET", m+"/timeline", "").status)
	require.Equal(t, 401, s.do("GET", job, "").status)
}
