package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A team has one token for its channel, producer and consumers, and sends it as other services want
// it. It is not carried to consumers, and nothing shows it.
func TestABearerTokenPublishesClaimsAndManages(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		sink := newSink(t, func(int, received) int { return 204 })
		p := w.start("BROKER_OPEN_MANAGEMENT=false")
		const team = "team-t0ken"
		admin := []string{"Authorization", "Bearer " + adminToken}
		form := append([]string{"Content-Type", "application/x-www-form-urlencoded"}, admin...)
		for path, fields := range map[string]string{"/producer/p": "", "/channel/c": ""} {
			require.Equal(t, 201, p.do("PUT", path, fields+"token="+team, form...).status)
		}
		require.Equal(t, 201, p.do("PUT", "/channel/c/consumer/push", "callbackUrl="+sink.URL+"&token="+team, form...).status)
		require.Equal(t, 201, p.do("PUT", "/channel/c/consumer/pull", "type=pull&token="+team, form...).status)

		one := []string{"Authorization", "bearer " + team, "X-Broker-Producer-ID", "p"}
		r := p.do("POST", "/channel/c/broadcast", "a", append(one, "X-Broker-Metadata-Headers", "Authorization",
			"X-Broker-Message-ID", "a")...)
		require.Equal(t, 201, r.status, r.body)
		r = p.do("POST", "/channel/c/batch", `{"Payload":"b"}`+"\n", append(one, "Content-Type", "application/x-ndjson")...)
		require.Contains(t, r.body, `"Status":201`)
		r = p.do("POST", "/channel/c/bulk", `{"Payload":"c"}`+"\n", append(one, "Content-Type", "application/x-ndjson")...)
		require.Contains(t, []int{201, 202}, r.status, r.body)
		require.Equal(t, 200, p.do("GET", "/channel/c/message/a", "", one...).status)
		eventually(t, "three deliveries", func() bool { return sink.distinct() == 3 })
		for _, got := range sink.all() {
			require.Empty(t, got.header.Get("Authorization"))
		}

		mine := []string{"Authorization", "Bearer " + team}
		eventually(t, "three queued jobs", func() bool {
			r := p.do("GET", "/channel/c/consumer/pull/queued-jobs", "", mine...)
			return strings.Count(r.body, `"IncrementalTimeout"`) == 3
		})
		r = p.do("POST", "/channel/c/consumer/pull/claim?limit=1", "", mine...)
		require.Equal(t, 200, r.status, r.body)
		require.Contains(t, r.body, `"Lease"`)

		// A header of its own wins, another scheme is none, a malformed one is told of.
		for _, c := range []struct {
			headers []string
			status  int
			code    string
		}{
			{append(one, "X-Broker-Producer-Token", "wrong"), 403, "producer_token_mismatch"},
			{append(one, "X-Broker-Channel-Token", "wrong"), 403, "channel_token_mismatch"},
			{[]string{"Authorization", "Basic " + team, "X-Broker-Producer-ID", "p"}, 403, "channel_token_mismatch"},
			{[]string{"Authorization", "Bearer", "X-Broker-Producer-ID", "p"}, 401, "token_missing"},
			{[]string{"Authorization", "Bearer wrong", "X-Broker-Producer-ID", "p"}, 403, "channel_token_mismatch"},
			{[]string{"Authorization", "Bearer " + team}, 401, "producer_not_found"},
		} {
			for _, path := range []string{"/channel/c/broadcast", "/channel/c/batch", "/channel/c/bulk", "/channel/c/request"} {
				r := p.do("POST", path, "x", c.headers...)
				requireProblem(t, r, c.status, c.code)
				if c.status == 401 {
					require.Equal(t, `Bearer realm="broker"`, r.header.Get("WWW-Authenticate"))
				}
			}
		}
		twice := http.Header{"Authorization": {"Bearer " + team, "Bearer " + team}, "X-Broker-Producer-Id": {"p"}}
		r, err := p.send("POST", "/channel/c/broadcast", "x", twice)
		require.NoError(t, err)
		requireProblem(t, r, 401, "token_missing")
		right := []string{"X-Broker-Channel-Token", team, "X-Broker-Producer-ID", "p", "X-Broker-Producer-Token", team,
			"Authorization", "Bearer wrong"}
		require.Equal(t, 201, p.do("POST", "/channel/c/broadcast", "d", right...).status)
		require.NotContains(t, p.log.String(), team)
	})
}
