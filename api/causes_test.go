package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/cause"
)

// causeExchanges are the answers about dead letters by cause, and about redrives, of a consumer that has
// dead letters afterwards, too.
func causeExchanges(w *world, k *durable.Consumer) (all []wired) {
	const route = "/channel/{channel}/consumer/{consumer}"
	for range 3 {
		w.kill(k, w.insert(durable.Message{Payload: []byte("x")}))
	}
	at := consumerPath("c", k.ID)
	do := func(status int, method, of, path, body string) reply {
		r := w.do(method, path, body, adminHeader, jsonHeader).is(status)
		all = append(all, wired{method + " " + route + of, method + " " + path, r})
		return r
	}
	do(200, "GET", "/dlq/groups", at+"/dlq/groups", "")
	do(200, "POST", "/dlq/redrive", at+"/dlq/redrive", `{"DryRun":true}`)
	made := do(202, "POST", "/dlq/redrive", at+"/dlq/redrive", fmt.Sprintf(
		`{"Fingerprint":%q,"Reason":"attempts_exhausted","From":"2020-01-01T00:00:00Z","Limit":1,"Canary":true,"Rate":"1/1s"}`,
		cause.OfAttempt(500, "answered 500")))
	path := made.Header("Location")
	require.Equal(w.t, at+"/redrive/1", path)
	do(202, "POST", "/dlq/redrive", at+"/dlq/redrive", `{}`)
	do(200, "GET", "/redrives", at+"/redrives?size=1", "")
	do(200, "GET", "/redrive/{redrive}", path, "")
	do(200, "POST", "/redrive/{redrive}/pause", path+"/pause", "")
	do(200, "POST", "/redrive/{redrive}/resume", path+"/resume", "")
	do(200, "POST", "/redrive/{redrive}/cancel", path+"/cancel", "")
	do(200, "POST", "/dlq/delete", at+"/dlq/delete", `{"Limit":1}`)
	return all
}

func TestDeadLettersAreListedByCause(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	k := w.consumer("k", "push")
	require.Equal(t, "{\"Result\":[],\"Pages\":{}}\n", w.get("/channel/c/consumer/k/dlq/groups").is(200).Body)
	var last durable.Message
	for i := range 5 {
		last = w.insert(durable.Message{})
		o := durable.Outcome{Kind: durable.OutcomeDead, ConsumerNo: k.No, ID: last.ID, Attempts: 1,
			AtMs: last.ID.Millis() +
				int64(i), StatusCode: 500 + i%2, Error: fmt.Sprintf("order %d: '%d' is gone", i, i),
			Reason: durable.AttemptsExhausted}
		if i == 4 {
			o.Reason, o.Error, o.StatusCode = durable.Expired, "the job became older", 0
		}
		w.record(o)
	}
	groups := w.get("/channel/c/consumer/k/dlq/groups").is(200).json()["Result"].([]any)
	require.Len(t, groups, 3)
	first := groups[0].(map[string]any)
	require.EqualValues(t, 2, first["Count"])
	print := first["Fingerprint"].(string)
	require.Regexp(t, "^[0-9a-f]{16}$", print)
	list := w.get("/channel/c/consumer/k/dlq?fingerprint=" + strings.ToUpper(print)).is(200).json()["DeadJobs"].([]any)
	require.Len(t, list, 2)
	for _, j := range list {
		require.Equal(t, print, j.(map[string]any)["Fingerprint"])
	}
	require.Equal(t, first["SampleJob"], list[1].(map[string]any)["ID"])

	count := func(query string) int {
		return len(w.get("/channel/c/consumer/k/dlq?" + query).is(200).json()["DeadJobs"].([]any))
	}
	require.Equal(t, 1, count("reason=expired"))
	require.Equal(t, 5, count("reason=expired,attempts_exhausted"))
	require.Equal(t, 0, count("reason=rejected"))
	at := time.UnixMilli(last.ID.Millis() + 4).UTC().Format("2006-01-02T15:04:05.000Z")
	require.Equal(t, 1, count("from="+at))
	require.Equal(t, 5, count("to="+at))
	down := w.get("/channel/c/consumer/k/dlq?order=desc&size=2&reason=attempts_exhausted").is(200).json()
	require.Len(t, down["DeadJobs"], 2)
	next := down["Pages"].(map[string]any)["next"].(string)
	require.Contains(t, next, "order=desc")
	require.Contains(t, next, "reason=attempts_exhausted")
	rest := w.get(next).is(200).json()
	require.Len(t, rest["DeadJobs"], 2)
	require.Empty(t, rest["Pages"])
	ids := func(v map[string]any, i int) string { return v["DeadJobs"].([]any)[i].(map[string]any)["ID"].(string) }
	require.Greater(t, ids(down, 0), ids(down, 1))
	require.Greater(t, ids(down, 1), ids(rest, 0))

	for query, code := range map[string]string{
		"fingerprint=zz": "invalid_fingerprint", "fingerprint=1&fingerprint=2": "invalid_query",
		"reason=attempt_exhausted": "invalid_reason",
		"reason=expired,":          "invalid_reason", "from=yesterday": "invalid_date", "order=up": "invalid_query",
		"from=2026-02-01T00:00:00Z&to=2026-01-01T00:00:00Z": "invalid_date", "fingerprints=x": "unknown_parameter",
	} {
		w.get("/channel/c/consumer/k/dlq?"+query).problem(400, code)
	}
	require.Contains(t, w.get("/channel/c/consumer/k/dlq?reason=attempt_exhausted").Body,
		"Did you mean attempts_exhausted?")
}

func TestARedriveIsReadStrictly(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	k, other := w.consumer("k", "push"), w.consumer("other", "push")
	m := w.insert(durable.Message{})
	w.kill(k, m)
	job := m.ID.Job(k.Position).String()
	path := "/channel/c/consumer/k/dlq/redrive"
	for body, code := range map[string]string{
		``: "invalid_body", `[]`: "invalid_body", `null`: "invalid_body", `{"DryRun":true} x`: "invalid_body",
		`{"Limit":"3"}`: "invalid_body",
		`{"Limit":1.5}`: "invalid_body", `{"Canary":1}`: "invalid_body", `{"Jobs":"x"}`: "invalid_body",
		`{"Jobs":[1]}`:         "invalid_body",
		`{"Fingerprints":"x"}`: "invalid_body", `{"Fingerprint":"x"}`: "invalid_fingerprint",
		`{"Reason":"boom"}`: "invalid_reason",
		`{"From":"x"}`:      "invalid_date", `{"To":"2020-01-01T00:00:00Z","From":"2021-01-01T00:00:00Z"}`: "invalid_date",
		`{"Limit":-1}`: "invalid_redrive", `{"Jobs":[]}`: "invalid_redrive", `{"Jobs":["nope"]}`: "invalid_redrive",
		`{"Jobs":["` + m.ID.Job(other.Position).String() + `"]}`: "invalid_redrive",
		`{"Rate":"fast"}`: "invalid_redrive",
		`{"Jobs":["` + strings.Repeat(job+`","`, 1000) + job + `"]}`: "invalid_redrive",
	} {
		w.do("POST", path, body, jsonHeader).problem(400, code)
	}
	require.Contains(t, w.do("POST", path, `{"Fingerprints":"x"}`, jsonHeader).Body, "Did you mean Fingerprint?")
	require.Contains(t, w.do("POST", path, `{"Jobs":[1]}`, jsonHeader).Body,
		"The member Jobs must be a list of texts.")
	w.do("POST", "/channel/c/consumer/x/dlq/redrive", `{}`, jsonHeader).problem(404, "consumer_not_found")

	matched := func(body string) float64 {
		return w.do("POST", path, body, jsonHeader).is(200).json()["Matched"].(float64)
	}
	require.EqualValues(t, 1, matched(`{"DryRun":true}`))
	require.EqualValues(t, 1, matched(`{"DryRun":true,"Jobs":["`+job+`","`+job+`"]}`))
	require.EqualValues(t, 0, matched(`{"DryRun":true,"Jobs":["`+job+`"],"Reason":"expired"}`))
	require.EqualValues(t, 0, matched(`{"DryRun":true,"To":"2020-01-01T00:00:00Z"}`))
	require.Len(t, w.get("/channel/c/consumer/k/dlq").json()["DeadJobs"], 1, "a dry run changes nothing")
	w.get("/channel/c/consumer/k/redrive/1").problem(404, "redrive_not_found")
	w.get("/channel/c/consumer/k/redrive/x").problem(404, "redrive_not_found")
	w.get("/channel/c/consumer/k/redrives?first=x").problem(400, "unknown_first")

	at := w.do("POST", path, `{}`, jsonHeader).is(202).Header("Location")
	require.Equal(t, "/channel/c/consumer/k/redrive/1", at)
	w.get("/channel/c/consumer/other/redrive/1").problem(404, "redrive_not_found")
	require.Equal(t, "PAUSED", w.post(at + "/pause").is(200).json()["State"])
	require.Equal(t, "RUNNING", w.post(at + "/resume").is(200).json()["State"])
	require.Equal(t, "CANCELLED", w.post(at + "/cancel").is(200).json()["State"])
	require.Equal(t, "CANCELLED", w.post(at + "/cancel").is(200).json()["State"])
	w.post(at+"/resume").problem(409, "redrive_ended")
	for range durable.MaxRedrives {
		w.do("POST", path, `{}`, jsonHeader).is(202)
	}
	w.do("POST", path, `{}`, jsonHeader).problem(409, "too_many_redrives")
	page := w.get("/channel/c/consumer/k/redrives?size=5").is(200).json()
	require.Len(t, page["Result"], 5)
	require.Equal(t, "17", page["Result"].([]any)[0].(map[string]any)["ID"])
	require.Contains(t, page["Pages"].(map[string]any)["next"], "first=12")
}

func TestSelectedDeadLettersAreDeletedWhereThatIsAllowed(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	k := w.consumer("k", "push")
	var jobs []string
	for range 5 {
		m := w.insert(durable.Message{})
		w.kill(k, m)
		jobs = append(jobs, m.ID.Job(k.Position).String())
	}
	path := "/channel/c/consumer/k/dlq/delete"
	deleted := func(body string) string { return w.do("POST", path, body, jsonHeader).is(200).Body }
	require.Equal(t, "{\"Deleted\":0}\n", deleted(`{"Reason":"expired"}`))
	require.Equal(t, "{\"Deleted\":1}\n", deleted(`{"Jobs":["`+jobs[3]+`"]}`))
	require.Equal(t, "{\"Deleted\":0}\n", deleted(`{"Jobs":["`+jobs[3]+`"]}`))
	require.Equal(t, "{\"Deleted\":2}\n", deleted(`{"Limit":2}`))
	require.Equal(t, "{\"Deleted\":2}\n", deleted(`{"Fingerprint":"`+cause.OfAttempt(500,
		"answered 500").String()+`"}`))
	require.Equal(t, "{\"Deleted\":0}\n", deleted(`{}`))
	require.Empty(t, w.get("/channel/c/consumer/k/dlq").json()["DeadJobs"])
	require.Empty(t, w.get("/channel/c/consumer/k/dlq/groups").json()["Result"])
	w.do("POST", path, `{"Canary":true}`, jsonHeader).problem(400, "invalid_body")
	w.do("POST", path, ``, jsonHeader).problem(400, "invalid_body")
	w.api.o.AllowDelete = false
	w.do("POST", path, `{}`, jsonHeader).problem(405, "method_not_allowed")
}
