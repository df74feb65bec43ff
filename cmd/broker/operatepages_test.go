package main

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The commands of the pages for operators work as they stand, one after the other. An answer of 400 or more ends
// the script.
func TestTheCommandsOfThePagesForOperatorsWork(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"docs/operate/it-is-late.md", "docs/operate/nothing-arrives.md",
		"docs/operate/after-an-outage.md"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			target := newSink(t, func(int, received) int { return 500 })
			p := embeddedWorld(t).start()
			p.put("/producer/shop", "token", "p-token")
			p.put("/channel/orders", "token", "c-token")
			p.put("/channel/orders/consumer/billing", "token", "TOKEN", "callbackUrl", target.URL)
			r := p.do("POST", "/channel/orders/broadcast", "body", "X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID",
				"shop", "X-Broker-Producer-Token", "p-token", "X-Broker-Message-ID", "order-17")
			require.Equal(t, 201, r.status, r.body)
			eventually(t, "an attempt", func() bool { return target.count() > 0 })
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			bash := exec.CommandContext(ctx, "bash")
			bash.Env, bash.WaitDelay = append(clearedEnv(), "NO_PROXY=*"), time.Second
			text := "set -e -o pipefail\ncurl() { command curl --fail-with-body \"$@\"; }\n" + pageCommands(t, page)
			bash.Stdin = strings.NewReader(strings.ReplaceAll(text, "http://127.0.0.1:8080", p.base))
			var out bytes.Buffer
			bash.Stdout, bash.Stderr = &out, &out
			require.NoError(t, bash.Run(), out.String())
		})
	}
}
