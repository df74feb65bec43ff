package main

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// timelineOf is the timeline of a job of the sample channel.
func (p *process) timelineOf(consumer, id string) (t apitype.Timeline) {
	p.t.Helper()
	r := p.do("GET", "/channel/c/consumer/"+consumer+"/job/"+id+"/timeline?limit=100", "")
	require.NoError(p.t, json.Unmarshal([]byte(r.body), &t), r.body)
	return t
}

// lose claims the next job as a worker that says nothing more, and waits until the lease has ended.
func (p *process) lose(consumer, worker string, lost int) apitype.ClaimedJob {
	p.t.Helper()
	var got []apitype.ClaimedJob
	eventually(p.t, "a job", func() bool {
		got = p.claimAs(consumer, worker, "limit=1&wait=5s&timeout=5")
		return len(got) == 1
	})
	eventually(p.t, "the end of the lease", func() bool {
		j := p.jobOf(consumer, got[0].ID)
		return *j.LeasesLost == lost && j.Status != "INFLIGHT"
	})
	return got[0]
}

// A consumer bears as many lost leases of a job as it says, whatever its retries; the next one ends the
// job, and its dead letter names the last worker. Failures and give-backs are counted apart.
func TestAJobThatKillsItsWorkersIsDead(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.with(quick...).with("BROKER_RETRY_BACKOFF=1ms").start()
		p.sample("k")
		p.put("/channel/c/consumer/k", "type", "pull", "maxRetries", "1", "maxLeasesLost", "3")
		p.publish("m")
		j := p.lose("k", "a; version=1", 1)
		j = p.claimOne(t, "k", "60")
		require.Equal(t, 2, j.Attempt)
		require.Equal(t, 1, j.LeasesLost)
		require.Equal(t, 202, p.giveBack("k", j, "Failed", true), "one of two failures")
		p.lose("k", "b", 2)
		j = p.claimOne(t, "k", "60")
		require.Equal(t, 202, p.giveBack("k", j))
		require.Equal(t, "QUEUED", p.jobOf("k", j.ID).Status)
		p.lose("k", "c; version=3", 3)
		require.Equal(t, []int{4, 1, 3}, countsOf(p.jobOf("k", j.ID)))
		p.lose("k", "billing-3; version=1.8.2; slots=2", 4)
		got := p.jobOf("k", j.ID)
		require.Equal(t, "DEAD", got.Status)
		require.Equal(t, "worker_lost", got.ReasonCode)
		require.Equal(t, "4 leases ended without a word, of which the policy bears 3: the last worker was billing-3, "+
			"version 1.8.2", got.Reason)
		require.Equal(t, []string{"billing-3", "1.8.2"}, []string{got.Worker, got.WorkerVersion})
		require.Equal(t, []int{5, 1, 4}, countsOf(got))

		var dlq apitype.DeadLetters
		r := p.do("GET", "/channel/c/consumer/k/dlq", "")
		require.NoError(t, json.Unmarshal([]byte(r.body), &dlq), r.body)
		require.Len(t, dlq.DeadJobs, 1)
		d := dlq.DeadJobs[0]
		require.Equal(t, []any{"worker_lost", "billing-3", "1.8.2", 5, 4, 1}, []any{d.ReasonCode, d.Worker,
			d.WorkerVersion, d.Attempts, *d.LeasesLost, *d.GivenBack})
		var told []string
		for _, e := range p.timelineOf("k", j.ID).Result {
			if e.Worker != "" {
				told = append(told, e.Event+" "+e.Worker+" "+e.WorkerVersion)
				require.Contains(t, e.Detail, "worker "+e.Worker)
			}
		}
		require.Equal(t, []string{"LEASE_ENDED a 1", "LEASE_ENDED b ", "LEASE_ENDED c 3", "LEASE_ENDED billing-3 1.8.2",
			"DEAD billing-3 1.8.2"}, told)
		producer := p.do("GET", "/channel/c/consumer/k/job/"+j.ID, "", producerTokens...)
		require.Equal(t, 200, producer.status, producer.body)
		require.NotContains(t, producer.body, "billing-3")

		require.Equal(t, 202, p.do("POST", "/channel/c/consumer/k/job/"+j.ID+"/requeue-dead-job", "",
			consumerTokens("k")...).status)
		require.Equal(t, []int{0, 0, 0}, countsOf(p.jobOf("k", j.ID)), "they begin again")
	})
}

// The budget of lost leases survives a restart, killed or not, and a Redis that is emptied.
func TestLostLeasesAreCountedOverARestart(t *testing.T) {
	for name, end := range map[string]func(p *process){
		"a stop": func(p *process) { require.Equal(p.t, 0, p.stop()) },
		"a kill": func(p *process) { p.kill() },
	} {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			w := embeddedWorld(t).with(quick...)
			p := w.start()
			p.sample("k")
			p.put("/channel/c/consumer/k", "type", "pull", "maxRetries", "0", "maxLeasesLost", "2")
			p.publish("m")
			for n := range 2 {
				p.lose("k", "w", n+1)
				end(p)
				p = w.start()
			}
			j := p.lose("k", "w; version=2", 3)
			require.Equal(t, "worker_lost", p.jobOf("k", j.ID).ReasonCode)
			require.Contains(t, p.jobOf("k", j.ID).Reason, "w, version 2")
		})
	}
}

func TestFaultLostLeasesAreCountedOverFlushallReal(t *testing.T) {
	parallel(t)
	w := realWorld(t).with(quick...)
	p := w.start()
	p.sample("k")
	p.put("/channel/c/consumer/k", "type", "pull", "maxRetries", "0", "maxLeasesLost", "2")
	p.publish("m")
	for n := range 2 {
		p.lose("k", "w", n+1)
		w.flushall()
	}
	j := p.lose("k", "w", 3)
	require.Equal(t, "worker_lost", p.jobOf("k", j.ID).ReasonCode)
}

// Where a consumer sets no maxLeasesLost, as many leases may be lost as there are retries, and the
// reason says that the workers were lost.
func TestTheBudgetOfLostLeasesIsThatOfTheRetries(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).with(quick...).start()
	p.sample("k")
	p.put("/channel/c/consumer/k", "type", "pull", "maxRetries", "1")
	p.publish("m")
	p.lose("k", "", 1)
	j := p.lose("k", "", 2)
	got := p.jobOf("k", j.ID)
	require.Equal(t, []string{"DEAD", "worker_lost"}, []string{got.Status, got.ReasonCode})
	require.Contains(t, got.Reason, "the last worker did not say who it was")
	r := p.do("GET", "/channel/c/consumer/k", "")
	require.Contains(t, r.body, `"MaxLeasesLost":"1"`)
	p.put("/channel/c/consumer/k", "maxLeasesLost", "7")
	require.Contains(t, p.do("GET", "/channel/c/consumer/k", "").body, `"MaxLeasesLost":"7"`)
	require.Equal(t, 400, p.do("PUT", "/channel/c/consumer/k", "maxLeasesLost=many", "Content-Type",
		"application/x-www-form-urlencoded").status)
}

// A worker says why it gives a job back or declares it dead, on both routes, and everybody who looks at
// the job reads it.
func TestAWorkerSaysWhyAJobFailed(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.with(quick...).with("BROKER_RETRY_BACKOFF=1ms").start()
		p.sample("k")
		p.put("/channel/c/consumer/k", "type", "pull", "maxRetries", "1")
		p.publish("m")
		single := func(j apitype.ClaimedJob, body map[string]any) reply {
			text, err := json.Marshal(body)
			require.NoError(t, err)
			return p.move("k", j.ID, string(text), "X-Broker-Lease", j.Lease)
		}
		j := p.claimOne(t, "k", "60")
		r := single(j, map[string]any{"NextState": "QUEUED", "Reason": "database away", "Detail": "host db-1"})
		require.Equal(t, 202, r.status, r.body)
		j = p.claimOne(t, "k", "60")
		require.Equal(t, 1, j.Attempt)
		require.Equal(t, 1, j.GivenBack)
		require.Equal(t, 202, p.giveBack("k", j, "Failed", true, "Reason", "card declined", "Detail", "the bank said 51"))
		j = p.claimOne(t, "k", "60")
		long := strings.Repeat("é", 1000)
		r = single(j, map[string]any{"NextState": "DEAD", "Reason": long, "Detail": long})
		require.Equal(t, 202, r.status, r.body)
		got := p.jobOf("k", j.ID)
		require.Equal(t, []string{"DEAD", "by_consumer", strings.Repeat("é", 127)},
			[]string{got.Status, got.ReasonCode, got.Reason})
		var said [][]string
		for _, a := range got.AttemptHistory {
			said = append(said, []string{strconv.Itoa(a.Attempt), a.Error, a.Answer, a.Phase})
		}
		require.Equal(t, [][]string{{"1", "database away", "host db-1", "given_back"},
			{"1", "card declined", "the bank said 51", ""},
			{"2", strings.Repeat("é", 127), strings.Repeat("é", 512), ""}}, said)
		dlq := p.do("GET", "/channel/c/consumer/k/dlq", "").body
		require.Contains(t, dlq, `"Reason":"`+strings.Repeat("é", 127)+`"`)
		require.Contains(t, dlq, `"Detail":"`+strings.Repeat("é", 512)+`"`)
		events := p.timelineOf("k", j.ID).Result
		require.Contains(t, events[1].Detail, "database away; detail: host db-1")
		require.Contains(t, events[2].Detail, "card declined; detail: the bank said 51")
		for body, code := range map[string]string{
			`{"NextState":"DELIVERED","Reason":"x"}`:               "invalid_reason",
			`{"NextState":"INFLIGHT","Detail":"x"}`:                "invalid_reason",
			`{"NextState":"DEAD","Failed":true}`:                   "invalid_failed",
			`{"NextState":"DEAD","Reason":7}`:                      "invalid_body",
			`{"NextState":"DEAD","Resaon":"x"}`:                    "invalid_body",
			`{"NextState":"QUEUED","Reason":"x","Reason":"y"}`:     "invalid_body",
			`{"NextState":"QUEUED","Failed":"yes"}`:                "invalid_body",
			`{"NextState":"QUEUED","Failed":true,"Delay":9999999}`: "invalid_delay",
		} {
			r := p.move("k", j.ID, body, "X-Broker-Lease", j.Lease)
			require.Equal(t, 400, r.status, body)
			require.Contains(t, r.body, code, body)
		}
		r = p.move("k", j.ID, `{"NextState":"QUEUED","Reason":"x"}`)
		require.Contains(t, r.body, "lease_required", r.body)
	})
}
