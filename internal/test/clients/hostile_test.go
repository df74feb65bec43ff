package clients

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/hostile"
)

// drivers are the clients that the table is about.
var drivers = []func(t *testing.T) driver{goDriver, nodeDriver, pythonDriver}

var builtDriver = sync.OnceValues(func() (string, error) {
	path := filepath.Join(filepath.Dir(brokerProgram), "driver")
	build := exec.Command("go", "build", "-o", path, "./internal/driver")
	build.Dir = goClient
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

func goDriver(t *testing.T) driver {
	path, err := builtDriver()
	require.NoError(t, err)
	return driver{"go", []string{path}}
}

// A scenario is one way in which the broker misbehaves, and what each client has to do then. What holds in
// all of them is in requireHonest.
type scenario struct {
	mode    string // worker unless it says otherwise
	options map[string]any
	faults  []hostile.Fault
	broken  func(*hostile.Broker) // prepares the broker
	jobs    []string              // task, or task and argument: "sleep 500"; IDs are j-0, j-1 ...
	// until is true when the worker is asked to stop; nil: when all jobs are over. A scenario with code 1 ends by itself.
	until func(*running) bool
	then  func(*running) // after the first SIGTERM
	code  int            // of the exit
	only  []string       // the clients that can do it; empty: all
	twice bool           // a job may be done twice, because the client cannot know
	check func(*testing.T, *running, line)
}

func times(door string, n int, do func(*hostile.Exchange)) hostile.Fault {
	return hostile.Fault{Door: door, Times: n, Do: do}
}

func ok(n int) []string { return slices.Repeat([]string{"ok"}, n) }

// workerScenarios are those of a worker. Its lease is 5 s, a claim waits 1 s, a request may take 2 s.
func workerScenarios() map[string]scenario {
	renewals := func(do func(*hostile.Exchange)) hostile.Fault {
		return hostile.Fault{Door: "jobs", Only: "INFLIGHT", Do: do}
	}
	reports := func(n int, do func(*hostile.Exchange)) hostile.Fault {
		return hostile.Fault{Door: "jobs", Only: "DELIVERED", Times: n, Do: do}
	}
	return map[string]scenario{
		"nothing is wrong":   {jobs: ok(20)},
		"everything is slow": {jobs: ok(6), faults: []hostile.Fault{{Do: hostile.Slow(700 * time.Millisecond)}}},
		"answers are members and headers that nobody knows": {jobs: append(ok(5), "sleep 2500"),
			broken: func(b *hostile.Broker) { b.Strange = true }},
		"the clock of the broker is ten hours ahead": {jobs: []string{"sleep 7000", "ok"}, check: neverLost,
			broken: func(b *hostile.Broker) { b.Clock = 10 * time.Hour }},
		"the clock of the broker is ten hours behind": {jobs: []string{"sleep 7000", "ok"}, check: neverLost,
			broken: func(b *hostile.Broker) { b.Clock = -10 * time.Hour }},
		"connections are closed between requests": {jobs: ok(10), faults: []hostile.Fault{{Do: hostile.Leave}}},
		"tokens are asked in a storm": {jobs: ok(3), faults: []hostile.Fault{
			times("manage", 3, hostile.Refuse(503, "unavailable", 1)), {Door: "manage", Skip: 3, Times: 1,
				Do: hostile.BreakAfter}}},

		"claims are refused with Retry-After": {jobs: ok(3), check: apart("claim", "", 2, time.Second),
			faults: []hostile.Fault{
				times("claim", 2, hostile.Refuse(503, "draining", 1))}},
		"the consumer is paused for a while": {jobs: ok(3), check: apart("claim", "", 3, time.Second),
			faults: []hostile.Fault{times("claim", 3, hostile.Hold(1))}},
		"claims are refused without Retry-After": {jobs: ok(3), faults: []hostile.Fault{
			times("claim", 4, hostile.Refuse(503, "unavailable", 0)), {Door: "claim", Skip: 4, Times: 1,
				Do: hostile.Refuse(429, "too_many", 0)}, {Door: "claim", Skip: 5, Times: 1,
				Do: hostile.Refuse(500, "internal", 0)}}},
		"the answer of a claim is lost": {jobs: ok(3), check: oneLeaseLost,
			faults: []hostile.Fault{times("claim", 1, hostile.BreakAfter)}},
		"the answer of a claim is cut": {jobs: ok(3), check: oneLeaseLost,
			faults: []hostile.Fault{times("claim", 1, hostile.CutAfter)}},
		"the answer of a claim drips": {jobs: ok(3), check: oneLeaseLost,
			faults: []hostile.Fault{times("claim", 1, hostile.Drip)}},
		"the answer of a claim is a page": {jobs: ok(3), check: oneLeaseLost,
			faults: []hostile.Fault{times("claim", 1, hostile.Page)}},
		"the answer of a claim is half of JSON": {jobs: ok(3), check: oneLeaseLost,
			faults: []hostile.Fault{times("claim", 1, hostile.Garble)}},
		"the answer of a claim is another JSON": {jobs: ok(3), check: oneLeaseLost,
			faults: []hostile.Fault{times("claim", 1, hostile.Other)}},
		"the answer of a claim is endless": {jobs: ok(3), check: oneLeaseLost,
			faults: []hostile.Fault{times("claim", 1, hostile.Endless)}},
		"a claim hangs": {jobs: ok(3),
			faults: []hostile.Fault{times("claim", 2, hostile.HangBefore)}},
		"the connection breaks before each claim": {jobs: ok(3),
			faults: []hostile.Fault{times("claim", 3, hostile.BreakBefore)}},

		"reports are refused with Retry-After": {jobs: ok(3), check: apart("jobs", "DELIVERED", 2, time.Second),
			faults: []hostile.Fault{
				reports(2, hostile.Refuse(503, "overloaded", 1))}},
		"the answer of a report is lost": {jobs: ok(5),
			faults: []hostile.Fault{reports(2, hostile.BreakAfter)}},
		"the answer of a report is cut":          {jobs: ok(5), faults: []hostile.Fault{reports(1, hostile.CutAfter)}},
		"the answer of a report never comes":     {jobs: ok(5), faults: []hostile.Fault{reports(1, hostile.HangAfter)}},
		"the answer of a report drips":           {jobs: ok(5), faults: []hostile.Fault{reports(1, hostile.Drip)}},
		"the answer of a report is a page":       {jobs: ok(5), faults: []hostile.Fault{reports(2, hostile.Page)}},
		"the answer of a report is half of JSON": {jobs: ok(5), faults: []hostile.Fault{reports(2, hostile.Garble)}},
		"the answer of a report is another JSON": {jobs: ok(5), faults: []hostile.Fault{reports(2, hostile.Other)}},
		"the answer of a report is endless":      {jobs: ok(5), faults: []hostile.Fault{reports(1, hostile.Endless)}},
		"a report is not taken": {jobs: ok(5), faults: []hostile.Fault{reports(2, hostile.BreakBefore),
			{Door: "jobs", Only: "DELIVERED", Skip: 2, Times: 1, Do: hostile.HangBefore}}},
		"a long report goes on being renewed": {jobs: ok(1), check: noLeaseLost, faults: []hostile.Fault{
			reports(4, hostile.Refuse(503, "unavailable", 2))}},

		"the lease is lost at a renewal": {jobs: []string{"hold", "ok"}, until: lostAndOver,
			faults: []hostile.Fault{{Door: "jobs", Only: "INFLIGHT", Times: 1, Do: hostile.Lose("j-0")}},
			check:  notReported("j-0")},
		"the lease is lost at the report": {jobs: ok(2),
			until:  func(r *running) bool { return len(r.b.Moves("DELIVERED")) >= 2 },
			faults: []hostile.Fault{{Door: "jobs", Only: "DELIVERED", Times: 1, Do: hostile.Lose("j-0")}}},
		"renewals hang": {jobs: []string{"hold"}, twice: true, faults: []hostile.Fault{renewals(hostile.HangBefore)},
			until: func(r *running) bool { return slices.Contains(r.ids("lost"), "j-0") }, then: (*running).insist},
		"renewals are refused": {jobs: []string{"hold"}, twice: true, faults: []hostile.Fault{
			renewals(hostile.Refuse(503, "unavailable", 0))}, then: (*running).insist,
			until: func(r *running) bool { return slices.Contains(r.ids("lost"), "j-0") }},
		"no report and no renewal is taken for longer than a lease": {jobs: ok(2), faults: []hostile.Fault{
			{Door: "jobs", Do: hostile.For(7*time.Second, hostile.Refuse(503, "unavailable", 0))}}, check: cameAgain,
			only: []string{"go", "python"}},
		"one renewal is refused": {jobs: []string{"sleep 7000"}, check: neverLost, faults: []hostile.Fault{
			{Door: "jobs", Only: "INFLIGHT", Times: 1, Do: hostile.Refuse(503, "unavailable", 0)}}},
		"the answer of a renewal is lost": {jobs: []string{"sleep 7000"}, check: neverLost, faults: []hostile.Fault{
			{Door: "jobs", Only: "INFLIGHT", Times: 1, Do: hostile.BreakAfter}}},
		"a handler that never looks up is renewed": {jobs: []string{"block 8000"}, check: noLeaseLost},

		"slots are claimed as they are free": {jobs: []string{"sleep 2500", "sleep 2500", "sleep 2500", "ok"},
			check: exactSlots},
		"an unknown task goes back": {jobs: []string{"nobody", "ok"}, check: goneBack,
			until: func(r *running) bool { return len(r.b.Moves("QUEUED")) > 0 && len(r.b.Moves("DELIVERED")) > 0 }},
		"a failure and a rejection say why": {jobs: []string{"fail", "reject"}, check: saidWhy,
			until: func(r *running) bool { return len(r.b.Moves("QUEUED")) > 0 && len(r.b.Moves("DEAD")) > 0 }},

		"the consumer is gone for good": {jobs: ok(1), code: 1, faults: []hostile.Fault{
			{Door: "claim", Do: hostile.Refuse(401, "consumer_not_found", 0)}}},
		"the channel is gone for good": {jobs: ok(1), code: 1, faults: []hostile.Fault{
			{Door: "claim", Do: hostile.Refuse(404, "channel_not_found", 0)}}},
		"the token is wrong for good": {jobs: ok(1), code: 1, faults: []hostile.Fault{
			{Door: "claim", Do: hostile.Refuse(403, "consumer_token_mismatch", 0)}}},
		"the consumer is push": {jobs: ok(1), code: 1, broken: func(b *hostile.Broker) { b.Make("jobs", "push") }},
		"management is closed": {jobs: ok(1), code: 1, faults: []hostile.Fault{
			{Door: "manage", Do: hostile.Refuse(401, "token_missing", 0)}}},
		"the worker is refused while a job runs": {jobs: []string{"sleep 2500"}, code: 1, faults: []hostile.Fault{
			// The job has begun by then: before that the worker gives it back.
			{Door: "claim", Skip: 1, Do: hostile.Later(1500*time.Millisecond, hostile.Refuse(401, "consumer_not_found", 0))}},
			check: delivered("j-0")},
		"the token was changed": {jobs: ok(3), faults: []hostile.Fault{
			{Door: "claim", Skip: 1, Times: 1, Do: hostile.Retoken("/channel/jobs/consumer/jobs")}},
			until: func(r *running) bool { return allOver(r) && len(r.b.Requests("claim")) > 3 }},

		"a stop lets running jobs finish": {jobs: []string{"sleep 2000", "sleep 2500"}, check: finished, until: started(2)},
		"a stop beside reports that are not taken at first": {jobs: []string{"sleep 1500"}, until: started(1),
			faults: []hostile.Fault{reports(2, hostile.BreakBefore)}, check: delivered("j-0")},
		"a second signal gives running jobs back": {jobs: []string{"hold", "hold"}, until: started(2),
			then:  (*running).insist,
			check: stopped},
		"a stop while everything hangs": {jobs: []string{"ok"},
			until:  func(r *running) bool { return len(r.ids("done")) > 0 },
			faults: []hostile.Fault{{Door: "jobs", Do: hostile.HangBefore}, {Door: "claim", Skip: 1, Do: hostile.HangBefore}}},
		"a stop while nothing can be reached": {faults: []hostile.Fault{{Do: hostile.BreakBefore}},
			until: func(r *running) bool { return len(r.b.Requests("")) > 1 }},
	}
}

func allOver(r *running) bool {
	return !slices.ContainsFunc(r.b.Jobs(),
		func(j hostile.Job) bool { return j.State != "DELIVERED" && j.State != "DEAD" })
}

func lostAndOver(r *running) bool { return len(r.ids("lost")) > 0 && allOver(r) }

func started(n int) func(*running) bool {
	return func(r *running) bool { return len(r.ids("start")) >= n }
}

// neverLost: no handler was told that its lease is lost, and no lease ended.
func neverLost(t *testing.T, r *running, l line) {
	require.Empty(t, r.ids("lost"))
	noLeaseLost(t, r, l)
}

func noLeaseLost(t *testing.T, r *running, _ line) {
	for _, j := range r.b.Jobs() {
		require.Zero(t, j.LeasesLost, j.MessageID)
		require.Equal(t, 1, j.Attempts, j.MessageID)
	}
}

// cameAgain: the worker has done the jobs, which came to it again, because nobody could know; it reports them with
// the new lease and does not do them twice.
func cameAgain(t *testing.T, r *running, _ line) {
	for _, j := range r.b.Jobs() {
		require.Equal(t, "DELIVERED", j.State)
		require.GreaterOrEqual(t, j.Attempts, 2, j.MessageID)
	}
}

// oneLeaseLost: jobs of a lost answer come back when their leases have ended, once.
func oneLeaseLost(t *testing.T, r *running, _ line) {
	for _, j := range r.b.Jobs() {
		require.LessOrEqual(t, j.LeasesLost, 1, j.MessageID)
	}
}

// apart: after the first n requests to a door the client waited for what Retry-After said.
func apart(door, only string, n int, wait time.Duration) func(*testing.T, *running, line) {
	return func(t *testing.T, r *running, _ line) {
		all := slices.DeleteFunc(r.b.Requests(door), func(q hostile.Request) bool { return !strings.Contains(q.Body, only) })
		require.Greater(t, len(all), n)
		for i := range n {
			require.GreaterOrEqual(t, all[i+1].At.Sub(all[i].At), wait, "request %d", i+1)
		}
	}
}

// notReported: nothing was said of a job that is somebody else's.
func notReported(id string) func(*testing.T, *running, line) {
	return func(t *testing.T, r *running, _ line) {
		require.NotContains(t, r.ids("done"), id)
		for _, m := range r.b.Moves("") {
			require.False(t, m.MessageID == id && m.NextState != "INFLIGHT", "%+v", m)
		}
	}
}

func delivered(id string) func(*testing.T, *running, line) {
	return func(t *testing.T, r *running, _ line) {
		for _, j := range r.b.Jobs() {
			require.True(t, j.MessageID != id || j.State == "DELIVERED", "%+v", j)
		}
	}
}

// exactSlots: a worker of four slots that does three jobs asks for one, and for none while it does four.
func exactSlots(t *testing.T, r *running, _ line) {
	claims := r.b.Requests("claim")
	require.Equal(t, 4, claims[0].Limit)
	var most int
	for _, c := range claims[1:] {
		most = max(most, c.Limit)
		require.GreaterOrEqual(t, c.Limit, 1)
	}
	require.Equal(t, 1, claims[1].Limit, "three of the four slots have a job")
	require.LessOrEqual(t, most, 4)
}

func goneBack(t *testing.T, r *running, _ line) {
	for _, m := range r.b.Moves("QUEUED") {
		require.Equal(t, "j-0", m.MessageID)
		require.False(t, m.Failed, "it is no attempt")
		require.True(t, m.Delay >= 1 && m.Delay <= 30, "%+v", m)
	}
	require.NotContains(t, r.ids("start"), "j-0")
}

func saidWhy(t *testing.T, r *running, _ line) {
	failed, dead := r.b.Moves("QUEUED")[0], r.b.Moves("DEAD")[0]
	require.Equal(t, "j-0", failed.MessageID)
	require.True(t, failed.Failed)
	require.Contains(t, failed.Reason, "broken on purpose")
	require.Equal(t, "j-1", dead.MessageID)
	require.Contains(t, dead.Reason, "never again")
	require.Len(t, r.b.Moves("QUEUED"), 1)
	require.Len(t, r.b.Moves("DEAD"), 1)
}

func finished(t *testing.T, r *running, l line) {
	require.ElementsMatch(t, []string{"j-0", "j-1"}, r.ids("done"))
	delivered("j-0")(t, r, l)
	delivered("j-1")(t, r, l)
}

func stopped(t *testing.T, r *running, _ line) {
	require.ElementsMatch(t, []string{"j-0", "j-1"}, r.ids("stopped"))
	for _, j := range r.b.Jobs() {
		require.Equal(t, []any{"QUEUED", 0, 1}, []any{j.State, j.Attempts, j.GivenBack}, "%+v", j)
	}
}

// requireHonest is what holds whatever the broker does.
func requireHonest(t *testing.T, r *running, twice bool) {
	t.Helper()
	require.Empty(t, r.b.Violations())
	done := map[string]int{}
	for _, id := range r.ids("done") {
		done[id]++
		require.True(t, twice || done[id] == 1, "%s is done twice", id)
	}
	for _, m := range r.b.Moves("DELIVERED") {
		require.Positive(t, done[m.MessageID], "%s is acknowledged and was not done", m.MessageID)
	}
	for _, c := range r.b.Requests("claim") {
		require.LessOrEqual(t, c.Limit, 4, "more than the slots")
	}
	require.LessOrEqual(t, r.b.Peak(), 8, "connections at once")
}

func TestEachClientWorksHonestlyWithAHostileBroker(t *testing.T) {
	t.Parallel()
	for name := range workerScenarios() {
		for _, make := range drivers {
			d := make(t)
			if only := workerScenarios()[name].only; len(only) > 0 && !slices.Contains(only, d.client) {
				continue
			}
			t.Run(d.client+"/"+name, func(t *testing.T) {
				t.Parallel()
				workerScenarios()[name].run(t, d) // with faults of its own
			})
		}
	}
}

// run plays a scenario of a worker.
func (s scenario) run(t *testing.T, d driver) {
	b := hostile.Start(t, s.faults...)
	if s.broken != nil {
		s.broken(b)
	}
	for i, j := range s.jobs {
		b.Add("j-"+strconv.Itoa(i), task(j), payload(j))
	}
	r := d.run(t, b, "worker", map[string]any{"lease": 5})
	if s.code == 0 {
		until := s.until
		if until == nil {
			until = allOver
		}
		r.await("what the scenario waits for", func() bool { return len(r.printed("ready")) > 0 && until(r) })
		r.signal()
		if s.then != nil {
			s.then(r)
		}
	}
	last := r.end(s.code)
	require.Equal(t, s.code == 0, last.Error == "", "%s", last.Error)
	requireHonest(t, r, s.twice)
	if s.check != nil {
		s.check(t, r, last)
	}
}

// task and payload are those of a job like "sleep 500".
func task(job string) string {
	name, _, _ := strings.Cut(job, " ")
	return name
}

func payload(job string) string {
	name, arg, _ := strings.Cut(job, " ")
	return fmt.Sprintf(`{"task":%q,"args":[%s],"kwargs":{},"meta":{}}`, name, arg)
}

// publishScenarios are those of producers: ten messages, or one request.
func publishScenarios() map[string]scenario {
	lost := func(door string, do func(*hostile.Exchange)) []hostile.Fault {
		return []hostile.Fault{{Door: door, Skip: 1, Times: 2, Do: do}}
	}
	first := func(do func(*hostile.Exchange)) []hostile.Fault { return []hostile.Fault{times("request", 1, do)} }
	line := func(do func(*hostile.Exchange)) []hostile.Fault { return []hostile.Fault{times("batch", 1, do)} }
	return map[string]scenario{
		"nothing is wrong": {mode: "publish", check: allStored},
		"the answer of a publish is lost": {mode: "publish", check: allStored,
			faults: lost("publish", hostile.BreakAfter)},
		"a publish is not taken": {mode: "publish", check: allStored,
			faults: lost("publish", hostile.BreakBefore)},
		"a publish hangs": {mode: "publish", check: allStored,
			faults: lost("publish", hostile.HangAfter)},
		"a publish is answered by a page": {mode: "publish", check: allStored, faults: lost("publish", hostile.Page)},
		"a publish is perhaps stored": {mode: "publish", check: allStored,
			faults: lost("publish", hostile.Refuse(503, "outcome_unknown", 0))},
		"a publish is refused for a while": {mode: "publish", check: allStored,
			faults: lost("publish", hostile.Refuse(503, "draining", 1))},
		"tokens are lost on their way": {mode: "publish", check: allStored,
			faults: []hostile.Fault{times("manage", 2, hostile.BreakAfter)}},
		"the channel's token was changed": {mode: "publish", check: allStored, faults: []hostile.Fault{
			{Door: "publish", Skip: 2, Times: 1, Do: hostile.Retoken("/channel/jobs")}}},
		"a publish is refused for good": {mode: "publish", options: map[string]any{"count": 1},
			check:  onceWith(400, "invalid_task"),
			faults: []hostile.Fault{{Door: "publish", Do: hostile.Refuse(400, "invalid_task", 0)}}},
		"a publish is refused for an hour": {mode: "publish", options: map[string]any{"count": 1},
			check:  onceWith(503, "channel_paused"),
			faults: []hostile.Fault{{Door: "publish", Do: hostile.Refuse(503, "channel_paused", 3600)}}},
		"management is closed": {mode: "publish", options: map[string]any{"count": 1}, check: saidClosed("token_missing"),
			faults: []hostile.Fault{{Door: "manage", Do: hostile.Refuse(401, "token_missing", 0)}}},
		"tokens are not shown": {mode: "publish", options: map[string]any{"count": 1}, check: saidClosed("token_not_shown"),
			faults: []hostile.Fault{{Door: "manage", Do: hostile.Veil}}},

		"a batch":                          {mode: "batch", check: allStored},
		"the answer of a batch is lost":    {mode: "batch", check: allStored, faults: line(hostile.BreakAfter)},
		"the answer of a batch is cut":     {mode: "batch", check: allStored, faults: line(hostile.CutAfter)},
		"the answer of a batch ends early": {mode: "batch", check: allStored, faults: line(hostile.Garble)},
		"the answer of a batch is a page":  {mode: "batch", check: allStored, faults: line(hostile.Page)},
		"a batch hangs":                    {mode: "batch", check: allStored, faults: line(hostile.HangAfter)},
		"a batch is refused for a while": {mode: "batch", check: allStored,
			faults: line(hostile.Refuse(503, "draining", 1))},
		"a batch while management is closed": {mode: "batch", check: noneStored, faults: []hostile.Fault{
			{Door: "manage", Do: hostile.Refuse(401, "token_missing", 0)}}},
		"a batch that is refused": {mode: "batch", check: noneStored, faults: []hostile.Fault{
			{Door: "batch", Do: hostile.Refuse(400, "invalid_task", 0)}}},
		"a request":                           {mode: "request", check: responded},
		"the answer of a request is lost":     {mode: "request", check: responded, faults: first(hostile.BreakAfter)},
		"the answer of a request never comes": {mode: "request", check: responded, faults: first(hostile.HangAfter)},
		"a request is not taken":              {mode: "request", check: responded, faults: first(hostile.BreakBefore)},
		"a request that nobody answers": {mode: "request", check: onceWith(409, "no_responder"),
			faults: []hostile.Fault{
				{Door: "request", Do: hostile.Refuse(409, "no_responder", 0)}}},
	}
}

// allStored: the client says that it has published everything, and each message is stored once.
func allStored(t *testing.T, r *running, _ line) {
	var want, stored []string
	for i := range 10 {
		want = append(want, "m-"+strconv.Itoa(i))
	}
	require.Equal(t, want, r.ids("published"))
	for _, l := range r.printed("published") {
		require.Empty(t, l.Error)
	}
	for _, j := range r.b.Jobs() {
		stored = append(stored, j.MessageID)
		require.Equal(t, "ok", j.Task)
	}
	require.ElementsMatch(t, want, stored)
}

// onceWith: the refusal reaches the program with its status and code, and was not asked for again.
func onceWith(status int, code string) func(*testing.T, *running, line) {
	return func(t *testing.T, r *running, _ line) {
		told := append(r.printed("published"), r.printed("answer")...)
		require.Len(t, told, 1)
		require.Equal(t, []any{status, code}, []any{told[0].Status, told[0].Code})
		require.NotEmpty(t, told[0].Error)
		require.Len(t, append(r.b.Requests("publish"), r.b.Requests("request")...), 1)
	}
}

// saidClosed: without tokens, and management that gives them, nothing is sent, and the error says what to set.
func saidClosed(code string) func(*testing.T, *running, line) {
	return func(t *testing.T, r *running, _ line) {
		told := r.printed("published")
		require.Len(t, told, 1)
		require.Equal(t, code, told[0].Code)
		require.Contains(t, told[0].Error, "PENSTOCK_CHANNEL_TOKEN")
		require.Empty(t, r.b.Requests("publish"))
		require.Len(t, r.b.Requests("manage"), 1)
	}
}

// noneStored: the client says of each message that it was not published.
func noneStored(t *testing.T, r *running, _ line) {
	require.Len(t, r.printed("published"), 10)
	for _, l := range r.printed("published") {
		require.NotEmpty(t, l.Error)
	}
	require.Empty(t, r.b.Jobs())
}

func responded(t *testing.T, r *running, _ line) {
	answers := r.printed("answer")
	require.Len(t, answers, 1)
	require.Equal(t, "you said: ask", answers[0].Body)
	require.Empty(t, answers[0].Error)
	require.Len(t, r.b.Jobs(), 1)
}

func TestEachClientPublishesOnceToAHostileBroker(t *testing.T) {
	t.Parallel()
	for name := range publishScenarios() {
		for _, make := range drivers {
			d := make(t)
			t.Run(d.client+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := publishScenarios()[name]
				r := d.run(t, hostile.Start(t, s.faults...), s.mode, s.options)
				last := r.end(0)
				require.Empty(t, r.b.Violations())
				s.check(t, r, last)
			})
		}
	}
}
