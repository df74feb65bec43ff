package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

func TestReplays(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_ALLOW_DELETE=true")
		for name, story := range map[string]func(*testing.T, *process){
			"the messages of a time, once more": replayOfATime,
			"a dry run":                         replayDryRun,
			"dead letters alone":                replayOfTheDead,
			"requests that cannot be":           badReplays,
			"a pause, a resume and a cancel":    replayHeld,
			"a rate of its own":                 replayRate,
			"those that a filter takes":         replayFiltered,
			"jobs of a pull consumer":           replayPulled,
			"a consumer that is paused":         replayOfThePaused,
			"failures are retried, and may end": replayRetries,
			"a consumer that is deleted":        replayOfTheDeleted,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

const everSince = `"From":"2020-01-01T00:00:00Z"`

// replay begins a replay and returns its path.
func (s *stage) replay(consumer, members string) string {
	s.t.Helper()
	r := s.do("POST", s.path("/consumer/", consumer, "/replay"), "{"+members+"}", consumerTokens(consumer)...)
	require.Equal(s.t, 202, r.status, r.body)
	var view apitype.Replay
	strictjson.Decode(s.t, []byte(r.body), &view)
	require.Equal(s.t, s.path("/consumer/", consumer, "/replay/", view.ID), r.header.Get("Location"))
	return r.header.Get("Location")
}

func (s *stage) replayAt(path string) (view apitype.Replay) {
	s.t.Helper()
	r := s.do("GET", path, "", consumerTokens(consumerOf(path))...)
	require.Equal(s.t, 200, r.status, r.body)
	require.NoError(s.t, json.Unmarshal([]byte(r.body), &view))
	return view
}

func consumerOf(path string) string { return strings.Split(path, "/")[4] }

func (s *stage) awaitReplay(path, state string) (view apitype.Replay) {
	s.t.Helper()
	eventually(s.t, "the replay is "+state, func() bool {
		view = s.replayAt(path)
		return view.State == state
	})
	return view
}

// delivered publishes n messages and waits for their deliveries.
func (s *stage) delivered(sink *sink, n int) {
	s.t.Helper()
	for i := range n {
		s.publish(fmt.Sprint("m", i), "X-Broker-Message-ID", fmt.Sprint("m", i))
	}
	eventually(s.t, "the deliveries", func() bool { return sink.count() >= n })
	s.over("k")
}

// over waits until no job of the consumer is open. A replay repeats what has an outcome, which is
// stored after the receiver has seen the message.
func (s *stage) over(consumer string) {
	s.t.Helper()
	eventually(s.t, "the outcomes", func() bool {
		var k apitype.Consumer
		r := s.do("GET", s.path("/consumer/", consumer), "")
		require.NoError(s.t, json.Unmarshal([]byte(r.body), &k))
		return k.Queued != nil && *k.Queued == 0 && *k.InFlight == 0
	})
}

// copies returns the deliveries of a replay by message ID.
func copies(sink *sink, replay string) map[string]int {
	out := map[string]int{}
	for _, r := range sink.all() {
		if r.header.Get("X-Broker-Replay") == replay {
			out[r.header.Get("X-Broker-Message-Id")]++
		}
	}
	return out
}

// deliveriesOf counts the stored deliveries of each consumer and replay, by number.
func (w *world) deliveriesOf() map[string]int {
	w.t.Helper()
	rows, err := w.openStore().Query("SELECT consumer_no, COUNT(*) FROM deliveries GROUP BY consumer_no")
	require.NoError(w.t, err)
	defer rows.Close()
	out := map[string]int{}
	for rows.Next() {
		var no string
		var n int
		require.NoError(w.t, rows.Scan(&no, &n))
		out[no] = n
	}
	require.NoError(w.t, rows.Err())
	return out
}

// requireCopies requires one copy of each of n messages, and no other request.
func requireCopies(t *testing.T, sink *sink, replay string, n int) {
	t.Helper()
	got := copies(sink, replay)
	require.Len(t, got, n)
	for id, times := range got {
		require.Equal(t, 1, times, id)
	}
}

func replayOfATime(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	s.delivered(sink, 5)
	time.Sleep(10 * time.Millisecond)
	for i := 5; i < 15; i++ {
		s.publish("later", "X-Broker-Message-ID", fmt.Sprint("m", i))
	}
	eventually(t, "the deliveries", func() bool { return sink.count() == 15 })
	s.over("k")
	var fifth struct{ ReceivedAt string } // by the clock of the broker, as the IDs of the messages
	require.NoError(t, json.Unmarshal([]byte(s.do("GET", s.path("/message/m5"), "").body), &fifth))
	at := s.replay("k", fmt.Sprintf(`"From":%q`, fifth.ReceivedAt))
	time.Sleep(200 * time.Millisecond) // the clock of a broker is corrected by that of the store
	s.publish("newer", "X-Broker-Message-ID", "newer")
	done := s.awaitReplay(at, "DONE")
	require.Equal(t, [5]int64{10, 50, 10, 10, 0}, [5]int64{done.Matched, done.Bytes, done.Replayed, done.Delivered,
		done.Dead})
	requireCopies(t, sink, done.ID, 10)
	require.Zero(t, copies(sink, done.ID)["m4"]+copies(sink, done.ID)["newer"])
	eventually(t, "the newer message", func() bool { return sink.count() == 26 })
	s.over("k")

	var job apitype.JobDetail
	first := sink.all()[14].header
	r := s.do("GET", s.path("/consumer/k/job/", first.Get("X-Broker-Job-Id")), "")
	require.NoError(t, json.Unmarshal([]byte(r.body), &job))
	require.Equal(t, "DELIVERED", job.Status)
	require.Len(t, job.AttemptHistory, 1)
	require.Len(t, job.Replays, 1, r.body)
	require.Equal(t, done.ID, job.Replays[0].Replay)
	require.Equal(t, "DELIVERED", job.Replays[0].Status)
	require.Len(t, job.Replays[0].AttemptHistory, 1)

	var told []string
	for _, e := range s.timeline(s.path("/consumer/k/job/", first.Get("X-Broker-Job-Id"), "/timeline?size=1")) {
		told = append(told, e.Event+e.Replay)
	}
	require.Equal(t, []string{"ACCEPTED", "ATTEMPT", "DELIVERED", "ATTEMPT" + done.ID, "REPLAYED" + done.ID}, told)

	again := s.replay("k", everSince)
	done = s.awaitReplay(again, "DONE")
	requireCopies(t, sink, done.ID, 16)
	var list apitype.ReplayList
	r = s.do("GET", s.path("/consumer/k/replays?size=1"), "")
	strictjson.Decode(t, []byte(r.body), &list)
	require.Equal(t, again, s.path("/consumer/k/replay/", list.Result[0].ID))
	var rest apitype.ReplayList
	strictjson.Decode(t, []byte(s.do("GET", list.Pages.Next, "").body), &rest)
	require.Equal(t, at, s.path("/consumer/k/replay/", rest.Result[0].ID))
	require.Empty(t, rest.Pages.Next)
}

func replayDryRun(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	s.delivered(sink, 4)
	eventually(t, "the outcomes", func() bool {
		r := s.do("POST", s.path("/consumer/k/replay"), `{`+everSince+`,"DryRun":true,"Rate":"2/1s"}`)
		var e apitype.ReplayEstimate
		strictjson.Decode(t, []byte(r.body), &e)
		return r.status == 200 && e.Matched == 4 && e.Bytes == 8 && e.EstimatedSeconds == 2
	})
	require.Equal(t, 4, sink.count())
	require.JSONEq(t, `{"Result":[],"Pages":{}}`, s.do("GET", s.path("/consumer/k/replays"), "").body)
}

func replayOfTheDead(t *testing.T, p *process) {
	var mended atomic.Bool
	sink := newSink(t, func(n int, r received) int {
		if r.body == "m0" && !mended.Load() {
			return 400
		}
		return 200
	})
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path("/consumer/k"), "retryOn", "5xx")
	s.delivered(sink, 3)
	eventually(t, "a dead letter", func() bool {
		return strings.Contains(s.do("GET", s.path("/consumer/k/dlq"), "").body, `"Status":"DEAD"`)
	})
	at := s.replay("k", everSince+`,"Only":"dead"`)
	done := s.awaitReplay(at, "DONE")
	require.Equal(t, [3]int64{1, 0, 1}, [3]int64{done.Matched, done.Delivered, done.Dead})
	mended.Store(true)
	done = s.awaitReplay(s.replay("k", everSince+`,"Only":"all"`), "DONE")
	require.Equal(t, [3]int64{3, 3, 0}, [3]int64{done.Replayed, done.Delivered, done.Dead})
	require.Contains(t, s.do("GET", s.path("/consumer/k/dlq"), "").body, `"Status":"DEAD"`, "the dead letter itself stays")
}

func badReplays(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	path := s.path("/consumer/k/replay")
	for body, code := range map[string]string{
		"":                                   "invalid_body",
		"[]":                                 "invalid_body",
		"{} {}":                              "invalid_body",
		`{"From":5}`:                         "invalid_body",
		`{` + everSince + `,"Limit":3}`:      "invalid_body",
		`{` + everSince + `,"DryRun":"yes"}`: "invalid_body",
		`{}`:                                 "invalid_replay",
		`{"From":"yesterday"}`:               "invalid_replay",
		`{` + everSince + `,"To":"2019-01-01T00:00:00Z"}`: "invalid_replay",
		`{"From":"2999-01-01T00:00:00Z"}`:                 "invalid_replay",
		`{` + everSince + `,"Only":"DEAD"}`:               "invalid_replay",
		`{` + everSince + `,"Rate":"5"}`:                  "invalid_replay",
		`{` + everSince + `,"Filter":"1 + 1"}`:            "invalid_replay",
	} {
		requireProblem(t, s.do("POST", path, body), 400, code)
	}
	for _, dry := range []string{"true", "false"} {
		r := s.do("POST", path, `{`+everSince+`,"Filter":"payload.a == ","DryRun":`+dry+`}`)
		requireProblem(t, r, 400, "invalid_replay")
		require.Contains(t, r.body, "The member Filter must be a CEL expression: line 1, column 14")
	}
	for _, id := range []string{"0", "x", "-1", "99999999999", "00", "1"} {
		requireProblem(t, s.do("GET", path+"/"+id, ""), 404, "replay_not_found")
		requireProblem(t, s.do("POST", path+"/"+id+"/cancel", ""), 404, "replay_not_found")
	}
	requireProblem(t, s.do("POST", s.path("/consumer/none/replay"), `{`+everSince+`}`), 404, "consumer_not_found")
	require.JSONEq(t, `{"Result":[],"Pages":{}}`, s.do("GET", s.path("/consumer/k/replays"), "").body)
}

func replayHeld(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	s.delivered(sink, 20)
	at := s.replay("k", everSince+`,"Rate":"2/1s"`)
	requireProblem(t, s.do("POST", s.path("/consumer/k/replay"), `{`+everSince+`}`), 409, "replay_running")
	eventually(t, "the first copies", func() bool { return sink.count() > 20 })
	require.Equal(t, 200, s.do("POST", at+"/pause", "").status)
	require.Equal(t, "PAUSED", s.replayAt(at).State)
	time.Sleep(1200 * time.Millisecond) // those that were claimed before are sent
	before := sink.count()
	time.Sleep(1500 * time.Millisecond)
	require.Equal(t, before, sink.count(), "nothing is sent while it is paused")
	s.publish("live")
	eventually(t, "live messages go on", func() bool { return sink.count() == before+1 })
	require.Equal(t, 200, s.do("POST", at+"/resume", "").status)
	require.Equal(t, 200, s.do("POST", at+"/resume", "").status, "again")
	eventually(t, "more copies", func() bool { return sink.count() > before+2 })
	r := s.do("POST", at+"/cancel", "")
	require.Contains(t, r.body, `"State":"CANCELLED"`)
	requireProblem(t, s.do("POST", at+"/resume", ""), 409, "replay_ended")
	time.Sleep(1200 * time.Millisecond)
	before = sink.count()
	time.Sleep(1500 * time.Millisecond)
	require.Equal(t, before, sink.count(), "nothing is sent after it is cancelled")
	view := s.replayAt(at)
	require.Less(t, view.Replayed, int64(20))
	done := s.awaitReplay(s.replay("k", everSince), "DONE")
	requireCopies(t, sink, done.ID, 21)
}

func replayRate(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	s.delivered(sink, 6)
	done := s.awaitReplay(s.replay("k", everSince+`,"Rate":"2/1s"`), "DONE")
	require.Equal(t, "2/1s", done.Rate)
	var at []time.Time
	for _, r := range sink.all() {
		if r.header.Get("X-Broker-Replay") != "" {
			at = append(at, r.at)
		}
	}
	require.Len(t, at, 6)
	// On a busy machine one of them comes late, and the next one seems to be close behind.
	require.GreaterOrEqual(t, at[5].Sub(at[0]), time.Second, "two a second take two seconds for six")
}

// The messages are more than one round of the loader reads for a filter.
func replayFiltered(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	const size = 400 << 10
	large := strings.Repeat("x", size)
	for i := range 12 {
		s.publish(fmt.Sprintf(`{"n":%d,"text":%q}`, i, large))
	}
	s.publish(`no JSON`)
	s.publish(`{"n":"text"}`)
	s.publish(`{}`)
	s.publish(`{"n":99}`, "X-Broker-Message-ID", "last")
	eventually(t, "the deliveries", func() bool { return sink.count() == 16 })
	s.over("k")
	// A busy machine has no time for an exact count, and the next one may be exact.
	eventually(t, "an exact count", func() bool {
		r := s.do("POST", s.path("/consumer/k/replay"), `{`+everSince+`,"DryRun":true,"Filter":"payload.n >= 6"}`)
		var e apitype.ReplayEstimate
		strictjson.Decode(t, []byte(r.body), &e)
		return r.status == 200 && e.Matched == 7 && e.Bytes > 6*size
	})
	done := s.awaitReplay(s.replay("k", everSince+`,"Filter":"payload.n >= 6"`), "DONE")
	require.Equal(t, "payload.n >= 6", done.Filter)
	require.Equal(t, [3]int64{7, 7, 7}, [3]int64{done.Matched, done.Replayed, done.Delivered})
	requireCopies(t, sink, done.ID, 7)
	require.Equal(t, 1, copies(sink, done.ID)["last"])
}

func replayPulled(t *testing.T, p *process) {
	s := p.stage(t, "k")
	for range 3 {
		job := s.newJob("k")
		require.Equal(t, 202, s.move("k", job, `{"NextState":"INFLIGHT"}`).status)
		require.Equal(t, 202, s.move("k", job, `{"NextState":"DELIVERED"}`).status)
	}
	at := s.replay("k", everSince)
	jobs := s.awaitQueued("k", 3)
	view := s.replayAt(at)
	for _, j := range jobs {
		require.Equal(t, view.ID, j.Replay)
	}
	one := s.page("k", s.path("/consumer/k/queued-jobs?limit=2"))
	require.Len(t, one.Result, 2)
	require.Len(t, s.page("k", one.Pages.Next).Result, 1)
	live := s.publish("live")
	all := s.awaitQueued("k", 4)
	require.Empty(t, all[0].Replay, "live jobs come first")
	require.Equal(t, 202, s.move("k", all[0].ID, `{"NextState":"INFLIGHT"}`).status)
	require.Equal(t, 202, s.move("k", all[0].ID, `{"NextState":"DELIVERED"}`).status)
	require.NotEmpty(t, live)

	// One by ID, the others as a batch.
	r := s.move("k", jobs[0].ID, `{"NextState":"INFLIGHT"}`)
	require.Equal(t, 202, r.status, r.body)
	require.Equal(t, view.ID, r.header.Get("X-Broker-Replay"))
	require.True(t, strings.HasPrefix(r.header.Get("X-Broker-Lease"), view.ID+"~"))
	require.Equal(t, 202, s.move("k", jobs[0].ID, `{"NextState":"DELIVERED"}`).status)
	r = s.do("POST", s.path("/consumer/k/claim?limit=10"), "", consumerTokens("k")...)
	var claimed apitype.ClaimedJobs
	strictjson.Decode(t, []byte(r.body), &claimed)
	require.Len(t, claimed.Result, 2)
	update := `{"Updates":[`
	for i, j := range claimed.Result {
		require.Equal(t, view.ID, j.Replay)
		if i > 0 {
			update += ","
		}
		update += fmt.Sprintf(`{"ID":%q,"Lease":%q,"NextState":"DELIVERED"}`, j.ID, j.Lease)
	}
	r = s.do("POST", s.path("/consumer/k/jobs"), update+`,{"ID":"`+jobs[0].ID+
		`","Lease":"999999~x","NextState":"DELIVERED"}]}`, consumerTokens("k")...)
	require.Equal(t, 2, strings.Count(r.body, `"Status":202`), r.body)
	require.Equal(t, 1, strings.Count(r.body, `"code":"lease_lost"`), r.body)
	done := s.awaitReplay(at, "DONE")
	require.Equal(t, [3]int64{3, 3, 0}, [3]int64{done.Replayed, done.Delivered, done.Dead})
	require.Empty(t, s.queued("k", ""))
}

func replayOfThePaused(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	s.delivered(sink, 3)
	require.Equal(t, 200, s.do("POST", s.path("/consumer/k/pause"), "").status)
	at := s.replay("k", everSince)
	time.Sleep(4 * time.Second)
	require.Equal(t, 3, sink.count())
	require.Equal(t, "RUNNING", s.replayAt(at).State)
	require.Equal(t, 200, s.do("POST", s.path("/consumer/k/resume"), "").status)
	requireCopies(t, sink, s.awaitReplay(at, "DONE").ID, 3)
}

func replayRetries(t *testing.T, p *process) {
	sink := newSink(t, func(n int, r received) int {
		switch {
		case r.header.Get("X-Broker-Replay") == "":
			return 200
		case r.body == "m0":
			return 500
		case r.body == "m1" && r.header.Get("X-Broker-Attempt") == "1":
			return 500
		}
		return 200
	})
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path("/consumer/k"), "maxRetries", "1", "backoff", "constant:200ms")
	s.delivered(sink, 3)
	done := s.awaitReplay(s.replay("k", everSince), "DONE")
	require.Equal(t, [4]int64{3, 3, 2, 1}, [4]int64{done.Matched, done.Replayed, done.Delivered, done.Dead})
	require.Equal(t, 2, copies(sink, done.ID)["m1"], "the second attempt")
	var dead apitype.DeadLetters
	r := s.do("GET", s.path("/consumer/k/replay/", done.ID, "/dlq"), "", consumerTokens("k")...)
	strictjson.Decode(t, []byte(r.body), &dead)
	require.Len(t, dead.DeadJobs, 1, r.body)
	require.Equal(t, s.path("/message/m0"), dead.DeadJobs[0].MessageURL)
	require.Equal(t, []any{"DEAD", 500, 2, ""}, []any{dead.DeadJobs[0].Status, dead.DeadJobs[0].StatusCode,
		dead.DeadJobs[0].Attempts, dead.DeadJobs[0].JobRequeueURL})
	require.JSONEq(t, `{"DeadJobs":[],"Pages":{}}`, s.do("GET", s.path("/consumer/k/dlq"), "").body,
		"the job of the consumer is delivered")
	requireProblem(t, s.do("GET", s.path("/consumer/k/replay/0/dlq"), ""), 404, "replay_not_found")
	require.NotContains(t, s.do("GET", s.path("/consumer/k/dlq"), "").body, `"Status":"DEAD"`,
		"the job itself was delivered")
}

func replayOfTheDeleted(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	s.delivered(sink, 10)
	at := s.replay("k", everSince+`,"Rate":"1/1s"`)
	r := s.do("DELETE", s.path("/consumer/k"), "")
	require.Equal(t, 204, r.status, r.body)
	requireProblem(t, s.do("GET", at, ""), 404, "consumer_not_found")
	time.Sleep(1500 * time.Millisecond)
	before := sink.count()
	time.Sleep(1500 * time.Millisecond)
	require.Equal(t, before, sink.count())
}

func TestReplayGoesOnAfterAKillAtEachPoint(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		for _, point := range []string{failpoint.AfterReplay, failpoint.AfterReplayPage, failpoint.AfterReplayAdvance,
			failpoint.AfterClaim, failpoint.AfterPost, failpoint.AfterOutcome} {
			t.Run(point, func(t *testing.T) {
				sink := newSink(t, nil)
				p := w.start()
				s := p.stage(t, "k="+sink.URL)
				for i := range 60 {
					s.publish(fmt.Sprintf(`{"n":%d}`, i))
				}
				eventually(t, "the deliveries", func() bool { return sink.count() >= 60 })
				require.Zero(t, p.stop())
				if point == failpoint.AfterReplayPage || point == failpoint.AfterReplayAdvance {
					time.Sleep(2*durable.MaxIDAge + 2*time.Second) // the scan leaves out newer messages: its first page would be empty
				}

				p = w.start(envKill + "=" + point + ":1")
				s = s.on(p)
				r, err := p.try("POST", s.path("/consumer/k/replay"), `{`+everSince+`,"Filter":"int(payload.n) % 2 == 0"}`)
				if point == failpoint.AfterReplay {
					require.Error(t, err)
				} else {
					require.NoError(t, err)
					require.Equal(t, 202, r.status, r.body)
				}
				p.awaitEnd()
				sink.awaitClosed(t)
				stored, sent := w.deliveriesOf(), sink.all()

				s = s.on(w.start())
				var list apitype.ReplayList
				strictjson.Decode(t, []byte(s.do("GET", s.path("/consumer/k/replays"), "").body), &list)
				require.Len(t, list.Result, 1)
				done := s.awaitReplay(s.path("/consumer/k/replay/", list.Result[0].ID), "DONE")
				require.Equal(t, [3]int64{30, 30, 30}, [3]int64{done.Matched, done.Replayed, done.Delivered})
				got := copies(sink, done.ID)
				require.Len(t, got, 30)
				twice := 0
				for id, n := range got {
					require.LessOrEqual(t, n, 2, id)
					twice += n - 1
				}
				inFlight := 0 // until its outcome is stored
				for _, r := range sent {
					if r.header.Get("X-Broker-Replay") == done.ID {
						inFlight++
					}
				}
				require.LessOrEqual(t, twice, inFlight-stored[done.ID], "only what was in flight")
				require.Zero(t, s.stop())
			})
		}
	})
}
