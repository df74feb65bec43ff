package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A limit of sizes is what a quota is: the store answers, and takes no further byte. The broker goes on,
// says so, and refuses for certain.
func TestFaultABrokerBeyondItsQuotaRefusesForCertainAndIsNotReady(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start(envSize + "=4000000")
	p.sample("k")
	once := func(method, path, body string, header ...string) reply {
		t.Helper()
		r, err := p.try(method, path, body, header...) // nothing is repeated, as do does for a busy broker
		require.NoError(t, err)
		return r
	}
	body := strings.Repeat("x", 20_000)
	refused := reply{status: 201}
	for n := 0; refused.status == 201; n++ {
		require.Less(t, n, 2000, "the limit of sizes")
		refused = once("POST", "/channel/c/broadcast", body, producerTokens...)
	}
	requireProblem(t, refused, 503, "unavailable")
	eventually(t, "the state of the store", func() bool { return once("GET", "/readyz", "").status == 503 })
	require.Contains(t, once("GET", "/readyz", "").body, "store_not_writable")
	requireProblem(t, once("PUT", "/channel/another", "token=t", "Content-Type", "application/x-www-form-urlencoded",
		"X-Broker-Admin-Token", adminToken), 503, "unavailable")
	upload := append([]string{"Content-Type", "application/x-ndjson"}, producerTokens...)
	requireProblem(t, once("POST", "/channel/c/bulk", `{"Payload":"`+body+`"}`+"\n", upload...), 503, "unavailable")
	require.Zero(t, p.stop())
}
