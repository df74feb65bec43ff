package api

import (
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// timelineExchanges are the answers of the timelines.
func timelineExchanges(w *world, k *durable.Consumer) (all []wired) {
	m := w.insert(durable.Message{Key: "timed"})
	at := m.ID.Millis()
	w.record(durable.Outcome{Kind: durable.OutcomeRetry, ConsumerNo: k.No, ID: m.ID, Attempts: 1, AtMs: at + 1,
		NextMs: at + 2, DurationMs: 1,
		Phase: durable.PhaseMaybeProcessed, Error: "no answer", Node: 1})
	w.record(durable.Outcome{Kind: durable.OutcomeDead, ConsumerNo: k.No, ID: m.ID, Attempts: 2, AtMs: at + 2,
		StatusCode: 500,
		Reason:     durable.AttemptsExhausted, Error: "status 500", Tracked: true})
	for _, path := range []string{"/channel/c/message/timed/timeline", "/channel/c/message/timed/timeline?size=1"} {
		r := w.do("GET", path, "")
		require.Equal(w.t, 200, r.Status, r.Body)
		all = append(all, wired{"GET /channel/{channel}/message/{message}/timeline", "GET " + path, r})
	}
	path := jobPath(k, m) + "/timeline"
	r := w.do("GET", path, "")
	require.Equal(w.t, 200, r.Status, r.Body)
	return append(all, wired{"GET /channel/{channel}/consumer/{consumer}/job/{job}/timeline", "GET " + path, r})
}
