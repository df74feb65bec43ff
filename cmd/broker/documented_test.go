package main

import (
	"compress/gzip"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// What openapi.json says of the data plane and no other test sends: `make contract` compares the document with the
// traffic of these stories, among others.
func TestTheDataPlaneTakesWhatTheDocumentSays(t *testing.T) {
	p := embeddedWorld(t).start("BROKER_ALLOW_DELETE=true", "BROKER_DELIVERY_TIMEOUT=2s", "BROKER_MAX_RETRIES=0")
	for name, story := range map[string]func(*testing.T, *process){
		"headers of each way in":        headersOfEachWayIn,
		"members of reports":            membersOfReports,
		"repeats of a request":          repeatsOfARequest,
		"conditions of a deletion":      conditionsOfADeletion,
		"pages of lists":                pagesOfLists,
		"a consumer that was delivered": aConsumerThatWasDelivered,
		"a form of a dead reply":        aRedriveOfReplies,
		"refusals":                      refusalsOfTheDataPlane,
		"refusals of SQS clients":       refusalsOfSQSClients,
	} {
		t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
	}
}

const signingSecret = "0123456789abcdef0123"

// signed are the tokens of producer signer and the signature of a body.
func signed(body string) []string {
	now := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(signingSecret))
	mac.Write([]byte(now + "." + body))
	return []string{"X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID", "signer", "X-Broker-Producer-Token",
		"signer-token", "X-Broker-Signature", "t=" + now + ",v1=" + hex.EncodeToString(mac.Sum(nil))}
}

func headersOfEachWayIn(t *testing.T, p *process) {
	s := p.stage(t, "k")
	s.put(s.path("/consumer/k"), "responses", "store")
	s.put("/producer/signer", "token", "signer-token", "publishSecret", signingSecret)
	properties := []string{"X-Broker-Message-Priority", "7", "X-Broker-Message-TTL", "1h", "X-Broker-Ordering-Key", "a",
		"X-Broker-Task", "mail", "X-Broker-Consumers", "k", "X-Broker-Metadata-Headers", "X-Kind", "X-Kind", "express"}
	packed := gzipped(t, "packed")
	for _, way := range []struct{ route, body, media string }{
		{"/broadcast", "x", "text/plain"}, {"/request", "x", "text/plain"},
		{"/batch", `{"Payload":"x"}` + "\n", apitype.MediaLines},
		{"/bulk", `{"Payload":"x"}` + "\n", apitype.MediaLines},
	} {
		post := func(body string, from []string, more ...string) reply {
			t.Helper()
			r := s.do("POST", s.path(way.route), body, append(append([]string{"Content-Type", way.media, "Prefer", "wait=0"},
				from...), more...)...)
			require.Less(t, r.status, 300, "%s: %s", way.route, r.body)
			return r
		}
		post(way.body, producerTokens, properties...)
		if way.route != "/request" { // which is of now
			post(way.body, producerTokens, "X-Broker-Delay", "1h")
			post(way.body, producerTokens, "X-Broker-Scheduled-For", time.Now().Add(time.Hour).Format(time.RFC3339))
			post(way.body, producerTokens, "X-Broker-Recurrence", "cron:0 8 * * *")
		}
		if way.media == "text/plain" {
			post(packed, producerTokens, "Content-Encoding", "gzip")
			post(way.body, signed(way.body))
		}
	}
	r := s.do("POST", s.path("/batch"), `{"Payload":"x","Consumers":["k"],"Task":"mail"}`+"\n",
		append([]string{"Content-Type", apitype.MediaLines}, producerTokens...)...)
	require.Equal(t, 200, r.status, r.body)
	at := s.delayed("1h", "later")
	r = s.reschedule(at, packed, append([]string{"Content-Encoding", "gzip", "X-Broker-Delay", "2h"}, properties...)...)
	require.Equal(t, 200, r.status, r.body)
	requireProblem(t, s.reschedule(at, "x", "If-None-Match", "*"), 412, "precondition_failed")
}

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b strings.Builder
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

func membersOfReports(t *testing.T, p *process) {
	s := p.stage(t, "k")
	s.put(s.path("/consumer/k"), "responses", "store")
	job := s.newJob("k")
	lease := s.claim("k", job)
	report := func(members string, status int) {
		t.Helper()
		r := s.move("k", job, `{"Lease":"`+lease+`",`+members+`}`, "X-Broker-Worker", "w-1; version=2; slots=4")
		require.Equal(t, status, r.status, r.body)
	}
	report(`"NextState":"QUEUED","Failed":false,"Reason":"busy","Detail":"a minute"`, 202)
	eventually(t, "the job that was given back", func() bool {
		list := s.queued("k", "limit=1")
		return len(list) == 1 && list[0].GivenBack == 1
	})
	lease = s.claim("k", job)
	report(`"NextState":"DELIVERED","ResponseBase64":"/wA=","ResponseType":"a/b"`, 202)

	job = s.newJob("k")
	lease = s.claim("k", job)
	r := s.do("POST", s.path("/consumer/k/jobs"), `{"Updates":[{"ID":"`+job+`","Lease":"`+lease+
		`","NextState":"DEAD","Reason":"broken","Detail":"no such customer"}]}`, append(consumerTokens("k"),
		"Content-Type", apitype.MediaJSON, "X-Broker-Worker", "w-1")...)
	require.Equal(t, 200, r.status, r.body)
	require.Contains(t, r.body, `"Status":202`)
	require.Contains(t, s.do("GET", s.path("/consumer/k/dlq"), "").body, "no such customer")
	require.Equal(t, "broken", s.job("k", job).Reason)
}

func repeatsOfARequest(t *testing.T, p *process) {
	s := p.stage(t)
	long := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) {
		_, _ = w.Write([]byte("an answer that is long"))
	})
	s.put(s.path("/consumer/k"), "token", "k-token", "callbackUrl", long, "responses", "store", "responseMaxBytes", "4")
	for _, replayed := range []string{"", "true"} {
		r := s.do("POST", s.path("/request"), "m", append([]string{"Idempotency-Key", "once", "Prefer", "wait=30"},
			producerTokens...)...)
		require.Equal(t, 200, r.status, r.body)
		require.Equal(t, replayed, r.header.Get("Idempotent-Replayed"))
		require.Equal(t, "true", r.header.Get("X-Broker-Response-Truncated"))
	}
	nobody := p.stage(t, "k")
	requireProblem(t, nobody.do("POST", nobody.path("/request"), "m", producerTokens...), 409, "no_responder")
	for _, prefer := range []string{"wait=soon", "wait=-1"} {
		requireProblem(t, s.do("POST", s.path("/request"), "m", append([]string{"Prefer", prefer}, producerTokens...)...),
			400, "invalid_prefer")
	}
}

func conditionsOfADeletion(t *testing.T, p *process) {
	s := p.stage(t, "k")
	s.put("/producer/leaver", "token", "leaver-token")
	for _, path := range []string{s.path("/consumer/k"), s.path(), "/producer/leaver"} {
		r := s.do("DELETE", path, "", "If-None-Match", `"another"`, "If-Unmodified-Since",
			time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		require.Equal(t, 204, r.status, r.body)
		require.Equal(t, 404, s.do("GET", path, "").status)
	}
}

func pagesOfLists(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	s.delivered(sink, 2)
	bulk := s.bulk(apitype.MediaLines, `{"Payload":"x"}`+"\n")
	own := []string{"X-Broker-Producer-ID", "p", "X-Broker-Producer-Token", "p-token", "X-Broker-Channel-Token", "c-token"}
	s.awaitBulk(bulk, "DONE")
	for _, act := range []string{"/pause", "/resume", "/cancel"} {
		requireProblem(t, s.do("POST", bulk+act, "", own...), 409, "bulk_over")
	}
	id := bulk[strings.LastIndexByte(bulk, '/')+1:]
	require.Equal(t, 200, s.do("GET", s.path("/bulks?first=", id), "").status)
	replay := s.replay("k", everSince+`,"To":"`+time.Now().UTC().Add(-time.Minute).Format(time.RFC3339)+`"`)
	s.awaitReplay(replay, "DONE")
	require.Equal(t, 200, s.do("GET", replay+"/dlq?first="+id, "", consumerTokens("k")...).status)
	message := s.publish("asked", "X-Broker-Message-ID", "asked")
	for _, page := range []string{"?since=1h", "?first=asked", "?place=" + id} {
		require.Less(t, s.do("GET", "/ui"+s.path(page), "").status, 500)
	}
	require.Less(t, s.do("GET", "/ui"+message+"?first="+id, "").status, 500)
}

// What GET shows of a consumer can be put back, with what the broker knows of it.
func aConsumerThatWasDelivered(t *testing.T, p *process) {
	fail := serveHTTP(t, func(w http.ResponseWriter, r *http.Request, _ <-chan struct{}) {
		if r.Header.Get("X-Broker-Message-Priority") == "1" {
			w.WriteHeader(http.StatusTeapot)
		}
	})
	s := p.stage(t, "k="+fail, "pull")
	s.put(s.path("/consumer/k"), "adaptive", "true")
	s.awaitStatus(s.publish("well", "X-Broker-Consumers", "k"), "DELIVERED")
	s.awaitStatus(s.publish("ill", "X-Broker-Consumers", "k", "X-Broker-Message-Priority", "1"), "DEAD")
	s.claim("pull", s.newJob("pull"))
	for _, consumer := range []string{"k", "pull"} {
		path := s.path("/consumer/", consumer)
		var shown map[string]any
		eventually(t, "what was met last", func() bool {
			shown = s.do("GET", path, "").json(t)
			return shown["LastAttemptAt"] != nil || shown["LastClaimAt"] != nil
		})
		body, err := json.Marshal(shown)
		require.NoError(t, err)
		r := s.do("PUT", path, string(body), "Content-Type", apitype.MediaJSON)
		require.Equal(t, 200, r.status, r.body)
	}
	r := s.do("GET", "/consumers?channel="+s.channel, "")
	require.Equal(t, 200, r.status, r.body)
}

func aRedriveOfReplies(t *testing.T, p *process) {
	s := p.stage(t, "k")
	path := "/producer/p/dlq"
	r := s.do("POST", path, `{"Requeue":"p-token"}`, "Content-Type", apitype.MediaJSON)
	require.Contains(t, []int{202, 404}, r.status, r.body)
	r = s.do("GET", "/producer/p/dlq?first=06h26hbqjk000q9d000g", "", "X-Broker-Producer-Token", "p-token")
	require.Equal(t, 200, r.status, r.body)
}

func refusalsOfTheDataPlane(t *testing.T, p *process) {
	s := p.stage(t, "k")
	broadcast := func(more ...string) reply { return s.post("x", more...) }
	for code, r := range map[string]reply{
		"invalid_idempotency_key": broadcast("Idempotency-Key", strings.Repeat("k", 256)),
		"invalid_consumers":       broadcast("X-Broker-Consumers", ",,"),
		"invalid_schedule":        broadcast("X-Broker-Delay", "soon"),
	} {
		requireProblem(t, r, 400, code)
	}
	r := s.do("PUT", "/producer/p2", "token=p2-token&publishSecret=x", "Content-Type", apitype.MediaForm)
	requireProblem(t, r, 400, "invalid_publish_secret")
	many := strings.Repeat(`{"ID":"06h26hbqjk000q9d000g","NextState":"DELIVERED"},`, 1001)
	r = s.do("POST", s.path("/consumer/k/jobs"), `{"Updates":[`+strings.TrimSuffix(many, ",")+`]}`,
		append(consumerTokens("k"), "Content-Type", apitype.MediaJSON)...)
	requireProblem(t, r, 400, "too_many_updates")
	requireProblem(t, s.do("GET", "/receipt/none", ""), 404, "receipt_not_found")
	requireProblem(t, s.do("POST", s.path("/consumer/k/job/06h26hbqjk000q9d000g"), `{"NextState":"QUEUED","Delay":-1}`,
		append(consumerTokens("k"), "Content-Type", apitype.MediaJSON)...), 400, "invalid_delay")
}

func refusalsOfSQSClients(t *testing.T, p *process) {
	s := p.stage(t)
	form := []string{"Content-Type", apitype.MediaForm}
	r := s.do("POST", "/sqs/q/q", "Action=ReceiveMessage", form...)
	require.Equal(t, 400, r.status, r.body)
	require.Contains(t, r.body, "<Error>")
	r = s.do("POST", "/", "{}", "X-Amz-Target", "AmazonSQS.ListQueues", "Content-Type", "application/x-amz-json-1.0",
		"Origin", "http://elsewhere")
	require.Equal(t, 403, r.status, r.body)
	require.NotEmpty(t, r.header.Get("X-Amzn-Query-Error"))
}
