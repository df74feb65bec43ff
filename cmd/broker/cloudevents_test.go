package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

const (
	structured = "application/cloudevents+json"
	eventBatch = "application/cloudevents-batch+json"
)

// Events of the official SDK reach a receiver of the official SDK, in the mode they came in.
func TestCloudEventsOfTheOfficialSDK(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start()
		for name, story := range map[string]func(*testing.T, *process){
			"one by one":                         sdkEvents,
			"in a batch, through both doors":     sdkBatch,
			"to a pull consumer":                 pulledEvents,
			"a repeat is one in every mode":      repeatedEvents,
			"source and id are the identity":     eventIdentity,
			"fifty racing posts of one event":    racingEvents,
			"malformed events store nothing":     malformedEvents,
			"a batch is refused element by one":  malformedBatches,
			"an event waits in a schedule":       scheduledEvents,
			"an ordinary message is not touched": func(t *testing.T, p *process) { notAnEvent(t, p) },
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

// An sdkReceiver is an HTTP server of the SDK.
type sdkReceiver struct {
	URL    string
	mu     sync.Mutex
	events map[string]cloudevents.Event // by ID
	types  []string                     // content types of the requests
}

func newSDKReceiver(t *testing.T) *sdkReceiver {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &sdkReceiver{URL: "http://" + listener.Addr().String(), events: map[string]cloudevents.Event{}}
	client, err := cloudevents.NewClientHTTP(cloudevents.WithListener(listener),
		cloudevents.WithMiddleware(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				r.mu.Lock()
				r.types = append(r.types, req.Header.Get("Content-Type"))
				r.mu.Unlock()
				next.ServeHTTP(w, req)
			})
		}))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() {
		over <- client.StartReceiver(ctx, func(e cloudevents.Event) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events[e.ID()] = e
			return e.Validate()
		})
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-over)
	})
	return r
}

func (r *sdkReceiver) await(t *testing.T, id string) (e cloudevents.Event) {
	t.Helper()
	eventually(t, "event "+id, func() (ok bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		e, ok = r.events[id]
		return ok
	})
	return e
}

// sdkSamples are events with all kinds of attributes and data.
func sdkSamples(t *testing.T) (all []cloudevents.Event) {
	add := func(id string, change func(e *cloudevents.Event)) {
		e := cloudevents.NewEvent()
		e.SetID(id)
		e.SetSource("/shop/" + t.Name())
		e.SetType("com.example.order.created")
		change(&e)
		require.NoError(t, e.Validate())
		all = append(all, e)
	}
	add("least", func(*cloudevents.Event) {})
	add("json", func(e *cloudevents.Event) {
		e.SetSubject("order/7")
		e.SetTime(time.Date(2026, 12, 1, 9, 0, 0, 123456789, time.UTC))
		e.SetDataSchema("https://example.com/schema?v=1")
		e.SetExtension("tenant", "a b, \"c\"")
		e.SetExtension("attempt", 7)
		e.SetExtension("urgent", true)
		require.NoError(t, e.SetData("application/json", map[string]any{"total": 12.5, "text": "größer <&> \u2028"}))
	})
	add("text", func(e *cloudevents.Event) { require.NoError(t, e.SetData("text/plain", "line\nline \x00 end")) })
	add("bytes", func(e *cloudevents.Event) {
		require.NoError(t, e.SetData("application/octet-stream", []byte{0, 255, 1, 254, '\n', 'x'}))
	})
	return all
}

func requireSameEvent(t *testing.T, want, got cloudevents.Event) {
	t.Helper()
	require.Equal(t, want.ID(), got.ID())
	require.Equal(t, want.Source(), got.Source())
	require.Equal(t, want.Type(), got.Type())
	require.Equal(t, want.Subject(), got.Subject())
	require.Equal(t, want.DataSchema(), got.DataSchema())
	// the client adds one
	require.True(t, want.Time().IsZero() || want.Time().Equal(got.Time()), "%v %v", want.Time(), got.Time())
	require.Equal(t, string(want.Data()), string(got.Data()))
	require.Len(t, got.Extensions(), len(want.Extensions()))
	for name, value := range want.Extensions() {
		require.Equal(t, fmt.Sprint(value), fmt.Sprint(got.Extensions()[name]), name)
	}
}

// sender returns a client of the SDK that sends to the channel.
func (s *stage) sender() cloudevents.Client {
	s.t.Helper()
	options := []cloudevents.HTTPOption{cloudevents.WithTarget(s.base + s.path("/broadcast"))}
	for i := 0; i < len(producerTokens); i += 2 {
		options = append(options, cloudevents.WithHeader(producerTokens[i], producerTokens[i+1]))
	}
	client, err := cloudevents.NewClientHTTP(options...)
	require.NoError(s.t, err)
	return client
}

// sendPatiently sends an event again that a busy broker refused, and says what became of it. An
// event that is stored already is a repeat, which the channel does not acknowledge.
func sendPatiently(ctx context.Context, client cloudevents.Client, e cloudevents.Event) (result error) {
	for range busyRepeats {
		var answer *cehttp.Result
		result = client.Send(ctx, e)
		if cloudevents.IsACK(result) || !cloudevents.ResultAs(result, &answer) ||
			answer.StatusCode != http.StatusServiceUnavailable {
			return result
		}
		time.Sleep(time.Second)
	}
	return result
}

func sdkEvents(t *testing.T, p *process) {
	for mode, with := range map[string]func(context.Context) context.Context{
		"binary": cloudevents.WithEncodingBinary, "structured": cloudevents.WithEncodingStructured,
	} {
		receiver := newSDKReceiver(t)
		s := p.stage(t, "k="+receiver.URL)
		client := s.sender()
		for _, e := range sdkSamples(t) {
			result := sendPatiently(with(t.Context()), client, e)
			require.True(t, cloudevents.IsACK(result), "%s %s: %v", mode, e.ID(), result)
			requireSameEvent(t, e, receiver.await(t, e.ID()))
		}
		receiver.mu.Lock()
		for _, kind := range receiver.types {
			require.Equal(t, mode == "structured", strings.HasPrefix(kind, structured), kind)
		}
		receiver.mu.Unlock()
	}
}

// sendBatch sends events as one batch of the SDK and returns the lines of the answer.
func (s *stage) sendBatch(door string, events []cloudevents.Event) []apitype.BatchResult {
	s.t.Helper()
	req, err := cloudevents.NewHTTPRequestFromEvents(s.t.Context(), s.base+s.path(door), events)
	require.NoError(s.t, err)
	body, err := io.ReadAll(req.Body)
	require.NoError(s.t, err)
	headers := producerTokens
	for name := range req.Header {
		headers = append(headers[:len(headers):len(headers)], name, req.Header.Get(name))
	}
	r := s.do(req.Method, req.URL.Path, string(body), headers...)
	require.Equal(s.t, 200, r.status, r.body)
	require.Equal(s.t, "application/x-ndjson", r.header.Get("Content-Type"))
	return parseLines(s.t, r.body)
}

func sdkBatch(t *testing.T, p *process) {
	for _, door := range []string{"/batch", "/broadcast"} {
		receiver := newSDKReceiver(t)
		s := p.stage(t, "k="+receiver.URL)
		events := sdkSamples(t)
		lines := s.sendBatch(door, events)
		require.Len(t, lines, len(events))
		for i, line := range lines {
			require.Equal(t, 201, line.Status, line)
			require.Equal(t, 200, s.do("GET", line.Location, "").status, line.Location)
			requireSameEvent(t, events[i], receiver.await(t, events[i].ID()))
		}
		for _, line := range s.sendBatch(door, events) {
			require.Equal(t, 409, line.Status, line)
			require.Equal(t, "duplicate_message_id", line.Code)
			require.NotEmpty(t, line.Location)
		}
		receiver.mu.Lock()
		for _, kind := range receiver.types {
			require.Equal(t, structured, kind)
		}
		receiver.mu.Unlock()
	}
}

// ce are the headers of an event in binary mode.
func ce(id string, more ...string) []string {
	return append([]string{"ce-specversion", "1.0", "ce-id", id, "ce-source", "/s", "ce-type", "t"}, more...)
}

// text is an event as JSON with some more members.
func eventText(id, more string) string {
	return `{"specversion":"1.0","id":"` + id + `","source":"/s","type":"t"` + more + `}`
}

func pulledEvents(t *testing.T, p *process) {
	s := p.stage(t, "k")
	s.publish(`{"a":1}`, ce("one", "ce-tenant", "x", "X-Mine", "y", "X-Broker-Metadata-Headers", "X-Mine", "Content-Type",
		"application/json")...)
	s.publish(eventText("two", `,"data":{"a":2}`), "Content-Type", structured)
	jobs := s.awaitQueued("k", 2)
	require.Equal(t, map[string]string{"Ce-Specversion": "1.0", "Ce-Id": "one", "Ce-Source": "/s", "Ce-Type": "t",
		"Ce-Tenant": "x", "X-Mine": "y"}, canonical(jobs[0].Message.Headers))
	require.Equal(t, `{"a":1}`, jobs[0].Message.Payload)
	require.Equal(t, "application/json", jobs[0].Message.ContentType)
	require.Empty(t, jobs[1].Message.Headers)
	require.Equal(t, eventText("two", `,"data":{"a":2}`), jobs[1].Message.Payload)
	require.Equal(t, structured, jobs[1].Message.ContentType)
}

func canonical(headers map[string]string) map[string]string {
	out := map[string]string{}
	for name, value := range headers {
		out[http.CanonicalHeaderKey(name)] = value
	}
	return out
}

func repeatedEvents(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	binary := ce("one", "ce-subject", "caf%C3%A9", "Content-Type", "application/json")
	at := s.publish(`{"a":1}`, binary...)
	same := eventText("one", `,"subject":"café","datacontenttype":"application/json","data":{ "a" : 1 }`)
	for range 2 {
		for _, r := range []reply{
			s.post(`{"a":1}`, binary...),
			s.post(same, "Content-Type", structured),
			s.post(same, "Content-Type", "Application/CloudEvents+JSON; charset=UTF-8"),
			s.post(eventText("one", `,"subject":"caf\u00e9","data":{"a":1}`), "Content-Type", structured,
				"X-Broker-Message-Priority", "5"),
		} {
			requireProblem(t, r, 409, "duplicate_message_id")
			require.Equal(t, at, r.header.Get("Location"))
		}
		for _, line := range s.events("/batch", same) {
			requireLine(t, line, 409, "duplicate_message_id", at)
		}
	}
	s.put(s.path(), "duplicates", "acknowledge")
	for _, r := range []reply{s.post(`{"a":1}`, binary...), s.post(same, "Content-Type", structured)} {
		require.Equal(t, 200, r.status, r.body)
		require.Equal(t, "true", r.header.Get(replayed))
		require.Equal(t, at, r.header.Get("Location"))
	}
	requireLine(t, s.events("/broadcast", same)[0], 200, "", at)
	for _, r := range []reply{
		s.post(`{"a":2}`, binary...),
		s.post(`{"a":1}`, append(binary, "ce-tenant", "x")...),
		s.post(eventText("one", `,"subject":"café","data":{"a":1.0}`), "Content-Type", structured),
		s.post(eventText("one", `,"data":{"a":1}`), "Content-Type", structured),
	} {
		requireConflict(t, r)
	}
	requireOnce(t, sink, `{"a":1}`)
}

// events posts a batch of events as text.
func (s *stage) events(door string, events ...string) []apitype.BatchResult {
	s.t.Helper()
	r := s.do("POST", s.path(door), "["+strings.Join(events, ",")+"]", append([]string{"Content-Type", eventBatch},
		producerTokens...)...)
	require.Equal(s.t, 200, r.status, r.body)
	return parseLines(s.t, r.body)
}

func eventIdentity(t *testing.T, p *process) {
	s := p.stage(t, "k")
	one := s.publish("x", ce("one")...)
	require.NotContains(t, one, "/message/one", "the id of an event is unique in its source only")
	require.Equal(t, 201, s.post("x", ce("one", "ce-source", "/other")...).status)
	// A message ID comes before the event's own identity.
	at := s.publish("x", ce("one", "X-Broker-Message-ID", "mine")...)
	require.Equal(t, s.path("/message/mine"), at)
	requireProblem(t, s.post("x", ce("one", "X-Broker-Message-ID", "mine")...), 409, "duplicate_message_id")
	// Another producer's event with the same source and id is another event, or a conflict.
	two := s.as("two")
	requireConflict(t, s.do("POST", s.path("/broadcast"), "x", append(ce("one"), two...)...))
	s.put(s.path(), "identity", "producer")
	require.Equal(t, 201, s.do("POST", s.path("/broadcast"), "x", append(ce("one"), two...)...).status)
	s.put(s.path(), "identity", "")
}

func racingEvents(t *testing.T, p *process) {
	s := p.stage(t, "k")
	var wg sync.WaitGroup
	answers := make(chan int, 50)
	for i := range 50 {
		wg.Go(func() {
			body, headers := "1", ce("one", "Content-Type", "application/json")
			if i%2 == 0 {
				body, headers = eventText("one", `,"data":1`), []string{"Content-Type", structured}
			}
			answers <- s.post(body, headers...).status
		})
	}
	wg.Wait()
	close(answers)
	counts := map[int]int{}
	for status := range answers {
		counts[status]++
	}
	require.Equal(t, map[int]int{201: 1, 409: 49}, counts)
	s.awaitQueued("k", 1)
}

func malformedEvents(t *testing.T, p *process) {
	s := p.stage(t, "k")
	for i := 0; i < 8; i += 2 {
		missing := append(ce("x")[:i:i], ce("x")[i+2:]...)
		requireProblem(t, s.post("x", missing...), 400, "invalid_cloudevent")
	}
	for _, headers := range [][]string{
		ce("x", "ce-specversion", "0.3"), ce("x", "ce-time", "yesterday"), ce("x", "ce-bad_name", "1"), ce("x",
			"ce-type", ""),
	} {
		requireProblem(t, s.post("x", headers...), 400, "invalid_cloudevent")
	}
	for _, body := range []string{
		"", "x", "[]", "null", `"x"`, "{}", eventText("x", "")[1:], eventText("x", "") + "x", eventText("x", `,"id":"y"`),
		eventText("", ""),
		eventText("x", `,"Bad":"1"`), eventText("x", `,"time":"now"`), eventText("x", `,"subject":1`), eventText("x",
			`,"a":1.5`), eventText("x", `,"a":{}`),
		eventText("x", `,"data":1,"data_base64":"YQ=="`), eventText("x", `,"data_base64":"?"`), eventText("x",
			`,"data_base64":1`), eventText("\xff", ""),
		strings.Replace(eventText("x", ""), `"1.0"`, `"0.3"`, 1), strings.Replace(eventText("x", ""), `"type":"t"`,
			`"type":null`, 1),
		strings.Repeat("[", 100_000), eventText("x", `,"data":`+strings.Repeat("[", 50_000)),
	} {
		requireProblem(t, s.post(body, "Content-Type", structured), 400, "invalid_cloudevent")
	}
	for _, kind := range []string{"application/cloudevents+xml", "application/cloudevents", structured +
		"; charset=utf-16", "application/cloudevents-batch+avro"} {
		requireProblem(t, s.post(eventText("x", ""), "Content-Type", kind), 415, "unsupported_media_type")
	}
	many := ce("x")
	for i := range 200 {
		many = append(many, fmt.Sprint("ce-a", i), "v")
	}
	require.Equal(t, 400, s.post("x", many...).status)
	// The tokens come first.
	require.Equal(t, 403, s.do("POST", s.path("/broadcast"), "x", "Content-Type", structured).status)
	require.Empty(t, s.queued("k", "limit=10"))
	// What the specification allows is taken.
	for i, body := range []string{
		eventText("a", `,"data":null`), eventText("b", `,"data_base64":""`), eventText("c",
			`,"subject":null,"comexample1":-5,"flag":false`),
		" \n" + eventText("d", `,"data":"text","datacontenttype":"text/plain"`) + "\n ",
	} {
		require.Equal(t, 201, s.post(body, "Content-Type", structured).status, i)
	}
	s.awaitQueued("k", 4)
}

func malformedBatches(t *testing.T, p *process) {
	s := p.stage(t, "k")
	good := func(id string) string { return eventText(id, "") }
	lines := s.events("/batch", good("a"), "{}", good("b"), "5", `"x"`, good("a"), `{"a":[}`)
	status := []int{}
	for _, line := range lines {
		status = append(status, line.Status)
	}
	require.Equal(t, []int{201, 400, 201, 400, 400, 409}, status[:6])
	require.Equal(t, "invalid_cloudevent", lines[1].Code)
	for body, want := range map[string]int{
		"[]": 0, " [ ] ": 0, "": 1, "{}": 1, "[" + good("c"): 2, "[" + good("d") + ",]": 2, "[,]": 1, "[" + good("e") +
			"] x": 2, "[" + good("f") + good("g") + "]": 2,
	} {
		r := s.do("POST", s.path("/batch"), body, append([]string{"Content-Type", eventBatch}, producerTokens...)...)
		require.Equal(t, 200, r.status, r.body)
		got := parseLines(t, r.body)
		require.Len(t, got, want, "%q: %s", body, r.body)
		if want > 0 {
			require.Equal(t, 400, got[want-1].Status, body)
		}
	}
	large := s.events("/batch", good("h"), eventText("i", `,"data":"`+strings.Repeat("x", 5<<20)+`"`), good("j"))
	require.Equal(t, []int{201, 413, 201}, []int{large[0].Status, large[1].Status, large[2].Status})
	requireProblem(t, s.do("POST", s.path("/broadcast"), "[]",
		append([]string{"Content-Type", eventBatch, "X-Broker-Message-ID", "x"},
			producerTokens...)...), 400, "invalid_message_id")
}

func scheduledEvents(t *testing.T, p *process) {
	receiver := newSDKReceiver(t)
	s := p.stage(t, "k="+receiver.URL)
	at := time.Now().Add(lead).UTC().Format(time.RFC3339Nano)
	for _, r := range []reply{
		s.post("1", append(ce("one", "X-Broker-Scheduled-For", at), "Content-Type", "application/json")...),
		s.post(eventText("two", `,"data":1`), "Content-Type", structured, "X-Broker-Scheduled-For", at),
	} {
		require.Equal(t, 201, r.status, r.body)
		require.Contains(t, r.header.Get("Location"), "/scheduled-message/")
	}
	waiting := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	require.Equal(t, 201, s.post("1", append(ce("three", "X-Broker-Scheduled-For", waiting), "Content-Type",
		"application/json")...).status)
	requireConflict(t, s.post(eventText("three", `,"data":1`), "Content-Type", structured))
	for _, id := range []string{"one", "two"} {
		require.Equal(t, "1", string(receiver.await(t, id).Data()))
	}
	requireProblem(t, s.post("1", append(ce("one"), "Content-Type", "application/json")...), 409, "duplicate_message_id")
}

func notAnEvent(t *testing.T, p *process) {
	s := p.stage(t, "k")
	s.publish("x", "Cents", "5", "X-Ce-Id", "7", "Content-Type", "application/cloudeventish")
	require.Empty(t, s.awaitQueued("k", 1)[0].Message.Headers)
}
