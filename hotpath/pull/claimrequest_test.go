package pull

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
)

func parseClaimText(query, body string) (claimRequest, error) {
	var args fasthttp.Args
	args.Parse(query)
	return parseClaim(&args, []byte(body))
}

func TestAClaimIsAskedForInTheQueryOrInTheBody(t *testing.T) {
	usual := claimRequest{limit: defaultClaimed}
	with := func(change func(q *claimRequest)) claimRequest {
		q := usual
		change(&q)
		return q
	}
	for _, c := range []struct {
		query, body string
		want        claimRequest
	}{
		{"", "", usual},
		{"", "{}", usual},
		{"", ` { "Limit" : 5 } ` + "\n", with(func(q *claimRequest) { q.limit = 5 })},
		{"", `{"limit":5,"WAIT":"2s"}`, with(func(q *claimRequest) { q.limit, q.wait = 5, 2*time.Second })},
		{"", `{"Limit":null,"Wait":null,"Timeout":null}`, usual},
		{"limit=3", `{"Limit":null}`, with(func(q *claimRequest) { q.limit = 3 })},
		{"limit=3&wait=20", `{"Timeout":60}`, claimRequest{limit: 3, wait: 20 * time.Second, timeout: time.Minute}},
		{"", `{"Limit":500,"Wait":20,"Timeout":604800}`, claimRequest{limit: 500, wait: 20 * time.Second, timeout: 604800 * time.Second}},
		{"", `{"Limit":99999999999999999999,"Wait":99999999999999999999}`, claimRequest{limit: 500, wait: 20 * time.Second}},
		{"limit=99999999999999999999&wait=99999999999999999999", "", claimRequest{limit: 500, wait: 20 * time.Second}},
		{"", `{"Wait":"1m"}`, with(func(q *claimRequest) { q.wait = 20 * time.Second })},
		{"", `{"Wait":"5"}`, with(func(q *claimRequest) { q.wait = 5 * time.Second })},
		{"", `{"Wait":"\u0035s"}`, with(func(q *claimRequest) { q.wait = 5 * time.Second })},
		{"", `{"Wait":0}`, usual},
	} {
		got, err := parseClaimText(c.query, c.body)
		require.NoError(t, err, "%s %s", c.query, c.body)
		require.Equal(t, c.want, got, "%s %s", c.query, c.body)
	}
	for _, c := range []struct{ query, body, code, detail string }{
		{"", " ", "invalid_body", "JSON object"},
		{"", "limit=5", "invalid_body", "JSON object"},
		{"", "null", "invalid_body", "JSON object"},
		{"", "[]", "invalid_body", "JSON object"},
		{"", "5", "invalid_body", "JSON object"},
		{"", `"Limit"`, "invalid_body", "JSON object"},
		{"", `{"Limit":5`, "invalid_body", "JSON object"},
		{"", `{"Limit":5,}`, "invalid_body", "JSON object"},
		{"", `{"Limit":05}`, "invalid_limit", "integer"},
		{"", `{"Limit":50x}`, "invalid_body", "JSON object"},
		{"", `{"Limit":5,"Wait":"\ud800"}`, "invalid_body", "half of a surrogate pair"},
		{"", "{\"Limit\":5,\"Wait\":\"\xff\"}", "invalid_body", "not UTF-8"},
		{"", `{"Limit":5,"\u004cimit":5}`, "invalid_body", "Limit twice"},
		{"", `{"Wait":` + strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001) + "}", "invalid_body", "JSON object"},
		{"", `{"Limit":5}{}`, "invalid_body", "JSON object"},
		{"", `{Limit:5}`, "invalid_body", "JSON object"},
		{"", `{"Limt":5}`, "invalid_body",
			`"Limt", which is not known here. Did you mean Limit? Known are Limit, Wait, Timeout.`},
		{"", `{"Foo":5}`, "invalid_body", `"Foo", which is not known here. Known are`},
		{"", `{"` + strings.Repeat("x", 5000) + `":1}`, "invalid_body", "not known"},
		{"", `{"":1}`, "invalid_body", "not known"},
		{"", `{"Limit":5,"Limit":5}`, "invalid_body", "Limit twice"},
		{"", `{"Limit":5,"limit":6}`, "invalid_body", "Limit twice"},
		{"", `{"Limit":null,"limit":6}`, "invalid_body", "Limit twice"},
		{"limit=5", `{"Limit":5}`, "duplicate_field", "limit stands"},
		{"wait=5", `{"Wait":"5s"}`, "duplicate_field", "wait stands"},
		{"timeout=5", `{"Limit":1,"timeout":6}`, "duplicate_field", "timeout stands"},
		{"", `{"Limit":"5"}`, "invalid_limit", "integer"},
		{"", `{"Limit":5.0}`, "invalid_limit", "integer"},
		{"", `{"Limit":5e1}`, "invalid_limit", "integer"},
		{"", `{"Limit":0}`, "invalid_limit", "integer"},
		{"", `{"Limit":-99999999999999999999}`, "invalid_limit", "integer"},
		{"", `{"Limit":true}`, "invalid_limit", "integer"},
		{"", `{"Limit":[5]}`, "invalid_limit", "integer"},
		{"", `{"Wait":"soon"}`, "invalid_wait", "duration"},
		{"", `{"Wait":""}`, "invalid_wait", "duration"},
		{"", `{"Wait":"null"}`, "invalid_wait", "duration"},
		{"", `{"Wait":1.5}`, "invalid_wait", "duration"},
		{"", `{"Wait":-1}`, "invalid_wait", "duration"},
		{"", `{"Wait":"-1ns"}`, "invalid_wait", "duration"},
		{"", `{"Wait":{"s":1}}`, "invalid_wait", "duration"},
		{"", `{"Timeout":"60"}`, "invalid_timeout", "seconds"},
		{"", `{"Timeout":"60s"}`, "invalid_timeout", "seconds"},
		{"", `{"Timeout":0}`, "invalid_timeout", "seconds"},
		{"", `{"Timeout":604801}`, "invalid_timeout", "seconds"},
		{"", `{"Timeout":99999999999999999999}`, "invalid_timeout", "seconds"},
		{"limit=x", `{}`, "invalid_limit", "integer"},
	} {
		_, err := parseClaimText(c.query, c.body)
		require.Error(t, err, "%s %s", c.query, c.body)
		p := problem.From(err)
		require.Equal(t, 400, p.Status, "%s %s", c.query, c.body)
		require.Equal(t, c.code, p.Code, "%s %s", c.query, c.body)
		require.Contains(t, p.Detail, c.detail)
		require.Less(t, len(p.Detail), 500)
	}
}

func FuzzClaimBody(f *testing.F) {
	for _, s := range []string{`{"Limit":1,"Wait":"20s","Timeout":60}`, `{"wait":5}`, `{"Wait":-1e9}`,
		`{"Limit":1,"LIMIT":2}`, `{"Timeout":"1"}`, `{"Limit":null}`, `[[[[`, `{"\u004cimit":3}`, "{\"L\xff\":1}",
		`{"Wait":"\ud800"}`} {
		f.Add("", []byte(s))
		f.Add("limit=2&wait=1s", []byte(s))
	}
	f.Fuzz(func(t *testing.T, query string, body []byte) {
		q, err := parseClaimText(query, string(body))
		if err != nil {
			require.Equal(t, 400, problem.From(err).Status)
			return
		}
		require.True(t, len(body) == 0 || json.Valid(body))
		require.True(t, q.limit >= 1 && q.limit <= maxClaimed, "%d", q.limit)
		require.True(t, q.wait >= 0 && q.wait <= maxClaimWait, "%v", q.wait)
		require.True(t, q.timeout == 0 || q.timeout >= time.Second && q.timeout <= MaxIncrementalTimeout*time.Second,
			"%v", q.timeout)
		if len(body) > 0 { // nothing of it was passed over
			var members map[string]any
			require.NoError(t, json.Unmarshal(body, &members))
			require.LessOrEqual(t, len(members), len(claimMembers))
		}
	})
}

func TestAnUpdateWithAMemberThatIsNotKnownIsRefused(t *testing.T) {
	for body, detail := range map[string]string{
		`{"Updates":[{"ID":"a","Laese":"x.1","NextState":"DELIVERED"}]}`: `"Laese", which is not known here. Did you mean Lease?`,
		`{"Updates":[{"ID":"a","Dealy":30}]}`:                            "Did you mean Delay?",
		`{"Updates":[{"ID":"a","Attempt":1}]}`:                           `"Attempt", which is not known here. Known are ID, Lease,`,
		`{"Updates":[],"Other":1}`:                                       `"Other", which is not known here. Known are Updates.`,
		`{"Update":[]}`:                                                  "Did you mean Updates?",
		`{"Updates":[],"updates":[]}`:                                    "Updates twice",
		`{"Updates":[{"ID":"a","ID":"b"}]}`:                              "ID twice",
		`{"Updates":[{"Lease":"a","lease":null}]}`:                       "Lease twice",
		`{"Updates":[null]}`:                                             "JSON object",
		`{"Updates":[[]]}`:                                               "JSON object",
		`{"Updates":{}}`:                                                 "JSON object",
		`{"Updates":null}`:                                               "JSON object",
		`{}`:                                                             "JSON object",
		``:                                                               "JSON object",
		`{"Updates":[]}{}`:                                               "JSON object",
		`{"Updates":[{"ID":1}]}`:                                         "JSON object",
		`{"Updates":[{"Delay":1.5}]}`:                                    "JSON object",
		`{"Updates":[{"ID":"\ud800"}]}`:                                  "half of a surrogate pair",
		`{"Updates":[{"\udfff":"a"}]}`:                                   "half of a surrogate pair",
		"{\"Updates\":[{\"ID\":\"\xff\"}]}":                              "not UTF-8",
		`{"Updates":[{"ID":"a","\u0049D":"b"}]}`:                         "ID twice",
	} {
		_, err := parseUpdates([]byte(body))
		require.Error(t, err, body)
		require.Equal(t, "invalid_body", problem.From(err).Code, body)
		require.Contains(t, problem.From(err).Detail, detail, body)
	}
}

func TestAParameterThatOccursTwiceIsRefused(t *testing.T) {
	for _, query := range []string{"limit=1&limit=2", "limit=1&limit=1", "wait=1s&x=1&wait=2s", "timeout=5&%74imeout=6",
		"limit=5&limit="} {
		_, err := parseClaimText(query, "")
		require.ErrorContains(t, err, "invalid_query", query)
	}
	for _, query := range []string{"", "limit=1", "limit=1&wait=1s&timeout=5", "x=1&x=2"} {
		_, err := parseClaimText(query, "")
		require.NoError(t, err, query)
	}
	var args fasthttp.Args
	args.Parse("after=a&limit=1&after=b")
	require.ErrorContains(t, eachOnce(&args, "limit", "after"), "invalid_query")
}

func BenchmarkClaimBody(b *testing.B) {
	var args fasthttp.Args
	body := []byte(`{"Limit":100,"Wait":"20s","Timeout":60}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseClaim(&args, body); err != nil {
			b.Fatal(err)
		}
	}
}
