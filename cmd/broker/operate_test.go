package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

// answered sends a request and decodes its answer, which must be 200.
func answered[T any](t testing.TB, p *process, method, path string, headers ...string) (v T) {
	t.Helper()
	r := p.do(method, path, "", headers...)
	require.Equal(t, 200, r.status, r.body)
	strictjson.Decode(t, []byte(r.body), &v)
	return v
}

// list follows the pages of the jobs of a consumer.
func (s *stage) list(consumer, query string) (all []apitype.Job) {
	s.t.Helper()
	for next := s.path("/consumer/", consumer, "/jobs?", query); next != ""; {
		page := answered[apitype.JobList](s.t, s.process, "GET", next)
		all, next = append(all, page.Result...), page.Pages.Next
	}
	return all
}

func TestOperate(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=3s", "BROKER_RETRY_BACKOFF=1h",
			"BROKER_MAX_RETRIES=3")
		for name, story := range map[string]func(*testing.T, *process){
			"delayed jobs are due now":                              delayedJobsDueNow,
			"a hold stays when delayed jobs are due now":            retryKeepsHolds,
			"a test message reaches one consumer and leaves no job": testOfAConsumer,
			"a test tells what a delivery would meet":               testsThatFail,
			"a test ends with the time of the consumer":             testOfAHangingConsumer,
			"jobs are listed by status":                             jobsByStatus,
			"a purge ends what waits, and a replay brings it back":  purgeAndReplay,
			"a purge leaves jobs in flight alone":                   purgeLeavesInFlight,
			"a purged key goes on":                                  purgedKeyGoesOn,
			"messages are searched":                                 messagesAreSearched,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

func delayedJobsDueNow(t *testing.T, p *process) {
	sink := newSwitchSink(t)
	s := p.stage(t, "k="+sink.URL, "pull")
	at := s.publish("one")
	s.publish("two")
	eventually(t, "both attempts", func() bool { return len(s.list("k", "status=DELAYED")) == 2 })
	for _, j := range s.list("k", "status=DELAYED") {
		require.Equal(t, []any{"QUEUED", 1, 418}, []any{j.Status, j.Attempts, j.StatusCode})
		require.Greater(t, time.Until(j.NextAttemptAt.Time), 50*time.Minute)
	}
	sink.works.Store(true)
	require.Equal(t, 2, answered[apitype.Retried](t, p, "POST", s.path("/consumer/k/retry")).Retried)
	s.awaitRest(sink.sink)
	require.Empty(t, s.list("k", "status=QUEUED"))
	require.Equal(t, 2, s.message(at).Jobs[0].Attempts)
	require.Zero(t, answered[apitype.Retried](t, p, "POST", s.path("/consumer/k/retry")).Retried)

	// A pull worker gave its job back for an hour.
	jobs := s.awaitQueued("pull", 2)
	lease := s.claim("pull", jobs[0].ID)
	r := s.move("pull", jobs[0].ID, `{"NextState":"QUEUED","Delay":3600}`, "X-Broker-Lease", lease)
	if r.status != 202 { // the door of single jobs does not take it
		require.Equal(t, 400, r.status, r.body)
		body, err := json.Marshal(map[string]any{"Updates": []any{map[string]any{"ID": jobs[0].ID, "Lease": lease,
			"NextState": "QUEUED", "Delay": 3600}}})
		require.NoError(t, err)
		r = s.do("POST", s.path("/consumer/pull/jobs"), string(body), append(consumerTokens("pull"), "Content-Type",
			"application/json")...)
		require.Equal(t, 200, r.status, r.body)
	}
	s.awaitQueued("pull", 1)
	require.Len(t, s.list("pull", "status=QUEUED"), 2, "those that are due later are queued, too")
	require.Equal(t, 1, answered[apitype.Retried](t, p, "POST", s.path("/consumer/pull/retry"),
		consumerTokens("pull")...).Retried)
	s.awaitQueued("pull", 2)
}

func retryKeepsHolds(t *testing.T, p *process) {
	var calls atomic.Int64
	callback := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) {
		calls.Add(1)
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(429)
	})
	s := p.stage(t, "k="+callback)
	s.publish("body")
	held := func() *apitype.Time { return answered[apitype.Consumer](t, p, "GET", s.path("/consumer/k")).HeldUntil }
	eventually(t, "the hold", func() bool { return held() != nil && len(s.list("k", "status=DELAYED")) == 1 })
	require.Equal(t, 1, answered[apitype.Retried](t, p, "POST", s.path("/consumer/k/retry")).Retried)
	require.NotNil(t, held(), "the consumer asked for rest")
	require.EqualValues(t, 1, calls.Load())
	listed := answered[apitype.ConsumerList](t, p, "GET", "/consumers?held=retry_after&channel="+s.channel)
	require.Len(t, listed.Result, 1)
	require.Equal(t, "k", listed.Result[0].ID)
}

func testOfAConsumer(t *testing.T, p *process) {
	got := make(chan *http.Request, 2)
	callback := serveHTTP(t, func(w http.ResponseWriter, r *http.Request, _ <-chan struct{}) {
		got <- r.Clone(r.Context())
		_, _ = w.Write([]byte("thanks"))
	})
	other := newSink(t, nil)
	s := p.stage(t, "k="+callback, "other="+other.URL)
	s.put(s.path("/consumer/k"), "headers", "X-Shop: 7", "signingSecret",
		"whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
	require.Equal(t, 200, s.do("POST", s.path("/consumer/k/pause"), "").status)
	test := answered[apitype.ConsumerTest](t, p, "POST", s.path("/consumer/k/test"), consumerTokens("k")...)
	require.Equal(t, []any{200, "", "thanks"}, []any{test.Status, test.Error, test.Body})
	h := (<-got).Header
	require.Equal(t, []string{"true", "k-token", s.channel, "k", "1", "7", "application/json"}, []string{
		h.Get("X-Broker-Test"), h.Get("X-Broker-Consumer-Token"), h.Get("X-Broker-Channel-ID"),
		h.Get("X-Broker-Consumer-ID"), h.Get("X-Broker-Attempt"), h.Get("X-Shop"), h.Get("Content-Type")})
	require.NotEmpty(t, h.Get("Webhook-Signature"))
	require.Equal(t, "PAUSED", answered[apitype.Consumer](t, p, "GET", s.path("/consumer/k")).State)
	require.Empty(t, s.list("k", ""))
	require.Empty(t, answered[apitype.MessageList](t, p, "GET", s.path("/messages")).Result)
	require.Zero(t, other.count())
	s.put(s.path("/consumer/pull"), "type", "pull")
	requireProblem(t, s.do("POST", s.path("/consumer/pull/test"), ""), 409, "consumer_pull")
	// The headers of a test may be sent back by a relay.
	s.publish("body", "X-Broker-Test", "true")
}

func testsThatFail(t *testing.T, p *process) {
	status := atomic.Int64{}
	callback := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) {
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(int(status.Load()))
		_, _ = fmt.Fprintf(w, "%01500d", 7)
	})
	s := p.stage(t, "k="+callback, "away=http://"+freeAddr(t))
	s.put(s.path("/consumer/k"), "tombstoneAfter", "1", "tombstoneWindow", "1h")
	for _, code := range []int64{410, 429, 500, 302} {
		status.Store(code)
		for range 3 {
			test := answered[apitype.ConsumerTest](t, p, "POST", s.path("/consumer/k/test"))
			require.EqualValues(t, code, test.Status)
			require.Contains(t, test.Error, fmt.Sprintf("status %d", code))
			require.Len(t, test.Body, 1024, "the first KiB")
		}
	}
	k := answered[apitype.Consumer](t, p, "GET", s.path("/consumer/k"))
	require.Equal(t, "ACTIVE", k.State, "no answer to a test changes the consumer")
	require.Nil(t, k.HeldUntil)
	test := answered[apitype.ConsumerTest](t, p, "POST", s.path("/consumer/away/test"))
	require.Zero(t, test.Status)
	require.Contains(t, test.Error, "refused")
	s.put(s.path("/consumer/k"), "authorization", "oauth2 http://"+freeAddr(t)+"/token shared s3cret")
	test = answered[apitype.ConsumerTest](t, p, "POST", s.path("/consumer/k/test"))
	require.Zero(t, test.Status)
	require.NotEmpty(t, test.Error)
	require.NotContains(t, test.Error, "s3cret")
}

func testOfAHangingConsumer(t *testing.T, p *process) {
	hanging := serveHTTP(t, func(_ http.ResponseWriter, _ *http.Request, over <-chan struct{}) { <-over })
	s := p.stage(t, "k="+hanging)
	s.put(s.path("/consumer/k"), "timeout", "1s")
	begun := time.Now()
	test := answered[apitype.ConsumerTest](t, p, "POST", s.path("/consumer/k/test"))
	require.GreaterOrEqual(t, time.Since(begun), time.Second)
	require.Equal(t, []any{0, "timeout: no whole answer came in time"}, []any{test.Status, test.Error})
	require.GreaterOrEqual(t, test.DurationMs, int64(1000))
	// A client that leaves waits for nothing.
	s.put(s.path("/consumer/k"), "timeout", "3s")
	c, err := net.Dial("tcp", p.base[len("http://"):])
	require.NoError(t, err)
	_, err = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: b\r\nContent-Length: 0\r\n\r\n", s.path("/consumer/k/test"))
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

func jobsByStatus(t *testing.T, p *process) {
	s := p.stage(t, "k")
	s.put(s.path("/consumer/k"), "timeout", "10m") // the leases outlast this test
	for i := range 6 {
		s.publish(fmt.Sprint(i))
	}
	jobs := s.awaitQueued("k", 6)
	s.claim("k", jobs[2].ID)
	require.Equal(t, 202, s.move("k", jobs[4].ID, to("DEAD"), "X-Broker-Lease", s.claim("k", jobs[4].ID)).status)
	ids := func(list []apitype.Job) (all []string) {
		for _, j := range list {
			all = append(all, j.ID)
		}
		return all
	}
	want := func(at ...int) (all []string) {
		for _, i := range at {
			all = append(all, jobs[i].ID)
		}
		return all
	}
	for _, limit := range []string{"limit=1", "limit=3", "limit=100"} {
		require.Equal(t, want(0, 1, 3, 5), ids(s.list("k", limit+"&status=QUEUED")))
		require.Equal(t, want(5, 3, 1, 0), ids(s.list("k", limit+"&status=QUEUED&order=desc")))
		require.Equal(t, want(0, 1, 2, 3, 5), ids(s.list("k", limit)))
		require.Equal(t, want(2), ids(s.list("k", limit+"&status=INFLIGHT")))
		require.Equal(t, want(4), ids(s.list("k", limit+"&status=DEAD")))
		require.Empty(t, s.list("k", limit+"&status=DELAYED"))
	}
	require.NotNil(t, s.list("k", "status=INFLIGHT")[0].LeaseUntil)
	var k apitype.ListedConsumer
	eventually(t, "the counts", func() bool {
		all := answered[apitype.ConsumerList](t, p, "GET", "/consumers?sort=queued&channel="+s.channel).Result
		require.Len(t, all, 1)
		k = all[0]
		return k.Queued != nil && k.InFlight != nil && k.DeadLetters != nil
	})
	require.Equal(t, []int{4, 1, 1}, []int{*k.Queued, *k.InFlight, *k.DeadLetters})
	requireProblem(t, s.do("GET", s.path("/consumer/k/jobs?state=QUEUED"), ""), 400, "unknown_parameter")
}

func purgeAndReplay(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL, "pull")
	for _, k := range []string{"k", "pull"} {
		require.Equal(t, 200, s.do("POST", s.path("/consumer/", k, "/pause"), "").status)
	}
	begun := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	var at []string
	for i := range 5 {
		at = append(at, s.publish(fmt.Sprint(i)))
	}
	purge := func(consumer, query string) int {
		return answered[apitype.Purged](t, p, "POST", s.path("/consumer/", consumer, "/purge", query)).Purged
	}
	require.Equal(t, 5, purge("k", ""))
	require.Zero(t, purge("k", ""))
	require.Equal(t, 5, purge("pull", "?forget=true"))
	require.Empty(t, s.dead("pull", 10))
	for _, j := range s.dead("k", 10) {
		require.Equal(t, []any{"purged", 0}, []any{j.ReasonCode, j.Attempts})
	}
	require.Len(t, s.dead("k", 10), 5)
	for _, k := range []string{"k", "pull"} {
		require.Equal(t, 200, s.do("POST", s.path("/consumer/", k, "/resume"), "").status)
		require.Empty(t, s.list(k, ""))
	}
	s.publish("new")
	eventually(t, "the new message", func() bool { return sink.times("new") == 1 })
	s.awaitQueued("pull", 1)
	require.Equal(t, 1, sink.count(), "nothing that was purged comes back by itself")

	r := s.do("POST", s.path("/consumer/k/replay"), `{"From":"`+begun+`","Only":"dead"}`, "Content-Type",
		"application/json")
	require.Equal(t, 202, r.status, r.body)
	eventually(t, "the replay", func() bool { return sink.count() == 6 })
	for i := range at {
		require.Equal(t, 1, sink.times(fmt.Sprint(i)))
	}
}

func purgeLeavesInFlight(t *testing.T, p *process) {
	s := p.stage(t, "k")
	for i := range 4 {
		s.publish(fmt.Sprint(i))
	}
	jobs := s.awaitQueued("k", 4)
	lease := s.claim("k", jobs[1].ID)
	require.Equal(t, 3, answered[apitype.Purged](t, p, "POST", s.path("/consumer/k/purge")).Purged)
	require.Empty(t, s.queued("k", "limit=10"))
	require.Equal(t, "INFLIGHT", s.job("k", jobs[1].ID).Status)
	require.Equal(t, 202, s.move("k", jobs[1].ID, to("DELIVERED"), "X-Broker-Lease", lease).status)
	require.Equal(t, "DELIVERED", s.job("k", jobs[1].ID).Status)
	requireProblem(t, s.do("POST", s.path("/consumer/k/purge?forgot=true"), ""), 400, "unknown_parameter")
}

func purgedKeyGoesOn(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path("/consumer/k"), "ordered", "true")
	require.Equal(t, 200, s.do("POST", s.path("/consumer/k/pause"), "").status)
	for i := range 3 {
		s.publish(fmt.Sprint("old ", i), "X-Broker-Ordering-Key", "a")
	}
	require.Equal(t, 3, answered[apitype.Purged](t, p, "POST", s.path("/consumer/k/purge")).Purged)
	require.Equal(t, 200, s.do("POST", s.path("/consumer/k/resume"), "").status)
	s.publish("new", "X-Broker-Ordering-Key", "a")
	eventually(t, "the next message of the key", func() bool { return sink.times("new") == 1 })
	require.Equal(t, 1, sink.count())
}

func messagesAreSearched(t *testing.T, p *process) {
	s := p.stage(t, "k")
	var at []string
	for i := range 4 {
		at = append(at, s.publish(fmt.Sprintf(`{"order":%d,"ref":"R-%d"}`, i, i*11)))
	}
	list := func(query string) apitype.MessageList {
		return answered[apitype.MessageList](t, p, "GET", s.path("/messages?", query))
	}
	got := list("contains=R-22")
	require.Equal(t, []string{at[2]}, got.Result)
	require.Equal(t, 4, *got.Searched)
	require.Equal(t, []string{at[3], at[2], at[1], at[0]}, list("order=desc").Result)
	second := answered[apitype.MessageList](t, p, "GET", list("order=desc&limit=2").Pages.Next)
	require.Equal(t, []string{at[1], at[0]}, second.Result)
	require.Len(t, list("producer=p&consumer=k&status=QUEUED").Result, 4)
	require.Empty(t, list("consumer=k&status=DEAD").Result)
}

// What a retry made due stays due: a Redis that is emptied afterwards does not bring the delays back.
func TestFaultRetriedJobsStayDueAfterFlushallReal(t *testing.T) {
	parallel(t)
	w := realWorld(t)
	p := w.start("BROKER_RATIONAL_DELAY=500ms", "BROKER_RETRY_BACKOFF=1h")
	sink := newSwitchSink(t)
	s := p.stage(t, "k="+sink.URL)
	s.publish("body")
	eventually(t, "the first attempt", func() bool { return len(s.list("k", "status=DELAYED")) == 1 })
	require.Equal(t, 200, s.do("POST", s.path("/consumer/k/pause"), "").status)
	require.Equal(t, 1, answered[apitype.Retried](t, p, "POST", s.path("/consumer/k/retry")).Retried)
	w.flushall()
	sink.works.Store(true)
	require.Equal(t, 200, s.do("POST", s.path("/consumer/k/resume"), "").status)
	eventually(t, "the second attempt", func() bool { return sink.count() == 2 })
}

// A broker that is killed while it purges loses nothing and delivers nothing that it has answered as purged.
func TestFaultKillAfterAPurgeBringsNothingBack(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.with(quick...).start()
		sink := newSink(t, nil)
		s := p.stage(t, "k="+sink.URL)
		require.Equal(t, 200, s.do("POST", s.path("/consumer/k/pause"), "").status)
		for i := range 20 {
			s.publish(fmt.Sprint(i))
		}
		require.Equal(t, 20, answered[apitype.Purged](t, p, "POST", s.path("/consumer/k/purge")).Purged)
		p.kill()
		p = w.start()
		s = s.on(p)
		require.Equal(t, 200, s.do("POST", s.path("/consumer/k/resume"), "").status)
		s.publish("new")
		eventually(t, "the new message", func() bool { return sink.times("new") == 1 })
		s.awaitRest(sink)
		require.Equal(t, 1, sink.count())
		require.Len(t, s.dead("k", 100), 20)
	})
}

// A line of the log names a job by what people know: channel, consumer, message and job, and no number.
func TestLogLinesNameChannelConsumerMessageAndJob(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.with(quick...).start("BROKER_LOG_LEVEL=debug", "BROKER_LOG_FORMAT=json", "BROKER_MAX_RETRIES=1")
		sink := newSink(t, func(int, received) int { return 500 })
		s := p.stage(t, "k="+sink.URL, "pull")
		s.publish("body", "X-Broker-Message-ID", "order-1")
		eventually(t, "the dead letter", func() bool { return len(s.dead("k", 10)) == 1 })
		job := s.dead("k", 10)[0].ID
		jobs := s.awaitQueued("pull", 1)
		require.Equal(t, 202, s.move("pull", jobs[0].ID, `{"NextState":"INFLIGHT"}`).status)
		if w.redis != nil {
			w.flushall()
			eventually(t, "the loss", func() bool { return strings.Contains(p.log.String(), "was lost or replaced") })
		}
		eventually(t, "the end of the lease", func() bool {
			return strings.Contains(p.log.String(), "leases ended without an outcome")
		})
		require.Equal(t, 0, p.stop())
		text := p.log.String()
		for _, said := range []string{"attempt failed", "job is dead"} {
			require.Regexp(t, fmt.Sprintf(`"msg":"%s","channel":"%s","consumer":"k","message":"order-1","job":"%s",`, said,
				s.channel, job), text)
		}
		require.Regexp(t, `"leases ended without an outcome[^}]*"channel":"`+s.channel+`","consumer":"pull"`, text)
		require.NotRegexp(t, `"consumer(_no)?":[0-9]`, text)
		require.NotRegexp(t, `consumer [0-9]`, text)
	})
}
