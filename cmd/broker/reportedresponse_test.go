package main

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// responseTo returns the response of consumer k of the sample channel to a message.
func (p *process) responseTo(message, query string) apitype.Response {
	p.t.Helper()
	var v apitype.Responses
	r := p.do("GET", "/channel/c/message/"+message+"/responses"+query, "", producerTokens...)
	require.Equal(p.t, 200, r.status, r.body)
	require.NoError(p.t, json.Unmarshal([]byte(r.body), &v))
	require.Len(p.t, v.Result, 1)
	return v.Result[0]
}

// claimed publishes a message and claims its job.
func (p *process) claimed(t *testing.T, message string) apitype.ClaimedJob {
	t.Helper()
	p.publish(message, "X-Broker-Message-ID", message)
	return p.claimOne(t, "k", "600")
}

// delivers is an entry of a batch update that reports a job as delivered, with other members (pairs).
func delivers(j apitype.ClaimedJob, more ...any) map[string]any {
	update := map[string]any{"ID": j.ID, "Lease": j.Lease, "NextState": "DELIVERED"}
	for i := 0; i < len(more); i += 2 {
		update[more[i].(string)] = more[i+1]
	}
	return update
}

func TestAReportBringsTheResponseAlong(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with(quick...)
		p := w.start()
		p.sample("k", "silent")
		p.put("/channel/c/consumer/k", "type", "pull", "responses", "store", "responseMaxBytes", "64")
		t.Run("it is stored with the job", func(t *testing.T) { reportedResponses(t, p.in(t)) })
		t.Run("a repeat changes nothing", func(t *testing.T) { repeatedResponses(t, p.in(t)) })
		t.Run("one that cannot be is refused for itself", func(t *testing.T) { refusedResponses(t, p.in(t)) })
		require.Equal(t, 0, p.stop())
		t.Run("a kill leaves both or nothing", func(t *testing.T) { killedResponses(t, w) })
	})
}

func reportedResponses(t *testing.T, p *process) {
	text, bytes, bare := p.claimed(t, "text"), p.claimed(t, "bytes"), p.claimed(t, "bare")
	long, empty := p.claimed(t, "long"), p.claimed(t, "empty")
	for i, got := range p.update("k",
		delivers(text, "Response", `{"sum":"42 €"}`, "ResponseType", "application/json"),
		delivers(bytes, "ResponseBase64", base64.StdEncoding.EncodeToString([]byte("\xff\x00")), "ResponseType", "a/b"),
		delivers(bare), delivers(long, "Response", strings.Repeat("x", 65)), delivers(empty, "Response", "")) {
		require.Equal(t, 202, got.Status, "%d %s", i, got.Code)
	}
	got := p.responseTo("text", "?wait=30s")
	require.Equal(t, "RESPONSE_RECEIVED_FROM_RECEIVER", got.State)
	require.Equal(t, []any{`{"sum":"42 €"}`, "", 200, 1, false}, []any{got.Body, got.BodyEncoding, got.Status, got.Attempt,
		got.Truncated})
	require.Equal(t, map[string]string{"Content-Type": "application/json"}, got.Headers)
	require.Equal(t, "DELIVERED", p.jobOf("k", text.ID).Status)
	got = p.responseTo("bytes", "")
	require.Equal(t, []string{"/wA=", "base64", "a/b"}, []string{got.Body, got.BodyEncoding, got.Headers["Content-Type"]})
	require.Equal(t, "DELIVERED_TO_RECEIVER", p.responseTo("bare", "").State)
	got = p.responseTo("long", "")
	require.Equal(t, strings.Repeat("x", 64), got.Body, "as much as responseMaxBytes")
	require.True(t, got.Truncated)
	require.Empty(t, got.Headers)
	got = p.responseTo("empty", "")
	require.Equal(t, []string{"RESPONSE_RECEIVED_FROM_RECEIVER", ""}, []string{got.State, got.Body})

	asked := make(chan reply, 1) // a request that waits gets it at once
	go func() {
		asked <- p.do("POST", "/channel/c/request", "ask", append([]string{"Prefer", "wait=30"}, producerTokens...)...)
	}()
	j := p.claimOne(t, "k", "600")
	r := p.do("POST", "/channel/c/consumer/k/job/"+j.ID, `{"NextState":"DELIVERED","Response":"single","Lease":"`+j.Lease+
		`"}`, append(consumerTokens("k"), "Content-Type", "application/json")...)
	require.Equal(t, 202, r.status, r.body)
	r = <-asked
	require.Equal(t, []any{200, "single"}, []any{r.status, r.body})
}

func repeatedResponses(t *testing.T, p *process) {
	j := p.claimed(t, "again")
	for _, body := range []string{"first", "first", "second"} {
		require.Equal(t, 202, p.update("k", delivers(j, "Response", body))[0].Status)
		require.Equal(t, "first", p.responseTo("again", "").Body)
	}
	r := p.do("POST", "/channel/c/message/again/response", "third", append(consumerTokens("k"), "X-Broker-Consumer-ID",
		"k")...)
	require.Equal(t, 409, r.status, r.body)

	j = p.claimed(t, "later") // the report that delivers the job has none, and the repeat has one
	require.Equal(t, 202, p.update("k", delivers(j))[0].Status)
	require.Equal(t, 202, p.update("k", delivers(j, "Response", "late"))[0].Status)
	require.Equal(t, "late", p.responseTo("later", "").Body)

	j = p.claimed(t, "posted") // a response that was posted before the report counts
	r = p.do("POST", "/channel/c/message/posted/response", "early", append(consumerTokens("k"), "X-Broker-Consumer-ID",
		"k")...)
	require.Equal(t, 202, r.status, r.body)
	require.Equal(t, 202, p.update("k", delivers(j, "Response", "report"))[0].Status)
	require.Equal(t, "early", p.responseTo("posted", "").Body)

	j = p.claimed(t, "lost") // a response under a lease that is lost is not kept
	require.Equal(t, 202, p.giveBack("k", j))
	got := p.update("k", delivers(j, "Response", "lost"))[0]
	require.Equal(t, []any{409, "lease_lost"}, []any{got.Status, got.Code})
	require.Equal(t, "ARRIVED", p.responseTo("lost", "").State)
	require.Equal(t, 202, p.update("k", delivers(p.claimOne(t, "k", "600")))[0].Status)
}

func refusedResponses(t *testing.T, p *process) {
	a, b := p.claimed(t, "refused"), p.claimed(t, "taken")
	silent := p.claimOne(t, "silent", "600")
	for name, wrong := range map[string]map[string]any{
		"DEAD":              delivers(a, "Response", "x", "NextState", "DEAD"),
		"QUEUED":            delivers(a, "Response", "x", "NextState", "QUEUED"),
		"INFLIGHT":          delivers(a, "ResponseType", "a/b", "NextState", "INFLIGHT"),
		"no text":           delivers(a, "Response", map[string]any{"sum": 42}),
		"a type of no text": delivers(a, "Response", "x", "ResponseType", 7),
		"a type alone":      delivers(a, "ResponseType", "a/b"),
		"a long type":       delivers(a, "Response", "x", "ResponseType", strings.Repeat("a", 256)),
		"a type of lines":   delivers(a, "Response", "x", "ResponseType", "a/b\r\nX-Evil: 1"),
		"two":               delivers(a, "Response", "x", "ResponseBase64", "eA=="),
		"no base64":         delivers(a, "ResponseBase64", "?"),
	} {
		got := p.update("k", wrong)[0]
		require.Equal(t, []any{400, "invalid_response"}, []any{got.Status, got.Code}, name)
		require.Equal(t, "ARRIVED", p.responseTo("refused", "").State, name)
		require.Equal(t, "INFLIGHT", p.jobOf("k", a.ID).Status, name)
	}
	got := p.update("silent", delivers(silent, "Response", "x"))[0]
	require.Equal(t, []any{400, "invalid_response"}, []any{got.Status, got.Code}, "the consumer has responses off")
	require.Equal(t, "INFLIGHT", p.jobOf("silent", silent.ID).Status)
	all := p.update("k", delivers(a, "Response", 7), delivers(b, "Response", "y"), delivers(a, "Response", "x"))
	require.Equal(t, []int{400, 202, 202}, []int{all[0].Status, all[1].Status, all[2].Status})
	require.Equal(t, "x", p.responseTo("refused", "").Body)
	require.Equal(t, "y", p.responseTo("taken", "").Body)
	r := p.do("POST", "/channel/c/consumer/k/jobs", `{"Updates":[{"ID":"`+a.ID+`","NextState":"DELIVERED","Response":"`+
		strings.Repeat("x", 1<<20)+`"}]}`, consumerTokens("k")...)
	require.Equal(t, 413, r.status, r.body)
}

// killedResponses kills a broker once a report is stored and before it is answered.
func killedResponses(t *testing.T, w *world) {
	p := w.start(envKill + "=" + failpoint.AfterOutcome + ":1")
	p.t = t
	j := p.claimed(t, "killed")
	body, err := json.Marshal(map[string]any{"Updates": []any{delivers(j, "Response", "of the report")}})
	require.NoError(t, err)
	_, err = p.try("POST", "/channel/c/consumer/k/jobs", string(body), consumerTokens("k")...)
	require.Error(t, err)
	p.awaitEnd()
	p = w.start()
	p.t = t
	require.Equal(t, "DELIVERED", p.jobOf("k", j.ID).Status)
	require.Equal(t, "of the report", p.responseTo("killed", "").Body)
	require.Equal(t, 202, p.update("k", delivers(j, "Response", "of the repeat"))[0].Status)
	require.Equal(t, "of the report", p.responseTo("killed", "").Body)
}
