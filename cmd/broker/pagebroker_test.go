package main

import (
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/script"
)

// A pageBroker is what commands of a page start with broker serve.
type pageBroker struct {
	world *world
	base  string // of all its brokers
	start string // the URL at which a broker is started

	mu   sync.Mutex
	last *process
}

// forPage lets the commands of a page start brokers on a world, in a folder of their own.
func (w *world) forPage() *pageBroker {
	w.t.Helper()
	w.folder = w.t.TempDir()
	b := &pageBroker{world: w, base: "http://" + freeAddr(w.t)}
	b.start = serveHTTP(w.t.(*testing.T), func(rw http.ResponseWriter, r *http.Request, _ <-chan struct{}) {
		body, err := io.ReadAll(r.Body)
		if err != nil || !b.restart(strings.Split(string(body), "\x00")) {
			rw.WriteHeader(http.StatusInternalServerError)
		}
	})
	return b
}

// restart ends the last broker, and starts one with the settings that are in an environment. It reports whether that is
// ready.
func (b *pageBroker) restart(environ []string) bool {
	var settings []string
	for _, line := range environ {
		if strings.HasPrefix(line, "BROKER_") || strings.HasPrefix(line, "OTEL_") || strings.HasPrefix(line, "SENTRY_") {
			settings = append(settings, line)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last != nil && b.last.stop() != 0 {
		return false
	}
	b.last = b.world.launch(append(settings, "BROKER_LISTEN="+strings.TrimPrefix(b.base, "http://"))...)
	b.last.base = b.base
	b.last.awaitReady()
	return !b.last.ended()
}

// broker is the one that was started last.
func (b *pageBroker) broker() *process {
	b.mu.Lock()
	defer b.mu.Unlock()
	require.NotNil(b.world.t, b.last, "the page starts a broker")
	return b.last
}

// ownPrograms are the programs of a release for a script: broker serve, or bin/broker serve, returns when a broker with
// the settings of the script is ready, and the one before has ended. Other commands are those of this program.
const ownPrograms = `
broker() {
	if [ "${1:-serve}" = serve ]; then env -0 | command curl -sS -f --data-binary @- "$START"; else "$PROGRAM" "$@"; fi
}
bin/broker() { broker "$@"; }
bin/bench() { ` + envMain + `=bench "$PROGRAM" "$@"; }
`

// script is how commands of a page are run, with other texts where pairs say so.
func (b *pageBroker) script(pairs ...string) script.Run {
	return script.Run{Folder: b.world.folder, Begin: script.Strict + ownPrograms, Instead: pairs, Within: patience,
		Also: []string{"http://127.0.0.1:8080", b.base}, Env: scriptEnv(append([]string{envMain + "=1", "START=" + b.start,
			"PROGRAM=" + os.Args[0], "PENSTOCK_URL=" + b.base, "PENSTOCK_TOKEN=" + adminToken}, b.world.env...)...)}
}

// run runs the commands of a page and returns what they print.
func (b *pageBroker) run(page string, pairs ...string) string {
	b.world.t.Helper()
	return b.script(pairs...).Page(b.world.t, page)
}
