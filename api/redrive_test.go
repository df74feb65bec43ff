package api

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/jobs"
)

func (w *world) status(k *durable.Consumer, m durable.Message) string {
	w.t.Helper()
	j, err := w.service.State(context.Background(), k.No, m.ID)
	require.NoError(w.t, err)
	return j.Status
}

func jobPath(k *durable.Consumer, m durable.Message) string {
	return "/channel/c/consumer/" + k.ID + "/job/" + m.ID.Job(k.Position).String()
}

func retriggerPath(m durable.Message, job ident.ID) string {
	return "/channel/c/message/" + m.PublicID() + "/job/" + job.String() + "/re-trigger"
}

func TestDeadLettersAreListedInPages(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.consumer("other", "pull")
	k := w.consumer("k", "push")
	var want []string
	for i := range 30 {
		m := durable.Message{}
		if i%2 == 0 {
			m.Key = fmt.Sprintf("key-%d", i)
		}
		m = w.insert(m)
		w.kill(k, m)
		want = append(want, jobPath(k, m))
	}
	var have []string
	path := "/channel/c/consumer/k/dlq?size=7"
	for path != "" {
		r := w.get(path).is(200)
		v := r.json()
		r.lastModified()
		require.Len(t, v, 2)
		for _, item := range v["DeadJobs"].([]any) {
			j := item.(map[string]any)
			require.Equal(t, "http://127.0.0.1:1/k", j["ListenerEndpoint"])
			require.Equal(t, "N k", j["ListenerName"])
			require.Equal(t, "DEAD", j["Status"])
			require.Equal(t, "answered 500", j["Reason"])
			require.Equal(t, 500.0, j["StatusCode"])
			require.Equal(t, 6.0, j["Attempts"])
			require.NotEmpty(t, j["StatusChangedAt"])
			require.Equal(t, "/channel/c/consumer/k/job/"+j["ID"].(string)+"/requeue-dead-job", j["JobRequeueURL"])
			w.get(j["MessageURL"].(string)).is(200)
			have = append(have, "/channel/c/consumer/k/job/"+j["ID"].(string))
		}
		path, _ = v["Pages"].(map[string]any)["next"].(string)
	}
	require.Equal(t, want, have)
	require.Len(t, w.get("/channel/c/consumer/k/dlq").json()["DeadJobs"], 25)
	require.Len(t, w.get("/channel/c/consumer/k/dlq?size=100").json()["DeadJobs"], 30)
	require.Len(t, w.get("/channel/c/consumer/k/dlq?first=key-20").json()["DeadJobs"], 10, "a page may start at a message")
	require.Equal(t, "{\"DeadJobs\":[],\"Pages\":{}}\n", w.get("/channel/c/consumer/other/dlq").is(200).Body)
	w.get("/channel/c/consumer/k/dlq?first=unknown").problem(400, "unknown_first")
}

func TestTheFormOfTheDLQRedrivesAllDeadLetters(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.OpenManagement = false; o.AdminToken = "" })
	w.put("/channel/c", "").problem(403, "admin_disabled")
	w.api.o.OpenManagement = true
	w.channel()
	for _, kind := range []string{"push", "pull"} {
		k := w.consumer(kind, kind)
		for range 5 {
			w.kill(k, w.insert(durable.Message{}))
		}
		path := "/channel/c/consumer/" + kind + "/dlq"
		w.do("POST", path, "requeue=wrong", formHeader).problem(400, "requeue_token_mismatch")
		w.do("POST", path, "", formHeader).problem(400, "requeue_token_mismatch")
		w.do("POST", path, "requeue="+secret+"-"+kind).problem(415, "unsupported_media_type")
		w.do("POST", path+"?requeue="+secret+"-"+kind, "", formHeader).problem(400, "unknown_parameter")
		require.Len(t, w.get(path).json()["DeadJobs"], 5)
		require.Empty(t, w.do("POST", path, "requeue="+secret+"-"+kind, formHeader).is(202).Body)
		require.Empty(t, w.get(path).json()["DeadJobs"])
		require.Equal(t, 5, w.waiting(k))
		w.do("POST", path, "requeue="+secret+"-"+kind, formHeader).is(202)
	}
	w.do("POST", "/channel/c/consumer/x/dlq", "requeue=x", formHeader).problem(404, "consumer_not_found")
	w.do("POST", "/channel/x/consumer/x/dlq", "requeue=x", formHeader).problem(404, "channel_not_found")
}

func TestRequeueDeadJobRedrivesOne(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	for _, kind := range []string{"push", "pull"} {
		k := w.consumer(kind, kind)
		m, other := w.insert(durable.Message{}), w.insert(durable.Message{})
		w.kill(k, m)
		w.kill(k, other)
		path := jobPath(k, m) + "/requeue-dead-job"
		w.post(path).problem(403, "channel_token_mismatch")
		w.post(path, tokens(kind)[0]).problem(403, "consumer_token_mismatch")
		w.post(path, tokens("wrong")...).problem(403, "consumer_token_mismatch")
		require.Equal(t, jobs.Dead, w.status(k, m))
		require.Empty(t, w.post(path, tokens(kind)...).is(202).Body)
		require.Equal(t, jobs.Queued, w.status(k, m))
		require.Equal(t, 1, w.waiting(k))
		require.Equal(t, jobs.Dead, w.status(k, other))
		w.post(path, tokens(kind)...).problem(400, "job_not_dead")
	}
}

func TestAJobIsFoundUnderItsOwnConsumerOnly(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	a, b := w.consumer("a", "push"), w.consumer("b", "push")
	m := w.insert(durable.Message{})
	late := w.consumer("late", "push")
	w.kill(a, m)
	for _, path := range []string{
		"/channel/c/consumer/b/job/" + m.ID.Job(a.Position).String(),
		"/channel/c/consumer/b/job/" + m.ID.String(),
		"/channel/c/consumer/b/job/nonsense",
		"/channel/c/consumer/b/job/" + w.ids.Next().Job(b.Position).String(),
		jobPath(late, m),
	} {
		w.get(path).problem(404, "job_not_found")
		k := "b"
		if path == jobPath(late, m) {
			k = "late"
		}
		w.post(path+"/requeue-dead-job", tokens(k)...).problem(404, "job_not_found")
	}
	// A consumer of the same name in another channel has no hold on it.
	w.put("/channel/d", "token="+secret+"-d").is(201)
	w.put("/channel/d/consumer/a", "type=pull&token="+secret+"-a").is(201)
	path := "/channel/d/consumer/a/job/" + m.ID.Job(a.Position).String()
	w.get(path).problem(404, "job_not_found")
	w.post(path+"/requeue-dead-job", "X-Broker-Channel-Token: "+secret+"-d", "X-Broker-Consumer-Token: "+secret+
		"-a").problem(404, "job_not_found")
	require.Equal(t, jobs.Dead, w.status(a, m))
}

func TestAJobShowsItself(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	k := w.consumer("k", "push")
	m := w.insert(durable.Message{Key: "key"})
	at := m.ID.Time().Format(millis)
	r := w.get(jobPath(k, m)).is(200)
	r.lastModified()
	require.Equal(t, map[string]any{
		"ID": m.ID.Job(0).String(), "ListenerEndpoint": "http://127.0.0.1:1/k", "ListenerName": "N k", "Status": "QUEUED",
		"StatusChangedAt": at, "Attempts": 0.0, "LeasesLost": 0.0, "GivenBack": 0.0,
		"MessageURL": "/channel/c/message/key", "ChannelURL": "/channel/c", "ConsumerURL": "/channel/c/consumer/k",
		"ProducerURL": "/producer/p", "JobRequeueURL": "", "AttemptHistory": []any{},
	}, r.json())
	w.kill(k, m)
	v := w.get(jobPath(k, m)).is(200).json()
	require.Equal(t, "DEAD", v["Status"])
	require.Equal(t, jobPath(k, m)+"/requeue-dead-job", v["JobRequeueURL"])
}

func TestReTriggerOfAMessageIsForTheAdminAndIdempotent(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	a, b := w.consumer("a", "push"), w.consumer("b", "pull")
	m := w.insert(durable.Message{Key: "m"})
	w.kill(b, m)
	path := "/channel/c/message/m/re-trigger"
	w.post(path).problem(401, "token_missing")
	require.NotEmpty(t, w.post(path).Header("WWW-Authenticate"))
	w.post(path, "X-Broker-Admin-Token: wrong").problem(403, "admin_token_mismatch")
	w.post(path, tokens("a")...).problem(401, "token_missing")
	require.Equal(t, 0, w.waiting(a))
	for range 3 {
		require.Empty(t, w.post(path, adminHeader).is(202).Body)
	}
	require.Equal(t, 1, w.waiting(a))
	require.Equal(t, 0, w.waiting(b), "what is over is left alone")
	require.Equal(t, jobs.Dead, w.status(b, m))
	w.post("/channel/c/message/unknown/re-trigger", adminHeader).problem(404, "message_not_found")
	w.post("/channel/x/message/m/re-trigger", adminHeader).problem(404, "channel_not_found")
}

func TestReTriggerOfAJob(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	a, b := w.consumer("a", "push"), w.consumer("b", "pull")
	m, other := w.insert(durable.Message{Key: "m"}), w.insert(durable.Message{})
	path := retriggerPath(m, m.ID.Job(a.Position))
	consumer := "X-Broker-Consumer-Token: " + secret + "-a"

	w.post(path).problem(401, "token_missing")
	w.post(path, "X-Broker-Admin-Token: wrong", consumer).problem(403, "admin_token_mismatch")
	w.post(path, "X-Broker-Consumer-Token: "+secret+"-b").problem(403, "consumer_token_mismatch")
	w.post(path, consumer).problem(400, "job_not_dead")
	w.post(path, adminHeader).is(202)
	require.Equal(t, 1, w.waiting(a), "the admin may do it at any time")

	w.kill(b, m)
	path = retriggerPath(m, m.ID.Job(b.Position))
	w.post(path, "X-Broker-Consumer-Token: "+secret+"-b").is(202)
	require.Equal(t, jobs.Queued, w.status(b, m))
	require.Equal(t, 1, w.waiting(b))
	w.post(path, "X-Broker-Consumer-Token: "+secret+"-b").problem(400, "job_not_dead")
	w.post(path, adminHeader).is(202)
	require.Equal(t, 1, w.waiting(b))

	for _, job := range []ident.ID{other.ID.Job(0), m.ID, m.ID.Job(2), m.ID.Job(60000)} {
		w.post(retriggerPath(m, job), adminHeader).problem(404, "job_not_found")
	}
	w.post("/channel/c/message/m/job/nonsense/re-trigger", adminHeader).problem(404, "job_not_found")
	w.post("/channel/c/message/unknown/job/x/re-trigger", adminHeader).problem(404, "message_not_found")
}
