package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The IDs that the broker makes are names of its own: no producer stands in the place of a message of
// another one, which is stored or is still to come.
func TestIDsOfTheBrokerBelongToIt(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start(fetchInside, "BROKER_RETRY_BACKOFF=100ms", "BROKER_MAX_RETRIES=0")
		for name, story := range map[string]func(*testing.T, *process){
			"no way in takes one":                        madeIDs,
			"an event may have such an id":               madeEventIDs,
			"a response goes to the owner":               ownedResponses,
			"a forward is suppressed by nobody":          squattedForwards,
			"a recurrence is suppressed by nobody":       squattedOccurrences,
			"the next ID does not follow from one known": unpredictableIDs,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

// idOf returns the message ID at the end of a path.
func idOf(location string) string { return location[strings.LastIndexByte(location, '/')+1:] }

func madeIDs(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL, "pull")
	s.put(s.path("/consumer/pull"), "responses", "store")
	owned := s.publish("the owner's")
	existing, err := ident.Parse(idOf(owned))
	require.NoError(t, err)
	future := ident.AtMillis(time.Now().Add(time.Hour).UnixMilli())
	for _, id := range []string{
		existing.String(), existing.Job(0).String(), existing.Job(40_000).String(), future.String(), ident.ID{}.String(),
		ident.AtMillis(1<<45 - 1).String(), // the last that any broker may make
		ident.ForwardID(existing.Job(0), 1_763_658_000_123), ident.ForwardID(existing.Job(0), 1), "dead." +
			existing.String() + ".7.8",
	} {
		named := []string{"X-Broker-Message-ID", id}
		event := append(named, "ce-specversion", "1.0", "ce-id", "1", "ce-source", "s", "ce-type", "t")
		structured := append(named, "Content-Type", "application/cloudevents+json")
		line := `{"MessageID":"` + id + `","Payload":"the thief's"`
		for _, scope := range []string{"channel", "producer"} {
			s.put(s.path(), "identity", scope)
			requireProblem(t, s.post("the thief's", named...), 400, "invalid_message_id")
			requireProblem(t, s.post("the thief's", event...), 400, "invalid_message_id")
			requireProblem(t, s.post(`{"specversion":"1.0","id":"1","source":"s","type":"t","data":"the thief's"}`,
				structured...), 400, "invalid_message_id")
			requireProblem(t, s.post("the thief's", append(named, "X-Broker-Scheduled-For", in(time.Hour))...), 400,
				"invalid_message_id")
			requireProblem(t, s.post("the thief's", append(named, "X-Broker-Recurrence", "R3/"+in(time.Hour)+"/PT1S")...), 400,
				"invalid_message_id")
			requireProblem(t, s.do("POST", s.path("/request"), "the thief's", append(named, producerTokens...)...), 400,
				"invalid_message_id")
			for _, r := range s.lines(line+"}", line+`,"ScheduledFor":"`+in(time.Hour)+`"}`, line+`,"Recurrence":"R3/`+
				in(time.Hour)+`/PT1S"}`) {
				requireLine(t, r, 400, "invalid_message_id", "")
			}
		}
		refusedRows(t, s, id, line)
	}
	require.Equal(t, "the owner's", s.message(owned).Payload)
	// The messages of a recurrence have its ID with a suffix.
	prefix := "dead." + existing.Job(0).String()
	requireProblem(t, s.post("x", "X-Broker-Message-ID", prefix, "X-Broker-Recurrence", "R3/"+in(time.Hour)+"/PT1S"), 400,
		"invalid_message_id")
	for _, free := range []string{prefix, strings.ToUpper(existing.String()), existing.String()[1:], existing.String() +
		"0", "x" + existing.String(), "dead.end", "dead.a.b"} {
		require.Equal(t, 201, s.post("allowed", "X-Broker-Message-ID", free).status, free)
	}
	require.Zero(t, sink.times("the thief's"))
}

// refusedRows requires that no row of a bulk has an ID.
func refusedRows(t *testing.T, s *stage, id, line string) {
	t.Helper()
	url := file(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "id,rest\n"+id[:3]+","+id[3:]+"\n")
	})
	for _, at := range []string{
		s.bulk("application/x-ndjson", line+"}"),
		s.bulk("text/csv", "MessageID,Payload\n"+id+",the thief's\n"),
		s.bulk("application/json", `{"FileURL":"`+url+
			`","Format":"csv","Template":{"Payload":"the thief's","MessageID":"{{id}}{{rest}}"}}`),
	} {
		b := s.awaitBulk(at, "DONE")
		require.Equal(s.t, [3]int64{1, 0, 1}, [3]int64{b.Total, b.Published, b.Rejected}, "%+v", b)
		require.Contains(s.t, b.BadRows[0].Reason, "the form of an ID that the broker makes")
	}
	requireProblem(s.t, s.tryBulk("application/json", `{"FileURL":"`+url+
		`","Format":"csv","Template":{"Payload":"x","MessageID":"`+id+`"}}`), 400, "invalid_message_id")
}

func madeEventIDs(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	owned := s.publish("the owner's")
	id := idOf(owned)
	event := `{"specversion":"1.0","id":"` + id + `","source":"s","type":"t","data":`
	at := s.publish("binary", "ce-specversion", "1.0", "ce-id", id, "ce-source", "s", "ce-type", "t")
	require.NotEqual(t, owned, at)
	other := s.publish(event[:len(event)-1]+`:"1"}`, "Content-Type", "application/cloudevents+json",
		"X-Broker-Message-ID", "own")
	require.Equal(t, s.path("/message/own"), other)
	r := s.do("POST", s.path("/broadcast"), `[`+strings.Replace(event, `"s"`, `"s2"`, 1)+`"2"}]`,
		append([]string{"Content-Type", "application/cloudevents-batch+json"}, producerTokens...)...)
	require.Contains(t, r.body, `"Status":201`)
	require.NotContains(t, r.body, id, "its place has another ID")
	require.Equal(t, "the owner's", s.message(owned).Payload)
	require.Equal(t, "binary", s.message(at).Payload)
	eventually(t, "the deliveries", func() bool { return sink.count() == 4 })
	known := map[string]bool{}
	for _, r := range sink.all() {
		known[r.header.Get("X-Broker-Message-ID")] = true
	}
	require.Len(t, known, 4)
}

func ownedResponses(t *testing.T, p *process) {
	s := p.stage(t, "k")
	s.put(s.path("/consumer/k"), "responses", "store")
	thief := s.as("thief-of-responses")
	owned := s.publish("the owner's")
	taken := s.do("POST", s.path("/broadcast"), "the thief's", append([]string{"X-Broker-Message-ID", idOf(owned)},
		thief...)...)
	requireProblem(t, taken, 400, "invalid_message_id")
	s.awaitQueued("k", 1)
	r := s.do("POST", owned+"/response", "the answer", append(consumerTokens("k"), "X-Broker-Consumer-ID", "k")...)
	require.Equal(t, 202, r.status, r.body)
	require.Contains(t, s.do("GET", owned+"/responses", "", producerTokens...).body, "the answer")
	require.Equal(t, 404, s.do("GET", owned+"/responses", "", thief...).status)
}

func squattedForwards(t *testing.T, p *process) {
	target := newSink(t, nil)
	to := p.stage(t, "k="+target.URL)
	s := p.stage(t, "k="+newSink(t, func(int, received) int { return 500 }).URL)
	at := s.publish("dies")
	job := s.awaitStatus(at, "DEAD").Jobs[0].ID
	id, err := ident.Parse(job)
	require.NoError(t, err)
	var lines []string
	for ms := time.Now().Add(-20 * time.Second).UnixMilli(); ms < time.Now().UnixMilli(); ms++ {
		lines = append(lines, `{"MessageID":"`+ident.ForwardID(id, ms)+`","Payload":"squatted"}`)
	}
	for _, r := range to.lines(lines...) {
		requireLine(t, r, 400, "invalid_message_id", "")
	}
	s.put(s.path("/consumer/k"), "dlq", "forward:"+to.channel)
	eventually(t, "the forward", func() bool { return target.count() == 1 })
	require.Equal(t, "dies", target.all()[0].body)
	require.Equal(t, job, target.all()[0].header.Get("X-Dead-Job-ID"))
	found := to.message(to.path("/message/", target.all()[0].header.Get("X-Broker-Message-ID")))
	require.Equal(t, "dies", found.Payload)
}

func squattedOccurrences(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	thief := s.as("thief-of-recurrences")
	for i := 1; i <= 3; i++ { // with what the owner sends, and with something else
		body := map[bool]string{true: "tick", false: "squatted"}[i == 2]
		r := s.do("POST", s.path("/broadcast"), body, append([]string{"X-Broker-Message-ID", fmt.Sprint("report.", i)},
			thief...)...)
		require.Equal(t, 201, r.status, r.body)
	}
	own := s.publish("tick", "X-Broker-Message-ID", "report.4")
	r := s.post("tick", "X-Broker-Message-ID", "report", "X-Broker-Recurrence", "R4/"+in(lead)+"/PT1S")
	require.Equal(t, 201, r.status, r.body)
	eventually(t, "four messages besides the others", func() bool { return sink.times("tick") == 6 })
	known := map[string]bool{}
	for _, r := range sink.all() {
		known[r.header.Get("X-Broker-Message-ID")] = true
	}
	require.Len(t, known, 8, "each has an ID of its own")
	require.Equal(t, "tick", s.message(own).Payload)
}

func unpredictableIDs(t *testing.T, p *process) {
	s := p.stage(t)
	seen, last := map[string]bool{}, ""
	for range 20 {
		id := idOf(s.publish("x"))
		require.Less(t, last, id)
		last = id
		parsed, err := ident.Parse(id)
		require.NoError(t, err)
		low := parsed[8:10]
		seen[string(low)] = true
	}
	require.Greater(t, len(seen), 10, "of 20 random numbers below 32768 hardly two are the same")
}
