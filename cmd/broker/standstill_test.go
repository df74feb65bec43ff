package main

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Eight consumers stand still for eight reasons. The page for that night names each, and its commands bring those back
// whose endpoints are mended.
func TestThePageAboutConsumersThatStandStillFindsEightReasons(t *testing.T) {
	parallel(t)
	var mu sync.Mutex
	asked, mended := map[string]int{}, false
	url := serveHTTP(t, func(w http.ResponseWriter, r *http.Request, over <-chan struct{}) {
		mu.Lock()
		asked[r.URL.Path]++
		well := mended
		mu.Unlock()
		switch {
		case r.URL.Path == "/slow":
			<-over
		case well:
		case r.URL.Path == "/gone":
			w.WriteHeader(410)
		case r.URL.Path == "/resting":
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(503)
		case r.URL.Path == "/dead", r.URL.Path == "/failing":
			w.WriteHeader(500)
		}
	})
	p := embeddedWorld(t).start("BROKER_NO_WORKER_AFTER=1s", "BROKER_RETRY_MAX_DELAY=1h")
	p.put("/producer/shop", "token", "p-token")
	p.put("/channel/orders", "token", "c-token")
	const at = "/channel/orders/consumer/"
	reasons := map[string]string{"paused": "the consumer is paused", "gone": "answered 410",
		"dead":    "the consumer is dead",
		"resting": "asked for no jobs until", "failing": "the last attempt failed", "slow": "as many attempts are in flight",
		"billing": "the rate of the consumer is used up", "unpolled": "no worker has claimed"}
	for name, fields := range map[string][]string{"paused": nil, "gone": nil,
		"dead":    {"tombstoneAfter", "1", "backoff", "1s"},
		"resting": nil, "failing": {"backoff", "1h"}, "slow": {"concurrency", "1", "timeout", "1h"},
		"billing": {"rateLimit", "1/1h"}} {
		p.put(at+name, append([]string{"callbackUrl", url + "/" + name}, fields...)...)
	}
	p.put(at+"unpolled", "type", "pull")
	require.Equal(t, 200, p.do("POST", at+"paused/pause", "").status)
	for range 3 {
		r := p.do("POST", "/channel/orders/broadcast", "body", "X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID",
			"shop", "X-Broker-Producer-Token", "p-token")
		require.Equal(t, 201, r.status, r.body)
	}
	for name, reason := range reasons {
		eventually(t, name+" stands still", func() bool {
			return strings.Contains(p.do("GET", at+name+"/why", "").body, reason)
		})
	}
	mu.Lock()
	mended = true
	mu.Unlock()
	out := runPage(t, p, "docs/operate/consumers-stand-still.md")
	for name, reason := range reasons {
		require.Regexp(t, at+name+": .*"+reason, out)
	}
	for _, name := range []string{"paused", "gone", "dead", "resting", "failing", "billing"} {
		eventually(t, name+" goes on", func() bool {
			return strings.Contains(p.do("GET", at+name, "").body, `"Queued":0,"InFlight":0,"DeadLetters":0`)
		})
	}
}
