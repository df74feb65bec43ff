package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// claimOne claims the next job of a consumer, with a lease of that many seconds.
func (p *process) claimOne(t *testing.T, consumer, timeout string) apitype.ClaimedJob {
	t.Helper()
	var got []apitype.ClaimedJob
	eventually(t, "a job of "+consumer, func() bool {
		got, _ = p.claim(consumer, "limit=1&wait=5s&timeout="+timeout)
		return len(got) == 1
	})
	return got[0]
}

// giveBack gives a job back and returns the status of the answer.
func (p *process) giveBack(consumer string, j apitype.ClaimedJob, more ...any) int {
	update := map[string]any{"ID": j.ID, "Lease": j.Lease, "NextState": "QUEUED"}
	for i := 0; i < len(more); i += 2 {
		update[more[i].(string)] = more[i+1]
	}
	return p.update(consumer, update)[0].Status
}

// jobOf is GET of a job of the sample channel.
func (p *process) jobOf(consumer, id string) (j apitype.JobDetail) {
	r := p.do("GET", "/channel/c/consumer/"+consumer+"/job/"+id, "")
	require.NoError(p.t, json.Unmarshal([]byte(r.body), &j), r.body)
	return j
}

// countsOf are the three counts of a job: attempts, times given back, leases lost.
func countsOf(j apitype.JobDetail) []int { return []int{j.Attempts, *j.GivenBack, *j.LeasesLost} }

// Giving back is no attempt, however often; a lost lease is one, and so is a failure that the worker
// reports. GET and the timeline tell the three apart.
func TestGivingBackIsNoAttemptUnlessItSaysSo(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.with(quick...).with("BROKER_RETRY_BACKOFF=1ms").start()
		p.sample("k")
		p.put("/channel/c/consumer/k", "type", "pull", "maxRetries", "2")
		p.publish("m")
		var j apitype.ClaimedJob
		for range 5 {
			j = p.claimOne(t, "k", "60")
			require.Equal(t, 1, j.Attempt)
			require.Equal(t, 202, p.giveBack("k", j))
			require.Equal(t, 409, p.giveBack("k", j), "the lease is over")
		}
		p.claimOne(t, "k", "5") // and says nothing
		j = p.claimOne(t, "k", "60")
		require.Equal(t, 2, j.Attempt)
		require.Equal(t, 202, p.giveBack("k", j, "Failed", true))
		j = p.claimOne(t, "k", "60")
		require.Equal(t, 3, j.Attempt)
		require.Equal(t, 202, p.giveBack("k", j))
		got := p.jobOf("k", j.ID)
		require.Equal(t, []int{2, 6, 1}, countsOf(got))
		require.Equal(t, "given_back", got.AttemptHistory[0].Phase)
		j = p.claimOne(t, "k", "60")
		require.Equal(t, 202, p.giveBack("k", j, "Failed", true, "Delay", 3600), "the last attempt")
		eventually(t, "the dead letter", func() bool { return p.jobOf("k", j.ID).Status == "DEAD" })
		got = p.jobOf("k", j.ID)
		require.Equal(t, "attempt 3 of 3: the worker reported a failure", got.Reason)
		require.Equal(t, "attempts_exhausted", got.ReasonCode)
		require.Equal(t, []int{3, 6, 1}, countsOf(got))
		var events apitype.Timeline
		r := p.do("GET", "/channel/c/consumer/k/job/"+j.ID+"/timeline?size=100", "")
		require.NoError(t, json.Unmarshal([]byte(r.body), &events), r.body)
		require.Equal(t, "ACCEPTED GIVEN_BACK GIVEN_BACK GIVEN_BACK GIVEN_BACK GIVEN_BACK LEASE_ENDED ATTEMPT GIVEN_BACK "+
			"ATTEMPT DEAD",
			eventNames(events.Result, func(apitype.TimelineEvent) bool { return true }))
		require.Equal(t, 400, p.update("k", map[string]any{"ID": j.ID, "Lease": j.Lease, "NextState": "DELIVERED",
			"Failed": true})[0].Status)
	})
}

// A job that every worker gives back ends: after a hundred times it is charged.
func TestGivingBackForEverEndsAsADeadLetter(t *testing.T) {
	p := embeddedWorld(t).start()
	p.sample("k")
	p.put("/channel/c/consumer/k", "type", "pull", "maxRetries", "0")
	p.publish("m")
	var j apitype.ClaimedJob
	for range 101 {
		j = p.claimOne(t, "k", "60")
		require.Equal(t, 1, j.Attempt)
		require.Equal(t, 202, p.giveBack("k", j))
	}
	got := p.jobOf("k", j.ID)
	require.Equal(t, "DEAD", got.Status)
	require.Equal(t, "attempt 1 of 1: given back by the worker, more than 100 times so far", got.Reason)
	require.Equal(t, 101, *got.GivenBack)
}

// What a worker was told of a job survives the end of the embedded broker, killed or not, and a Redis
// that is emptied: the delay of a job that was given back, and its attempts.
func TestDelaysAndAttemptsOfPullJobsSurviveARestart(t *testing.T) {
	for name, end := range map[string]func(p *process){
		"a stop": func(p *process) { require.Equal(p.t, 0, p.stop()) },
		"a kill": func(p *process) { p.kill() },
	} {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			w := embeddedWorld(t).with(quick...)
			p := w.start()
			later, attempt := toldOfPullJobs(t, p)
			end(p)
			requireTold(t, w.start(), later, attempt)
		})
	}
}

func TestFaultDelaysAndAttemptsOfPullJobsSurviveFlushallReal(t *testing.T) {
	parallel(t)
	w := realWorld(t).with(quick...)
	p := w.start()
	later, attempt := toldOfPullJobs(t, p)
	w.flushall()
	requireTold(t, p, later, attempt)
}

// toldOfPullJobs gives a job back for an hour, and lets two leases of another one end.
func toldOfPullJobs(t *testing.T, p *process) (later, attempt string) {
	p.sample("later", "attempt")
	p.publish("m")
	j := p.claimOne(t, "later", "60")
	require.Equal(t, 202, p.giveBack("later", j, "Delay", 3600))
	later = j.ID
	for n := range 2 {
		j = p.claimOne(t, "attempt", "5")
		require.Equal(t, n+1, j.Attempt)
		eventually(t, "the end of the lease", func() bool { return *p.jobOf("attempt", j.ID).LeasesLost == n+1 })
	}
	return later, j.ID
}

func requireTold(t *testing.T, p *process, later, attempt string) {
	t.Helper()
	j := p.claimOne(t, "attempt", "60")
	require.Equal(t, attempt, j.ID)
	require.Equal(t, 3, j.Attempt)
	none, _ := p.claim("later", "wait=3s")
	require.Empty(t, none)
	got := p.jobOf("later", later)
	require.Equal(t, "QUEUED", got.Status)
	require.NotNil(t, got.NextAttemptAt)
	require.InDelta(t, time.Hour.Seconds(), time.Until(got.NextAttemptAt.Time).Seconds(), 300)
	require.Equal(t, []int{0, 1, 0}, countsOf(got))
}

// A clean stop of the embedded broker ends no lease: its worker reports after the next start, no other
// worker gets the job meanwhile, and a lease that ends while no broker runs is a lost one.
func TestLeasesOfPullJobsSurviveACleanRestart(t *testing.T) {
	parallel(t)
	w := embeddedWorld(t).with(quick...)
	p := w.start()
	p.sample("held", "ended", "extended")
	p.publish("m")
	held, ended := p.claimOne(t, "held", "600"), p.claimOne(t, "ended", "5")
	extended := p.claimOne(t, "extended", "5")
	require.Equal(t, 202, p.update("extended", map[string]any{"ID": extended.ID, "Lease": extended.Lease,
		"NextState": "INFLIGHT", "IncrementalTimeout": 600})[0].Status)
	for range 2 {
		require.Equal(t, 0, p.stop())
		time.Sleep(time.Until(ended.Deadline))
		p = w.start()
	}
	again := p.claimOne(t, "ended", "60")
	require.Equal(t, 2, again.Attempt)
	eventually(t, "the end of the lease in the history", func() bool {
		return *p.jobOf("ended", again.ID).LeasesLost == 1
	})
	none, _ := p.claim("held", "wait=3s")
	require.Empty(t, none)
	require.Equal(t, "INFLIGHT", p.jobOf("held", held.ID).Status)
	require.Equal(t, 409, p.update("ended", map[string]any{"ID": ended.ID, "Lease": ended.Lease,
		"NextState": "DELIVERED"})[0].Status)
	require.Equal(t, 202, p.update("held", map[string]any{"ID": held.ID, "Lease": held.Lease,
		"NextState": "DELIVERED"})[0].Status)
	require.Equal(t, 202, p.update("extended", map[string]any{"ID": extended.ID, "Lease": extended.Lease,
		"NextState": "DELIVERED"})[0].Status)
	for consumer, id := range map[string]string{"held": held.ID, "extended": extended.ID} {
		require.Equal(t, "DELIVERED", p.jobOf(consumer, id).Status)
		require.Equal(t, 1, p.jobOf(consumer, id).Attempts)
	}
	require.Equal(t, 0, p.stop())
}

// FLUSHALL ends no lease of a worker: the broker that gave it restores it, so nobody else gets the job,
// and the report is taken. What was given back or reported through another broker stays as it is.
func TestFaultLeasesOfPullJobsSurviveFlushallReal(t *testing.T) {
	parallel(t)
	w := realWorld(t).with(quick...)
	p, other := w.start(), w.start()
	p.sample("held", "later", "over")
	p.publish("m")
	held, later, over := p.claimOne(t, "held", "600"), p.claimOne(t, "later", "600"), p.claimOne(t, "over", "600")
	require.Equal(t, 202, other.giveBack("later", later, "Delay", 3600))
	require.Equal(t, 202, other.update("over", map[string]any{"ID": over.ID, "Lease": over.Lease,
		"NextState": "DELIVERED"})[0].Status)
	for range 2 {
		w.flushall()
		for _, k := range []string{"held", "later", "over"} {
			none, _ := other.claim(k, "wait=4s")
			require.Empty(t, none, k)
		}
	}
	require.Equal(t, "INFLIGHT", p.jobOf("held", held.ID).Status)
	require.Equal(t, "QUEUED", p.jobOf("later", later.ID).Status)
	require.Equal(t, 409, other.update("held", map[string]any{"ID": held.ID, "Lease": "x" + held.Lease,
		"NextState": "DELIVERED"})[0].Status)
	require.Equal(t, 202, other.update("held", map[string]any{"ID": held.ID, "Lease": held.Lease,
		"NextState": "DELIVERED"})[0].Status)
	require.Equal(t, 1, p.jobOf("held", held.ID).Attempts)
}
