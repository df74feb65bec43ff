package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

// asWorker are the headers of a worker of a consumer.
func asWorker(consumer, worker string) []string {
	return append(consumerTokens(consumer), "X-Broker-Worker", worker)
}

// workers is GET of the workers of a consumer of the sample channel.
func (p *process) workers(consumer string) []apitype.Worker {
	p.t.Helper()
	r := p.do("GET", "/channel/c/consumer/"+consumer+"/workers", "")
	require.Equal(p.t, 200, r.status, r.body)
	var page apitype.Workers
	strictjson.Decode(p.t, []byte(r.body), &page)
	require.NotNil(p.t, page.Result)
	return page.Result
}

// claimAs claims as a worker.
func (p *process) claimAs(consumer, worker, query string) []apitype.ClaimedJob {
	p.t.Helper()
	r := p.do("POST", "/channel/c/consumer/"+consumer+"/claim?"+query, "", asWorker(consumer, worker)...)
	require.Equal(p.t, 200, r.status, r.body)
	var page apitype.ClaimedJobs
	strictjson.Decode(p.t, []byte(r.body), &page)
	return page.Result
}

// A worker that says its name is listed with what it said and what it has, and the job says who has it.
func TestTheBrokerKnowsItsWorkers(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.with(quick...).start()
		p.sample("k")
		require.Empty(t, p.workers("k"))
		for range 3 {
			p.publish("m")
		}
		const worker = "billing-3; version=1.8.2; slots=8; tasks=a,b"
		var got []apitype.ClaimedJob
		eventually(t, "two jobs", func() bool {
			got = append(got, p.claimAs("k", worker, "limit=1&timeout=60")...)
			return len(got) == 2
		})
		list := p.workers("k")
		require.Len(t, list, 1)
		require.WithinDuration(t, time.Now(), list[0].LastSeenAt.Time, time.Minute)
		list[0].LastSeenAt = apitype.Time{}
		require.Equal(t, []apitype.Worker{{Name: "billing-3", Version: "1.8.2", Slots: 8, InFlight: 2,
			Address: "127.0.0.1", Tasks: []string{"a", "b"}}}, list)
		j := p.jobOf("k", got[0].ID)
		require.Equal(t, []string{"INFLIGHT", "billing-3", "1.8.2"}, []string{j.Status, j.Worker, j.WorkerVersion})

		var listed string
		eventually(t, "a queued job", func() bool {
			for _, q := range p.queued("k") {
				listed = q["ID"].(string)
			}
			return listed != ""
		})
		r := p.do("POST", "/channel/c/consumer/k/job/"+listed, `{"NextState":"INFLIGHT"}`, asWorker("k", "single")...)
		require.Equal(t, 202, r.status, r.body)
		require.Equal(t, "true", r.header.Get("X-Broker-Claimed"))
		require.Equal(t, "single", p.jobOf("k", listed).Worker)
		require.Empty(t, p.jobOf("k", listed).WorkerVersion)
		names := map[string]int{}
		for _, w := range p.workers("k") {
			names[w.Name] = w.InFlight
		}
		require.Equal(t, map[string]int{"billing-3": 2, "single": 1}, names)

		require.Equal(t, 202, p.update("k", map[string]any{"ID": got[0].ID, "NextState": "DELIVERED"})[0].Status)
		require.Equal(t, "billing-3", p.jobOf("k", got[0].ID).Worker, "who had it last")
		events := p.timelineOf("k", got[0].ID).Result
		require.Equal(t, []string{"DELIVERED", "billing-3", "1.8.2"}, []string{events[len(events)-1].Event,
			events[len(events)-1].Worker, events[len(events)-1].WorkerVersion})
	})
}

// A header that cannot be read is ignored on every route that knows it.
func TestAWorkerThatCannotBeReadIsNoError(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).with(quick...).start()
	p.sample("k")
	p.publish("m")
	for _, worker := range []string{";", "; version=1", "a|b", "b; slots=many", "\xff", string(make([]byte, 0))} {
		p.claimAs("k", worker, "limit=1&timeout=1")
		r := p.do("GET", "/channel/c/consumer/k/queued-jobs", "", asWorker("k", worker)...)
		require.Equal(t, 200, r.status, r.body)
		r = p.do("POST", "/channel/c/consumer/k/jobs", `{"Updates":[]}`, asWorker("k", worker)...)
		require.Equal(t, 200, r.status, r.body)
	}
	require.Empty(t, p.workers("k"))
	r := p.do("POST", "/channel/c/broadcast", "m", append([]string{"X-Broker-Worker", "w"}, producerTokens...)...)
	require.Equal(t, 400, r.status, "other routes do not know it")
	for _, headers := range [][]string{{}, {"X-Broker-Admin-Token", adminToken}, consumerTokens("k")} {
		require.Equal(t, 200, p.do("GET", "/channel/c/consumer/k/workers", "", headers...).status)
	}
	wrong := []string{"X-Broker-Channel-Token", "c-token", "X-Broker-Consumer-Token", "wrong"}
	closed := embeddedWorld(t).start("BROKER_OPEN_MANAGEMENT=false")
	for _, put := range [][]string{{"/channel/c", `{"Token":"c-token"}`}, {"/channel/c/consumer/k", `{"Type":"pull"}`}} {
		r := closed.do("PUT", put[0], put[1], "X-Broker-Admin-Token", adminToken, "Content-Type", "application/json")
		require.Equal(t, 201, r.status, r.body)
	}
	require.Contains(t, []int{401, 403}, closed.do("GET", "/channel/c/consumer/k/workers", "", wrong...).status)
	require.Equal(t, 404, p.do("GET", "/channel/c/consumer/nobody/workers", "").status)
}

// Brokers show one list, a claim that waits keeps its worker alive at all of them, and the job says who
// has it wherever it is asked for, also after FLUSHALL.
func TestFaultWorkersAreSeenByEveryBrokerReal(t *testing.T) {
	parallel(t)
	w := realWorld(t).with(quick...)
	p, other := w.start(), w.start()
	p.sample("k")
	eventually(t, "the consumer at the other broker", func() bool {
		r, err := other.try("GET", "/channel/c/consumer/k", "")
		return err == nil && r.status == 200
	})
	waits := make(chan reply, 1)
	go func() {
		r, _ := p.send("POST", "/channel/c/consumer/k/claim?wait=20s&timeout=600", "",
			headerOf(asWorker("k", "w; version=2")))
		waits <- r
	}()
	eventually(t, "the worker at the other broker", func() bool { return len(other.workers("k")) == 1 })
	p.publish("m")
	r := <-waits
	require.Equal(t, 200, r.status, r.body)
	var page apitype.ClaimedJobs
	strictjson.Decode(t, []byte(r.body), &page)
	require.Len(t, page.Result, 1)
	id := page.Result[0].ID
	for range 2 {
		for _, b := range []*process{p, other} {
			eventually(t, "the lease and its worker", func() bool {
				j := b.jobOf("k", id)
				return j.Status == "INFLIGHT" && j.Worker == "w" && j.WorkerVersion == "2"
			})
		}
		w.flushall()
	}
}

// The embedded broker keeps the worker of a lease over a clean restart.
func TestTheWorkerOfALeaseSurvivesACleanRestart(t *testing.T) {
	parallel(t)
	w := embeddedWorld(t).with(quick...)
	p := w.start()
	p.sample("k")
	p.publish("m")
	var got []apitype.ClaimedJob
	eventually(t, "a job", func() bool {
		got = p.claimAs("k", "w; version=2", "limit=1&timeout=600")
		return len(got) == 1
	})
	require.Equal(t, 0, p.stop())
	p = w.start()
	eventually(t, "the lease", func() bool { return p.jobOf("k", got[0].ID).Status == "INFLIGHT" })
	j := p.jobOf("k", got[0].ID)
	require.Equal(t, []string{"w", "2"}, []string{j.Worker, j.WorkerVersion})
}
