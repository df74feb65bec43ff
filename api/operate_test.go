package api

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/redisq"
)

// operateExchanges are requests to the routes of operators, of two consumers with jobs.
func operateExchanges(w *world, pushed, pull *durable.Consumer, text, plain durable.Message) (all []wired) {
	const consumer = "/channel/{channel}/consumer/{consumer}"
	ask := func(method, route, path string) {
		w.t.Helper()
		all = append(all, wired{method + " " + route, method + " " + path, w.do(method, path, "").is(200)})
	}
	w.enqueue(pull, plain)
	_, err := w.queue.Claim(context.Background(), pull.No, 1, time.Hour, redisq.Limits{})
	require.NoError(w.t, err)
	w.enqueue(pushed, text)
	ask("GET", "/consumers", "/consumers?size=1&sort=dead")
	ask("GET", "/audit", "/audit?size=1&resource=channel/c&order=desc")
	ask("GET", "/history", "/history?step=10m")
	ask("GET", consumer+"/jobs", "/channel/c/consumer/pull/jobs?size=1")
	ask("GET", consumer+"/jobs", "/channel/c/consumer/push/jobs?status=DEAD")
	ask("GET", "/channel/{channel}/messages", "/channel/c/messages?size=1&order=desc&contains=%3C")
	ask("POST", consumer+"/retry", "/channel/c/consumer/push/retry")
	w.trial <- push.Trial{Status: 500, Took: 12 * time.Millisecond, Error: "status 500", Body: []byte("\xff")}
	ask("POST", consumer+"/test", "/channel/c/consumer/push/test")
	ask("POST", consumer+"/purge", "/channel/c/consumer/push/purge?forget=true")
	return all
}

func (w *world) result(path string) []any {
	w.t.Helper()
	return w.get(path).is(200).json()["Result"].([]any)
}

// pages follows Pages.next and returns a member of each entry.
func (w *world) pages(path string, of func(entry any) string) (all []string) {
	w.t.Helper()
	for n := 0; path != ""; n++ {
		require.Less(w.t, n, 100)
		v := w.get(path).is(200).json()
		for _, e := range v["Result"].([]any) {
			all = append(all, of(e))
		}
		path, _ = v["Pages"].(map[string]any)["next"].(string)
	}
	return all
}

func member(name string) func(any) string {
	return func(e any) string { return fmt.Sprint(e.(map[string]any)[name]) }
}

func link(e any) string { return e.(string) }

func TestConsumersThatFailAreFirstWhereThatIsAskedFor(t *testing.T) {
	of := func(id string, delayed, queued int) listedConsumer {
		return listedConsumer{k: &durable.Consumer{ID: id}, count: jobs.Count{Delayed: delayed,
			Backlog: jobs.Backlog{Queued: queued}}}
	}
	all := []listedConsumer{of("a", 0, 9), of("b", 3, 3), of("c", 7, 7), of("d", 0, 0)}
	sortConsumers(all, "failing")
	var ids []string
	for _, l := range all {
		ids = append(ids, l.k.ID)
	}
	require.Equal(t, []string{"c", "b", "a", "d"}, ids)
	newWorld(t, nil).get("/consumers?sort=failing").is(200)
}

func TestAllConsumersAreListedWithTheirCounts(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.put("/channel/a", "").is(201)
	w.put("/channel/a/consumer/z", "type=pull").is(201)
	k, idle := w.consumer("k", "push"), w.consumer("idle", "pull")
	var m []durable.Message
	for range 5 {
		m = append(m, w.insert(durable.Message{}))
		w.enqueue(k, m[len(m)-1])
	}
	for _, one := range m[:2] {
		w.kill(k, one)
		_, err := w.queue.Ack(context.Background(), k.No, []ident.ID{one.ID})
		require.NoError(t, err)
	}
	_, err := w.queue.Claim(context.Background(), k.No, 1, time.Hour, redisq.Limits{})
	require.NoError(t, err)
	id := func(e any) string { return member("ChannelID")(e) + "/" + member("ID")(e) }
	require.Equal(t, []string{"a/z", "c/idle", "c/k"}, w.pages("/consumers", id))
	require.Equal(t, []string{"a/z", "c/idle", "c/k"}, w.pages("/consumers?limit=1", id))
	require.Equal(t, []string{"c/idle", "c/k"}, w.pages("/consumers?channel=c&limit=1", id))
	for _, by := range []string{"dead", "queued", "oldest"} {
		require.Equal(t, []string{"c/k", "a/z", "c/idle"}, w.pages("/consumers?limit=1&sort="+by, id), by)
	}
	entry := w.result("/consumers?first=k&channel=c")[0].(map[string]any)
	alone := w.get("/channel/c/consumer/k").is(200).json()
	require.Equal(t, "/channel/c/consumer/k", entry["ConsumerURL"])
	require.Equal(t, []any{2.0, 1.0, 2.0}, []any{entry["Queued"], entry["InFlight"], entry["DeadLetters"]})
	require.Equal(t, m[3].ID.Time().Format(millis), entry["OldestQueuedAt"])
	for name, value := range alone {
		if name != "OldestQueuedAt" { // which counts the one in flight
			require.Equal(t, value, entry[name], name)
		}
	}
	w.post("/channel/c/consumer/idle/pause").is(200)
	for query, want := range map[string][]string{
		"state=paused": {"c/idle"}, "state=ACTIVE": {"a/z", "c/k"}, "state=GONE": nil, "held=true": {"c/idle"},
		"held=paused": {"c/idle"}, "held=retry_after": nil, "held=false": {"a/z", "c/k"}, "held=channel_paused": nil,
		"state=PAUSED&channel=a": nil,
	} {
		require.Equal(t, want, w.pages("/consumers?"+query, id), query)
	}
	w.get("/consumers?channel=nowhere").problem(404, "channel_not_found")
	w.get("/consumers?first=nobody").problem(400, "unknown_first")
	for _, query := range []string{"state=", "state=idle", "held=pausd", "sort=age", "sort=dead&sort=dead",
		"channel=a&channel=c"} {
		w.get("/consumers?"+query).problem(400, "invalid_query")
	}
	require.Contains(t, w.get("/consumers?held=pausd").Body, "Did you mean paused?")
	w.mini.Close()
	entry = w.result("/consumers?first=k&channel=c")[0].(map[string]any)
	require.NotContains(t, entry, "Queued", "without Redis the store counts what it has")
	require.Equal(t, 2.0, entry["DeadLetters"])
	_ = idle
}

func TestTheJobsOfAConsumerAreListed(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.consumer("other", "pull") // so that a position is above 0
	for _, kind := range []string{"push", "pull"} {
		k := w.consumer(kind, kind)
		var m []durable.Message
		for i := range 6 {
			m = append(m, w.insert(durable.Message{Key: fmt.Sprintf("%s-%d", kind, i)}))
		}
		for _, one := range m[:4] {
			w.enqueue(k, one)
		}
		c, err := w.queue.Claim(context.Background(), k.No, 2, time.Hour, redisq.Limits{})
		require.NoError(t, err)
		now := time.Now().UnixMilli()
		w.record(durable.Outcome{Kind: durable.OutcomeRetry, ConsumerNo: k.No, ID: m[0].ID, Attempts: 1, AtMs: now,
			NextMs: now + 3_600_000, StatusCode: 503, Error: "status 503"})
		_, err = w.queue.Nack(context.Background(), k.No, c.Leases[:1], []time.Duration{time.Hour})
		require.NoError(t, err)
		w.kill(k, m[4])
		w.kill(k, m[5])
		path := "/channel/c/consumer/" + kind + "/jobs"
		at := func(i int) string { return m[i].ID.Job(k.Position).String() }
		for query, want := range map[string][]int{
			"": {0, 1, 2, 3}, "status=QUEUED": {0, 2, 3}, "status=queued&order=desc": {3, 2, 0}, "status=DELAYED": {0},
			"status=INFLIGHT": {1}, "status=DEAD": {4, 5}, "status=DEAD&order=desc": {5, 4},
			"status=QUEUED&first=" + kind + "-2": {2, 3},
		} {
			var ids []string
			for _, i := range want {
				ids = append(ids, at(i))
			}
			require.Equal(t, ids, w.pages(path+"?limit=1&"+query, member("ID")), query)
			require.Equal(t, ids, w.pages(path+"?"+query, member("ID")), query)
		}
		delayed := w.result(path + "?status=DELAYED")[0].(map[string]any)
		require.Equal(t, []any{"QUEUED", 1.0, "status 503", 503.0}, []any{delayed["Status"], delayed["Attempts"],
			delayed["Reason"], delayed["StatusCode"]})
		require.NotEmpty(t, delayed["NextAttemptAt"])
		require.Equal(t, "/channel/c/message/"+kind+"-0", delayed["MessageURL"])
		w.get(delayed["JobURL"].(string)).is(200)
		leased := w.result(path + "?status=INFLIGHT")[0].(map[string]any)
		until, err := time.Parse(millis, leased["LeaseUntil"].(string))
		require.NoError(t, err)
		require.InDelta(t, time.Hour.Seconds(), time.Until(until).Seconds(), 60)
		require.Equal(t, "purged", purgedReason(w, k, m[3]))
	}
	for query, code := range map[string]string{"status=DONE": "invalid_status",
		"status=QUEUED&status=DEAD": "invalid_query", "order=up": "invalid_query", "first=nothing": "unknown_first",
		"size=0": "invalid_size"} {
		w.get("/channel/c/consumer/pull/jobs?"+query).problem(400, code)
	}
	w.get("/channel/c/consumer/nobody/jobs").problem(404, "consumer_not_found")
	w.mini.Close()
	w.get("/channel/c/consumer/pull/jobs").problem(503, "unavailable")
	require.Len(t, w.result("/channel/c/consumer/pull/jobs?status=DEAD"), 3+2, "the store has them")
}

// purgedReason purges a consumer and returns the reason of one of its dead letters.
func purgedReason(w *world, k *durable.Consumer, m durable.Message) string {
	w.t.Helper()
	require.NotZero(w.t, w.post("/channel/c/consumer/" + k.ID + "/purge").is(200).json()["Purged"])
	for _, e := range w.result("/channel/c/consumer/" + k.ID + "/jobs?status=DEAD&limit=100") {
		if j := e.(map[string]any); j["ID"] == m.ID.Job(k.Position).String() {
			return j["ReasonCode"].(string)
		}
	}
	return ""
}

func TestAPurgeIsForManagement(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.OpenManagement = false })
	w.put("/producer/p", "", adminHeader).is(201)
	w.put("/channel/c", "token="+secret+"-c", adminHeader).is(201)
	w.put("/channel/c/consumer/k", "type=pull&token="+secret+"-k", adminHeader).is(201)
	k := w.cat.Consumer("c", "k")
	w.insert(durable.Message{})
	require.Equal(t, 401, w.post("/channel/c/consumer/k/purge").Status)
	require.NotEqual(t, 200, w.post("/channel/c/consumer/k/purge", tokens("k")...).Status)
	w.post("/channel/c/consumer/k/purge?forget=perhaps", adminHeader).problem(400, "invalid_query")
	w.do("POST", "/channel/c/consumer/k/purge", "forget=true", adminHeader, formHeader).problem(400, "unknown_field")
	require.Equal(t, 1.0, w.post("/channel/c/consumer/k/purge?forget=true", adminHeader).is(200).json()["Purged"])
	require.Equal(t, "{\"Purged\":0}\n", w.post("/channel/c/consumer/k/purge", adminHeader).is(200).Body)
	dead, err := w.store.DeadJobs(context.Background(), k.No, ident.ID{}, 1)
	require.NoError(t, err)
	require.Empty(t, dead)
	// A retry is for the consumer, too.
	require.Equal(t, "{\"Retried\":0}\n", w.post("/channel/c/consumer/k/retry", tokens("k")...).is(200).Body)
	w.post("/channel/c/consumer/k/retry").problem(401, "token_missing")
}

func TestATestOfAConsumerIsAnsweredWithTheAttempt(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.consumer("k", "push")
	w.consumer("pull", "pull")
	for _, c := range []struct {
		trial push.Trial
		want  string
	}{
		{push.Trial{Status: 204, Took: 3 * time.Millisecond}, `{"Status":204,"DurationMs":3,"Error":"","Body":""}`},
		{push.Trial{Status: 500, Error: "status 500", Body: []byte("out of order")},
			`{"Status":500,"DurationMs":0,"Error":"status 500","Body":"out of order"}`},
		{push.Trial{Error: "connection refused"}, `{"Status":0,"DurationMs":0,"Error":"connection refused","Body":""}`},
		{push.Trial{Status: 200, Body: []byte("caf\xc3")}, `{"Status":200,"DurationMs":0,"Error":"","Body":"caf"}`},
		{push.Trial{Status: 200, Body: []byte("\xff\xfe")},
			`{"Status":200,"DurationMs":0,"Error":"","Body":"//4=","BodyEncoding":"base64"}`},
	} {
		w.trial <- c.trial
		require.JSONEq(t, c.want, w.post("/channel/c/consumer/k/test").is(200).Body)
	}
	w.post("/channel/c/consumer/pull/test").problem(409, "consumer_pull")
	w.post("/channel/c/consumer/nobody/test").problem(404, "consumer_not_found")
	w.do("POST", "/channel/c/consumer/k/test", "body=x", formHeader).problem(400, "unknown_field")
}

func TestMessagesAreSearched(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.put("/producer/q", "").is(201)
	k := w.consumer("k", "push")
	var m []durable.Message
	for i := range 6 {
		m = append(m, w.insert(durable.Message{Key: fmt.Sprintf("m%d", i), Payload: fmt.Appendf(nil, "order %d, 100%%", i)}))
	}
	w.kill(k, m[1])
	w.record(durable.Outcome{Kind: durable.OutcomeDelivered, ConsumerNo: k.No, ID: m[2].ID, Attempts: 1,
		AtMs: time.Now().UnixMilli(), StatusCode: 200})
	w.enqueue(k, m[3])
	_, err := w.queue.Claim(context.Background(), k.No, 1, time.Hour, redisq.Limits{})
	require.NoError(t, err)
	stamp := func(id ident.ID, plus int64) string {
		return url.QueryEscape(time.UnixMilli(id.Millis() + plus).UTC().Format(time.RFC3339Nano))
	}
	const path = "/channel/c/messages?"
	for query, want := range map[string][]int{
		"order=asc": {0, 1, 2, 3, 4, 5}, "order=desc": {5, 4, 3, 2, 1, 0}, "contains=order+3": {3},
		"contains=order":           {5, 4, 3, 2, 1, 0},
		"contains=order&order=asc": {0, 1, 2, 3, 4, 5}, "contains=Order": nil, "contains=100%25": {5, 4, 3, 2, 1, 0},
		"contains=%25": {5, 4, 3, 2, 1, 0}, "contains=_": nil,
		"producer=p": {0, 1, 2, 3, 4, 5}, "producer=q": nil, "consumer=k&status=DEAD": {1},
		"consumer=k&status=DELIVERED": {2},
		"consumer=k&status=INFLIGHT":  {3}, "consumer=k&status=queued&order=desc": {5, 4, 0},
		"consumer=k&status=DELAYED": nil, "consumer=k&error=ANSWERED": {1}, "consumer=k&error=answered&contains=order+1": {1},
		"consumer=k&error=answered&contains=order+2": nil, "consumer=k&error=answered&producer=q&status=DEAD": nil,
		"consumer=k&error=answered&status=QUEUED": nil, "consumer=k&error=timeout": nil,
		"consumer=k": {0, 1, 2, 3, 4, 5}, "from=" + stamp(m[5].ID, 1): nil, "to=" + stamp(m[0].ID, 0): nil,
		"from=" + stamp(m[0].ID, 0) + "&to=" + stamp(m[5].ID, 1): {0, 1, 2, 3, 4, 5}, "order=desc&status=101": nil,
		"order=desc&status=102&first=m2": {2, 1, 0}, "first=m4&order=asc": {4, 5},
	} {
		var links []string
		for _, i := range want {
			links = append(links, "/channel/c/message/"+fmt.Sprintf("m%d", i))
		}
		require.Equal(t, links, w.pages(path+query, link), query)
		require.Equal(t, links, w.pages(path+"limit=1&"+query, link), query)
	}
	require.Equal(t, 6.0, w.get(path + "contains=order").json()["Searched"])
	require.Equal(t, 4.0, w.get(path + "contains=order+2").json()["Searched"].(float64)-2, "all were looked at")
	require.Equal(t, 2.0, w.get(path + "order=desc&limit=2").json()["Searched"])
	require.NotContains(t, w.get("/channel/c/messages").json(), "Searched")
	for query, code := range map[string]string{"order=newest": "invalid_query", "contains=": "invalid_query",
		"contains=" + strings.Repeat("x", 1025): "invalid_query", "from=yesterday": "invalid_date",
		"error=x": "invalid_query", "consumer=k&error=": "invalid_query",
		"consumer=k&error=" + strings.Repeat("x", 1025): "invalid_query",
		"status=DEAD":                       "invalid_status",
		"status=DEAD&consumer=k&status=102": "invalid_status", "order=desc&status=none": "invalid_status",
		"from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z": "invalid_date", "order=asc&order=asc": "invalid_query",
		"order=desc&first=nobody": "unknown_first"} {
		w.get(path+query).problem(400, code)
	}
	w.get(path+"producer=nobody").problem(404, "producer_not_found")
	w.get(path+"consumer=nobody").problem(404, "consumer_not_found")
}

// A search of many messages ends with its time, says how far it came, and goes on from there.
func TestALongSearchGoesOnWhereItStopped(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	const n = 1500
	w.node.Known = w.cat.Version()
	ch := w.cat.Channel("c")
	for at := 0; at < n; at += 100 { // an ID that becomes a second old is refused
		batch := make([]*durable.Message, 100)
		for i := range batch {
			batch[i] = &durable.Message{ID: w.ids.Next(), ChannelNo: ch.No, ProducerNo: w.cat.Producer("p").No,
				Shape: ch.Shape, Key: fmt.Sprintf("m%d", at+i), Payload: []byte("hay")}
		}
		if at == 0 {
			batch[3].Payload = []byte("a needle")
		}
		for _, err := range w.store.Insert(context.Background(), w.node, batch) {
			require.NoError(t, err)
		}
	}
	found, searched := []string{}, 0.0
	for path := "/channel/c/messages?contains=needle"; path != ""; {
		v := w.get(path).is(200).json()
		for _, e := range v["Result"].([]any) {
			found = append(found, e.(string))
		}
		searched += v["Searched"].(float64)
		path, _ = v["Pages"].(map[string]any)["next"].(string)
	}
	require.Equal(t, []string{"/channel/c/message/m3"}, found)
	require.Equal(t, float64(n), searched, "each one once")
}

// Each route refuses what it does not know, with HEAD as with GET, and its own links are known.
func TestEveryRouteRefusesParametersWithHEADTooAndKnowsItsLinks(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	k := w.consumer("k", "pull")
	for range 3 {
		w.kill(k, w.insert(durable.Message{}))
	}
	for _, r := range Routes() {
		if r.Method != get || r.Access == AccessOps || r.data != nil {
			continue
		}
		require.Equal(t, 400, w.do("HEAD", example(r.Path)+"?surprise=1", "").Status, r.Path)
		if !slices.Contains(r.Query, "first") || r.Access == AccessUI {
			continue
		}
		answer := w.get(strings.Replace(example(r.Path), "/message/m", "/message/x", 1) + "?limit=1")
		if answer.Status != 200 {
			continue
		}
		if next, _ := answer.json()["Pages"].(map[string]any)["next"].(string); next != "" {
			w.get(next).is(200)
		}
	}
}

// Messages whose IDs are ahead of the clock of the broker that is asked, as those of a broker whose store answers
// slowly, are there before a purge and a replay that say "up to now".
func TestUpToNowHasMessagesWhoseIDsAreAhead(t *testing.T) {
	w := newWorld(t, func(*Options) {})
	w.channel()
	k := w.consumer("k", "pull")
	w.insert(durable.Message{})
	delivered, queued := w.insert(durable.Message{}), w.insert(durable.Message{})
	w.record(durable.Outcome{Kind: durable.OutcomeDelivered, ConsumerNo: k.No, ID: delivered.ID, Attempts: 1,
		AtMs: delivered.ID.Millis()})
	w.enqueue(k, queued)
	w.api.o.NowMs = func() int64 { return queued.ID.Millis() - 1000 }
	replay := w.do("POST", "/channel/c/consumer/k/replay", `{"From":"2020-01-01T00:00:00Z","DryRun":true}`, adminHeader,
		"Content-Type: application/json").is(200).json()
	require.Equal(t, 1.0, replay["Matched"])
	require.Equal(t, 2.0, w.post("/channel/c/consumer/k/purge").is(200).json()["Purged"])
}
