package main

import (
	"fmt"
	"sort"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// In these stories the first failure is the last: what happens next is up to people.
func TestRedrive(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_RATIONAL_DELAY=500ms", "BROKER_MAX_RETRIES=0")
		for name, story := range map[string]func(*testing.T, *process){
			"dead letters are listed in pages":                      deadLettersInPages,
			"all dead letters of a push consumer are redriven":      redrivePushDLQ,
			"all dead letters of a pull consumer are redriven":      redrivePullDLQ,
			"one dead letter is redriven by its advertised URL":     requeueOne,
			"a consumer re-triggers a job only when it is dead":     retriggerByConsumer,
			"only the admin re-triggers a message, as often he may": retriggerMessage,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

// A switchSink fails until it is repaired.
type switchSink struct {
	*sink
	works atomic.Bool
}

func newSwitchSink(t *testing.T) *switchSink {
	s := &switchSink{}
	s.sink = newSink(t, func(int, received) int {
		if s.works.Load() {
			return 204
		}
		return 418
	})
	return s
}

func deadLettersInPages(t *testing.T, p *process) {
	sink := newSwitchSink(t)
	s := p.stage(t, "k="+sink.URL)
	r := s.do("GET", s.path("/consumer/k/dlq"), "")
	require.JSONEq(t, `{"DeadJobs":[],"Pages":{}}`, r.body)
	want := map[string]string{}
	for i := range 7 {
		body := fmt.Sprintf("payload %d", i)
		want[s.publish(body, "X-Broker-Message-ID", fmt.Sprintf("own-%d", i))] = body
	}
	eventually(t, "seven dead letters", func() bool { return len(s.dead("k", 100)) == 7 })
	for _, size := range []int{1, 3, 7, 8} {
		jobs := s.dead("k", size)
		require.Len(t, jobs, 7)
		require.True(t, sort.SliceIsSorted(jobs, func(a, b int) bool { return jobs[a].ID < jobs[b].ID }), "by ID")
		seen := map[string]bool{}
		for _, j := range jobs {
			seen[j.MessageURL] = true
			require.Equal(t, "DEAD", j.Status)
			require.Equal(t, 418, j.StatusCode)
			require.Equal(t, 1, j.Attempts)
			require.Contains(t, j.Reason, "418")
			require.Equal(t, want[j.MessageURL], s.message(j.MessageURL).Payload)
		}
		require.Len(t, seen, 7)
	}
	jobs := s.dead("k", 100)
	r = s.do("GET", s.path("/consumer/k/dlq?size=2&first=", jobs[4].ID), "")
	require.Equal(t, 200, r.status)
	require.Less(t, strings.Index(r.body, jobs[4].ID), strings.Index(r.body, jobs[5].ID))
	require.NotContains(t, r.body, jobs[3].ID)
	require.Contains(t, r.body, "size=2", "the link to the next page carries the size")
	require.NotEmpty(t, r.header.Get("Last-Modified"))
	for _, query := range []string{"size=0", "size=-1", "size=x", "first=%2e%2e%2f", "first=nothing-of-the-kind"} {
		require.Equal(t, 400, s.do("GET", s.path("/consumer/k/dlq?", query), "").status, query)
	}
}

func redrivePushDLQ(t *testing.T, p *process) {
	sink, other := newSwitchSink(t), newSwitchSink(t)
	s := p.stage(t, "k="+sink.URL, "other="+other.URL)
	const n = 30
	for i := range n {
		s.publish(fmt.Sprint(i))
	}
	eventually(t, "all dead", func() bool { return len(s.dead("k", 100)) == n && len(s.dead("other", 100)) == n })
	requireProblem(t, s.redriveAll("k", "wrong"), 400, "requeue_token_mismatch")
	requireProblem(t, s.redriveAll("k", "other-token"), 400, "requeue_token_mismatch")
	requireProblem(t, s.redriveAll("k", ""), 400, "requeue_token_mismatch")
	requireProblem(t, s.do("POST", s.path("/consumer/k/dlq"), "requeue=k-token", "Content-Type", "text/plain"), 415,
		"unsupported_media_type")
	requireProblem(t, s.redriveAll("nobody", "k-token"), 404, "consumer_not_found")
	require.Len(t, s.dead("k", 100), n)
	require.Equal(t, n, sink.count())
	sink.works.Store(true)
	require.Equal(t, 202, s.redriveAll("k", "k-token").status)
	eventually(t, "each once more", func() bool { return sink.count() == 2*n })
	eventually(t, "no dead letters", func() bool { return len(s.dead("k", 100)) == 0 })
	require.Equal(t, 202, s.redriveAll("k", "k-token").status, "nothing to do is fine")
	s.awaitRest(sink.sink)
	for i := range n {
		require.Equal(t, 2, sink.times(fmt.Sprint(i)))
	}
	require.Len(t, s.dead("other", 100), n, "the other consumer has its own")
	require.Equal(t, n, other.count())
}

func redrivePullDLQ(t *testing.T, p *process) {
	s := p.stage(t, "k")
	var ids []string
	for i := range 3 {
		s.publish(fmt.Sprint(i))
	}
	for _, j := range s.awaitQueued("k", 3) {
		s.claim("k", j.ID)
		require.Equal(t, 202, s.move("k", j.ID, to("DEAD")).status)
		ids = append(ids, j.ID)
	}
	dead := s.dead("k", 2)
	require.Len(t, dead, 3)
	require.Contains(t, dead[0].Reason, "declared dead by the consumer")
	require.Empty(t, s.queued("k", ""))
	require.Equal(t, 202, s.redriveAll("k", "k-token").status)
	for i, j := range s.awaitQueued("k", 3) {
		require.Equal(t, ids[i], j.ID)
		require.Zero(t, j.Attempts, "a redrive begins anew")
		s.claim("k", j.ID)
		require.Equal(t, 202, s.move("k", j.ID, to("DELIVERED")).status)
	}
	require.Empty(t, s.dead("k", 10))
}

func requeueOne(t *testing.T, p *process) {
	sink := newSwitchSink(t)
	s := p.stage(t, "k="+sink.URL, "pull")
	at := s.publish("body")
	pulled := s.awaitQueued("pull", 1)[0].ID
	eventually(t, "a dead letter", func() bool { return len(s.dead("k", 100)) == 1 })
	url := s.dead("k", 1)[0].JobRequeueURL
	foreign := strings.Replace(url, "/consumer/k/", "/consumer/pull/", 1)
	requireProblem(t, s.do("POST", url, ""), 403, "channel_token_mismatch")
	requireProblem(t, s.do("POST", url, "", "X-Broker-Channel-Token", "c-token"), 403, "consumer_token_mismatch")
	requireProblem(t, s.do("POST", url, "", consumerTokens("pull")...), 403, "consumer_token_mismatch")
	requireProblem(t, s.do("POST", foreign, "", consumerTokens("pull")...), 404, "job_not_found")
	requireProblem(t, s.do("POST", s.path("/consumer/pull/job/", pulled, "/requeue-dead-job"), "",
		consumerTokens("pull")...), 400, "job_not_dead")
	require.Equal(t, 1, sink.count())
	sink.works.Store(true)
	require.Equal(t, 202, s.do("POST", url, "", consumerTokens("k")...).status)
	eventually(t, "the redriven job", func() bool { return s.message(at).Jobs[0].Status == "DELIVERED" })
	require.Equal(t, 2, sink.count())
	requireProblem(t, s.do("POST", url, "", consumerTokens("k")...), 400, "job_not_dead")
	// The same route for a pull consumer.
	s.claim("pull", pulled)
	require.Equal(t, 202, s.move("pull", pulled, to("DEAD")).status)
	require.Equal(t, 202, s.do("POST", s.job("pull", pulled).JobRequeueURL, "", consumerTokens("pull")...).status)
	require.Equal(t, pulled, s.awaitQueued("pull", 1)[0].ID)
}

func retriggerByConsumer(t *testing.T, p *process) {
	sink := newSwitchSink(t)
	s := p.stage(t, "k="+sink.URL, "pull")
	at := s.publish("body")
	eventually(t, "the death of one job", func() bool { return s.message(at).Jobs[0].Status == "DEAD" })
	jobs := s.message(at).Jobs
	mine, waiting := jobs[0].RetriggerURL, jobs[1].RetriggerURL
	requireProblem(t, s.do("POST", mine, ""), 401, "token_missing")
	requireProblem(t, s.do("POST", mine, "", "X-Broker-Consumer-Token", "pull-token"), 403, "consumer_token_mismatch")
	requireProblem(t, s.do("POST", mine, "", "X-Broker-Admin-Token", "wrong"), 403, "admin_token_mismatch")
	requireProblem(t, s.do("POST", waiting, "", "X-Broker-Consumer-Token", "pull-token"), 400, "job_not_dead")
	requireProblem(t, s.do("POST", at+"/job/00000000000000000000/re-trigger", "", "X-Broker-Admin-Token", adminToken), 404,
		"job_not_found")
	other := s.publish("other")
	requireProblem(t, s.do("POST", other+"/job/"+jobs[0].ID+"/re-trigger", "", "X-Broker-Admin-Token", adminToken), 404,
		"job_not_found")
	require.Equal(t, 1, sink.times("body"))
	sink.works.Store(true)
	require.Equal(t, 202, s.do("POST", mine, "", "X-Broker-Consumer-Token", "k-token").status)
	eventually(t, "the delivery", func() bool { return s.message(at).Jobs[0].Status == "DELIVERED" })
	requireProblem(t, s.do("POST", mine, "", "X-Broker-Consumer-Token", "k-token"), 400, "job_not_dead")
	// The admin may ask at any time; a job that is over or queued stays so.
	require.Equal(t, 202, s.do("POST", mine, "", "X-Broker-Admin-Token", adminToken).status)
	require.Equal(t, 202, s.do("POST", waiting, "", "X-Broker-Admin-Token", adminToken).status)
	s.awaitRest(sink.sink)
	require.Equal(t, 2, sink.times("body"))
	require.Len(t, s.queued("pull", "limit=100"), 2)
	id := jobs[1].ID
	s.claim("pull", id)
	require.Equal(t, 202, s.do("POST", waiting, "", "X-Broker-Admin-Token", adminToken).status)
	require.Equal(t, "INFLIGHT", s.job("pull", id).Status, "a job in flight is left to its worker")
	require.Equal(t, 202, s.move("pull", id, to("DEAD")).status)
	require.Equal(t, 202, s.do("POST", waiting, "", "X-Broker-Admin-Token", adminToken).status)
	require.Equal(t, "QUEUED", s.job("pull", id).Status)
}

func retriggerMessage(t *testing.T, p *process) {
	sink := newSwitchSink(t)
	sink.works.Store(true)
	s := p.stage(t, "k="+sink.URL, "pull", "dead")
	at := s.publish("body")
	url := at + "/re-trigger"
	id := s.awaitQueued("dead", 1)[0].ID
	s.claim("dead", id)
	require.Equal(t, 202, s.move("dead", id, to("DEAD")).status)
	eventually(t, "the delivery", func() bool { return s.message(at).Jobs[0].Status == "DELIVERED" })
	requireProblem(t, s.do("POST", url, ""), 401, "token_missing")
	requireProblem(t, s.do("POST", url, "", consumerTokens("k")...), 401, "token_missing")
	requireProblem(t, s.do("POST", url, "", "X-Broker-Admin-Token", "k-token"), 403, "admin_token_mismatch")
	requireProblem(t, s.do("POST", s.path("/message/none/re-trigger"), "", "X-Broker-Admin-Token", adminToken), 404,
		"message_not_found")
	for range 5 {
		require.Equal(t, 202, s.do("POST", url, "", "X-Broker-Admin-Token", adminToken).status)
	}
	s.awaitRest(sink.sink)
	require.Equal(t, 1, sink.count(), "what is delivered is not sent again")
	require.Len(t, s.queued("pull", "limit=100"), 1, "what is queued is not queued twice")
	require.Len(t, s.dead("dead", 10), 1, "what is dead waits for its consumer")
}

// With an hour to wait, only the admin's word brings the next attempt.
func TestRedriveTheAdminMayRetriggerAJobThatWaitsForItsRetry(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_RATIONAL_DELAY=500ms", "BROKER_RETRY_BACKOFF=1h", "BROKER_RETRY_MAX_DELAY=2h",
			"BROKER_MAX_RETRIES=2")
		sink := newSwitchSink(t)
		s := p.stage(t, "k="+sink.URL)
		at := s.publish("body")
		waiting := func(attempts int) bool {
			j := s.message(at).Jobs[0]
			return j.Status == "QUEUED" && j.Attempts == attempts && j.NextAttemptAt != nil
		}
		eventually(t, "the first failure", func() bool { return waiting(1) })
		url := s.message(at).Jobs[0].RetriggerURL
		requireProblem(t, s.do("POST", url, "", "X-Broker-Consumer-Token", "k-token"), 400, "job_not_dead")
		require.Equal(t, 202, s.do("POST", at+"/re-trigger", "", "X-Broker-Admin-Token", adminToken).status)
		s.awaitWalk()
		require.Equal(t, 1, sink.count(), "to dispatch a message again does not hurry its retries")
		require.Equal(t, 202, s.do("POST", url, "", "X-Broker-Admin-Token", adminToken).status)
		eventually(t, "the second failure", func() bool { return waiting(2) })
		sink.works.Store(true)
		require.Equal(t, 202, s.do("POST", url, "", "X-Broker-Admin-Token", adminToken).status)
		require.Equal(t, 3, s.awaitStatus(at, "DELIVERED").Jobs[0].Attempts)
		require.Equal(t, "3", sink.all()[2].header.Get("X-Broker-Attempt"))
	})
}
