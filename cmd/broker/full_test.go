package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A limit of sizes is what a quota is: the store answers, and takes no further byte. The broker goes on,
// says so, and refuses for certain.
func TestFaultABrokerBeyondItsQuotaRefusesForCertainAndIsNotReady(t *testing.T) {
	t.Parallel()
	p := embeddedWorld(t).start(envSize+"=4000000", "BROKER_ALLOW_DELETE=true")
	p.sample("k")
	body := strings.Repeat("x", 20_000)
	refused := reply{status: 201}
	for n := 0; refused.status == 201; n++ {
		require.Less(t, n, 2000, "the limit of sizes")
		refused = p.broadcast(body)
	}
	requireProblem(t, refused, 503, "unavailable")
	eventually(t, "the state of the store", func() bool { return p.do("GET", "/readyz", "").status == 503 })
	require.Contains(t, p.do("GET", "/readyz", "").body, "store_not_writable")
	requireProblem(t, p.do("PUT", "/channel/another", "token=t", "Content-Type", "application/x-www-form-urlencoded"), 503, "unavailable")
	upload := append([]string{"Content-Type", "application/x-ndjson"}, producerTokens...)
	requireProblem(t, p.do("POST", "/channel/c/bulk", `{"Payload":"`+body+`"}`+"\n", upload...), 503, "unavailable")
	require.Zero(t, p.stop())
}
