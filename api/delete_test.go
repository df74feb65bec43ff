package api

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

func (w *world) del(path string, headers ...string) reply {
	w.t.Helper()
	return w.do("DELETE", path, "", headers...)
}

// deletions is the count of deletions of a kind.
func (w *world) deletions(kind string) (n float64) {
	w.t.Helper()
	families, err := w.reg.Gather()
	require.NoError(w.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "penstock_deleted_total" && m.GetLabel()[0].GetValue() == kind {
				n = m.GetCounter().GetValue()
			}
		}
	}
	return n
}

func TestDELETEIs405UnlessItIsAllowed(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.AllowDelete = false })
	w.channel()
	k := w.consumer("k", "pull")
	m := w.insert(durable.Message{Key: "m"})
	w.kill(k, m)
	for path, allow := range map[string]string{
		"/producer/p":               "GET, HEAD, OPTIONS, PUT",
		"/channel/c":                "GET, HEAD, OPTIONS, PUT",
		"/channel/c/consumer/k":     "GET, HEAD, OPTIONS, PUT",
		"/channel/c/consumer/k/dlq": "GET, HEAD, OPTIONS, POST",
		jobPath(k, m):               "GET, HEAD, OPTIONS, POST",
	} {
		require.Equal(t, allow, w.del(path, adminHeader).problem(405, "method_not_allowed").Header("Allow"), path)
	}
	require.Len(t, w.get("/channel/c/consumer/k/dlq").json()["DeadJobs"], 1)
}

func TestADeletedConsumerIsGoneAndItsIDIsFree(t *testing.T) {
	settled := 0
	w := newWorld(t, func(o *Options) { o.AwaitOthers = func(context.Context) { settled++ } })
	w.channel()
	before := w.insert(durable.Message{Key: "before"}) // has no job of it
	k := w.consumer("k", "push")
	stays := w.consumer("stays", "pull")
	open, delivered, dead := w.insert(durable.Message{Key: "open"}), w.insert(durable.Message{Key: "delivered"}), w.insert(
		durable.Message{Key: "dead"})
	retried := w.insert(durable.Message{Key: "retried"})
	w.enqueue(k, open)
	at := time.Now().UnixMilli()
	w.record(durable.Outcome{Kind: durable.OutcomeDelivered, ConsumerNo: k.No, ID: delivered.ID, Attempts: 1, AtMs: at,
		StatusCode: 200})
	w.record(durable.Outcome{Kind: durable.OutcomeRetry, ConsumerNo: k.No, ID: retried.ID, Attempts: 3, AtMs: at,
		NextMs: at, StatusCode: 503, Tracked: true})
	w.kill(k, dead)
	list := w.get("/channel/c/consumers").is(200)

	require.Empty(t, w.del("/channel/c/consumer/k").is(204).Body)
	require.Equal(t, 1, settled)
	w.del("/channel/c/consumer/k").problem(404, "consumer_not_found")
	w.del("/channel/none/consumer/k").problem(404, "channel_not_found")
	for _, path := range []string{"", "/dlq"} {
		w.get("/channel/c/consumer/k"+path).problem(404, "consumer_not_found")
	}
	w.get(jobPath(k, open)).problem(404, "consumer_not_found")
	w.post(jobPath(k, dead)+"/requeue-dead-job", tokens("k")...).problem(401, "consumer_not_found")
	w.post("/channel/c/consumer/k/pause").problem(404, "consumer_not_found")
	w.post(retriggerPath(open, open.ID.Job(k.Position)), adminHeader).problem(404, "job_not_found")
	w.post(retriggerPath(dead, dead.ID.Job(k.Position)), tokens("k")[1]).problem(403, "consumer_token_mismatch")
	require.Equal(t, []any{"/channel/c/consumer/stays"}, w.get("/channel/c/consumers", "If-Modified-Since: "+
		list.Header("Last-Modified")).is(200).json()["Result"])

	job := func(m durable.Message, i int) map[string]any {
		t.Helper()
		return w.get("/channel/c/message/" + m.Key).is(200).json()["Jobs"].([]any)[i].(map[string]any)
	}
	require.Empty(t, w.get("/channel/c/message/before").json()["Jobs"])
	for _, c := range []struct {
		m              durable.Message
		status, reason string
		attempts       float64
	}{
		{open, "DEAD", "consumer_deleted", 0}, {retried, "DEAD", "consumer_deleted", 3},
		{dead, "DEAD", "attempts_exhausted", 6}, {delivered, "DELIVERED", "", 1},
	} {
		j := job(c.m, 0)
		require.Equal(t, c.status, j["Status"], c.m.Key)
		require.Equal(t, c.attempts, j["Attempts"])
		require.Equal(t, "k", j["ConsumerID"])
		require.Empty(t, j["JobRequeueURL"])
		require.NotContains(t, j, "ConsumerURL", "it may lead to another consumer")
		if c.reason == "" {
			require.NotContains(t, j, "ReasonCode")
		} else {
			require.Equal(t, c.reason, j["ReasonCode"])
		}
	}
	require.Equal(t, "QUEUED", job(open, 1)["Status"], "the other consumer is not affected")

	again := w.consumer("k", "pull")
	require.NotEqual(t, k.No, again.No)
	require.Equal(t, 2, again.Position, "a position is never given away again")
	require.Empty(t, w.get("/channel/c/consumer/k/dlq").json()["DeadJobs"])
	w.get(jobPath(k, open)).problem(404, "job_not_found")
	after := w.insert(durable.Message{Key: "after"})
	jobs := w.get("/channel/c/message/after").json()["Jobs"].([]any)
	require.Len(t, jobs, 2, "none of the deleted one")
	require.Equal(t, after.ID.Job(stays.Position).String(), jobs[0].(map[string]any)["ID"])
	require.Equal(t, after.ID.Job(again.Position).String(), jobs[1].(map[string]any)["ID"])

	// Pages skip the positions without a job.
	page := w.get("/channel/c/message/after?size=1").json()
	require.Len(t, page["Jobs"], 1)
	next := w.get(page["Pages"].(map[string]any)["next"].(string)).is(200).json()
	require.Len(t, next["Jobs"], 1)
	require.Empty(t, next["Pages"])
	require.Equal(t, "[]", jsonOf(w.get("/channel/c/message/before").json()["Jobs"]))
	require.NotZero(t, before.ID)
	require.EqualValues(t, 1, w.deletions("consumer"))
}

func jsonOf(v any) string {
	b, err := encode(v)
	if err != nil {
		return err.Error()
	}
	return string(b[:len(b)-1])
}

func TestAChannelIsDeletedWithoutConsumersOnly(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	old := w.cat.Channel("c")
	w.consumer("k", "pull")
	w.insert(durable.Message{Key: "m"})
	w.del("/channel/c").problem(409, "channel_has_consumers")
	w.get("/channel/c").is(200)
	w.del("/channel/c/consumer/k").is(204)
	list := w.get("/channels").is(200)
	w.del("/channel/c").is(204)
	w.del("/channel/c").problem(404, "channel_not_found")
	w.get("/channel/c").problem(404, "channel_not_found")
	w.get("/channel/c/messages").problem(404, "channel_not_found")
	w.get("/channel/c/message/m").problem(404, "channel_not_found")
	w.post("/channel/c/resume").problem(404, "channel_not_found")
	require.Empty(t, w.get("/channels", "If-Modified-Since: "+list.Header("Last-Modified")).is(200).json()["Result"])

	w.put("/channel/c", "token="+secret+"-c").is(201)
	require.Equal(t, "ACTIVE", w.get("/channel/c").json()["State"])
	require.NotEqual(t, old.No, w.cat.Channel("c").No)
	require.Empty(t, w.get("/channel/c/messages").json()["Result"])
	require.Empty(t, w.get("/channel/c/consumers").json()["Result"])
	w.get("/channel/c/message/m").problem(404, "message_not_found")
	w.insert(durable.Message{Key: "m"}) // its message ID is free
}

func TestADeletedProducerIsUnknown(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	k := w.consumer("k", "pull")
	m := w.insert(durable.Message{Key: "m"})
	w.get("/channel/c/message/m", producerTokens("p")...).is(200)
	w.del("/producer/p").is(204)
	w.del("/producer/p").problem(404, "producer_not_found")
	w.get("/producer/p").problem(404, "producer_not_found")
	require.Empty(t, w.get("/producers").json()["Result"])
	w.api.o.OpenManagement = false
	w.get("/channel/c/message/m", producerTokens("p")...).problem(401, "producer_not_found")
	w.api.o.OpenManagement = true
	require.Equal(t, "The Producer", w.get("/channel/c/message/m").json()["ProducedBy"])
	require.NotContains(t, w.get(jobPath(k, m)).json(), "ProducerURL")
	w.put("/producer/p", "token="+secret+"-p").is(201)
	w.api.o.OpenManagement = false
	w.get("/channel/c/message/m", producerTokens("p")...).problem(404, "message_not_found")
}

func TestPreconditionsOfADeletion(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.consumer("k", "pull")
	for _, path := range []string{"/channel/c/consumer/k", "/channel/c", "/producer/p"} {
		at, err := http.ParseTime(w.get(path).Header("Last-Modified"))
		require.NoError(t, err)
		w.del(path, `If-Match: "x"`).problem(412, "precondition_failed")
		w.del(path, "If-Match: x").problem(400, "invalid_etag")
		w.del(path, "If-Unmodified-Since: "+at.Add(-time.Second).Format(http.TimeFormat)).problem(412, "precondition_failed")
		w.del(path, "If-None-Match: *").problem(412, "precondition_failed")
		w.del(path, "If-Match: "+w.get(path).is(200).Header("ETag")).is(204)
		w.del(path, "If-Match: *").is(404)
	}
}

func TestDeletionNeedsWhatAPutNeeds(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.OpenManagement = false })
	w.api.o.OpenManagement = true
	w.channel()
	k := w.consumer("k", "pull")
	m, other := w.insert(durable.Message{Key: "m"}), w.insert(durable.Message{Key: "other"})
	w.kill(k, m)
	w.kill(k, other)
	for _, path := range []string{"/channel/c/consumer/k", "/channel/c", "/producer/p", jobPath(k, m),
		"/channel/c/consumer/k/dlq"} {
		w.del(path, "Origin: http://evil.example").problem(403, "origin_not_allowed")
	}
	w.api.o.OpenManagement = false
	for _, path := range []string{"/channel/c/consumer/k", "/channel/c", "/producer/p", jobPath(k, m),
		"/channel/c/consumer/k/dlq"} {
		w.del(path).problem(401, "token_missing")
		w.del(path, "X-Broker-Admin-Token: x").problem(403, "admin_token_mismatch")
	}
	for _, path := range []string{"/channel/c/consumer/k", "/channel/c", "/producer/p"} {
		w.del(path, append(tokens("k"), producerTokens("p")[1:]...)...).problem(401, "token_missing")
		w.do("DELETE", path, "body", adminHeader).problem(413, "body_too_large")
	}
	w.del(jobPath(k, m), tokens("x")...).problem(403, "consumer_token_mismatch")
	w.del(jobPath(k, m), tokens("k")...).is(204)
	w.del("/channel/c/consumer/k/dlq", tokens("k")...).is(204)
	w.del("/channel/c/consumer/k", adminHeader).is(204)
}

func TestDeadLettersAreDeleted(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	k, other := w.consumer("k", "pull"), w.consumer("other", "pull")
	open, over := w.insert(durable.Message{Key: "open"}), w.insert(durable.Message{Key: "over"})
	w.record(durable.Outcome{Kind: durable.OutcomeDelivered, ConsumerNo: k.No, ID: over.ID, Attempts: 1,
		AtMs: time.Now().UnixMilli()})
	var dead []durable.Message
	for range deadPage + 3 {
		m := w.insert(durable.Message{})
		w.kill(k, m)
		w.kill(other, m)
		dead = append(dead, m)
	}
	w.del(jobPath(k, open)).problem(409, "job_not_dead")
	w.del(jobPath(k, over)).problem(409, "job_not_dead")
	w.del("/channel/c/consumer/k/job/"+ident.ID{1}.Job(0).String()).problem(404, "job_not_found")
	w.del("/channel/c/consumer/none/job/x").problem(404, "consumer_not_found")
	w.del("/channel/c/consumer/none/dlq").problem(404, "consumer_not_found")

	w.del(jobPath(k, dead[0])).is(204)
	w.del(jobPath(k, dead[0])).problem(404, "job_not_found")
	require.EqualValues(t, deadPage+2, w.get("/channel/c/consumer/k").json()["DeadLetters"])
	require.Equal(t, "DEAD", w.get(jobPath(k, dead[0])).json()["Status"], "it does not come back to life")
	w.del("/channel/c/consumer/k/dlq").is(204)
	require.Empty(t, w.get("/channel/c/consumer/k/dlq").json()["DeadJobs"])
	require.Zero(t, w.get("/channel/c/consumer/k").json()["DeadLetters"])
	w.del("/channel/c/consumer/k/dlq").is(204)
	require.EqualValues(t, deadPage+3, w.get("/channel/c/consumer/other").json()["DeadLetters"])
	require.EqualValues(t, deadPage+3, w.deletions("dead_letter"))
	w.do("POST", "/channel/c/consumer/k/dlq", "requeue="+secret+"-k", formHeader).is(202)
	require.Equal(t, "DEAD", w.get(jobPath(k, dead[1])).json()["Status"], "a redrive of all leaves them alone")
}
