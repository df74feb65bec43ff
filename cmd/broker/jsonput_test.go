package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A person makes the parts of a channel without a form, reads one, edits it and sends it back.
func TestWhatGETShowsIsPUT(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		sink := newSink(t, nil)
		p := w.start("BROKER_MAX_RETRIES=4", "BROKER_PRODUCER_MAX_STORED=1073741824")
		asJSON := []string{"Content-Type", "application/json"}
		r, err := p.send("PUT", "/producer/p", "", nil)
		require.NoError(t, err)
		require.Equal(t, 201, r.status, r.body)
		require.Equal(t, 201, p.do("PUT", "/channel/c", `{"Token":"c-token","Duplicates":"acknowledge"}`, asJSON...).status)
		r = p.do("PUT", "/channel/c/consumer/k", `{"CallbackURL":"`+sink.URL+
			`","Policy":{"Timeout":"5s","Concurrency":3,"Ordered":true},"maxRetries":1,"signingSecret":"generate"}`, asJSON...)
		require.Equal(t, 201, r.status, r.body)
		require.Equal(t, 200, p.do("PUT", "/producer/p", `{"token":"p-token","maxScheduled":5}`, asJSON...).status)

		require.Equal(t, 201, p.do("PUT", "/channel/c/consumer/pull", `{"Type":"pull"}`, asJSON...).status)
		for _, path := range []string{"/producer/p", "/channel/c", "/channel/c/consumer/k", "/channel/c/consumer/pull"} {
			shown := p.do("GET", path, "")
			again := p.do("PUT", path, shown.body, append(asJSON, "If-Match", shown.header.Get("ETag"))...)
			require.Equal(t, 200, again.status, again.body)
			require.Equal(t, shown.header.Get("ETag"), again.header.Get("ETag"), path)
			require.Equal(t, shown.body, p.do("GET", path, "").body)
		}
		shown := p.do("GET", "/channel/c/consumer/k", "")
		edited := strings.Replace(shown.body, `"MaxRetries":"1"`, `"MaxRetries":7`, 1)
		r = p.do("PUT", "/channel/c/consumer/k", edited, append(asJSON, "If-Match", shown.header.Get("ETag"))...)
		require.Equal(t, 200, r.status, r.body)
		policy := r.json(t)["Policy"].(map[string]any)
		require.Equal(t, []any{"7", "3", "true", "whsec_***"}, []any{policy["MaxRetries"], policy["Concurrency"],
			policy["Ordered"], policy["SigningSecret"]})
		r = p.do("PUT", "/channel/c/consumer/k", edited, append(asJSON, "If-Match", shown.header.Get("ETag"))...)
		requireProblem(t, r, 412, "precondition_failed")

		p.publish("signed")
		eventually(t, "the delivery", func() bool { return sink.count() == 1 })
		require.NotEmpty(t, sink.all()[0].header.Get("Webhook-Signature"), "the secret was kept")
		requireProblem(t, p.do("PUT", "/channel/c/consumer/k", `{"maxRetrys":1}`, asJSON...), 400, "unknown_field")
		requireProblem(t, p.do("PUT", "/channel/c/consumer/k", `{"MaxRetries":1,"Policy":{"maxRetries":2}}`, asJSON...), 400,
			"duplicate_field")
		requireProblem(t, p.do("PUT", "/channel/c/consumer/k", `{"MaxRetries":"`+strings.Repeat("1", 1<<16)+`"}`, asJSON...),
			413, "body_too_large")
	})
}
