package api

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// whyExchanges are the answers to why.
func whyExchanges(w *world, k *durable.Consumer) (all []wired) {
	w.put("/channel/c/consumer/ordered", "callbackUrl=http://127.0.0.1:1/o&ordered=true").is(201)
	m := w.insert(durable.Message{Key: "asked"})
	w.record(durable.Outcome{Kind: durable.OutcomeRetry, ConsumerNo: k.No, ID: m.ID, Attempts: 1,
		AtMs: time.Now().UnixMilli(), NextMs: time.Now().Add(time.Hour).UnixMilli(), StatusCode: 500,
		Error: "answered " + secret[:2], Tracked: true})
	for _, e := range [][2]string{
		{"/channel/{channel}/consumer/{consumer}", "/channel/c/consumer/push"},
		{"/channel/{channel}/consumer/{consumer}/job/{job}", jobPath(k, m)},
		{"/channel/{channel}/message/{message}", "/channel/c/message/asked"},
	} {
		route, path := e[0], e[1]
		all = append(all, wired{"GET " + route + "/why", "GET " + path + "/why", w.get(path + "/why").is(200)})
	}
	w.plan(durable.Scheduled{Message: durable.Message{Key: "later"}})
	const scheduled = "/scheduled-message/"
	return append(all, wired{"GET /channel/{channel}" + scheduled + "{scheduled}/why",
		"GET /channel/c" + scheduled + "later/why", w.get("/channel/c" + scheduled + "later/why").is(200)})
}

func (r reply) why() (w apitype.Why) {
	r.t.Helper()
	require.NoError(r.t, json.Unmarshal([]byte(r.is(200).Body), &w))
	return w
}

// Who may see a resource may ask why; a producer sees its own messages, and no error of a consumer.
func TestWhyHasTheAccessOfItsResource(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.OpenManagement = false })
	w.put("/producer/p", "token="+secret+"-p", adminHeader).is(201)
	w.put("/producer/q", "token="+secret+"-q", adminHeader).is(201)
	w.put("/channel/c", "token="+secret+"-c", adminHeader).is(201)
	w.put("/channel/c/consumer/k", "token="+secret+"-k&callbackUrl="+url.QueryEscape("http://127.0.0.1:1/hidden"),
		adminHeader).is(201)
	k := w.cat.Consumer("c", "k")
	m := w.insert(durable.Message{Key: "m"})
	w.record(durable.Outcome{Kind: durable.OutcomeRetry, ConsumerNo: k.No, ID: m.ID, Attempts: 1,
		AtMs: time.Now().UnixMilli(), NextMs: time.Now().Add(time.Hour).UnixMilli(), StatusCode: 500,
		Error: "http://127.0.0.1:1/hidden failed", Tracked: true})
	producer := func(id string) []string {
		return []string{"X-Broker-Channel-Token: " + secret + "-c", "X-Broker-Producer-ID: " + id,
			"X-Broker-Producer-Token: " + secret + "-" + id}
	}
	const consumer, message = "/channel/c/consumer/k/why", "/channel/c/message/m/why"
	job := jobPath(k, m) + "/why"
	for _, path := range []string{consumer, message, job} {
		w.get(path).problem(401, "token_missing")
		require.NotEmpty(t, w.get(path, adminHeader).why().Reasons, path)
	}
	w.get(consumer, tokens("k")...).problem(401, "token_missing")
	require.Contains(t, w.get(job, tokens("k")...).is(200).Body, "hidden")
	for _, path := range []string{message, job} {
		own := w.get(path, producer("p")...)
		require.Equal(t, "backoff", own.why().Reasons[0].Code)
		require.NotContains(t, own.Body, "hidden")
		w.get(path, producer("q")...).is(404)
	}
	for _, path := range []string{"/channel/c/consumer/none/why", "/channel/none/message/m/why",
		"/channel/c/message/none/why",
		"/channel/c/consumer/k/job/" + strings.Repeat("0", 20) + "/why", "/channel/c/consumer/k/job/x/why",
		"/channel/c/scheduled-message/none/why"} {
		w.get(path, adminHeader).is(404)
	}
	w.get(consumer+"?x=1", adminHeader).is(400)
}

// While Redis is away the store says what waits; the counts are those of the store.
func TestWhyIsAnsweredWithoutRedis(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.consumer("k", "pull")
	m := w.insert(durable.Message{Key: "m"})
	w.insert(durable.Message{})
	w.mini.Close()
	got := w.get("/channel/c/consumer/k/why").why()
	require.Equal(t, "queue_restoring", got.Reasons[0].Code)
	require.Equal(t, 2, got.Reasons[0].Jobs)
	require.Equal(t, "queue_restoring", w.get(jobPath(w.cat.Consumer("c", "k"), m) + "/why").why().Reasons[0].Code)
	require.Equal(t, "queue_restoring", w.get("/channel/c/message/m/why").why().Reasons[0].Code)
}
