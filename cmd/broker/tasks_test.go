package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/feature/why"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

// claimTasks claims the jobs of some tasks.
func (p *process) claimTasks(tasks, query string) (payloads []string, jobs []apitype.ClaimedJob) {
	p.t.Helper()
	r := p.do("POST", "/channel/c/consumer/k/claim?"+query, "", append(consumerTokens("k"), "Accept-Tasks", tasks)...)
	require.Equal(p.t, 200, r.status, r.body)
	var page apitype.ClaimedJobs
	strictjson.Decode(p.t, []byte(r.body), &page)
	for _, j := range page.Result {
		payloads = append(payloads, j.Message.Payload)
	}
	return payloads, page.Result
}

// A claim that names tasks gets their jobs and those without a task, in order; the others stay in their
// places, uncharged. The task is kept and delivered.
func TestAClaimGetsTheTasksThatItNames(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		target := newSink(t, nil)
		p := w.with(quick...).start()
		p.sample("k", "push="+target.URL)
		for _, m := range [][]string{{"a1", "a"}, {"b1", "b"}, {"none", ""}, {"a2", "a"}, {"b2", "b"}} {
			p.publish(m[0], "X-Broker-Task", m[1])
		}
		eventually(t, "all jobs", func() bool { return len(p.queued("k")) == 5 })
		got, _ := p.claimTasks("c", "limit=10&timeout=60")
		require.Equal(t, []string{"none"}, got)
		got, _ = p.claimTasks("x, b ,y", "limit=1&timeout=60")
		require.Equal(t, []string{"b1"}, got)
		got, jobs := p.claimTasks("b", "limit=10&timeout=60")
		require.Equal(t, []string{"b2"}, got)
		require.Equal(t, "b", jobs[0].Message.Headers["X-Broker-Task"])
		rest, _ := p.claim("k", "limit=10&timeout=60")
		require.Len(t, rest, 2)
		for i, want := range []string{"a1", "a2"} {
			require.Equal(t, want, rest[i].Message.Payload)
			require.Equal(t, 1, rest[i].Attempt)
		}
		eventually(t, "the deliveries", func() bool { return target.count() == 5 })
		for _, d := range target.all() {
			task := map[byte]string{'a': "a", 'b': "b", 'n': ""}[d.body[0]]
			require.Equal(t, task, d.header.Get("X-Broker-Task"), d.body)
		}
		r := p.do("POST", "/channel/c/broadcast", "m", append([]string{"X-Broker-Task", "a,b"}, producerTokens...)...)
		require.Equal(t, 400, r.status, r.body)
		require.Contains(t, r.body, "invalid_task")
	})
}

// A job wakes the claim that takes it, also behind others that wait and take other tasks.
func TestAJobWakesTheClaimThatTakesItsTask(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).with(quick...).start()
	p.sample("k")
	answers := make(chan reply, 3)
	for _, tasks := range []string{"x", "y", "wanted"} {
		go func() {
			r, _ := p.send("POST", "/channel/c/consumer/k/claim?wait=20s&timeout=60", "",
				headerOf(append(consumerTokens("k"), "Accept-Tasks", tasks, "X-Broker-Worker", tasks)))
			answers <- r
		}()
		eventually(t, "the claim that waits", func() bool {
			for _, w := range p.workers("k") {
				if w.Name == tasks {
					return true
				}
			}
			return false
		})
	}
	p.publish("m", "X-Broker-Task", "wanted")
	r := <-answers
	require.Equal(t, http.StatusOK, r.status)
	require.Contains(t, r.body, `"X-Broker-Task":"wanted"`)
}

// Jobs whose task no living worker takes say so, until one comes that takes them.
func TestWhySaysThatNoWorkerTakesATask(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start()
		s := p.stage(t, "k")
		of := s.path("/consumer/k")
		claim := func(worker string, tasks ...string) {
			r := s.do("POST", of+"/claim?limit=10&timeout=600", "", append(append(consumerTokens("k"), "X-Broker-Worker",
				worker), tasks...)...)
			require.Equal(t, 200, r.status, r.body)
		}
		claim("billing; tasks=invoice,refund")
		claim("mailer", "Accept-Tasks", "mail")
		job := s.jobOf(s.publish("m", "X-Broker-Task", "resize"), "k").ID
		s.publish("m", "X-Broker-Task", "invoice")
		for _, path := range []string{of, of + "/job/" + job} {
			r := s.awaitReason(path, why.NoWorker)
			require.Equal(t, "X-Broker-Task: resize", r.By)
			require.Equal(t, 1, r.Jobs, path)
			require.Equal(t, "No living worker accepts the task resize: billing takes invoice, refund; mailer takes mail.",
				r.Detail)
			require.Contains(t, r.Action, "Accept-Tasks: resize")
		}
		eventually(t, "the reason of the other job, which a worker takes, after that", func() bool {
			reasons := s.why(of).Reasons
			return len(reasons) > 1 && reasons[1].Code == string(why.Due)
		})
		claim("mailer", "Accept-Tasks", "nothing")
		claim("other", "Accept-Tasks", "nothing")
		r := s.awaitReason(of, why.NoWorker)
		require.Contains(t, r.Detail, "other takes nothing")
		claim("other")
		require.Empty(t, s.why(of).Reasons, "it took both jobs")
		s.publish("m", "X-Broker-Task", "resize")
		s.awaitReason(of, why.WorkersBusy)
	})
}
