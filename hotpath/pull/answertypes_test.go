package pull

import (
	"encoding/base64"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/test/apitest"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/redisq"
)

// hostileMessages are messages with these texts and bytes in each place, and with every optional
// member present and absent.
func hostileMessages() (msgs []durable.Message) {
	payloads := append(append([]string{}, apitest.HostileTexts...), apitest.HostileBytes...)
	for i, payload := range payloads {
		header := strings.ReplaceAll(payload, "\n", "\t")
		all := []durable.Message{
			{Payload: []byte(payload)},
			{Key: "key", Priority: redisq.MaxPriority, ContentType: payload, Headers: []byte("B:: \na:" + header + "\n"),
				Payload: []byte("x")},
			{Key: strings.Repeat("~", 255), Priority: 1, ContentType: "text/plain",
				Headers: []byte("Content-Encoding:gzip\ntraceparent:" + header + "\n"), Payload: []byte(payload)},
		}
		for j := range all {
			all[j].ID, all[j].Audience = ident.AtMillis(int64(1+3*i+j)), 3
		}
		msgs = append(msgs, all...)
	}
	return msgs
}

// wantMessage is m as docs/consuming.md describes it.
func wantMessage(m *durable.Message, producer string) apitype.PullMessage {
	latin1 := func(s string) string {
		if utf8.ValidString(s) {
			return s
		}
		var b strings.Builder
		for _, c := range []byte(s) {
			b.WriteRune(rune(c))
		}
		return b.String()
	}
	want := apitype.PullMessage{MessageID: m.Key, ProducerID: producer, Payload: string(m.Payload),
		Headers: map[string]string{}, ContentType: latin1(m.ContentType), ContentEncoding: m.ContentEncoding()}
	if m.Key == "" {
		want.MessageID = m.ID.String()
	}
	if !utf8.Valid(m.Payload) {
		want.Payload, want.PayloadEncoding = base64.StdEncoding.EncodeToString(m.Payload), apitype.Base64
	}
	for _, line := range strings.Split(string(m.Headers), "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			want.Headers[name] = latin1(value)
		}
	}
	return want
}

func TestClaimAnswersAreOfTheirType(t *testing.T) {
	const path = "/channel/{channel}/consumer/{consumer}/claim"
	require.IsType(t, apitype.ClaimedJobs{}, apitest.AnswerType(t, "POST", path))
	members, k := strictjson.Of(apitype.ClaimedJobs{}), &durable.Consumer{Position: 2}
	msgs := hostileMessages()
	for i, deadline := range []time.Time{time.UnixMilli(1).UTC(), time.Unix(1_800_000_000, 123456789),
		time.Unix(1_800_000_000, 0).UTC()} {
		jobs := []claimedJob{}
		want := apitype.ClaimedJobs{Result: []apitype.ClaimedJob{}}
		for j := range msgs[:i*len(msgs)/2] {
			m, attempt := &msgs[j], []int{0, 1, math.MaxInt32}[j%3]
			jobs = append(jobs, claimedJob{lease: redisq.Lease{ID: m.ID,
				Token: apitest.HostileTexts[j%len(apitest.HostileTexts)], Attempt: attempt}, msg: m, producer: "p",
				counts: jobCounts{j % 3, j % 2}})
			want.Result = append(want.Result, apitype.ClaimedJob{
				ID: m.ID.Job(2).String(), Lease: apitest.HostileTexts[j%len(apitest.HostileTexts)], Attempt: attempt,
				LeasesLost: j % 3, GivenBack: j % 2,
				Deadline: deadline.UTC(), Priority: m.Priority, Message: wantMessage(m, "p"),
			})
		}
		var got apitype.ClaimedJobs
		members.Decode(t, claimedText(k, jobs, deadline), &got)
		require.Equal(t, want, got)
	}
	m := &msgs[0]
	replayed := *k
	replayed.Replay = &durable.Replay{No: 7}
	var got apitype.ClaimedJobs
	members.Decode(t, claimedText(&replayed, []claimedJob{{lease: redisq.Lease{ID: m.ID, Token: "e.1", Attempt: 1},
		msg: m}}, time.Unix(1, 0)), &got)
	require.Equal(t, "7", got.Result[0].Replay)
	require.Equal(t, "7~e.1", got.Result[0].Lease, "the lease names the replay")
	var held apitype.ClaimedJobs
	none := answer.Text{Whole: true}
	appendClaimed(&none, k, nil, time.Time{}, whyPaused)
	members.Decode(t, none.B, &held)
	require.Equal(t, apitype.ClaimedJobs{Result: []apitype.ClaimedJob{}, Why: "paused"}, held)
	require.Empty(t, members.Missing())
}

func TestQueuedJobsAreOfTheirType(t *testing.T) {
	const path = "/channel/{channel}/consumer/{consumer}/queued-jobs"
	require.IsType(t, apitype.QueuedJobs{}, apitest.AnswerType(t, "GET", path))
	members, k := strictjson.Of(apitype.QueuedJobs{}), &durable.Consumer{Position: 2}
	msgs := hostileMessages()
	for i, next := range apitest.HostileTexts {
		page := queuedJobs{k: k, next: next}
		want := apitype.QueuedJobs{Result: []apitype.QueuedJob{}, Pages: apitype.Pages{Next: next}}
		for j := range msgs[:i*len(msgs)/len(apitest.HostileTexts)] {
			m := &msgs[j]
			page.jobs = append(page.jobs, queuedJob{w: redisq.Waiting{ID: m.ID, Priority: m.Priority}, attempts: j, msg: m,
				producer: "p", counts: jobCounts{j % 3, j % 2}})
			want.Result = append(want.Result, apitype.QueuedJob{ID: m.ID.Job(2).String(), Priority: m.Priority, Attempts: j,
				LeasesLost: j % 3, GivenBack: j % 2, Message: wantMessage(m, "p")})
		}
		var got apitype.QueuedJobs
		members.Decode(t, listedText(&page), &got)
		require.Equal(t, want, got)
	}
	var got apitype.QueuedJobs
	page := queuedJobs{k: k, jobs: []queuedJob{{w: redisq.Waiting{ID: msgs[0].ID}, msg: &msgs[0],
		replay: &durable.Replay{No: 7}}}}
	members.Decode(t, listedText(&page), &got)
	require.Equal(t, "7", got.Result[0].Replay)
	var held apitype.QueuedJobs
	members.Decode(t, listedText(&queuedJobs{k: k, why: whyLoading}), &held)
	require.Equal(t, "loading", held.Why)
	require.Empty(t, members.Missing())
}

func TestUpdateAnswersAreOfTheirType(t *testing.T) {
	const path = "/channel/{channel}/consumer/{consumer}/jobs"
	require.IsType(t, apitype.UpdateResults{}, apitest.AnswerType(t, "POST", path))
	members := strictjson.Of(apitype.UpdateResults{})
	u := updating{p: &Puller{metrics: metrics.New(prometheus.NewRegistry())}}
	want := apitype.UpdateResults{Result: []apitype.UpdateResult{}}
	requireSame := func() {
		t.Helper()
		var got apitype.UpdateResults
		members.Decode(t, u.appendResults(nil), &got)
		require.Equal(t, want, got)
	}
	requireSame()
	for _, text := range apitest.HostileTexts {
		for _, err := range []error{nil, errLeaseLost, durable.ErrOutcomeUnknown, errors.New("secret"),
			problem.New(400, text, "")} {
			u.updates, u.errs = append(u.updates, update{ID: text, NextState: text}), append(u.errs, err)
			result := apitype.UpdateResult{ID: text, Status: 202}
			if err != nil {
				p := problem.From(err)
				result.Status, result.Code = p.Status, p.Code
			}
			want.Result = append(want.Result, result)
		}
	}
	requireSame()
	require.Empty(t, members.Missing())
}

// The answers that this package writes are the same bytes as ever.
func TestWrittenAnswersAreTheseBytes(t *testing.T) {
	m := &durable.Message{ID: ident.AtMillis(1), Key: "m", Priority: 7, ContentType: "a/\x7f<\xe9",
		Headers: []byte("X-B:\u2028&\na:\"\n"), Payload: []byte("\x00\b\t\n\"\\/\x7f\u2028<>&\u00e9")}
	k := &durable.Consumer{Position: 1}
	const message = `"Message":{"MessageID":"m","Payload":"\u0000\u0008\t\n\"\\/` + "\x7f\u2028<>&\u00e9" +
		`","Headers":{"X-B":"` + "\u2028" + `&","a":"\""},"ContentType":"a/` + "\x7f" + `<é"}}`
	id := m.ID.Job(1).String()

	claimed := claimedText(k, []claimedJob{{lease: redisq.Lease{Token: "t.1", Attempt: 2}, msg: m}},
		time.Unix(1_800_000_000, 5e8))
	require.Equal(t, `{"Result":[{"ID":"`+id+
		`","Lease":"t.1","Attempt":2,"Deadline":"2027-01-15T08:00:00.5Z","Priority":7,`+message+"]}\n", string(claimed))

	page := queuedJobs{k: k, next: "/next?a&b", jobs: []queuedJob{{w: redisq.Waiting{Priority: 7}, attempts: 3, msg: m}}}
	require.Equal(t, `{"Result":[{"ID":"`+id+`","Priority":7,"IncrementalTimeout":0,"Attempts":3,`+message+
		`],"Pages":{"next":"/next?a&b"}}`+"\n", string(listedText(&page)))
	require.Equal(t, `{"Result":[],"Pages":{}}`+"\n", string(listedText(&queuedJobs{k: k})))
	require.Equal(t, `{"Result":[],"Pages":{},"Why":"loading"}`+"\n",
		string(listedText(&queuedJobs{k: k, why: whyLoading})))
	none := answer.Text{Whole: true}
	appendClaimed(&none, k, nil, time.Time{}, whyPaused)
	require.Equal(t, `{"Result":[],"Why":"paused"}`+"\n", string(none.B))
	binary := textOf(&durable.Message{ID: m.ID, Payload: []byte("\xff")})
	require.Equal(t, `{"MessageID":"`+m.ID.String()+
		`","Payload":"/w==","PayloadEncoding":"base64","Headers":{},"ContentType":""}`, string(binary))

	u := updating{p: &Puller{metrics: metrics.New(prometheus.NewRegistry())}, updates: []update{{ID: "a\u2028"},
		{ID: "b"}}, errs: []error{nil, errLeaseLost}}
	require.Equal(t, `{"Result":[{"ID":"a`+"\u2028"+`","Status":202},{"ID":"b","Status":409,"code":"lease_lost"}]}`+"\n",
		string(u.appendResults(nil)))
}

func claimedText(k *durable.Consumer, jobs []claimedJob, deadline time.Time) []byte {
	t := answer.Text{Whole: true}
	appendClaimed(&t, k, jobs, deadline, "")
	return t.B
}

func listedText(page *queuedJobs) []byte {
	t := answer.Text{Whole: true}
	page.appendJSON(&t)
	return t.B
}
