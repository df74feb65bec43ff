package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// broker publish needs nothing but the folder of a demo that runs: what it publishes arrives, and the place that it
// names has it.
func TestPublishReachesTheDemoOfItsFolder(t *testing.T) {
	parallel(t)
	world := emptyWorld(t)
	folder := world.setting("BROKER_DATA_DIR")
	p, printed := startDemoBroker(t, world)
	w := newTerminal(t, nil)
	w.env = append(w.env, "BROKER_DATA_DIR="+folder)

	out := w.ok(`broker publish sample-channel '{"hello":"publish"}'`)
	require.Regexp(t, regexp.MustCompile(`^\S+ is published to sample-channel; look at http://\S+\n$`), out)
	page := strings.TrimPrefix(strings.TrimSpace(out[strings.Index(out, "look at "):]), "look at "+p.base)
	require.Contains(t, page, "/ui/channel/sample-channel/message/"+strings.Fields(out)[0])
	require.Equal(t, 200, p.do("GET", page, "").status)
	eventually(t, "the delivery", func() bool { return strings.Contains(printed.String(), `{"hello":"publish"}`) })
	m := p.do("GET", strings.TrimPrefix(page, "/ui"), "").json(t)
	require.Equal(t, sampleProducer, m["ProducedBy"])

	require.Contains(t, w.ok("broker publish sample-channel x --id m-1"), "m-1 is published to sample-channel; look at ")
	require.Contains(t, w.ok("broker publish sample-channel x --id m-1"), "; it was stored already")
	var receipt struct{ MessageID, Location string }
	require.NoError(t, json.Unmarshal([]byte(w.ok("broker publish sample-channel later --delay 1h --json")), &receipt))
	require.Equal(t, 200, p.do("GET", receipt.Location, "").status)
	p.put("/channel/orders")
	p.put("/channel/ordinary")
	require.Contains(t, w.ok("broker publish orders x"), "; no consumer gets it; look at ")

	for line, want := range map[string]string{
		"broker publish sample-chanel x": `there is no channel "sample-chanel"; did you mean sample-channel?`,
		"broker publish order x":         `there is no channel "order"; did you mean orders`,
		"broker publish nothing x":       `there is no channel "nothing"; there is orders, ordinary, sample-channel`,
	} {
		got := w.run(line)
		require.Equal(t, 2, got.code, line)
		require.Equal(t, "broker publish: "+want, strings.TrimSpace(got.stderr)[:len("broker publish: "+want)], line)
	}
	require.Contains(t, w.run("broker publish sample-channel").stderr, "the payload is missing")
	require.Equal(t, 404, p.do("GET", "/channel/order", "").status, "a misspelt channel is not made")

	require.Equal(t, exitClean, p.stop())
	require.NoFileExists(t, filepath.Join(folder, "demo.json"))
}

// Where no demo runs, broker publish says how to start one; where another broker is named, the tokens of the demo do
// not go there.
func TestPublishSaysWhatIsMissing(t *testing.T) {
	parallel(t)
	folder := t.TempDir()
	file := filepath.Join(folder, "demo.json")
	w := newTerminal(t, nil)
	w.env = append(w.env, "BROKER_DATA_DIR="+folder)
	gone := "http://" + freeAddr(t)
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }

	write(`{"URL":"` + gone + `","Producer":"p","ProducerToken":"s3cret","Channel":"c","ChannelToken":"s3cret"}`)
	got := w.run("broker publish c x") // of a broker that was killed
	require.Equal(t, 3, got.code)
	require.Contains(t, got.stderr, "no broker answers at "+gone+": start one with make run")
	require.NotContains(t, got.stderr, "s3cret")
	for _, text := range []string{"", "{", "[]", "{}"} {
		write(text)
		got = w.run("broker publish c x")
		require.Equal(t, 1, got.code, text)
		require.Contains(t, got.stderr, "the file of the demo cannot be read: "+file, text)
	}
	another := embeddedWorld(t).start("BROKER_OPEN_MANAGEMENT=false")
	require.Equal(t, 2, w.run("broker publish c x --url "+another.base).code)
	other := "http://" + freeAddr(t)
	got = w.run("broker publish c x", "PENSTOCK_URL="+other)
	require.Equal(t, 3, got.code)
	require.Contains(t, got.stderr, "the broker cannot be reached")
}
