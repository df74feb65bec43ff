package main

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

// Leases that do not end while a story runs.
func TestPull(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_RATIONAL_DELAY=500ms", "BROKER_STOP_TIMEOUT=1h", "BROKER_MAX_RETRIES=3")
		for name, story := range map[string]func(*testing.T, *process){
			"the loser of a claim is told":                      loserIsTold,
			"one job is given back and extended by its lease":   givenBackByLease,
			"leases are as long as the timeout of the consumer": leasesOfATimeout,
			"the transition table":                              transitionTable,
			"IncrementalTimeout has its place":                  incrementalTimeoutRules,
			"the body of a transition must be right":            transitionBodies,
			"of 50 racing workers one wins and knows it":        racingWorkers,
			"of 50 workers racing for a dead job one wins":      racingForADeadJob,
			"a reopened job counts one attempt more":            reopenedJob,
			"a wrong lease is refused":                          wrongLease,
			"a job is moved by its own consumer only":           foreignJobs,
			"tokens are checked in the order of the contract":   pullAuthorisation,
			"limit is clipped or refused":                       limitRules,
			"pages show every job once while others are worked": pullPages,
			"the highest priority is first, then the oldest":    pullOrder,
			"payloads are text or base64":                       pullPayloads,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

// inState brings a new job into a state.
func (s *stage) inState(consumer, state string) string {
	s.t.Helper()
	id := s.newJob(consumer)
	if state != "QUEUED" {
		s.claim(consumer, id)
	}
	if state == "DELIVERED" || state == "DEAD" {
		require.Equal(s.t, 202, s.move(consumer, id, to(state)).status)
	}
	require.Equal(s.t, state, s.job(consumer, id).Status)
	return id
}

// finish ends a job, so that the next one is alone in the list.
func (s *stage) finish(consumer, id string) {
	s.t.Helper()
	s.move(consumer, id, to("INFLIGHT"))
	s.move(consumer, id, to("DELIVERED"))
	require.Empty(s.t, s.queued(consumer, ""))
}

var jobStates = []string{"QUEUED", "INFLIGHT", "DELIVERED", "DEAD"}

func transitionTable(t *testing.T, p *process) {
	allowed := map[string]bool{"QUEUED>INFLIGHT": true, "INFLIGHT>DELIVERED": true, "INFLIGHT>DEAD": true,
		"DEAD>INFLIGHT": true}
	s := p.stage(t, "k")
	for _, from := range jobStates {
		for _, next := range append(jobStates, "", "inflight", "Delivered", "RETRY", "1003") {
			move := from + ">" + next
			id := s.inState("k", from)
			before := s.job("k", id)
			r := s.move("k", id, to(next))
			after := s.job("k", id)
			switch {
			case allowed[move]:
				require.Equal(t, 202, r.status, "%s: %s", move, r.body)
				require.Equal(t, next == "INFLIGHT", r.body != "", move)
				require.Equal(t, next, after.Status, move)
			case from == next:
				require.Equal(t, 202, r.status, "%s: %s", move, r.body)
				require.Equal(t, before, after, "%s changes nothing", move)
			default:
				require.Equal(t, 400, r.status, "%s: %s", move, r.body)
				require.Equal(t, "application/problem+json", r.header.Get("Content-Type"), move)
				require.Equal(t, before, after, "%s changes nothing", move)
			}
			claimed := move == "QUEUED>INFLIGHT" || move == "DEAD>INFLIGHT"
			require.Equal(t, claimed, r.header.Get("X-Broker-Lease") != "", "%s: only who claimed the job gets a lease", move)
			require.Equal(t, after.Status == "DEAD", len(s.dead("k", 10)) == 1, "%s: the DLQ has what is dead", move)
			require.Equal(t, after.Status == "QUEUED", len(s.queued("k", "")) == 1, "%s: the list has what is queued", move)
			s.finish("k", id)
		}
	}
}

func incrementalTimeoutRules(t *testing.T, p *process) {
	s := p.stage(t, "k")
	for _, from := range jobStates {
		for _, next := range jobStates {
			move := from + ">" + next
			id := s.inState("k", from)
			before := s.job("k", id)
			r := s.move("k", id, `{"NextState":"`+next+`","IncrementalTimeout":10}`)
			if move == "QUEUED>INFLIGHT" || move == "DEAD>INFLIGHT" {
				require.Equal(t, 202, r.status, move)
				require.Equal(t, "INFLIGHT", s.job("k", id).Status, move)
			} else {
				require.Equal(t, 400, r.status, "%s: not even for the same state", move)
				require.Equal(t, before, s.job("k", id), move)
			}
			s.finish("k", id)
		}
	}
	for _, value := range []string{"-1", "1.5", "1e1", `"10"`, "true", "[]", "{}", "604801", "99999999999999999999"} {
		id := s.inState("k", "QUEUED")
		require.Equal(t, 400, s.move("k", id, `{"NextState":"INFLIGHT","IncrementalTimeout":`+value+`}`).status, value)
		require.Equal(t, "QUEUED", s.job("k", id).Status)
		s.finish("k", id)
	}
	id := s.inState("k", "QUEUED")
	for _, step := range []string{"INFLIGHT", "INFLIGHT", "DEAD", "DEAD", "INFLIGHT", "DELIVERED", "DELIVERED"} {
		for _, absent := range []string{"0", "null"} {
			require.Equal(t, 202, s.move("k", id, `{"NextState":"`+step+`","IncrementalTimeout":`+absent+`}`).status,
				"%s is no timeout", absent)
		}
	}
}

func transitionBodies(t *testing.T, p *process) {
	s := p.stage(t, "k")
	id := s.newJob("k")
	for _, body := range []string{"", " ", "null", "1", `"INFLIGHT"`, "[]", `["INFLIGHT"]`, "{}", `{"NextState":null}`,
		`{"NextState":1003}`, `{"NextState":["INFLIGHT"]}`,
		`{"NextState":"INFLIGHT"`, `{"NextState":"INFLIGHT"}}`, `{"NextState":"INFLIGHT"}{}`, `{"NextState":"INFLIGHT",}`,
		`{NextState:"INFLIGHT"}`,
		`{"NextState": "DELIVERED"/"DEAD",}`, "NextState=INFLIGHT", "\x00", strings.Repeat("[", 60_000), `{"NextState":"` +
			strings.Repeat("x", 60_000) + `"}`} {
		r := s.move("k", id, body)
		require.Equal(t, 400, r.status, "%.40q: %s", body, r.body)
		require.Equal(t, "application/problem+json", r.header.Get("Content-Type"))
		require.Equal(t, "QUEUED", s.job("k", id).Status, "%.40q", body)
	}
	require.Equal(t, 413, s.move("k", id, strings.Repeat("[", 100_000)).status, "a move has at most 64 KiB")
	requireProblem(t, s.move("k", id, `{"NextState":"INFLIGHT","Reason":"x"}`), 400, "invalid_reason")
	requireProblem(t, s.move("k", id, `{"NextState":"INFLIGHT","Other":"x"}`), 400, "invalid_body")
	// Upstream's own client sends no content type.
	r := s.do("POST", s.path("/consumer/k/job/", id), "\n{ \"NextState\" : \"INFLIGHT\" }\n", consumerTokens("k")...)
	require.Equal(t, 202, r.status, r.body)
	require.NotEmpty(t, r.header.Get("X-Broker-Lease"))
}

// moved reads the answer to INFLIGHT.
func moved(t *testing.T, r reply) (m apitype.MoveResult) {
	t.Helper()
	require.Equal(t, 202, r.status, r.body)
	strictjson.Decode(t, []byte(r.body), &m)
	require.Equal(t, strconv.FormatBool(m.Claimed), r.header.Get("X-Broker-Claimed"))
	require.Equal(t, m.Lease, r.header.Get("X-Broker-Lease"))
	return m
}

func loserIsTold(t *testing.T, p *process) {
	s := p.stage(t, "k")
	id := s.newJob("k")
	won := moved(t, s.move("k", id, to("INFLIGHT")))
	require.True(t, won.Claimed)
	require.Equal(t, 1, won.Attempt)
	require.True(t, won.Deadline.After(time.Now().Add(-time.Second)))
	lost := s.move("k", id, to("INFLIGHT"))
	require.False(t, moved(t, lost).Claimed)
	require.Equal(t, `{"Claimed":false,"Detail":"Another worker has this job."}`+"\n", lost.body)
	for _, bad := range []reply{s.move("k", id, `{"NextState":"INFLIGHT","IncrementalTimeout":5}`),
		s.move("k", id, to("INFLIGHT"), "X-Broker-Lease", "x.1")} {
		require.GreaterOrEqual(t, bad.status, 400)
		require.Equal(t, "false", bad.header.Get("X-Broker-Claimed"))
	}
	for _, bad := range []reply{s.move("k", id, `{"NextState":"INFLIGHT","Reason":"x"}`),
		s.move("k", "06gvk862do000000000g", to("INFLIGHT")),
		s.do("POST", s.path("/consumer/k/job/", id), to("INFLIGHT"), "X-Broker-Channel-Token", "c-token",
			"X-Broker-Consumer-Token", "wrong")} {
		require.GreaterOrEqual(t, bad.status, 400)
		require.Equal(t, "false", bad.header.Get("X-Broker-Claimed"), "every answer to INFLIGHT says so: %s", bad.body)
	}
	done := s.move("k", id, to("DELIVERED"), "X-Broker-Lease", won.Lease)
	require.Equal(t, 202, done.status)
	require.Empty(t, done.header.Values("X-Broker-Claimed"))
	require.Empty(t, done.body)
	over := s.move("k", id, to("INFLIGHT"))
	requireProblem(t, over, 400, "invalid_transition")
	require.Equal(t, "false", over.header.Get("X-Broker-Claimed"))
}

func givenBackByLease(t *testing.T, p *process) {
	s := p.stage(t, "k")
	id := s.newJob("k")
	first := moved(t, s.move("k", id, to("INFLIGHT")))
	more := moved(t, s.move("k", id, `{"NextState":"INFLIGHT","IncrementalTimeout":600}`, "X-Broker-Lease", first.Lease))
	require.True(t, more.Claimed)
	require.Zero(t, more.Attempt)
	require.True(t, more.Deadline.After(first.Deadline.Add(500*time.Second)))
	requireProblem(t, s.move("k", id, to("QUEUED")), 400, "invalid_transition")
	requireProblem(t, s.move("k", id, `{"NextState":"QUEUED","Delay":5}`), 400, "lease_required")
	requireProblem(t, s.move("k", id, `{"NextState":"QUEUED","Lease":"x.1"}`, "X-Broker-Lease", first.Lease), 400,
		"duplicate_field")
	requireProblem(t, s.move("k", id, to("QUEUED"), "X-Broker-Lease", "x.1"), 409, "lease_lost")
	require.Equal(t, "INFLIGHT", s.job("k", id).Status)
	r := s.move("k", id, to("QUEUED"), "X-Broker-Lease", first.Lease)
	require.Equal(t, 202, r.status, r.body)
	require.Empty(t, r.body)
	again := moved(t, s.move("k", id, to("INFLIGHT")))
	require.True(t, again.Claimed)
	requireProblem(t, s.move("k", id, to("QUEUED"), "X-Broker-Lease", first.Lease), 409, "lease_lost")
	r = s.move("k", id, `{"NextState":"QUEUED","Delay":3600,"Lease":"`+again.Lease+`"}`)
	require.Equal(t, 202, r.status, r.body)
	require.Equal(t, "QUEUED", s.job("k", id).Status)
	require.Empty(t, s.queued("k", "limit=10"), "it is not due")
}

func leasesOfATimeout(t *testing.T, p *process) {
	s := p.stage(t, "k")
	s.publish("one")
	s.publish("two")
	jobs := s.awaitQueued("k", 2)
	usual := moved(t, s.move("k", jobs[0].ID, to("INFLIGHT")))
	s.put(s.path("/consumer/k"), "timeout", "50m")
	long := moved(t, s.move("k", jobs[1].ID, to("INFLIGHT")))
	require.True(t, long.Deadline.Before(usual.Deadline.Add(-5*time.Minute)),
		"50 minutes are less than the hour of the installation")
	require.True(t, long.Deadline.After(usual.Deadline.Add(-15*time.Minute)))
	s.publish("three")
	s.awaitQueued("k", 1)
	r := s.do("POST", s.path("/consumer/k/claim"), "", consumerTokens("k")...)
	var c apitype.ClaimedJobs
	strictjson.Decode(t, []byte(r.body), &c)
	require.Len(t, c.Result, 1)
	require.True(t, c.Result[0].Deadline.After(time.Now().Add(40*time.Minute)))
	r = s.do("PUT", s.path("/consumer/k"), "retryOn=5xx", "Content-Type", formType)
	requireProblem(t, r, 400, "unknown_field")
}

// race sends the same transition from many workers and returns the leases.
func race(t *testing.T, s *stage, id string) []string {
	const workers = 50
	var mu sync.Mutex
	var leases, wrong []string
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range workers {
		wg.Go(func() {
			<-start
			r, err := s.try("POST", s.path("/consumer/k/job/", id), to("INFLIGHT"), consumerTokens("k")...)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || r.status != 202 {
				wrong = append(wrong, fmt.Sprint(r.status, r.body, err))
			} else if lease := r.header.Get("X-Broker-Lease"); lease != "" {
				leases = append(leases, lease)
			}
		})
	}
	close(start)
	wg.Wait()
	require.Empty(t, wrong, "the same state is 202 for everybody")
	return leases
}

func racingWorkers(t *testing.T, p *process) {
	s := p.stage(t, "k")
	for range 5 {
		id := s.newJob("k")
		leases := race(t, s, id)
		require.Len(t, leases, 1)
		require.Equal(t, 1, s.job("k", id).Attempts)
		require.Equal(t, 202, s.move("k", id, to("DELIVERED"), "X-Broker-Lease", leases[0]).status)
	}
}

func racingForADeadJob(t *testing.T, p *process) {
	s := p.stage(t, "k")
	id := s.inState("k", "DEAD")
	for attempts := 2; attempts <= 5; attempts++ {
		leases := race(t, s, id)
		require.Len(t, leases, 1)
		require.Equal(t, attempts, s.job("k", id).Attempts)
		require.Equal(t, 202, s.move("k", id, to("DEAD"), "X-Broker-Lease", leases[0]).status)
	}
}

func reopenedJob(t *testing.T, p *process) {
	s := p.stage(t, "k")
	id := s.inState("k", "DEAD")
	require.Equal(t, 1, s.job("k", id).Attempts)
	require.NotEmpty(t, s.job("k", id).JobRequeueURL)
	s.claim("k", id)
	j := s.job("k", id)
	require.Equal(t, 2, j.Attempts)
	require.Empty(t, j.JobRequeueURL)
	require.Empty(t, s.dead("k", 10))
	require.Equal(t, 202, s.move("k", id, to("DEAD")).status)
	s.claim("k", id)
	require.Equal(t, 202, s.move("k", id, to("DELIVERED")).status)
	j = s.job("k", id)
	require.Equal(t, "DELIVERED", j.Status)
	require.Equal(t, 3, j.Attempts)
}

func wrongLease(t *testing.T, p *process) {
	s := p.stage(t, "k")
	id := s.newJob("k")
	lease := s.claim("k", id)
	for _, next := range []string{"DELIVERED", "DEAD"} {
		requireProblem(t, s.move("k", id, to(next), "X-Broker-Lease", "made-up"), 409, "lease_lost")
		requireProblem(t, s.move("k", id, to(next), "X-Broker-Lease", lease+"0"), 409, "lease_lost")
	}
	require.Equal(t, "INFLIGHT", s.job("k", id).Status)
	require.Equal(t, 202, s.move("k", id, to("DEAD"), "X-Broker-Lease", lease).status)
	second := s.claim("k", id)
	require.NotEqual(t, lease, second)
	requireProblem(t, s.move("k", id, to("DELIVERED"), "X-Broker-Lease", lease), 409, "lease_lost")
	require.Equal(t, 202, s.move("k", id, to("DELIVERED"), "X-Broker-Lease", second).status)
	require.Equal(t, 202, s.move("k", id, to("DELIVERED"), "X-Broker-Lease", second).status,
		"a repeated report is the same state")
}

func foreignJobs(t *testing.T, p *process) {
	s, other := p.stage(t, "k", "second"), p.stage(t, "k", "second")
	s.publish("work")
	id := s.awaitQueued("k", 1)[0].ID
	require.NotEqual(t, id, s.awaitQueued("second", 1)[0].ID)
	requireProblem(t, s.move("second", id, to("INFLIGHT")), 401, "job_of_other_consumer")
	requireProblem(t, other.move("k", id, to("INFLIGHT")), 404, "job_not_found")
	requireProblem(t, other.move("second", id, to("INFLIGHT")), 404, "job_not_found")
	// A consumer that came later has no job of that message, not even under the
	// ID that it would have.
	s.join("late")
	job, err := ident.Parse(id)
	require.NoError(t, err)
	message, _, ok := job.Split()
	require.True(t, ok)
	late := message.Job(2).String()
	requireProblem(t, s.move("late", late, to("INFLIGHT")), 404, "job_not_found")
	requireProblem(t, s.move("late", id, to("INFLIGHT")), 401, "job_of_other_consumer")
	for _, unknown := range []string{late, "00000000000000000000", "vvvvvvvvvvvvvvvvvvvv", id + "0", id[:19],
		strings.ToUpper(id), "1", "a:b@c~d"} {
		for _, next := range jobStates {
			requireProblem(t, s.move("k", unknown, to(next)), 404, "job_not_found")
		}
	}
	require.Equal(t, "QUEUED", s.job("k", id).Status)
	require.Len(t, s.queued("second", ""), 1)
}

func pullAuthorisation(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k", "other", "push="+sink.URL)
	s.publish("work")
	id := s.awaitQueued("k", 1)[0].ID
	for _, tc := range []struct {
		channel, consumer, channelToken, consumerToken string
		status                                         int
		code                                           string
	}{
		{"nowhere", "nobody", "wrong", "wrong", 404, "channel_not_found"},
		{s.channel, "nobody", "", "", 403, "channel_token_mismatch"},
		{s.channel, "nobody", "wrong", "wrong", 403, "channel_token_mismatch"},
		{s.channel, "k", "k-token", "k-token", 403, "channel_token_mismatch"},
		{strings.ToUpper(s.channel), "k", "c-token", "k-token", 404, "channel_not_found"},
		{s.channel, "nobody", "c-token", "wrong", 401, "consumer_not_found"},
		{s.channel, "K", "c-token", "k-token", 401, "consumer_not_found"},
		{s.channel, "k", "c-token", "", 403, "consumer_token_mismatch"},
		{s.channel, "k", "c-token", "other-token", 403, "consumer_token_mismatch"},
		{s.channel, "k", "c-token", adminToken, 403, "consumer_token_mismatch"},
		{s.channel, "push", "c-token", "wrong", 403, "consumer_token_mismatch"},
		{s.channel, "push", "c-token", "push-token", 412, "consumer_not_pull"},
	} {
		headers := []string{"X-Broker-Channel-Token", tc.channelToken, "X-Broker-Consumer-Token", tc.consumerToken}
		base := "/channel/" + tc.channel + "/consumer/" + tc.consumer
		requireProblem(t, p.in(t).do("GET", base+"/queued-jobs?limit=x", "", headers...), tc.status, tc.code)
		requireProblem(t, p.in(t).do("POST", base+"/job/"+id, "no JSON", headers...), tc.status, tc.code)
		requireProblem(t, p.in(t).do("POST", base+"/job/unknown", "no JSON", headers...), tc.status, tc.code)
	}
	// With the right tokens: the job first (404, 401), then the body (400).
	requireProblem(t, s.move("k", "unknown", "no JSON"), 404, "job_not_found")
	requireProblem(t, s.move("other", id, "no JSON"), 401, "job_of_other_consumer")
	require.Equal(t, 400, s.move("k", id, "no JSON").status)
	require.Equal(t, "QUEUED", s.job("k", id).Status)
}

func pullPayloads(t *testing.T, p *process) {
	s := p.stage(t, "k")
	for i, body := range []string{`{"a":1}`, "", "\xff\x00\xfe", "é<&>\u2028\u0000", strings.Repeat("\x80", 100_000)} {
		at := s.publish(body, "Content-Type", "application/x-"+fmt.Sprint(i), "X-Broker-Metadata-Headers", "X-Trace",
			"X-Trace", "t1", "X-Broker-Message-Priority", "9")
		j := s.awaitQueued("k", 1)[0]
		m := s.message(at)
		if i == 2 || i == 4 {
			require.Equal(t, "base64", j.Message.PayloadEncoding)
			require.Equal(t, base64.StdEncoding.EncodeToString([]byte(body)), j.Message.Payload)
		} else {
			require.Empty(t, j.Message.PayloadEncoding)
			require.Equal(t, body, j.Message.Payload)
		}
		require.Equal(t, j.Message.Payload, m.Payload)
		require.Equal(t, j.Message.PayloadEncoding, m.PayloadEncoding)
		require.Equal(t, m.ID, j.Message.MessageID)
		require.Equal(t, m.Jobs[0].ID, j.ID)
		require.Equal(t, "application/x-"+fmt.Sprint(i), j.Message.ContentType)
		require.Equal(t, map[string]string{"X-Trace": "t1"}, j.Message.Headers)
		require.Equal(t, 9, j.Priority)
		require.Zero(t, j.IncrementalTimeout)
		s.finish("k", j.ID)
	}
	r := s.do("GET", s.path("/consumer/k/queued-jobs"), "", consumerTokens("k")...)
	_, err := http.ParseTime(r.header.Get("Last-Modified"))
	require.NoError(t, err)
	require.NotZero(t, s.job("k", s.newJob("k")).StatusChangedAt)
}
