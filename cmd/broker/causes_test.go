package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

func TestDeadLettersByCause(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_RATIONAL_DELAY=500ms", "BROKER_MAX_RETRIES=0", "BROKER_ALLOW_DELETE=true")
		for name, story := range map[string]func(*testing.T, *process){
			"letters are grouped by cause, however they died":           lettersByCause,
			"a redrive opens what it is asked for":                      redriveOfAGroup,
			"a canary stops when its stage fails again":                 canaryStops,
			"a canary whose stages are delivered redrives all":          canaryGoesOn,
			"another consumer gets letters, and they stay":              redriveToAnother,
			"a redrive to another consumer is held and ends with it":    redriveToAnotherIsHeld,
			"a redrive keeps to its rate, is paused, and ends for good": redriveAtARate,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

func (s *stage) deadGroups(consumer string) []apitype.DeadGroup {
	s.t.Helper()
	r := s.do("GET", s.path("/consumer/", consumer, "/dlq/groups"), "", consumerTokens(consumer)...)
	require.Equal(s.t, 200, r.status, r.body)
	var view apitype.DeadGroups
	strictjson.Decode(s.t, []byte(r.body), &view)
	return view.Result
}

func (s *stage) redrive(consumer, members string) string {
	s.t.Helper()
	r := s.do("POST", s.path("/consumer/", consumer, "/dlq/redrive"), "{"+members+"}", consumerTokens(consumer)...)
	require.Equal(s.t, 202, r.status, r.body)
	return r.header.Get("Location")
}

func (s *stage) awaitRedrive(path string, what string, is func(apitype.Redrive) bool) (view apitype.Redrive) {
	s.t.Helper()
	eventually(s.t, what, func() bool {
		r := s.do("GET", path, "", consumerTokens(consumerOf(path))...)
		require.Equal(s.t, 200, r.status, r.body)
		view = apitype.Redrive{}
		strictjson.Decode(s.t, []byte(r.body), &view)
		return is(view)
	})
	return view
}

// over is true when a redrive knows what became of all its jobs.
func settled(v apitype.Redrive) bool {
	return (v.State == "DONE" || v.State == "STOPPED") && v.Delivered+v.Dead == v.Redriven
}

// A moodySink answers with a status until it is told another one.
type moodySink struct {
	*sink
	status atomic.Int64
}

func newMoodySink(t *testing.T, status int) *moodySink {
	m := &moodySink{}
	m.status.Store(int64(status))
	m.sink = newSink(t, func(_ int, r received) int {
		if m.status.Load() == 0 {
			return 200
		}
		if strings.HasPrefix(r.body, "odd") {
			return 404
		}
		return int(m.status.Load())
	})
	return m
}

// kill publishes n messages and waits until they are dead.
func (s *stage) kill(prefix string, n int) {
	s.t.Helper()
	was := len(s.dead("k", 100))
	for i := range n {
		s.publish(fmt.Sprint(prefix, i))
	}
	eventually(s.t, "dead letters", func() bool { return len(s.dead("k", 100)) == was+n })
}

func lettersByCause(t *testing.T, p *process) {
	sink := newMoodySink(t, 500)
	s := p.stage(t, "k="+sink.URL, "pull")
	require.Empty(t, s.deadGroups("k"))
	s.kill("even", 3)
	s.kill("odd", 2)
	groups := s.deadGroups("k")
	require.Len(t, groups, 2)
	require.Equal(t, []any{int64(3), 500, int64(2), 404}, []any{groups[0].Count, groups[0].Status, groups[1].Count,
		groups[1].Status})
	require.Equal(t, "status 500", groups[0].Sample)
	for _, j := range s.dead("k", 100) {
		want := groups[0].Fingerprint
		if j.StatusCode == 404 {
			want = groups[1].Fingerprint
		}
		require.Equal(t, want, j.Fingerprint)
	}
	require.Equal(t, "DEAD", s.job("k", groups[1].SampleJob).Status)
	require.Equal(t, 200, s.do("GET", s.path("/consumer/k/dlq?order=desc&size=1&fingerprint=",
		groups[1].Fingerprint), "").status)
	for _, j := range s.awaitQueued("pull", 5) {
		s.claim("pull", j.ID)
		require.Equal(t, 202, s.move("pull", j.ID, to("DEAD")).status)
	}
	require.Len(t, s.deadGroups("pull"), 1)
	require.EqualValues(t, 5, s.deadGroups("pull")[0].Count)
}

func redriveOfAGroup(t *testing.T, p *process) {
	sink := newMoodySink(t, 500)
	s := p.stage(t, "k="+sink.URL)
	s.kill("even", 5)
	s.kill("odd", 3)
	groups := s.deadGroups("k")
	sink.status.Store(0)
	of := fmt.Sprintf(`"Fingerprint":%q`, groups[1].Fingerprint)
	r := s.do("POST", s.path("/consumer/k/dlq/redrive"), "{"+of+`,"DryRun":true}`)
	require.JSONEq(t, `{"Matched":3}`, r.body)
	at := s.redrive("k", of)
	done := s.awaitRedrive(at, "the redrive is over", settled)
	require.Equal(t, []any{"DONE", int64(3), int64(3), int64(3), int64(0)}, []any{done.State, done.Matched,
		done.Redriven, done.Delivered,
		done.Dead})
	left := s.deadGroups("k")
	require.Len(t, left, 1)
	require.EqualValues(t, 5, left[0].Count)
	dead := s.dead("k", 100)
	at = s.redrive("k", fmt.Sprintf(`"Jobs":[%q,%q]`, dead[4].ID, dead[1].ID))
	require.EqualValues(t, 2, s.awaitRedrive(at, "the redrive is over", settled).Delivered)
	at = s.redrive("k", `"Limit":2`)
	require.EqualValues(t, 2, s.awaitRedrive(at, "the redrive is over", settled).Delivered)
	require.Len(t, s.dead("k", 100), 1)
	require.Equal(t, dead[3].ID, s.dead("k", 100)[0].ID)
	requireProblem(t, s.do("POST", at+"/pause", "", consumerTokens("k")...), 409, "redrive_ended")
	r = s.do("POST", s.path("/consumer/k/dlq/delete"), `{}`)
	require.JSONEq(t, `{"Deleted":1}`, r.body)
	require.Empty(t, s.deadGroups("k"))
	require.Equal(t, 8+3+2+2, sink.count())
}

func canaryStops(t *testing.T, p *process) {
	sink := newMoodySink(t, 500)
	s := p.stage(t, "k="+sink.URL)
	s.kill("even", 15)
	at := s.redrive("k", `"Canary":true`)
	stopped := s.awaitRedrive(at, "the canary stops", func(v apitype.Redrive) bool { return v.State == "STOPPED" })
	require.Equal(t, []any{"1", int64(15), int64(1), int64(0), int64(1)}, []any{stopped.Stage, stopped.Matched,
		stopped.Redriven,
		stopped.Delivered, stopped.Dead})
	require.Contains(t, stopped.Reason, "1 of 1 jobs")
	require.EqualValues(t, 1, p.gauge(t, `penstock_redrives_ended_total{state="stopped"}`), "of the stories, this one")
	require.Positive(t, p.gauge(t, "penstock_redriven_jobs_total"))
	require.Equal(t, 16, sink.count())
	require.EqualValues(t, 15, s.deadGroups("k")[0].Count)
	sink.status.Store(0) // repaired: the person lets it go on
	require.Equal(t, 200, s.do("POST", at+"/resume", "", consumerTokens("k")...).status)
	done := s.awaitRedrive(at, "the redrive is over", settled)
	require.Equal(t, []any{"DONE", int64(15), int64(14), int64(1)}, []any{done.State, done.Redriven, done.Delivered,
		done.Dead})
	require.Len(t, s.dead("k", 100), 1, "the one that failed again")
}

func canaryGoesOn(t *testing.T, p *process) {
	sink := newMoodySink(t, 500)
	s := p.stage(t, "k="+sink.URL)
	const n = 120
	s.kill("even", n)
	sink.status.Store(0)
	done := s.awaitRedrive(s.redrive("k", `"Canary":true`), "the redrive is over", settled)
	require.Equal(t, []any{"DONE", "all", int64(n), int64(n), int64(0), ""}, []any{done.State, done.Stage,
		done.Redriven, done.Delivered,
		done.Dead, done.Reason})
	require.Equal(t, 2*n, sink.count())
	require.Empty(t, s.deadGroups("k"))

	sink.status.Store(503)
	s.kill("more", 30)
	sink.status.Store(502) // they fail for another reason: the canary was asked about the old one
	done = s.awaitRedrive(s.redrive("k", `"Canary":true`), "the redrive is over", settled)
	require.Equal(t, []any{"DONE", int64(30), int64(30)}, []any{done.State, done.Redriven, done.Dead})
}

func redriveAtARate(t *testing.T, p *process) {
	sink := newMoodySink(t, 500)
	s := p.stage(t, "k="+sink.URL)
	s.kill("even", 10)
	sink.status.Store(0)
	at := s.redrive("k", `"Rate":"2/1s"`)
	s.awaitRedrive(at, "a first letter", func(v apitype.Redrive) bool { return v.Redriven > 0 })
	require.Equal(t, 200, s.do("POST", at+"/pause", "", consumerTokens("k")...).status)
	held := s.awaitRedrive(at, "the redrive is paused", func(v apitype.Redrive) bool {
		return v.State == "PAUSED" && v.Delivered == v.Redriven
	})
	require.Less(t, held.Redriven, int64(10))
	require.Equal(t, 200, s.do("POST", at+"/resume", "", consumerTokens("k")...).status)
	s.awaitRedrive(at, "another letter", func(v apitype.Redrive) bool { return v.Redriven > held.Redriven })
	var ended apitype.Redrive
	require.NoError(t, json.Unmarshal([]byte(s.do("POST", at+"/cancel", "", consumerTokens("k")...).body), &ended))
	require.Equal(t, "CANCELLED", ended.State)
	require.Less(t, ended.Redriven, int64(10))
	require.Len(t, s.dead("k", 100), 10-int(ended.Redriven))
	requireProblem(t, s.do("POST", at+"/resume", "", consumerTokens("k")...), 409, "redrive_ended")
	require.Equal(t, 200, s.do("GET", s.path("/consumer/k/redrives?limit=1"), "", consumerTokens("k")...).status)
}

// redriveToAnother sends letters to a consumer that is younger than they are, and to one that pulls.
func redriveToAnother(t *testing.T, p *process) {
	broken := newMoodySink(t, 500)
	s := p.stage(t, "k="+broken.URL)
	s.kill("even", 4)
	s.kill("odd", 3)
	odd := s.deadGroups("k")[1].Fingerprint
	repaired := newSink(t, nil)
	s.join("other=" + repaired.URL)
	s.join("pull")
	at := s.redrive("k", fmt.Sprintf(`"Fingerprint":%q,"Target":"other"`, odd))
	done := s.awaitRedrive(at, "the redrive is done", func(v apitype.Redrive) bool { return v.State == "DONE" })
	require.Equal(t, []any{int64(3), int64(3), int64(3), int64(0), "other"}, []any{done.Matched, done.Redriven,
		done.Delivered, done.Dead, done.Target})
	require.Equal(t, 3, repaired.count())
	require.True(t, repaired.hasAll([]string{"odd0", "odd1", "odd2"}))
	require.Len(t, s.dead("k", 100), 7, "the letters stay")
	require.Equal(t, 200, s.do("GET", s.path("/consumer/other/replay/", done.Replay), "").status)

	dead := s.dead("k", 100)
	at = s.redrive("k", fmt.Sprintf(`"Jobs":[%q,%q,%q],"Limit":2,"Target":"pull"`, dead[0].ID, dead[2].ID, dead[5].ID))
	var got []apitype.ClaimedJob
	eventually(t, "both letters are claimed", func() bool {
		c, _ := s.claimOf("pull")
		got = append(got, c.Result...)
		return len(got) == 2
	})
	for _, j := range got {
		require.Equal(t, 202, s.move("pull", j.ID, to("DELIVERED"), "X-Broker-Lease", j.Lease).status)
	}
	require.EqualValues(t, 2, s.awaitRedrive(at, "the redrive is done", func(v apitype.Redrive) bool {
		return v.State == "DONE"
	}).Delivered)
	at = s.redrive("k", `"Limit":2,"Target":"other"`)
	require.EqualValues(t, 2, s.awaitRedrive(at, "the redrive is done", func(v apitype.Redrive) bool {
		return v.State == "DONE"
	}).Delivered)
	require.Equal(t, 5, repaired.count())

	var estimate apitype.ReplayEstimate
	r := s.do("POST", s.path("/consumer/k/replay"), `{`+everSince+`,"DryRun":true}`)
	strictjson.Decode(t, []byte(r.body), &estimate)
	require.Equal(t, []int64{0, 7}, []int64{estimate.Matched, estimate.DeadLeftOut}, "a replay says what it leaves out")
	r = s.do("POST", s.path("/consumer/k/replay"), `{`+everSince+`,"Only":"all","DryRun":true}`)
	require.NotContains(t, r.body, "DeadLeftOut")
	require.Contains(t, s.do("POST", s.path("/consumer/k/replay"), `{`+everSince+`}`).body, `"DeadLeftOut":7`)

	for _, body := range []string{`"Target":"nobody"`, `"Target":"k"`, `"Target":"other","Canary":true`,
		`"Target":"other","Limit":10001`} {
		requireProblem(t, s.do("POST", s.path("/consumer/k/dlq/redrive"), "{"+body+"}"), 400, "invalid_redrive")
	}
}

func redriveToAnotherIsHeld(t *testing.T, p *process) {
	broken := newMoodySink(t, 500)
	s := p.stage(t, "k="+broken.URL)
	s.kill("even", 10)
	repaired := newSink(t, nil)
	s.join("other=" + repaired.URL)
	at := s.redrive("k", `"Rate":"1/1s","Target":"other"`)
	s.awaitRedrive(at, "a first letter", func(v apitype.Redrive) bool { return v.Delivered > 0 })
	behind := s.redrive("k", `"Limit":1,"Target":"other"`)
	require.Contains(t, s.awaitRedrive(behind, "another replay is in the way", func(v apitype.Redrive) bool {
		return v.Reason != ""
	}).Reason, "it waits for the end of the replay")
	require.Equal(t, 200, s.do("POST", at+"/pause", "", consumerTokens("k")...).status)
	v := s.awaitRedrive(at, "paused", func(v apitype.Redrive) bool { return v.State == "PAUSED" })
	require.Equal(t, "PAUSED", s.replayAt(s.path("/consumer/other/replay/", v.Replay)).State)
	require.Equal(t, 200, s.do("POST", at+"/resume", "", consumerTokens("k")...).status)
	require.Equal(t, "RUNNING", s.replayAt(s.path("/consumer/other/replay/", v.Replay)).State)
	require.Equal(t, 200, s.do("POST", at+"/cancel", "", consumerTokens("k")...).status)
	require.Equal(t, "CANCELLED", s.replayAt(s.path("/consumer/other/replay/", v.Replay)).State)
	require.EqualValues(t, 1, s.awaitRedrive(behind, "the next one runs", func(v apitype.Redrive) bool {
		return v.State == "DONE"
	}).Delivered)
	require.Less(t, repaired.count(), 10)
	require.Len(t, s.dead("k", 100), 10)

	at = s.redrive("k", `"Rate":"1/1s","Target":"other"`)
	s.awaitRedrive(at, "a first letter", func(v apitype.Redrive) bool { return v.Delivered > 0 })
	s.delete(s.path("/consumer/other"))
	require.Contains(t, s.awaitRedrive(at, "the end of the other consumer", func(v apitype.Redrive) bool {
		return v.State == "CANCELLED"
	}).Reason, "deleted")
}

// A kill between the store and Redis, in the middle of a canary: another life of the broker goes on.
func TestFaultKillInTheMiddleOfARedriveLosesAndRepeatsNoLetter(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with(quick...)
		sink := newMoodySink(t, 500)
		p := w.start("BROKER_MAX_RETRIES=0", envKill+"="+failpoint.AfterRedrive+":2")
		p.sample("k=" + sink.URL)
		for i := range 15 {
			p.publish(fmt.Sprint("m-", i))
		}
		eventually(t, "dead letters", func() bool {
			return strings.Count(p.do("GET", "/channel/c/consumer/k/dlq", "").body, `"DEAD"`) == 15
		})
		sink.status.Store(0)
		r, err := p.try("POST", "/channel/c/consumer/k/dlq/redrive", `{"Canary":true}`)
		require.True(t, err != nil || r.status == 202, r.body) // the kill may come before the answer
		p.awaitEnd()
		q := w.start("BROKER_MAX_RETRIES=0")
		redrive := q.redriveOf("k")
		var view apitype.Redrive
		eventually(t, "the redrive is over", func() bool {
			strictjson.Decode(t, []byte(q.do("GET", redrive, "").body), &view)
			return settled(view)
		})
		require.Equal(t, []any{"DONE", int64(15), int64(15)}, []any{view.State, view.Redriven, view.Delivered})
		require.Contains(t, q.do("GET", "/channel/c/consumer/k/dlq/groups", "").body, `"Result":[]`)
	})
}

// A kill between the begin of the replay and the note of it: another life finds the replay, and begins no other.
func TestFaultKillAtTheBeginOfARedriveToAnotherConsumer(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with(quick...)
		broken, repaired := newMoodySink(t, 500), newSink(t, nil)
		p := w.start("BROKER_MAX_RETRIES=0", envKill+"="+failpoint.AfterReplay+":1")
		p.sample("k="+broken.URL, "other="+repaired.URL+"/other")
		for i := range 5 {
			p.publish(fmt.Sprint("m-", i))
		}
		eventually(t, "dead letters", func() bool {
			return strings.Count(p.do("GET", "/channel/c/consumer/k/dlq", "").body, `"DEAD"`) == 5 && repaired.count() == 5
		})
		r, err := p.try("POST", "/channel/c/consumer/k/dlq/redrive", `{"Target":"other"}`)
		require.True(t, err != nil || r.status == 202, r.body) // the kill may come before the answer
		p.awaitEnd()
		q := w.start("BROKER_MAX_RETRIES=0")
		redrive := q.redriveOf("k")
		var view apitype.Redrive
		eventually(t, "the redrive is done", func() bool {
			strictjson.Decode(t, []byte(q.do("GET", redrive, "").body), &view)
			return view.State == "DONE"
		})
		require.Equal(t, []any{int64(5), int64(5)}, []any{view.Redriven, view.Delivered})
		require.Equal(t, 1, strings.Count(q.do("GET", "/channel/c/consumer/other/replays", "").body, `"ID"`))
		require.Equal(t, 5, repaired.distinct())
	})
}

// redriveOf returns the path of the only redrive of a consumer.
func (p *process) redriveOf(consumer string) string {
	p.t.Helper()
	path := "/channel/c/consumer/" + consumer + "/redrive"
	var page struct{ Result []apitype.Redrive }
	require.NoError(p.t, json.Unmarshal([]byte(p.do("GET", path+"s", "").body), &page))
	require.Len(p.t, page.Result, 1)
	return path + "/" + page.Result[0].ID
}
