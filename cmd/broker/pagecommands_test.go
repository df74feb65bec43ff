package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/script"
)

// The commands of these pages work on the broker of `make run` in any state, and in one terminal: one
// after the other, again, and after a restart. An answer of 400 or more ends the script, but one that says to
// come again: as a user would, it does.
func TestTheCommandsOfThePagesWorkInAnyState(t *testing.T) {
	parallel(t)
	w := emptyWorld(t)
	received, folder := &syncBuffer{}, t.TempDir()
	sink, err := startSink("127.0.0.1:0", received)
	require.NoError(t, err)
	defer sink.Close()
	for start := range 2 {
		p, printed := startDemoBroker(t, w)
		for round := range 2 {
			text := ""
			for _, page := range []string{"README.md", "docs/first-steps.md", "docs/publishing.md", "docs/consumer-life.md",
				"docs/tokens.md", "docs/bulk.md", "docs/resources.md", "docs/scheduling.md"} {
				text += script.Commands(t, page)
			}
			// The walkthrough has refusals. Whether its answers are right is another test.
			text += "set +e; unset -f curl\n" + script.Commands(t, "docs/walkthrough.md") +
				script.Commands(t, "docs/walkthrough-2.md")
			out := script.Run{Folder: folder, Env: scriptEnv(), Begin: script.Strict + builtBroker(w), Within: 5 * patience,
				Instead: []string{"--fail-with-body", "--fail-with-body --retry 9"}, Also: []string{"http://127.0.0.1:8080", p.base,
					"127.0.0.1:9000", sink.listener.Addr().String()}}.Text(t, text)
			require.Contains(t, out, "HTTP/1.1 202 Accepted", "the worker's report")
			require.Contains(t, out, `"State":"DONE"`, "the end of the walkthrough")
			for _, missing := range []string{"There was no", "There is no", "There is still no"} {
				require.NotContains(t, out, missing)
			}
			wanted := 2*start + round + 1
			eventually(t, "the deliveries", func() bool {
				return strings.Count(received.String(), `{"hello":"my service"}`) == wanted && strings.Count(printed.String(),
					`{"hello":"world"}`+"\n\n") == 2*(round+1)
			})
		}
		require.Equal(t, exitClean, p.stop())
	}
	require.Contains(t, received.String(), "my-service got POST /hook")
	require.Contains(t, fromRoot(t, "Makefile"), "\n\t$(GO) run ./cmd/broker listen --on $(or $(ON),127.0.0.1:9000)\n")
}

// builtBroker is bin/broker for a script: this program, with the data folder of a world.
func builtBroker(w *world) string {
	return fmt.Sprintf("bin/broker() { env %s=1 BROKER_DATA_DIR='%s' '%s' \"$@\"; }\n", envMain,
		w.setting("BROKER_DATA_DIR"), os.Args[0])
}
