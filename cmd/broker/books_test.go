package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

func (s *stage) books(query string) apitype.Reconciliation {
	s.t.Helper()
	r := s.do("GET", s.path("/reconcile"+query), "")
	require.Equal(s.t, 200, r.status, r.body)
	var v apitype.Reconciliation
	require.NoError(s.t, json.Unmarshal([]byte(r.body), &v))
	return v
}

// The books of a channel say what became of each message, at every moment.
func TestTheBooksOfAChannelBalance(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with("BROKER_MAX_RETRIES=0", "BROKER_RATIONAL_DELAY=500ms")
		var healed atomic.Bool
		sink := newSink(t, func(_ int, r received) int {
			if r.body == "dies" && !healed.Load() {
				return 500
			}
			return 204
		})
		p := w.start()
		s := p.stage(t, "push="+sink.URL, "pull")
		s.put(s.path("/consumer/old"), "token", "old-token", "type", "pull", "ttl", "100ms")
		begun := time.Now().Add(-time.Second)
		for i := range 10 {
			s.publish([]string{"lives", "dies"}[i%2])
		}
		held := s.awaitQueued("pull", 10)[0].ID
		s.claim("pull", held)
		done := s.queued("pull", "limit=1")[0].ID
		s.claim("pull", done)
		require.Equal(t, 202, s.move("pull", done, to("DELIVERED")).status)
		want := []apitype.Books{
			{ConsumerID: "push", Accepted: 10, Delivered: 5, Dead: 5, Balanced: true},
			{ConsumerID: "pull", Accepted: 10, Delivered: 1, Queued: 8, InFlight: 1, Balanced: true},
			{ConsumerID: "old", Accepted: 10, Expired: 10, Balanced: true},
		}
		eventually(t, "all outcomes", func() bool {
			got := s.books("").Result
			for _, b := range got {
				require.True(t, b.Balanced, "%+v", b)
			}
			return fmt.Sprint(got) == fmt.Sprint(want)
		})
		require.Equal(t, want, s.books("?from="+url.QueryEscape(begun.Format(time.RFC3339Nano))).Result)
		none := s.books("?to=" + url.QueryEscape(begun.Format(time.RFC3339Nano)))
		require.Len(t, none.Result, 3)
		for _, b := range none.Result {
			require.Equal(t, apitype.Books{ConsumerID: b.ConsumerID, Balanced: true}, b)
		}
		// The sums are kept when the watermark has passed; nothing changes, also after a redrive.
		eventually(t, "the sums", func() bool {
			var n int
			require.NoError(t, w.openStore().QueryRow("SELECT COUNT(*) FROM books").Scan(&n))
			return n >= 2
		})
		require.Equal(t, want, s.books("").Result)
		healed.Store(true)
		require.Equal(t, 202, s.redriveAll("push", "push-token").status)
		want[0].Delivered, want[0].Dead = 10, 0
		eventually(t, "the redriven jobs", func() bool {
			got := s.books("").Result
			require.True(t, got[0].Balanced, "%+v", got[0])
			return fmt.Sprint(got) == fmt.Sprint(want)
		})
		require.Equal(t, want, s.books("").Result)
		for _, query := range []string{"?from=yesterday", "?to=", "?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z"} {
			requireProblem(t, s.do("GET", s.path("/reconcile"+query), ""), 400, "invalid_date")
		}
		requireProblem(t, s.do("GET", s.path("/reconcile?to=2026-01-01T00:00:00Z&to=2026-01-01T00:00:00Z"), ""), 400,
			"invalid_query")
		require.Equal(t, 404, s.do("GET", "/channel/none/reconcile", "").status)
	})
}
