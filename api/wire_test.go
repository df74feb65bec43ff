package api

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/sqs"
)

var update = flag.Bool("update", false, "write testdata/answers.txt")

const answersFile = "testdata/answers.txt"

// An wired is a request to a route and its answer.
type wired struct {
	route, path string
	reply
}

// exchanges calls every route of the control plane, so that each member of its answers occurs.
func exchanges(w *world) (all []wired) {
	do := func(status int, method, route, path, body string, headers ...string) {
		w.t.Helper()
		r := w.do(method, path, body, headers...)
		require.Equal(w.t, status, r.Status, "%s %s: %s", method, path, r.Body)
		all = append(all, wired{method + " " + route, method + " " + path, r})
	}
	get := func(route, path string, headers ...string) { w.t.Helper(); do(200, "GET", route, path, "", headers...) }

	const producer, channel, consumer = "/producer/{producer}", "/channel/{channel}",
		"/channel/{channel}/consumer/{consumer}"
	do(201, "PUT", producer, "/producer/p", "name=The+%3CProducer%3E+%26+%E2%80%A8&token="+secret+"-p", formHeader)
	do(200, "PUT", producer, "/producer/p", "", formHeader)
	do(201, "PUT", channel, "/channel/c", "name=The+Channel&token="+secret+"-c", formHeader)
	do(200, "PUT", channel, "/channel/c", "", formHeader)
	do(201, "PUT", consumer, "/channel/c/consumer/pull", "type=pull&token="+secret+"-pull", formHeader)
	push := w.consumer("push", "push")
	do(200, "PUT", consumer, "/channel/c/consumer/push", "protocol=h2&timeout=5s&backoff=1s,2s&retryOn=5xx&maxRetries=2",
		formHeader)
	pull := w.cat.Consumer("c", "pull")
	get(producer, "/producer/p")
	do(201, "PUT", producer, "/producer/signs", "token="+secret+"&publishSecret="+secret+
		"-of-16-and-more&statusEvents=all&replyUrl=http://127.0.0.1:9/r&signingSecret=whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", formHeader)
	get(channel, "/channel/c")
	get(consumer, "/channel/c/consumer/push")
	get(consumer, "/channel/c/consumer/pull")
	w.put("/channel/d", "").is(201)
	const group = "/group/{group}"
	do(201, "PUT", group, "/group/g", "maxChannels=2&publishRate=10/10s", formHeader)
	do(200, "PUT", channel, "/channel/d", "group=g&token="+secret+"-d", formHeader)
	do(200, "POST", group+"/pause", "/group/g/pause", "")
	do(200, "POST", group+"/resume", "/group/g/resume", "")
	get(group, "/group/g")
	get("/groups", "/groups")
	get("/producers", "/producers")
	get("/channels", "/channels?size=1")
	get("/channel/{channel}/consumers", "/channel/c/consumers")

	text := w.insert(durable.Message{
		Key: "text", Priority: 7, ContentType: "text/plain; charset=\"utf-8\"", Headers: []byte(
			"traceparent:00-a\nx-b:<&>\u2028\xff\n"),
		Payload: []byte("\x00\t\n\"\\/\x7f\u2028<>&\u00e9"),
	})
	bytes := w.insert(durable.Message{Payload: []byte("\xff\x00")})
	plain := w.insert(durable.Message{Key: "plain"})
	at := time.Now().UnixMilli()
	end := func(k *durable.Consumer, m durable.Message, n int, kind durable.OutcomeKind) {
		w.record(durable.Outcome{
			Kind: kind, ConsumerNo: k.No, ID: m.ID, Attempts: n, AtMs: at + int64(n), NextMs: at + time.Hour.Milliseconds(),
			StatusCode: 500, Error: "answered <500>", Answer: []byte([]string{"\x00\u2028&",
				"\xff"}[n%2]), DurationMs: 12, Tracked: true,
		})
	}
	end(push, text, 1, durable.OutcomeRetry)
	end(push, text, 2, durable.OutcomeRetry)
	end(push, plain, 1, durable.OutcomeDelivered)
	w.kill(pull, text)
	w.kill(pull, bytes)
	job := func(k *durable.Consumer, m durable.Message) string { return jobPath(k, m) }
	const messages, message, jobRoute, dlq = channel + "/messages", channel + "/message/{message}", consumer +
		"/job/{job}", consumer + "/dlq"
	get(messages, "/channel/c/messages?size=2")
	get(message, "/channel/c/message/text")
	get(message, "/channel/c/message/text?size=1")
	get(message, "/channel/c/message/"+bytes.ID.String())
	all = append(all, scheduledExchanges(w)...)
	all = append(all, bookExchanges(w, push)...)
	all = append(all, timelineExchanges(w, push)...)
	all = append(all, whyExchanges(w, push)...)
	all = append(all, bulkExchanges(w)...)
	all = append(all, responseExchanges(w)...)
	all = append(all, replayExchanges(w, push)...)
	asProducer := []string{"X-Broker-Channel-Token: " + secret + "-c", "X-Broker-Producer-ID: p",
		"X-Broker-Producer-Token: " + secret + "-p"}
	get(message, "/channel/c/message/text", asProducer...)
	get(jobRoute, job(push, text))
	get(jobRoute, job(push, text), asProducer...)
	get(jobRoute, job(push, plain))
	get(jobRoute, job(pull, text))
	get(jobRoute, job(pull, plain))
	get(dlq, "/channel/c/consumer/pull/dlq?size=1")
	get(dlq, "/channel/c/consumer/push/dlq")

	get(consumer, "/channel/c/consumer/push")
	do(200, "POST", channel+"/pause", "/channel/c/pause", "")
	do(200, "POST", channel+"/resume", "/channel/c/resume", "")
	do(200, "POST", consumer+"/pause", "/channel/c/consumer/push/pause", "")
	do(200, "POST", consumer+"/resume", "/channel/c/consumer/push/resume", "")
	for _, method := range []string{"GET", "POST"} {
		r := w.do(method, w.linkOfDead(push), "").is(200)
		all = append(all, wired{method + " " + consumer + "/revive/{link}", method + " " +
			"/channel/c/consumer/push/revive/LINK", r})
	}
	do(200, "POST", consumer+"/revive", "/channel/c/consumer/push/revive", "")
	all = append(all, operateExchanges(w, push, pull, text, plain)...)
	do(202, "POST", message+"/re-trigger", "/channel/c/message/text/re-trigger", "", adminHeader)
	do(202, "POST", message+"/job/{job}/re-trigger", "/channel/c/message/text/job/"+text.ID.Job(push.Position).String()+
		"/re-trigger", "", adminHeader)
	do(202, "POST", jobRoute+"/requeue-dead-job", job(pull, text)+"/requeue-dead-job", "", tokens("pull")...)
	do(202, "POST", dlq, "/channel/c/consumer/pull/dlq", "requeue="+secret+"-pull", formHeader)

	all = append(all, causeExchanges(w, pull)...)
	w.kill(pull, plain)
	do(204, "DELETE", jobRoute, job(pull, plain), "")
	do(204, "DELETE", dlq, "/channel/c/consumer/pull/dlq", "")
	do(201, "POST", channel+"/sqs-key", "/channel/d/sqs-key", "")
	get(channel+"/sqs-key", "/channel/d/sqs-key")
	do(204, "DELETE", channel+"/sqs-key", "/channel/d/sqs-key", "")
	do(404, "DELETE", channel+"/sqs-key/{key}", "/channel/d/sqs-key/PSTKAAAAAAAAAAAAAAAA", "")
	key, err := w.store.CreateSQSKey(w.t.Context(), "d", sqs.NewKey())
	require.NoError(w.t, err)
	all = append(all, wired{"DELETE " + channel + "/sqs-key/{key}", "DELETE /channel/d/sqs-key/KEY",
		w.do("DELETE", "/channel/d/sqs-key/"+key.ID, "").is(204)})
	do(204, "DELETE", producer, "/producer/signs", "")
	do(204, "DELETE", channel, "/channel/d", "")
	do(204, "DELETE", group, "/group/g", "")
	w.consumer("brief", "pull")
	w.insert(durable.Message{Key: "brief"})
	do(204, "DELETE", consumer, "/channel/c/consumer/brief", "")
	get(message, "/channel/c/message/brief")

	for _, path := range []string{"/livez", "/readyz", "/metrics", "/metrics/consumers", "/version", "/settings", "/_status", "/job-status", "/dlq-status", "/"} {
		get(path, path)
	}
	do(404, "GET", "", "/nothing", "", "X-Request-ID: mine")
	do(401, "POST", message+"/re-trigger", "/channel/c/message/text/re-trigger", "", "X-Request-ID: mine")
	w.mini.Close()
	get("/readyz", "/readyz")
	return all
}

var (
	times = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)
	digit = regexp.MustCompile(`\d`)
	ids   = regexp.MustCompile(`\b[0-9a-v]{20}\b`)
	texts = regexp.MustCompile(`"(detail|Summary|AccessKeyId|SecretAccessKey|Hash)":"[^"]+"`)
	place = regexp.MustCompile(`\bplace=\d{13}\.`) // milliseconds of a schedule
	marks = regexp.MustCompile(`\.1\d{12}\b`)      // milliseconds in the cursor of a timeline
)

// masked replaces what differs from run to run, and keeps its form. It replaces the details of
// problems too, which are for people.
func masked(text string, known map[string]string) string {
	text = texts.ReplaceAllString(text, `"$1":"<text>"`)
	text = times.ReplaceAllStringFunc(text, func(s string) string { return digit.ReplaceAllString(s, "0") })
	text = marks.ReplaceAllString(text, ".<ms>")
	text = place.ReplaceAllString(text, "place=<ms>.")
	return ids.ReplaceAllStringFunc(text, func(id string) string {
		if known[id] == "" {
			known[id] = fmt.Sprintf("<id %d>", len(known)+1)
		}
		return known[id]
	})
}

// The answers of the control plane are the same bytes as ever.
func TestAnswersAreTheStoredBytes(t *testing.T) {
	var b strings.Builder
	known := map[string]string{}
	for _, e := range exchanges(newWorld(t, nil)) {
		body := e.Body
		if body == "" {
			body = "\n"
		}
		fmt.Fprintf(&b, "%s\n%d %s\n%s\n", masked(e.path, known), e.Status, e.Header("Content-Type"), masked(body, known))
	}
	if *update {
		require.NoError(t, os.WriteFile(answersFile, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(answersFile)
	require.NoError(t, err)
	got := strings.Split(b.String(), "\n")
	for i, line := range strings.Split(string(want), "\n") {
		require.Less(t, i, len(got), "no answer %s", line)
		require.Equal(t, line, got[i], "line %d; go test ./api -run StoredBytes -update", i+1)
	}
	require.Equal(t, string(want), b.String())
}
