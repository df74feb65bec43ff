package main

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/script"
)

// The commands of the pages for operators work as they stand, one after the other.
func TestTheCommandsOfThePagesForOperatorsWork(t *testing.T) {
	parallel(t)
	for _, page := range []string{"docs/operate/it-is-late.md", "docs/operate/nothing-arrives.md",
		"docs/operate/after-an-outage.md"} {
		t.Run(page, func(t *testing.T) {
			parallel(t)
			target := newSink(t, func(int, received) int { return 500 })
			p := embeddedWorld(t).start()
			p.put("/producer/shop", "token", "p-token")
			p.put("/channel/orders", "token", "c-token")
			p.put("/channel/orders/consumer/billing", "token", "TOKEN", "callbackUrl", target.URL)
			r := p.do("POST", "/channel/orders/broadcast", "body", "X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID",
				"shop", "X-Broker-Producer-Token", "p-token", "X-Broker-Message-ID", "order-17")
			require.Equal(t, 201, r.status, r.body)
			eventually(t, "an attempt", func() bool { return target.count() > 0 })
			runPage(t, p, page)
		})
	}
}

// runPage runs the commands of a page at a broker, with other texts where pairs say so, and returns what they print.
func runPage(t *testing.T, p *process, page string, pairs ...string) string {
	t.Helper()
	return script.Run{Env: scriptEnv(), Instead: pairs, Also: []string{"http://127.0.0.1:8080", p.base},
		Within: patience}.Page(t, page)
}

// scriptEnv is the environment of a script, whose curl asks brokers of this machine.
func scriptEnv(env ...string) []string {
	return append(append(clearedEnv(), "NO_PROXY=*"), env...)
}

// The page about failures names two causes and a redrive; here they are those of a consumer that fails in two ways
// and then stands still, so the redrive can be paused.
func TestTheCommandsOfThePageAboutFailuresWork(t *testing.T) {
	parallel(t)
	var asked atomic.Int32
	url := serveHTTP(t, func(w http.ResponseWriter, r *http.Request, over <-chan struct{}) {
		switch asked.Add(1) {
		case 1:
			w.WriteHeader(500)
		case 2:
			w.WriteHeader(400)
		default:
			<-over
		}
	})
	p := embeddedWorld(t).start("BROKER_ALLOW_DELETE=true")
	p.put("/producer/shop", "token", "p-token")
	p.put("/channel/orders", "token", "c-token")
	p.put("/channel/orders/consumer/billing", "token", "k-token", "callbackUrl", url, "maxRetries", "0", "timeout", "1h")
	var groups apitype.DeadGroups
	for n := 1; n <= 2; n++ {
		r := p.do("POST", "/channel/orders/broadcast", "body", "X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID",
			"shop", "X-Broker-Producer-Token", "p-token")
		require.Equal(t, 201, r.status, r.body)
		eventually(t, "a dead letter", func() bool {
			groups = apitype.DeadGroups{}
			listed := p.do("GET", "/channel/orders/consumer/billing/dlq/groups", "")
			require.NoError(t, json.Unmarshal([]byte(listed.body), &groups))
			return len(groups.Result) == n
		})
	}
	one, other := groups.Result[0], groups.Result[1]
	if one.Status != 500 {
		one, other = other, one
	}
	runPage(t, p, "docs/operate/it-fails.md", "81382dd5798bbe48", one.Fingerprint, "9c01aa5e77d03b12", other.Fingerprint,
		"/redrive/3", "/redrive/1", "set -e", "set -e; K="+p.base+"/channel/orders/consumer/billing; set -e")
}
