package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// packed is a text with the coding gzip.
func packed(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.String()
}

// A payload goes with what says how it is coded: to push and pull consumers, in each view, and to the
// filters, which see it decoded.
func TestTheCodingsOfAPayloadGoWithIt(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start(fetchInside)
		for name, story := range map[string]func(*testing.T, *process){
			"published one by one":               codedMessages,
			"in lines and rows":                  codedLines,
			"of events":                          codedEvents,
			"of responses, back to the producer": codedResponses,
			"that cannot be kept are refused":    codedBodies,
			"headers that describe the payload":  describedPayloads,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

// pulledMessage is the message of the only queued job of a consumer.
func (s *stage) pulledMessage(consumer string) apitype.PullMessage {
	s.t.Helper()
	return s.awaitQueued(consumer, 1)[0].Message
}

func codedMessages(t *testing.T, p *process) {
	to := newSink(t, nil)
	s := p.stage(t, "push="+to.URL, "all", "filtered")
	s.put(s.path("/consumer/filtered"), "filter", `payload.hello == "world" && headers["content-encoding"] == "gzip"`)
	body := packed(`{"hello":"world"}`)
	at := s.publish(body, "Content-Type", "application/json", "Content-Encoding", "gzip", "X-Broker-Message-ID", "coded",
		"X-Broker-Ordering-Key", "k")
	eventually(t, "the delivery", func() bool { return to.count() == 1 })
	got := to.all()[0]
	require.Equal(t, body, got.body)
	require.Equal(t, "gzip", got.header.Get("Content-Encoding"))
	require.Equal(t, "application/json", got.header.Get("Content-Type"))
	require.Equal(t, "k", got.header.Get("X-Broker-Ordering-Key"))
	require.Empty(t, got.header.Get("X-Broker-Metadata-Headers"), "it is no metadata")
	for _, k := range []string{"all", "filtered"} {
		m := s.pulledMessage(k)
		require.Equal(t, "gzip", m.ContentEncoding)
		require.Equal(t, "gzip", m.Headers["Content-Encoding"])
		require.Equal(t, base64.StdEncoding.EncodeToString([]byte(body)), m.Payload)
	}
	require.Equal(t, "gzip", s.message(at).ContentEncoding)

	// What says nothing of the payload is not kept, and what is no coding is refused.
	for _, none := range []string{"identity", ""} {
		require.Empty(t, s.message(s.publish("x", "Content-Encoding", none)).ContentEncoding)
	}
	requireProblem(t, s.post("x", "Content-Encoding", "g zip"), 400, "invalid_content_encoding")
	require.Equal(t, "aws-chunked, br", s.message(s.publish("x", "Content-Encoding", "aws-chunked,br")).ContentEncoding,
		"a coding that the broker does not know is kept, too")

	// The same message has the same codings.
	same := []string{"Content-Type", "application/json", "X-Broker-Ordering-Key", "k", "X-Broker-Message-ID", "coded"}
	requireProblem(t, s.post(body, same...), 409, "message_id_conflict")
	requireProblem(t, s.post(body, append(same, "Content-Encoding", "gzip")...), 409, "duplicate_message_id")

	// What is decoded for a filter is bounded: this would take 64 MiB.
	bomb := s.publish(packed(`"`+string(make([]byte, 64<<20))+`"`), "Content-Encoding", "gzip")
	require.Equal(t, "FILTERED", s.jobOf(bomb, "filtered").Status)
	broken := s.publish(`{"hello":"world"}`, "Content-Encoding", "gzip")
	require.Equal(t, "FILTERED", s.jobOf(broken, "filtered").Status)

	soon := s.later(time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano), packed(`{"hello":"world"}`),
		"Content-Encoding", "gzip")
	require.Equal(t, "gzip", s.scheduled(soon).ContentEncoding)
	require.Equal(t, "gzip", s.awaitQueued("filtered", 2)[1].Message.ContentEncoding)
}

func codedLines(t *testing.T, p *process) {
	s := p.stage(t, "all", "filtered")
	s.put(s.path("/consumer/filtered"), "filter", `payload.hello == "world"`)
	body := base64.StdEncoding.EncodeToString([]byte(packed(`{"hello":"world"}`)))
	results := s.lines(fmt.Sprintf(`{"PayloadBase64":%q,"ContentEncoding":"gzip","Headers":{"X-A":"1"},"OrderingKey":"k"}`,
		body),
		`{"Payload":"x","ContentEncoding":"g z"}`, `{"Payload":"x","Headers":{"Content-Encoding":"gzip"}}`,
		`{"Payload":"{\"hello\":\"world\"}","ContentEncoding":null}`)
	for i, status := range []int{201, 400, 400, 201} {
		require.Equal(t, status, results[i].Status, i)
	}
	require.Equal(t, "invalid_content_encoding", results[1].Code)
	jobs := s.awaitQueued("filtered", 2)
	require.Equal(t, "gzip", jobs[0].Message.ContentEncoding)
	require.Equal(t, "1", jobs[0].Message.Headers["X-A"])
	require.Equal(t, "k", jobs[0].Message.Headers["X-Broker-Ordering-Key"])
	require.Empty(t, jobs[1].Message.ContentEncoding)

	done := s.awaitBulk(s.bulk("text/csv", "PayloadBase64,ContentEncoding\n"+body+",gzip\n"+body+",\n"), "DONE")
	require.EqualValues(t, 2, done.Published)
	require.Equal(t, "gzip", s.awaitQueued("filtered", 3)[2].Message.ContentEncoding)
	files := file(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, "data\n%s\n", body) })
	request := fmt.Sprintf(
		`{"FileURL":%q,"Format":"csv","Template":{"PayloadBase64":"{{data}}","ContentEncoding":"gzip"}}`, files)
	s.awaitBulk(s.bulk("application/json", request), "DONE")
	require.Equal(t, "gzip", s.awaitQueued("filtered", 4)[3].Message.ContentEncoding)
}

func codedEvents(t *testing.T, p *process) {
	s := p.stage(t, "all", "filtered")
	s.put(s.path("/consumer/filtered"), "filter", `headers["ce-type"] == "t"`)
	event := func(id string) string {
		return fmt.Sprintf(
			`{"specversion":"1.0","id":%q,"source":"/s","type":"t","datacontenttype":"application/json","data":{"a":1}}`, id)
	}
	at := s.publish(packed(event("1")), "Content-Type", structured, "Content-Encoding", "gzip")
	m := s.pulledMessage("filtered")
	require.Equal(t, "gzip", m.ContentEncoding)
	binary := []string{"Content-Type", "application/json", "ce-specversion", "1.0", "ce-id", "1", "ce-source", "/s",
		"ce-type", "t"}
	for name, again := range map[string]reply{
		"structured, not coded": s.post(event("1"), "Content-Type", structured),
		"binary, coded":         s.post(packed(`{"a":1}`), append(binary, "Content-Encoding", "gzip")...),
		"binary, not coded":     s.post(`{"a":1}`, binary...),
	} {
		requireProblem(t, again, 409, "duplicate_message_id")
		require.Equal(t, at, again.header.Get("Location"), name)
	}
	requireProblem(t, s.post(packed(`{"a":2}`), append(binary, "Content-Encoding", "gzip")...), 409, "message_id_conflict")

	batch := packed("[" + event("2") + "," + event("3") + "]")
	r := s.post(batch, "Content-Type", eventBatch, "Content-Encoding", "gzip")
	require.Equal(t, 200, r.status, r.body)
	for _, j := range s.awaitQueued("filtered", 3)[1:] {
		require.Empty(t, j.Message.ContentEncoding, "each is stored as it is in the decoded batch")
	}
	for _, kind := range []string{structured, eventBatch} {
		requireProblem(t, s.post(event("4"), "Content-Type", kind, "Content-Encoding", "gzip"), 400,
			"invalid_content_encoding")
		requireProblem(t, s.post(event("4"), "Content-Type", kind, "Content-Encoding", "compress"), 400,
			"invalid_content_encoding")
		large := packed("[" + event("4") + string(bytes.Repeat([]byte{' '}, 5<<20)) + "]")
		requireProblem(t, s.post(large, "Content-Type", kind, "Content-Encoding", "gzip"), 413, "body_too_large")
	}
}

func codedResponses(t *testing.T, p *process) {
	var mu sync.Mutex
	var replies []received
	answer := packed("the answer")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/reply" {
			body, _ := readText(r.Body, r.ContentLength)
			mu.Lock()
			replies = append(replies, received{r.Header.Clone(), body, time.Now()})
			mu.Unlock()
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Language", "de")
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(server.Close)
	s := p.stage(t)
	sender := s.channel + "-sender"
	s.put("/producer/"+sender, "token", "t", "replyUrl", server.URL+"/reply")
	s.put(s.path("/consumer/k"), "token", "kt", "callbackUrl", server.URL, "responses", "callback")
	from := []string{"X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID", sender, "X-Broker-Producer-Token", "t"}
	r := s.do("POST", s.path("/request"), "ask", append(from, "X-Broker-Message-ID", "m", "Prefer", "wait=30",
		"Accept-Encoding", "gzip")...)
	require.Equal(t, 200, r.status, r.body)
	require.Equal(t, answer, r.body)
	require.Equal(t, "gzip", r.header.Get("Content-Encoding"))
	require.Equal(t, "de", r.header.Get("Content-Language"))
	var view apitype.Responses
	require.NoError(t, json.Unmarshal([]byte(s.do("GET", s.path("/message/m/responses"), "", from...).body), &view))
	require.Equal(t, "gzip", view.Result[0].Headers["Content-Encoding"])
	var reply received
	eventually(t, "the reply", func() bool {
		mu.Lock()
		defer mu.Unlock()
		if len(replies) != 1 {
			return false
		}
		reply = replies[0]
		return true
	})
	require.Equal(t, "gzip", reply.header.Get("Content-Encoding"))
	require.Equal(t, "de", reply.header.Get("Content-Language"))
	require.Equal(t, answer, reply.body)

	// A response that a receiver posts keeps its codings, too.
	s.put(s.path("/consumer/poster"), "token", "poster-token", "type", "pull", "responses", "store")
	s.publish("ask", "X-Broker-Message-ID", "m2")
	s.awaitQueued("poster", 1)
	posted := s.do("POST", s.path("/message/m2/response"), answer, append(consumerTokens("poster"), "X-Broker-Consumer-ID",
		"poster", "Content-Encoding", "gzip")...)
	require.Equal(t, 202, posted.status, posted.body)
	for _, one := range s.responses("m2", "").Result {
		if one.ConsumerID == "poster" {
			require.Equal(t, "gzip", one.Headers["Content-Encoding"])
		}
	}
}

func codedBodies(t *testing.T, p *process) {
	s := p.stage(t, "all")
	form := url.Values{"name": {"x"}}.Encode()
	for path, r := range map[string]reply{
		"batch": s.do("POST", s.path("/batch"), packed(`{"Payload":"x"}`),
			append([]string{"Content-Type", "application/x-ndjson", "Content-Encoding", "gzip"}, producerTokens...)...),
		"claim": s.do("POST", s.path("/consumer/all/claim"), packed(`{}`), append(consumerTokens("all"), "Content-Type",
			"application/json", "Content-Encoding", "gzip")...),
		"jobs": s.do("POST", s.path("/consumer/all/jobs"), packed(`{"Updates":[]}`), append(consumerTokens("all"),
			"Content-Type", "application/json", "Content-Encoding", "gzip")...),
		"put": s.do("PUT", s.path("/consumer/other"), packed(form), "Content-Type", "application/x-www-form-urlencoded",
			"X-Broker-Admin-Token", adminToken, "Content-Encoding", "gzip"),
	} {
		t.Log(path)
		requireProblem(t, r, 415, "unsupported_media_type")
	}
	plain := s.do("PUT", s.path("/consumer/other"), "token=t&type=pull", "Content-Type",
		"application/x-www-form-urlencoded",
		"X-Broker-Admin-Token", adminToken, "Content-Encoding", "identity")
	require.Equal(t, 201, plain.status, plain.body)
}

func describedPayloads(t *testing.T, p *process) {
	to := newSink(t, nil)
	s := p.stage(t, "push="+to.URL, "all")
	described := map[string]string{"Content-Language": "de", "Content-Location": "/a",
		"Content-Disposition": `attachment; filename="a"`, "Content-Digest": "sha-256=:x:", "Repr-Digest": "sha-256=:y:",
		"Content-Md5": "z"}
	headers := []string{"X-Broker-Metadata-Headers", "X-Own, content-language", "X-Own", "1"}
	for name, value := range described {
		headers = append(headers, name, value)
	}
	s.publish("x", headers...)
	eventually(t, "the delivery", func() bool { return to.count() == 1 })
	for name, value := range described {
		require.Equal(t, value, to.all()[0].header.Get(name), name)
	}
	require.Equal(t, "1", to.all()[0].header.Get("X-Own"))
	require.Equal(t, "/a", s.pulledMessage("all").Headers["Content-Location"])
}
