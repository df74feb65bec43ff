package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

// A span is one that a receiver got.
type span struct {
	Name, Kind, Trace, ID, Parent, State string
	Links                                []string // trace-span
	Attributes                           map[string]string
	Events                               map[string]map[string]string
	Failed                               bool
}

// A traceReceiver is an OTLP receiver.
type traceReceiver struct {
	URL string

	mu       sync.Mutex
	spans    []span
	resource map[string]string
	header   http.Header
	raw      string
}

func newTraceReceiver(t *testing.T) *traceReceiver {
	r := &traceReceiver{}
	r.URL = serveHTTP(t, func(w http.ResponseWriter, req *http.Request, _ <-chan struct{}) {
		body, err := io.ReadAll(req.Body)
		var got collector.ExportTraceServiceRequest
		if err != nil || req.URL.Path != "/v1/traces" || proto.Unmarshal(body, &got) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.header, r.raw = req.Header, r.raw+string(body)
		for _, of := range got.ResourceSpans {
			r.resource = texts(of.Resource.Attributes)
			for _, scope := range of.ScopeSpans {
				for _, s := range scope.Spans {
					r.spans = append(r.spans, spanOf(s))
				}
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	})
	return r
}

func spanOf(s *trace.Span) span {
	out := span{Name: s.Name, Kind: strings.TrimPrefix(s.Kind.String(), "SPAN_KIND_"),
		Trace: hex.EncodeToString(s.TraceId),
		ID:    hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId), State: s.TraceState,
		Attributes: texts(s.Attributes), Events: map[string]map[string]string{},
		Failed: s.Status.GetCode() == trace.Status_STATUS_CODE_ERROR}
	for _, l := range s.Links {
		out.Links = append(out.Links, hex.EncodeToString(l.TraceId)+"-"+hex.EncodeToString(l.SpanId))
	}
	for _, e := range s.Events {
		out.Events[e.Name] = texts(e.Attributes)
	}
	return out
}

func texts(attributes []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range attributes {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			out[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			out[a.Key] = strconv.FormatInt(v.IntValue, 10)
		}
	}
	return out
}

// on are the settings of a broker that sends its spans here at once.
func (r *traceReceiver) on() []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + r.URL, "OTEL_BSP_SCHEDULE_DELAY=20"}
}

// await returns n spans with a name of a stage, in the order in which they came.
func (r *traceReceiver) await(t testing.TB, n int, name string) (found []span) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d spans %s", n, name), func() bool {
		found = r.named(name)
		return len(found) >= n
	})
	require.Len(t, found, n)
	return found
}

func (r *traceReceiver) named(name string) (found []span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// A tracedStage is a stage with the receiver of its broker.
type tracedStage struct {
	*stage
	r *traceReceiver
}

func (s tracedStage) await(n int, op string) []span {
	s.t.Helper()
	return s.r.await(s.t, n, op+" "+s.channel)
}

const (
	callerTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	callerSpan   = "00f067aa0ba902b7"
	callerParent = "00-" + callerTrace + "-" + callerSpan + "-01"
)

func TestTraces(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		r := newTraceReceiver(t)
		p := w.with(pushSettings...).start(append(r.on(), "BROKER_TRACE_URL=https://t.example/trace/{traceID}?x=1")...)
		for name, story := range map[string]func(*testing.T, *process, *traceReceiver){
			"an attempt is a child of the publish":                   tracedPush,
			"a retry is a child, too":                                tracedRetry,
			"a message that is not sampled is not recorded":          tracedUnsampled,
			"a message without a context gets one":                   tracedRoot,
			"a malformed context is ignored":                         tracedMalformed,
			"a repeat with another context is a repeat":              tracedRepeat,
			"lines of a batch have the context of their own or none": tracedBatch,
			"an event has its own context":                           tracedEvent,
			"an event in JSON has its own context, too":              tracedStructured,
			"a scheduled message is a trace of its own":              tracedSchedule,
			"a redriven job is a trace of its own":                   tracedRedrive,
			"a replayed job is a trace of its own":                   tracedReplay,
			"claim and report of a worker":                           tracedClaim,
			"the single routes of a worker":                          tracedMoves,
			"a refused publish has failed":                           tracedRefusal,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p, r) })
		}
	})
}

func tracedPush(t *testing.T, p *process, r *traceReceiver) {
	sink := newSink(t, nil)
	s := tracedStage{p.stage(t, "k="+sink.URL), r}
	own := s.publish("a payload that nobody else sees", "traceparent", callerParent, "tracestate", "vendor=1",
		"X-Broker-Message-ID", "order-1")
	s.awaitStatus(own, "DELIVERED")

	send, process := s.await(1, "send")[0], s.await(1, "process")[0]
	require.Equal(t, []string{callerTrace, callerSpan, "PRODUCER", "vendor=1"}, []string{send.Trace,
		send.Parent, send.Kind,
		send.State})
	require.Equal(t, []string{callerTrace, send.ID, "CONSUMER"}, []string{process.Trace, process.Parent, process.Kind})
	require.Empty(t, process.Links)
	require.NotEmpty(t, send.Events["commit"]["messaging.batch.message_count"])
	for name, want := range map[string]string{"messaging.system": "penstock", "messaging.operation.name": "send",
		"messaging.operation.type": "send", "messaging.destination.name": s.channel, "messaging.message.id": "order-1"} {
		require.Equal(t, want, send.Attributes[name], name)
	}
	for name, want := range map[string]string{"messaging.system": "penstock", "messaging.operation.name": "process",
		"messaging.operation.type": "process", "messaging.destination.name": s.channel, "messaging.message.id": "order-1",
		"messaging.destination.subscription.name": "k", "server.address": "127.0.0.1", "http.response.status_code": "204",
		"http.request.method": "POST", "penstock.attempt": "1"} {
		require.Equal(t, want, process.Attributes[name], name)
	}
	require.NotEmpty(t, process.Attributes["server.port"])
	h := sink.all()[0].header
	require.Equal(t, "00-"+callerTrace+"-"+process.ID+"-01", h.Get("traceparent"),
		"the consumer goes on below the attempt")
	require.Len(t, h.Values("traceparent"), 1)
	require.Equal(t, "vendor=1", h.Get("tracestate"))

	r.mu.Lock()
	defer r.mu.Unlock()
	require.Equal(t, "penstock", r.resource["service.name"])
	require.Equal(t, version, r.resource["service.version"])
	for _, secret := range []string{"p-token", "c-token", "k-token", adminToken, "a payload that nobody else sees"} {
		require.NotContains(t, r.raw, secret)
	}
}

func tracedRetry(t *testing.T, p *process, r *traceReceiver) {
	sink := newSink(t, func(n int, _ received) int { return []int{503, 200}[n-1] })
	s := tracedStage{p.stage(t, "k="+sink.URL), r}
	s.awaitStatus(s.publish("x", "traceparent", callerParent), "DELIVERED")
	send, process := s.await(1, "send")[0], s.await(2, "process")
	for i, want := range []string{"503", "200"} {
		require.Equal(t, []string{callerTrace, send.ID, want, strconv.Itoa(i + 1)}, []string{process[i].Trace,
			process[i].Parent, process[i].Attributes["http.response.status_code"], process[i].Attributes["penstock.attempt"]})
		require.Empty(t, process[i].Links)
	}
	require.Equal(t, "503", process[0].Attributes["error.type"])
	require.True(t, process[0].Failed)
	require.False(t, process[1].Failed)
}

func tracedUnsampled(t *testing.T, p *process, r *traceReceiver) {
	sink := newSink(t, nil)
	s := tracedStage{p.stage(t, "k="+sink.URL), r}
	unsampled := "00-" + callerTrace + "-" + callerSpan + "-00"
	s.awaitStatus(s.publish("x", "traceparent", unsampled), "DELIVERED")
	require.Equal(t, unsampled, sink.all()[0].header.Get("traceparent"))
	s.awaitStatus(s.publish("y", "traceparent", callerParent), "DELIVERED")
	s.await(1, "process")
	require.Len(t, s.await(1, "send"), 1)
}

func tracedRoot(t *testing.T, p *process, r *traceReceiver) {
	sink := newSink(t, nil)
	s := tracedStage{p.stage(t, "k="+sink.URL), r}
	s.awaitStatus(s.publish("x"), "DELIVERED")
	send, process := s.await(1, "send")[0], s.await(1, "process")[0]
	require.Empty(t, send.Parent)
	require.Equal(t, []string{send.Trace, send.ID}, []string{process.Trace, process.Parent})
	require.Equal(t, "00-"+send.Trace+"-"+process.ID+"-01", sink.all()[0].header.Get("traceparent"))
}

func tracedMalformed(t *testing.T, p *process, r *traceReceiver) {
	sink := newSink(t, nil)
	s := tracedStage{p.stage(t, "k="+sink.URL), r}
	for i, bad := range []string{"00-a-b-01", strings.ToUpper(callerParent), "ff" + callerParent[2:],
		callerParent + "-x", "00-" + strings.Repeat("0", 32) + "-" + callerSpan + "-01"} {
		s.awaitStatus(s.publish(strconv.Itoa(i), "traceparent", bad), "DELIVERED")
		send := s.await(i+1, "send")[i]
		require.Empty(t, send.Parent, bad)
		require.NotEqual(t, callerTrace, send.Trace)
		require.Equal(t, "00-"+send.Trace, sink.all()[i].header.Get("traceparent")[:35])
	}
}

func tracedRepeat(t *testing.T, p *process, r *traceReceiver) {
	s := tracedStage{p.stage(t), r}
	first := s.post("x", "traceparent", callerParent, "X-Broker-Message-ID", "one")
	require.Equal(t, 201, first.status, first.body)
	for _, parent := range []string{callerParent, "00-" + callerTrace + "-" + strings.Repeat("a", 16) + "-01", ""} {
		again := s.post("x", "traceparent", parent, "X-Broker-Message-ID", "one")
		requireProblem(t, again, 409, "duplicate_message_id")
		require.Equal(t, first.header.Get("Location"), again.header.Get("Location"))
	}
	sends := s.await(4, "send")
	require.Equal(t, "duplicate_message_id", sends[1].Attributes["error.type"])
}

func tracedBatch(t *testing.T, p *process, r *traceReceiver) {
	sink := newSink(t, nil)
	s := tracedStage{p.stage(t, "k="+sink.URL), r}
	other := "00-" + strings.Repeat("b", 32) + "-" + callerSpan + "-01"
	lines := `{"Payload":"a"}` + "\n" + `{"Payload":"b","Headers":{"Traceparent":"` + other + `"}}` + "\n" + `{"Payload":7}` + "\n"
	answer := s.do("POST", s.path("/batch"), lines, append(s.as("p"), "Content-Type", "application/x-ndjson",
		"traceparent",
		callerParent)...)
	require.Equal(t, 200, answer.status, answer.body)
	var traces []string
	for _, send := range s.await(2, "send") {
		traces = append(traces, send.Trace)
		require.Equal(t, callerSpan, send.Parent)
	}
	slices.Sort(traces)
	require.Equal(t, []string{callerTrace, strings.Repeat("b", 32)}, traces)
	s.await(2, "process")
}

func tracedEvent(t *testing.T, p *process, r *traceReceiver) {
	sink := newSink(t, nil)
	s := tracedStage{p.stage(t, "k="+sink.URL), r}
	s.awaitStatus(s.publish("{}", "ce-specversion", "1.0", "ce-id", "1", "ce-source", "/s", "ce-type", "t",
		"ce-traceparent", callerParent), "DELIVERED")
	send, process := s.await(1, "send")[0], s.await(1, "process")[0]
	require.Equal(t, []string{callerTrace, callerSpan}, []string{send.Trace, send.Parent})
	require.Equal(t, send.ID, process.Parent)
	h := sink.all()[0].header
	require.Equal(t, callerParent, h.Get("ce-traceparent"), "what the event says is its own")
	require.Equal(t, "00-"+callerTrace+"-"+process.ID+"-01", h.Get("traceparent"))
}

// An event in structured mode says its trace in the payload, which the broker leaves alone.
func tracedStructured(t *testing.T, p *process, r *traceReceiver) {
	sink := newSink(t, nil)
	s := tracedStage{p.stage(t, "k="+sink.URL), r}
	event := func(id, more string) string {
		return `{"specversion":"1.0","id":"` + id + `","source":"/s","type":"t"` + more + `}`
	}
	one := event("1", `,"traceparent":"`+callerParent+`"`)
	s.awaitStatus(s.publish(one, "Content-Type", "application/cloudevents+json"), "DELIVERED")
	send, process := s.await(1, "send")[0], s.await(1, "process")[0]
	require.Equal(t, []string{callerTrace, callerSpan}, []string{send.Trace, send.Parent})
	require.Equal(t, send.ID, process.Parent)
	require.Equal(t, one, sink.all()[0].body)
	require.Equal(t, "00-"+callerTrace+"-"+process.ID+"-01", sink.all()[0].header.Get("traceparent"))

	batch := "[" + event("2", `,"traceparent":"`+callerParent+`"`) + "," + event("3", `,"traceparent":"x"`) + "]"
	answer := s.post(batch, "Content-Type", "application/cloudevents-batch+json")
	require.Equal(t, 200, answer.status, answer.body)
	var own int
	for _, one := range s.await(3, "send") {
		if one.Trace == callerTrace {
			own++
		}
	}
	require.Equal(t, 2, own, "a malformed one is none")
}

// requireLinked checks that an attempt is the root of another trace, with a link to the publish.
func requireLinked(t *testing.T, attempt, send span) {
	t.Helper()
	require.Empty(t, attempt.Parent)
	require.NotEqual(t, send.Trace, attempt.Trace)
	require.Equal(t, []string{send.Trace + "-" + send.ID}, attempt.Links)
}

func tracedSchedule(t *testing.T, p *process, r *traceReceiver) {
	sink := newSink(t, nil)
	s := tracedStage{p.stage(t, "k="+sink.URL), r}
	s.later(in(2*time.Second), "x", "traceparent", callerParent)
	send, process := s.await(1, "send")[0], s.await(1, "process")[0]
	require.Equal(t, []string{callerTrace, callerSpan}, []string{send.Trace, send.Parent})
	requireLinked(t, process, send)
	require.Equal(t, "00-"+process.Trace+"-"+process.ID+"-01", sink.all()[0].header.Get("traceparent"))
}

func tracedRedrive(t *testing.T, p *process, r *traceReceiver) {
	sink := newSink(t, func(n int, _ received) int { return []int{500, 500, 200}[n-1] })
	s := tracedStage{p.stage(t, "k="+sink.URL), r}
	own := s.publish("x", "traceparent", callerParent)
	s.awaitStatus(own, "DEAD")
	require.Equal(t, 202, s.redriveAll("k", "k-token").status)
	s.awaitStatus(own, "DELIVERED")
	send, process := s.await(1, "send")[0], s.await(3, "process")
	require.Equal(t, []string{send.ID, send.ID}, []string{process[0].Parent, process[1].Parent})
	requireLinked(t, process[2], send)
	s.requireTraces(own, send, "ATTEMPT "+process[0].Trace, "ATTEMPT "+process[1].Trace,
		"DEAD "+process[1].Trace, "REDRIVEN ",
		"ATTEMPT "+process[2].Trace, "DELIVERED "+process[2].Trace)
}

// requireTraces checks the traces in the timeline of a message: that of its publish, and those of events.
func (s tracedStage) requireTraces(own string, send span, want ...string) {
	s.t.Helper()
	r := s.do("GET", own+"/timeline", "")
	require.Equal(s.t, 200, r.status, r.body)
	var view apitype.Timeline
	strictjson.Decode(s.t, []byte(r.body), &view)
	require.Equal(s.t, []string{send.Trace, "https://t.example/trace/" + send.Trace + "?x=1"},
		[]string{view.TraceID, view.TraceURL})
	var got []string
	for _, e := range view.Result {
		got = append(got, e.Event+" "+e.TraceID)
		require.Equal(s.t, e.TraceID != "", e.TraceURL != "")
	}
	require.Equal(s.t, append([]string{"ACCEPTED " + send.Trace}, want...), got)
}

func tracedReplay(t *testing.T, p *process, r *traceReceiver) {
	sink := newSink(t, nil)
	s := tracedStage{p.stage(t, "k="+sink.URL), r}
	own := s.publish("x", "traceparent", callerParent)
	s.awaitStatus(own, "DELIVERED")
	s.awaitReplay(s.replay("k", everSince), "DONE")
	send, process := s.await(1, "send")[0], s.await(2, "process")
	require.Equal(t, send.ID, process[0].Parent)
	requireLinked(t, process[1], send)
	require.NotEmpty(t, process[1].Attributes["penstock.replay.id"])
	s.requireTraces(own, send, "ATTEMPT "+send.Trace, "DELIVERED "+send.Trace, "ATTEMPT "+process[1].Trace,
		"REPLAYED "+process[1].Trace)
}

func tracedClaim(t *testing.T, p *process, r *traceReceiver) {
	s := tracedStage{p.stage(t, "k"), r}
	s.publish("x", "traceparent", callerParent)
	var got apitype.ClaimedJobs
	claimed := s.do("POST", s.path("/consumer/k/claim?limit=10&wait=20s"), "", consumerTokens("k")...)
	require.NoError(t, json.Unmarshal([]byte(claimed.body), &got), claimed.body)
	jobs := got.Result
	require.Len(t, jobs, 1)
	worker := "00-" + strings.Repeat("c", 32) + "-" + callerSpan + "-01"
	answer := s.do("POST", s.path("/consumer/k/jobs"), fmt.Sprintf(`{"Updates":[{"ID":%q,"Lease":%q,"NextState":"DELIVERED"},`+
		`{"ID":"nothing","NextState":"DEAD"}]}`, jobs[0].ID, jobs[0].Lease), append(consumerTokens("k"), "traceparent", worker)...)
	require.Equal(t, 200, answer.status, answer.body)
	send, receive, settle := s.await(1, "send")[0], s.await(1, "receive")[0], s.await(1, "settle")[0]
	require.Equal(t, []string{send.Trace, send.ID, "CLIENT"}, []string{receive.Trace, receive.Parent, receive.Kind})
	require.Equal(t, []string{send.Trace, receive.ID, "CLIENT"}, []string{settle.Trace, settle.Parent, settle.Kind})
	require.Equal(t, []string{strings.Repeat("c", 32) + "-" + callerSpan}, settle.Links)
	require.Equal(t, "DELIVERED", settle.Attributes["penstock.job.state"])
	require.Equal(t, "k", receive.Attributes["messaging.destination.subscription.name"])
}

func tracedMoves(t *testing.T, p *process, r *traceReceiver) {
	s := tracedStage{p.stage(t, "k"), r}
	s.publish("x", "traceparent", callerParent)
	id := s.awaitQueued("k", 1)[0].ID
	s.claim("k", id)
	require.Equal(t, 202, s.move("k", id, `{"NextState":"DEAD"}`).status)
	send, receive, settle := s.await(1, "send")[0], s.await(1, "receive")[0], s.await(1, "settle")[0]
	require.Equal(t, []string{send.Trace, send.ID}, []string{receive.Trace, receive.Parent})
	require.Equal(t, []string{send.Trace, receive.ID}, []string{settle.Trace, settle.Parent})
	require.Equal(t, "DEAD", settle.Attributes["penstock.job.state"])
}

func tracedRefusal(t *testing.T, p *process, r *traceReceiver) {
	s := tracedStage{p.stage(t), r}
	require.Equal(t, 201, s.post("x", "traceparent", callerParent, "X-Broker-Message-ID", "one").status)
	requireProblem(t, s.post("other", "traceparent", callerParent, "X-Broker-Message-ID", "one"), 409,
		"message_id_conflict")
	sends := s.await(2, "send")
	require.Equal(t, "message_id_conflict", sends[1].Attributes["error.type"])
	require.Empty(t, sends[1].Events)
}

func TestARetryAfterTheTimeToFollowIsATraceOfItsOwn(t *testing.T) {
	r := newTraceReceiver(t)
	p := embeddedWorld(t).with(pushSettings...).start(append(r.on(), "BROKER_TRACE_FOLLOW=100ms",
		"BROKER_RETRY_JITTER=0")...)
	sink := newSink(t, func(n int, _ received) int { return []int{500, 200}[n-1] })
	s := tracedStage{p.stage(t, "k="+sink.URL), r}
	s.awaitStatus(s.publish("x", "traceparent", callerParent), "DELIVERED")
	send, process := s.await(1, "send")[0], s.await(2, "process")
	requireLinked(t, process[1], send)
}

func TestAnAttemptAfterARestartFollowsThePublish(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		r := newTraceReceiver(t)
		sink := newSink(t, func(n int, _ received) int { return []int{500, 200}[n-1] })
		w.with("BROKER_RATIONAL_DELAY=500ms", "BROKER_RETRY_BACKOFF=3s")
		p := w.start(r.on()...)
		s := tracedStage{p.stage(t, "k="+sink.URL), r}
		own := s.publish("x", "traceparent", callerParent)
		send := s.await(1, "send")[0]
		s.await(1, "process")
		p.stop()
		again := s.on(w.start(r.on()...))
		again.awaitStatus(own, "DELIVERED")
		process := s.await(2, "process")
		require.Equal(t, []string{send.Trace, send.ID}, []string{process[1].Trace, process[1].Parent})
	})
}

func TestFailedAttemptsAreRecordedWhereTheyAreAskedFor(t *testing.T) {
	r := newTraceReceiver(t)
	p := embeddedWorld(t).with(pushSettings...).start(append(r.on(), "BROKER_TRACE_FAILURES=true",
		"OTEL_TRACES_SAMPLER=parentbased_always_off")...)
	bad := newSink(t, func(n int, _ received) int { return []int{500, 200, 502, 200}[n-1] })
	s := tracedStage{p.stage(t, "k="+bad.URL), r}
	s.awaitStatus(s.publish("x", "traceparent", "00-"+callerTrace+"-"+callerSpan+"-00"), "DELIVERED")
	first := s.await(1, "process")[0]
	require.Equal(t, []string{callerTrace + "-" + callerSpan}, first.Links)
	require.Equal(t, "500", first.Attributes["error.type"])
	s.awaitStatus(s.publish("without a context"), "DELIVERED")
	second := s.await(2, "process")[1]
	require.Empty(t, second.Links)
	require.Empty(t, second.Parent)
	require.Empty(t, r.named("send "+s.channel))

	// What pull workers report as failed.
	w := tracedStage{p.stage(t, "k"), r}
	for _, report := range []string{`{"NextState":"DEAD"}`, `{"NextState":"QUEUED","Failed":true,"Delay":600}`,
		`{"NextState":"QUEUED","Delay":600}`, `{"NextState":"DELIVERED"}`} {
		w.publish("x", "traceparent", "00-"+callerTrace+"-"+callerSpan+"-00")
		id := w.awaitQueued("k", 1)[0].ID
		lease := w.claim("k", id)
		answer := w.move("k", id, report, "X-Broker-Lease", lease)
		require.Equal(t, 202, answer.status, answer.body)
		eventually(t, "no job is due", func() bool { return len(w.queued("k", "limit=10")) == 0 })
	}
	for _, settle := range w.await(2, "settle") {
		require.Equal(t, "reported_failed", settle.Attributes["error.type"])
		require.Empty(t, settle.Parent)
		require.Equal(t, []string{callerTrace + "-" + callerSpan}, settle.Links)
	}
	require.Empty(t, r.named("receive "+w.channel))
}

func TestWithoutAnEndpointNothingIsInventedAndAContextPasses(t *testing.T) {
	p := embeddedWorld(t).start("OTEL_TRACES_EXPORTER=otlp", "OTEL_SERVICE_NAME=x")
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL, "pull")
	s.publish("with", "traceparent", callerParent, "tracestate", "a=1,b=2")
	s.publish("without")
	eventually(t, "both", func() bool { return sink.count() == 2 })
	for _, got := range sink.all() {
		if got.body == "with" {
			require.Equal(t, callerParent, got.header.Get("traceparent"))
			require.Equal(t, "a=1,b=2", got.header.Get("tracestate"))
		} else {
			require.Empty(t, got.header.Values("traceparent"))
		}
	}
	for _, j := range s.awaitQueued("pull", 2) {
		if j.Message.Payload == "with" {
			require.Equal(t, callerParent, j.Message.Headers["traceparent"])
		}
	}
	s.publish("huge", "traceparent", callerParent, "tracestate", strings.Repeat("a", 9<<10))
	eventually(t, "a state that is left out", func() bool { return sink.count() == 3 })
	for _, got := range sink.all() {
		if got.body == "huge" {
			require.Equal(t, callerParent, got.header.Get("traceparent"))
			require.Empty(t, got.header.Values("tracestate"))
		}
	}
	require.Contains(t, p.log.String(), "there is no OTEL_EXPORTER_OTLP_ENDPOINT")
	require.NotContains(t, p.do("GET", "/metrics", "", "X-Broker-Admin-Token", adminToken).body,
		"penstock_trace_spans_total")
}

// A receiver that takes connections and says nothing delays neither a publish, nor a delivery, nor a stop.
func TestAReceiverOfTracesThatHangsDelaysNothing(t *testing.T) {
	hangs := serveHTTP(t, func(_ http.ResponseWriter, r *http.Request, over <-chan struct{}) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	})
	p := embeddedWorld(t).start("OTEL_EXPORTER_OTLP_ENDPOINT="+hangs, "OTEL_BSP_SCHEDULE_DELAY=10",
		"OTEL_BSP_MAX_QUEUE_SIZE=8", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=4", "OTEL_EXPORTER_OTLP_HEADERS=x-key=very-secret")
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	for i := range 40 {
		s.awaitStatus(s.publish(strconv.Itoa(i)), "DELIVERED")
	}
	metrics := p.do("GET", "/metrics", "", "X-Broker-Admin-Token", adminToken).body
	require.Regexp(t, `penstock_trace_spans_total\{outcome="dropped"\} [1-9]`, metrics)
	begun := time.Now()
	require.Equal(t, 0, p.stop())
	require.Less(t, time.Since(begun), 15*time.Second, "the last export is bounded")
}

func TestAReceiverOfTracesThatRefusesIsToldOfOnceAndWithoutSecrets(t *testing.T) {
	refuses := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, "no such key: very-secret")
	})
	p := embeddedWorld(t).start("OTEL_EXPORTER_OTLP_ENDPOINT="+refuses, "OTEL_BSP_SCHEDULE_DELAY=10",
		"OTEL_EXPORTER_OTLP_HEADERS=x-key=very-secret")
	s := p.stage(t)
	s.publish("one")
	eventually(t, "a failed export", func() bool {
		return strings.Contains(p.do("GET", "/metrics", "", "X-Broker-Admin-Token", adminToken).body,
			`penstock_trace_spans_total{outcome="failed"} 1`)
	})
	s.publish("two")
	eventually(t, "another failed export", func() bool {
		return strings.Contains(p.do("GET", "/metrics", "", "X-Broker-Admin-Token", adminToken).body,
			`penstock_trace_spans_total{outcome="failed"} 2`)
	})
	require.Equal(t, 1, strings.Count(p.log.String(), "spans cannot be exported"))
	require.NotContains(t, p.log.String(), "very-secret")
}

func TestWrongSettingsOfTracesAreRefusedAllAtOnce(t *testing.T) {
	_, err := readConfig([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://user:hidden@h:4318",
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
		"OTEL_EXPORTER_OTLP_COMPRESSION=zip", "OTEL_EXPORTER_OTLP_HEADERS=hidden", "OTEL_TRACES_EXPORTER=zipkin",
		"OTEL_EXPORTER_OTLP_CERTIFICATE=/nowhere/ca.pem", "BROKER_TRACE_FOLLOW=-1s",
		"BROKER_TRACE_URL=https://h/trace/{traceId}"})
	require.Error(t, err)
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL",
		"OTEL_EXPORTER_OTLP_COMPRESSION", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_TRACES_EXPORTER",
		"OTEL_EXPORTER_OTLP_CERTIFICATE", "BROKER_TRACE_FOLLOW", "BROKER_TRACE_URL", "{traceID}"} {
		require.ErrorContains(t, err, name)
	}
	require.NotContains(t, err.Error(), "hidden")

	for _, off := range []string{"OTEL_SDK_DISABLED=TRUE", "OTEL_TRACES_EXPORTER=none", "OTEL_EXPORTER_OTLP_ENDPOINT="} {
		c, err := readConfig([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://h:4318", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", off})
		require.NoError(t, err, off)
		require.False(t, c.tracing.On, off)
	}
	c, err := readConfig([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://h:4318", "OTEL_TRACES_SAMPLER=jaeger_remote",
		"OTEL_BSP_MAX_QUEUE_SIZE=many", "OTEL_RESOURCE_ATTRIBUTES=x"})
	require.NoError(t, err)
	require.True(t, c.tracing.On)
	require.Len(t, c.passedOver, 3, "what the specification wants ignored is a warning")
}

func TestMetricsHaveExemplarsWhereTheScraperAsksForOpenMetrics(t *testing.T) {
	r := newTraceReceiver(t)
	p := embeddedWorld(t).with(pushSettings...).start(r.on()...)
	s := p.stage(t, "k="+newSink(t, nil).URL)
	s.awaitStatus(s.publish("x", "traceparent", callerParent), "DELIVERED")
	scrape := func(accept string) reply {
		return p.do("GET", "/metrics", "", "X-Broker-Admin-Token", adminToken, "Accept", accept)
	}
	open := scrape("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.3")
	require.Contains(t, open.header.Get("Content-Type"), "application/openmetrics-text; version=1.0.0")
	require.True(t, strings.HasSuffix(open.body, "# EOF\n"))
	for _, name := range []string{"penstock_ack_seconds", "penstock_delivery_duration_seconds",
		"penstock_end_to_end_seconds"} {
		require.Regexp(t, "(?m)^"+name+`_bucket.* # \{trace_id="`+callerTrace+`"\}`, open.body)
	}
	for _, accept := range []string{"", "text/plain", "*/*"} {
		plain := scrape(accept)
		require.Contains(t, plain.header.Get("Content-Type"), "text/plain; version=0.0.4", accept)
		require.NotContains(t, plain.body, "trace_id", accept)
	}
}
