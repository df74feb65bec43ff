package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// producerTokens are the three headers of a producer in channel c.
func producerTokens(producer string) []string {
	return []string{"X-Broker-Channel-Token: " + secret + "-c", "X-Broker-Producer-ID: " + producer,
		"X-Broker-Producer-Token: " + secret + "-" + producer}
}

// published is a world with a message of p and one of q, whose jobs failed, and
// closed management.
func published(t *testing.T) (w *world, k *durable.Consumer, own, other durable.Message) {
	w = newWorld(t, nil)
	w.channel()
	w.put("/producer/q", "token="+secret+"-q").is(201)
	w.put("/channel/d", "token="+secret+"-d").is(201)
	k = w.consumer("k", "push")
	own, other = w.insert(durable.Message{Key: "own", Payload: []byte("payload")}), durable.Message{Key: "other"}
	other.ID, other.ChannelNo, other.ProducerNo, other.Audience = w.ids.Next(), own.ChannelNo, w.cat.Producer("q").No, 1
	for _, err := range w.store.Insert(t.Context(), w.node, []*durable.Message{&other}) {
		require.NoError(t, err)
	}
	for _, m := range []durable.Message{own, other} {
		w.record(durable.Outcome{Kind: durable.OutcomeDead, ConsumerNo: k.No, ID: m.ID, Attempts: 6,
			AtMs:       time.Now().UnixMilli(),
			StatusCode: 500, Error: "Post http://127.0.0.1:1/k: refused", Answer: []byte("from the consumer"), DurationMs: 12})
	}
	w.api.o.OpenManagement = false
	return w, k, own, other
}

func TestAProducerReadsItsOwnMessagesAndTheirJobs(t *testing.T) {
	w, k, own, _ := published(t)
	for _, path := range []string{"/channel/c/message/own", "/channel/c/message/" + own.ID.String(),
		"/channel/c/message/own?size=1"} {
		r := w.get(path, producerTokens("p")...).is(200)
		v := r.json()
		require.Equal(t, "payload", v["Payload"])
		job := v["Jobs"].([]any)[0].(map[string]any)
		require.Equal(t, "DEAD", job["Status"])
		require.Equal(t, 500.0, job["StatusCode"])
		require.NotContains(t, r.Body, "127.0.0.1:1", "the callback, also in a reason")
		require.NotContains(t, r.Body, "from the consumer")

		r = w.get(job["JobURL"].(string), producerTokens("p")...).is(200)
		v = r.json()
		require.Equal(t, "DEAD", v["Status"])
		require.Equal(t, 12.0, v["AttemptHistory"].([]any)[0].(map[string]any)["DurationMs"])
		require.NotContains(t, r.Body, "127.0.0.1:1")
		require.NotContains(t, r.Body, "from the consumer")
	}
	for _, headers := range [][]string{tokens("k"), {adminHeader}} {
		r := w.get(jobPath(k, own), headers...).is(200)
		require.Contains(t, r.Body, "127.0.0.1:1", "the consumer and the admin see it")
		require.Contains(t, r.Body, "from the consumer")
	}
	both := append(tokens("k"), producerTokens("q")[1:]...)
	require.Contains(t, w.get(jobPath(k, own), both...).is(200).Body, "127.0.0.1:1", "as the consumer")
	require.Contains(t, w.get("/channel/c/message/own", append(producerTokens("q"), adminHeader)...).is(200).Body,
		"127.0.0.1:1", "as the admin")
}

func TestAProducerLearnsNothingOfOthersMessages(t *testing.T) {
	w, k, own, other := published(t)
	none := w.get("/channel/c/message/none", producerTokens("p")...).problem(404, "message_not_found")
	for _, path := range []string{"/channel/c/message/other", "/channel/c/message/" + other.ID.String(),
		"/channel/c/message/other?first=x", "/channel/c/message/" + own.ID.Job(0).String()} {
		r := w.get(path, producerTokens("p")...).problem(404, "message_not_found")
		require.Equal(t, withoutRequestID(none.Body), withoutRequestID(r.Body))
	}
	none = w.get("/channel/c/consumer/k/job/"+w.ids.Next().Job(0).String(), producerTokens("p")...).problem(404,
		"job_not_found")
	r := w.get(jobPath(k, other), producerTokens("p")...).problem(404, "job_not_found")
	require.Equal(t, withoutRequestID(none.Body), withoutRequestID(r.Body))
	w.get("/channel/d/message/own", append([]string{"X-Broker-Channel-Token: " + secret + "-d"},
		producerTokens("p")[1:]...)...).problem(404, "message_not_found")
	for _, path := range []string{"/channel/c/messages", "/channel/c", "/channel/c/consumer/k/dlq",
		"/channel/c/consumer/k", "/producer/p"} {
		require.Contains(t, []int{401, 403}, w.get(path, producerTokens("p")...).Status, path)
	}
}

func TestAProducerNeedsAllItsTokens(t *testing.T) {
	w, k, _, _ := published(t)
	all := producerTokens("p")
	for _, path := range []string{"/channel/c/message/own", jobPath(k, durable.Message{ID: w.ids.Next()})} {
		w.get(path).problem(401, "token_missing")
		w.get(path, all[1], all[2]).problem(403, "channel_token_mismatch")
		w.get(path, all[0], all[2]).problem(401, "producer_not_found")
		w.get(path, all[0], all[1]).problem(403, "producer_token_mismatch")
		w.get(path, all[0], "X-Broker-Producer-ID: q", all[2]).problem(403, "producer_token_mismatch")
		w.get(path, append(all, "X-Broker-Admin-Token: x")...).problem(403, "admin_token_mismatch")
	}
	w.get("/channel/c/message/own", all[0]).problem(401, "producer_not_found")
	w.get("/channel/c/message/own", tokens("k")...).problem(401, "producer_not_found")
	w.get(jobPath(k, durable.Message{ID: w.ids.Next()}), all[0]).problem(403, "consumer_token_mismatch")
}
