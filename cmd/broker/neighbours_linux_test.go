package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A neighbour is a second producer with a channel of its own, beside whoever attacks.
type neighbour struct{ *process }

// neighbour makes the second producer and the attacker's resources.
func (p *process) neighbour() neighbour {
	p.sample("k")
	p.put("/producer/other", "token", "o-token")
	p.put("/channel/other", "token", "o-token")
	p.put("/channel/other/consumer/k", "token", "o-token", "type", "pull")
	return neighbour{p}
}

var neighbourTokens = []string{"X-Broker-Channel-Token", "o-token", "X-Broker-Producer-ID", "other",
	"X-Broker-Producer-Token", "o-token"}

// served requires that the neighbour publishes and the administrator changes something.
func (n neighbour) served(what string) {
	n.t.Helper()
	for i := range 50 {
		publish := func() (reply, error) {
			return n.try("POST", "/channel/other/broadcast", strings.Repeat("x", 1000), neighbourTokens...)
		}
		r, err := publish()
		for range busyRepeats { // the store of a slow machine is late; a bound would say overloaded
			if err != nil || r.status != 503 || !strings.Contains(r.body, `"unavailable"`) {
				break
			}
			n.pauseBusy(r)
			r, err = publish()
		}
		require.NoError(n.t, err, what)
		require.Equal(n.t, 201, r.status, "%s, publish %d: %s", what, i, r.body)
	}
	r, err := n.try("PUT", "/channel/new", "token=t", "Content-Type", formType)
	require.NoError(n.t, err, what)
	require.Contains(n.t, []int{200, 201}, r.status, what)
}

// Bodies of one producer that come slowly leave memory for everybody else's.
func TestNeighboursSlowBodiesTakeAShare(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.program = plainProgram(t)
		p := w.start()
		n := p.neighbour()
		n.served("before")
		addr := strings.TrimPrefix(p.base, "http://")
		for what, attack := range map[string]struct {
			conns int
			text  string
		}{
			"bulks of one byte": {1100, "POST /channel/c/bulk HTTP/1.1\r\nHost: b\r\nContent-Type: " +
				"application/x-ndjson\r\n" + rawTokens + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"},
			"batches of one byte": {1100, "POST /channel/c/batch HTTP/1.1\r\nHost: b\r\nContent-Type: " +
				"application/x-ndjson\r\n" + rawTokens + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"},
			"announced and not sent": {200, "POST /channel/c/broadcast HTTP/1.1\r\nHost: b\r\n" + rawTokens +
				"Content-Length: 4194304\r\n\r\n" + strings.Repeat("x", 1_100_000)},
			"a long line of a batch": {100, "POST /channel/c/batch HTTP/1.1\r\nHost: b\r\nContent-Type: " +
				"application/x-ndjson\r\n" + rawTokens + "Transfer-Encoding: chunked\r\n\r\n200000\r\n" + `{"Payload":"` +
				strings.Repeat("x", 2_000_000)},
			"a bulk with a long row": {100, "POST /channel/c/bulk HTTP/1.1\r\nHost: b\r\nContent-Type: text/csv\r\n" +
				rawTokens + "Transfer-Encoding: chunked\r\n\r\n40000\r\n" + strings.Repeat("x", 250_000)},
			"management, one address": {400, "PUT /channel/new HTTP/1.1\r\nHost: b\r\nContent-Type: " +
				"application/x-www-form-urlencoded\r\nContent-Length: 60000\r\n\r\ntoken="},
		} {
			c := newCrowd()
			require.NoError(t, c.add(addr, attack.conns, attack.text), what)
			n.served(what)
			require.Less(t, p.memory("VmRSS"), 700, "%s, MiB", what)
			c.close()
		}
		eventually(t, "the memory of ended requests to be free again", func() bool {
			return p.share("bodies") == 0
		})
		n.served("after")
	})
}

// share returns what is held of a bound.
func (p *process) share(bound string) float64 {
	p.t.Helper()
	r, err := p.try("GET", "/metrics", "")
	require.NoError(p.t, err)
	for line := range strings.Lines(r.body) {
		var v float64
		if n, _ := fmt.Sscanf(line, "penstock_share_held{bound=\""+bound+"\"} %g", &v); n == 1 {
			return v
		}
	}
	require.Fail(p.t, "no such bound", bound)
	return 0
}

// What parsing takes besides the text is bounded: names, cells, members and tags.
func TestNeighboursWideRequestsTakeLittleMemory(t *testing.T) {
	parallel(t)
	w := embeddedWorld(t)
	w.program = plainProgram(t)
	p := w.start()
	n := p.neighbour()
	names := `{"Payload":"p","Consumers":["k"` + strings.Repeat(`,"k"`, 2_000_000) + "]}\n"
	before := p.memory("VmHWM")
	done := make(chan string, 24)
	for range cap(done) {
		go func() {
			request, err := http.NewRequest("POST", p.base+"/channel/c/batch", strings.NewReader(names))
			if err != nil {
				done <- err.Error()
				return
			}
			request.Header = headerOf(append([]string{"Content-Type", "application/x-ndjson"}, producerTokens...))
			answer, err := client.Do(request)
			if err != nil {
				done <- err.Error()
				return
			}
			defer answer.Body.Close()
			text, _ := io.ReadAll(answer.Body)
			done <- string(text)
		}()
	}
	for range cap(done) {
		text := <-done
		require.True(t, strings.Contains(text, `"invalid_consumers"`) || strings.Contains(text, `"overloaded"`), text)
	}
	require.Less(t, p.memory("VmHWM")-before, 600, "MiB")
	r := p.do("POST", "/channel/c/bulk", strings.Repeat("a,", 2_000_000)+"a\n",
		append([]string{"Content-Type", "text/csv"}, producerTokens...)...)
	require.Equal(t, 400, r.status, r.body)
	r = p.do("POST", "/channel/c/bulk", `{"FileURL":"https://files.example/f","Format":"csv","Template":{"Payload":"`+
		strings.Repeat("{{a}}", 140_000)+`"}}`,
		append([]string{"Content-Type", "application/json"}, producerTokens...)...)
	require.Equal(t, 400, r.status)
	require.Contains(t, r.body, "invalid_template")
	n.served("after")
}
