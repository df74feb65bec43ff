package api

import (
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// replayExchanges are the answers about replays: of a consumer with a delivered job.
func replayExchanges(w *world, k *durable.Consumer) (all []wired) {
	const route = "/channel/{channel}/consumer/{consumer}"
	m := w.insert(durable.Message{Key: "again", Payload: []byte("x")})
	dead := w.insert(durable.Message{Key: "dies", Payload: []byte("x")})
	for _, of := range []durable.Message{m, dead} {
		w.record(durable.Outcome{Kind: durable.OutcomeDelivered, ConsumerNo: k.No, ID: of.ID, Attempts: 1,
			AtMs: of.ID.Millis() + 1})
	}
	at := consumerPath("c", k.ID)
	do := func(status int, method, of, path, body string) reply {
		r := w.do(method, path, body, adminHeader, "Content-Type: application/json").is(status)
		all = append(all, wired{method + " " + route + of, method + " " + path, r})
		return r
	}
	do(200, "POST", "/replay", at+"/replay", `{"From":"2020-01-01T00:00:00Z","DryRun":true}`)
	made := do(202, "POST", "/replay", at+"/replay",
		`{"From":"2020-01-01T00:00:00Z","Rate":"10/1s","Filter":"payload == null"}`)
	path := made.Header("Location")
	require.True(w.t, strings.HasPrefix(path, at+"/replay/"), path)
	do(200, "GET", "/replays", at+"/replays", "")
	do(200, "GET", "/replay/{replay}", path, "")
	do(200, "POST", "/replay/{replay}/pause", path+"/pause", "")
	do(200, "POST", "/replay/{replay}/resume", path+"/resume", "")
	no, err := strconv.ParseUint(path[strings.LastIndex(path, "/")+1:], 10, 32)
	require.NoError(w.t, err)
	for n, kind := range []durable.OutcomeKind{durable.OutcomeRetry, durable.OutcomeDelivered} {
		w.record(durable.Outcome{Kind: kind, ConsumerNo: uint32(no), ID: m.ID, Attempts: n + 1, AtMs: m.ID.Millis() + 2 +
			int64(n), NextMs: m.ID.Millis() + 3, StatusCode: 500, Tracked: true})
	}
	do(200, "GET", "/job/{job}", jobPath(k, m), "")
	w.record(durable.Outcome{Kind: durable.OutcomeDead, ConsumerNo: uint32(no), ID: dead.ID, Attempts: 1,
		AtMs: dead.ID.Millis() + 1, StatusCode: 400, Error: "HTTP 400", Tracked: true})
	do(200, "GET", "/replay/{replay}/dlq", path+"/dlq?size=1", "")
	do(200, "GET", "/job/{job}/timeline", jobPath(k, m)+"/timeline", "")
	do(200, "POST", "/replay/{replay}/cancel", path+"/cancel", "")
	return all
}
