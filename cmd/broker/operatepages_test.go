package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
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

// runPage runs the commands of a page, with other texts where pairs say so, and returns what they print. An answer of
// 400 or more ends the script.
func runPage(t *testing.T, p *process, page string, pairs ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	bash := exec.CommandContext(ctx, "bash")
	bash.Env, bash.WaitDelay = append(clearedEnv(), "NO_PROXY=*"), patience // a curl in front of grep -q ends later
	text := "set -e -o pipefail\ncurl() { command curl --fail-with-body \"$@\"; }\n" + pageCommands(t, page)
	for i := 0; i < len(pairs); i += 2 {
		require.Contains(t, text, pairs[i])
	}
	bash.Stdin = strings.NewReader(strings.NewReplacer(append(pairs, "http://127.0.0.1:8080", p.base)...).Replace(text))
	var out bytes.Buffer
	bash.Stdout, bash.Stderr = &out, &out
	require.NoError(t, bash.Run(), out.String())
	return out.String()
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
