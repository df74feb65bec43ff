package api

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/jobs"
)

func TestOperationsEndpoints(t *testing.T) {
	w := newWorld(t, nil)
	require.Equal(t, "{\"Status\":\"alive\"}\n", w.get("/livez").is(200).Body)
	require.Equal(t, "{\"Status\":\"ready\",\"Store\":\"ok\",\"Queue\":\"ok\"}\n", w.get("/readyz").is(200).Body)
	require.Equal(t, "{\"AppStatus\":3}\n", w.get("/_status").is(200).Body)
	require.Equal(t, "{\"Version\":\"1.2.3\",\"Commit\":\"abc\",\"Go\":\"go1\"}\n", w.get("/version").is(200).Body)
	require.Equal(t, "# metrics\n", w.get("/metrics").is(200).Body)
	require.Empty(t, w.do("HEAD", "/livez", "").is(200).Body)
	require.Empty(t, w.do("HEAD", "/readyz", "").is(200).Body)
}

func TestReadinessFollowsTheStoreAndNotTheQueue(t *testing.T) {
	w := newWorld(t, nil)
	w.mini.Close()
	require.Equal(t, "unreachable", w.get("/readyz").is(200).json()["Queue"])
	require.NoError(t, w.store.Close())
	w.get("/readyz").problem(503, "store_unreachable")
	w.get("/livez").is(200)
}

func TestABrokerWhoseStoreTakesNoWritesIsNotReady(t *testing.T) {
	var refusal error
	w := newWorld(t, func(o *Options) { o.Writable = func() error { return refusal } })
	w.get("/readyz").is(200)
	refusal = errors.New("database or disk is full")
	w.get("/readyz").problem(503, "store_not_writable")
	w.get("/livez").is(200)
	refusal = nil
	w.get("/readyz").is(200)
}

func TestADrainingBrokerIsNotReadyAndClosesConnections(t *testing.T) {
	w := newWorld(t, nil)
	require.Empty(t, w.get("/livez").Header("Connection"))
	w.api.SetDraining(true)
	w.get("/readyz").problem(503, "draining")
	for _, path := range []string{"/livez", "/producers", "/nothing"} {
		require.Equal(t, "close", w.get(path).Header("Connection"))
	}
	w.put("/producer/p", "").is(201)
	w.api.SetDraining(false)
	w.get("/readyz").is(200)
	require.Empty(t, w.get("/livez").Header("Connection"))
}

func TestRequestIDsAreEchoedOrMade(t *testing.T) {
	w := newWorld(t, nil)
	require.Equal(t, "abc-123", w.get("/livez", "X-Request-ID: abc-123").Header("X-Request-ID"))
	require.Equal(t, strings.Repeat("x", 128), w.get("/nothing", "X-Request-ID: "+strings.Repeat("x",
		128)).Header("X-Request-ID"))
	seen := map[string]bool{}
	for _, id := range []string{"", "a b", strings.Repeat("x", 129), "ä", "a\tb"} {
		got := w.get("/livez", "X-Request-ID: "+id).Header("X-Request-ID")
		require.Len(t, got, 20)
		require.False(t, seen[got])
		seen[got] = true
	}
}

// panicJobs breaks in the middle of a request.
type panicJobs struct{ Jobs }

func (panicJobs) RedriveAll(context.Context, uint32) (int, error) { panic("boom") }
func (panicJobs) RetriggerMessage(context.Context, *catalogue.Channel, durable.Head) error {
	var none *jobs.Job
	_ = none.Status
	return nil
}

func TestAPanicIsA500AndTheNextRequestWorks(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Jobs = panicJobs{o.Jobs} })
	w.channel()
	w.consumer("k", "push")
	w.insert(durable.Message{Key: "m"})
	w.do("POST", "/channel/c/consumer/k/dlq", "requeue="+secret+"-k", formHeader, "X-Request-ID: r1").problem(500,
		"internal")
	w.post("/channel/c/message/m/re-trigger", adminHeader).problem(500, "internal")
	w.get("/livez").is(200)
	require.Equal(t, 2.0, w.counter("penstock_http_panics_total"))
}

func TestRequestsAreCountedByRoute(t *testing.T) {
	w := newWorld(t, nil)
	w.get("/producer/a").is(404)
	w.get("/producer/b").is(404)
	w.put("/producer/a", "").is(201)
	w.get("/random/path").is(404)
	w.get("/producer/%2F").is(400)
	require.Equal(t, 2.0, w.counter("penstock_http_requests_total", "404", "GET /producer/{producer}"))
	require.Equal(t, 1.0, w.counter("penstock_http_requests_total", "400", "GET /producer/{producer}"))
	require.Equal(t, 1.0, w.counter("penstock_http_requests_total", "201", "PUT /producer/{producer}"))
	require.Equal(t, 1.0, w.counter("penstock_http_requests_total", "404", "unmatched"))
}

// counter returns a registered counter with these label values, in the order
// of the labels' names.
func (w *world) counter(name string, values ...string) float64 {
	w.t.Helper()
	families, err := w.reg.Gather()
	require.NoError(w.t, err)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			var have []string
			for _, label := range metric.GetLabel() {
				have = append(have, label.GetValue())
			}
			if slices.Equal(have, values) {
				return metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func TestTheMetricsOfConsumersTakeAChannelAndALimit(t *testing.T) {
	w := newWorld(t, nil)
	for query, want := range map[string]string{"": `"" 1000`, "?limit=3": `"" 3`, "?limit=1001": `"" 1000`,
		"?limit=99999999999999999999": `"" 1000`, "?channel=c%3A1&limit=7": `"c:1" 7`} {
		got := w.get("/metrics/consumers" + query).is(200)
		require.Equal(t, "# "+want+"\n", got.Body)
		require.Equal(t, "text/plain; version=0.0.4; charset=utf-8", got.Header("Content-Type"))
	}
	for query, code := range map[string]string{"limit=0": "invalid_size", "limit=-1": "invalid_size",
		"limit=": "invalid_size", "limit=1e3": "invalid_size", "channel=a%22b": "invalid_id",
		"channel=": "invalid_id", "channel=a&channel=b": "invalid_query", "limit=1&limit=2": "invalid_query",
		"size=3": "unknown_parameter", "consumer=k": "unknown_parameter"} {
		w.get("/metrics/consumers?"+query).problem(400, code)
	}
	require.Contains(t, w.get("/metrics/consumers?chanel=c").problem(400, "unknown_parameter").Body,
		"Did you mean channel?")
	w.get("/metrics/consumers?channel=nowhere").problem(404, "channel_not_found")
	w = newWorld(t, func(o *Options) { o.Door = nil })
	w.get("/metrics/consumers").problem(404, "no_metrics")
}
