package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What listen forwards is what a push consumer would get, and is settled by the answer.
func TestListenForwardsAChannel(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start("BROKER_ALLOW_DELETE=true")
	w := newTerminal(t, p)
	p.put("/producer/shop", "token", "p")
	p.put("/channel/orders", "token", "c")
	app := newSink(t, func(n int, r received) int {
		if r.body == "bad" {
			return 500
		}
		return 204
	})
	pushed := newSink(t, func(int, received) int { return 204 })
	p.put("/channel/orders/consumer/billing", "callbackUrl", pushed.URL, "headers", "X-Own: y",
		"signingSecret", "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5")
	w.ok("broker ctl publish orders before --id m-0")
	listen := "broker listen --channel orders --name t --forward " + app.URL
	const signed = "PENSTOCK_SIGNING_SECRET=whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5"
	require.Contains(t, w.run(listen+" --as billing").stderr, "PENSTOCK_SIGNING_SECRET has it")
	require.Contains(t, w.ok(listen+" --for 1ms"), "orders/listen-t forwards to "+app.URL)
	w.ok("broker ctl publish orders good --id m-1 --header X-Kind=big --priority 7 --ordering-key k")
	w.ok("broker ctl publish orders bad --id m-2")
	policy := p.do("GET", "/channel/orders/consumer/listen-t", "").json(t)["Policy"].(map[string]any)
	require.Equal(t, "24h", policy["Ttl"])
	require.Equal(t, "expire:24h", policy["Dlq"])

	eventually(t, "the jobs that waited", func() bool {
		w.ok(listen+" --as billing --for 1s --json", signed)
		return app.times("good") == 1 && app.times("bad") > 0
	})
	require.Zero(t, app.times("before"), "it came before the consumer")
	same := func(body string, s *sink) http.Header {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, r := range s.got {
			if r.body == body {
				h := r.header.Clone()
				for _, own := range []string{"X-Broker-Job-Id", "X-Request-Id", "User-Agent", "Webhook-Signature",
					"Webhook-Timestamp"} {
					require.NotEmpty(t, h.Get(own), own)
					h.Del(own)
				}
				return h
			}
		}
		return nil
	}
	eventually(t, "the push", func() bool { return pushed.times("good") == 1 })
	require.Equal(t, same("good", pushed), same("good", app))
	jobs := func(id string) (status string) {
		for _, one := range p.do("GET", "/channel/orders/message/"+id, "").json(t)["Jobs"].([]any) {
			if job := one.(map[string]any); job["ConsumerID"] == "listen-t" {
				status = job["Status"].(string)
			}
		}
		return status
	}
	require.Equal(t, "DELIVERED", jobs("m-1"))
	require.Equal(t, "QUEUED", jobs("m-2"))

	p.put("/channel/orders/consumer/listen-t", "maxRetries", "0", "backoff", "constant:100ms")
	require.Equal(t, 200, p.do("POST", "/channel/orders/consumer/listen-t/retry", "").status)
	eventually(t, "a dead letter", func() bool {
		w.ok(listen + " --for 1s --output quiet")
		return jobs("m-2") == "DEAD"
	})
	before := app.times("bad")
	var line struct{ MessageID, Error string }
	out := w.ok(listen + " --from-dlq listen-t --json --for 1ms --rm")
	require.NoError(t, json.Unmarshal([]byte(out), &line), out)
	require.Equal(t, "m-2", line.MessageID)
	require.Equal(t, before+1, app.times("bad"))
	require.Equal(t, 404, p.do("GET", "/channel/orders/consumer/listen-t", "").status)

	filtered := listen + " --filter 'priority == 7' --for 1s"
	w.ok(filtered + " --since 1h")
	eventually(t, "messages from before", func() bool {
		w.ok(filtered)
		return app.times("good") > 1
	})
	require.Zero(t, app.times("before"))
	require.Contains(t, w.ok(listen+" --help"), "Usage: broker listen --channel CHANNEL --forward URL")
	for line, want := range map[string]said{
		"broker listen --channel orders":                                  {code: 1, stderr: "--forward is missing"},
		"broker listen --forward http://localhost":                        {code: 1, stderr: "--channel is missing"},
		"broker listen --channel orders --forward localhost:3000":         {code: 1, stderr: "--forward must be a URL"},
		"broker listen --channel none --forward " + app.URL:               {code: 2, stderr: "(channel_not_found)"},
		"broker listen --channel a/b --forward " + app.URL:                {code: 1, stderr: `"a/b" is no channel`},
		listen + " --as none":                                             {code: 2, stderr: "(consumer_not_found)"},
		listen + " --filter '(('":                                         {code: 2, stderr: "(invalid_policy)"},
		listen + " --since -1m":                                           {code: 1, stderr: "out of its range"},
		"broker listen --channel=orders --forward=" + app.URL + " --on x": {code: 1, stderr: "unknown flag: --on"},
		"broker listen --on 127.0.0.1:x":                                  {code: exitStart},
		"broker sink --channel orders":                                    {code: exitUsage},
	} {
		got := w.run(line)
		require.Contains(t, got.stderr, want.stderr, line)
		require.Equal(t, want.code, got.code, "%s: %s", line, got.stderr)
	}
}

// What listen forwards is recorded and played, and sent again by a key.
func TestListenRecordsPlaysAndSendsAgain(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start("BROKER_ALLOW_DELETE=true")
	w := newTerminal(t, p)
	p.put("/producer/shop", "token", "p")
	p.put("/channel/orders", "token", "c")
	app := newSink(t, func(n int, r received) int {
		if r.body == "bad" {
			return 500
		}
		return 204
	})
	listen := "broker listen --channel orders --name t --forward " + app.URL
	w.ok(listen + " --for 1ms")
	w.ok("broker ctl publish orders $'good\\xff' --id m-1 --header X-Kind=big --priority 7")
	eventually(t, "the job", func() bool {
		w.ok(listen + " --for 1s --record jobs.ndjson")
		return app.count() == 1
	})
	info, err := os.Stat(filepath.Join(w.folder, "jobs.ndjson"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	arrival := func(n int) received {
		app.mu.Lock()
		defer app.mu.Unlock()
		return app.got[n]
	}
	first := arrival(0)

	// Nothing of a broker is needed to play it.
	const play = "PENSTOCK_URL=http://127.0.0.1:1 broker listen --play jobs.ndjson --forward "
	require.Contains(t, w.ok(play+app.URL), " m-1 #1 204 ")
	second := arrival(1)
	require.Equal(t, "good\xff", second.body)
	for _, h := range []http.Header{first.header, second.header} {
		require.Equal(t, "big", h.Get("X-Kind"))
		h.Del("X-Broker-Consumer-Token") // which no record has
	}
	require.Equal(t, first.header, second.header)
	require.Empty(t, w.ok(play+app.URL+" --output quiet"))

	w.ok("broker ctl publish orders bad --id m-2")
	eventually(t, "the refused job", func() bool {
		w.ok(listen + " --for 1s --record bad.ndjson --output quiet")
		return app.times("bad") > 0
	})
	require.Equal(t, 2, w.run("broker listen --play bad.ndjson --forward "+app.URL).code)

	cmd := exec.CommandContext(t.Context(), "bash", "-c", `exec "$BROKER" `+strings.TrimPrefix(listen, "broker ")+
		" --output interactive --rm")
	cmd.Dir, cmd.Env = w.folder, append(clearedEnv(), w.env...)
	out := &syncBuffer{}
	cmd.Stdout, cmd.Stderr = out, out
	keys, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	w.ok("broker ctl publish orders fine --id m-3 --header X-A=b")
	number := regexp.MustCompile(`\[(\d+)\] \S+ m-3 #1 204 `)
	eventually(t, "the job", func() bool { return number.MatchString(out.String()) })
	n := number.FindStringSubmatch(out.String())[1]
	_, err = io.WriteString(keys, "r "+n+"\nd "+n+"\nr 99\nx\nq\n")
	require.NoError(t, err)
	require.NoError(t, cmd.Wait(), out)
	require.Equal(t, 2, app.times("fine"))
	for _, line := range []string{"[" + n + "] again ", "m-3, attempt 1, priority 0\n", "  X-A: b\n", "  fine\n",
		"there is no number 99\n", "r: send the last one again; r 7: number 7; d 7: show it; q: end\n"} {
		require.Contains(t, out.String(), line)
	}
	require.Equal(t, 404, p.do("GET", "/channel/orders/consumer/listen-t", "").status, "--rm")

	require.NoError(t, os.WriteFile(filepath.Join(w.folder, "other.ndjson"), []byte("{}\n"), 0o600))
	for line, want := range map[string]string{
		"broker listen --play none --forward " + app.URL:                         "no such file",
		"broker listen --play other.ndjson --forward " + app.URL:                 "line 1 of other.ndjson is none of",
		"broker listen --play jobs.ndjson":                                       "--forward is missing",
		"broker listen --play jobs.ndjson --channel orders --forward " + app.URL: "--play needs no broker",
		listen + " --output loud":                                                "must be interactive, compact or quiet",
		listen + " --for 1ms --record /none/jobs.ndjson":                         "--record: ",
	} {
		got := w.run(line)
		require.Equal(t, 1, got.code, line)
		require.Contains(t, got.stderr, want)
	}
}

// Each example of the help of listen runs.
func TestEveryExampleOfListenRuns(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start("BROKER_ALLOW_DELETE=true")
	w := newTerminal(t, p)
	p.operated()
	app := newSink(t, func(int, received) int { return 200 })
	all := section(w.ok("broker listen --channel orders --help"), "Examples")
	require.Len(t, all, 5)
	for _, line := range all {
		w.ok(strings.ReplaceAll(line, "http://localhost:3000", app.URL))
	}
	require.NotZero(t, app.count(), "the dead letters")
}

// tail prints what becomes of messages, each thing once.
func TestCtlTailPrintsWhatHappens(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	w := newTerminal(t, p)
	p.put("/channel/orders", "token", "c")
	p.put("/channel/quiet", "token", "c")
	sink := newSink(t, func(n int, r received) int {
		if r.body == "bad\x1b[31m" && n == 1 {
			return 500
		}
		return 204
	})
	p.put("/channel/orders/consumer/billing", "callbackUrl", sink.URL, "backoff", "constant:1s")
	p.put("/channel/orders/consumer/archive", "type", "pull")
	w.ok(`broker ctl publish orders $'bad\e[31m' --id m-1`)
	eventually(t, "a retry", func() bool { return sink.count() == 2 })
	eventually(t, "its events", func() bool {
		out := w.ok("broker ctl tail orders/billing --since 10m --for 1ms")
		return strings.Count(out, "\n") == 3 && strings.Contains(out, "orders/billing m-1 ATTEMPT #1 500 ") &&
			strings.Contains(out, "orders/billing m-1 DELIVERED #2 204")
	})
	all := w.ok("broker ctl tail --since 10m --for 1500ms --every 100ms --json")
	events := map[string]int{}
	for line := range strings.Lines(all) {
		var e struct{ ChannelID, MessageID, Event string }
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		require.Equal(t, "orders m-1", e.ChannelID+" "+e.MessageID)
		events[e.Event]++
	}
	require.Equal(t, map[string]int{"ACCEPTED": 1, "ATTEMPT": 2, "DELIVERED": 1}, events)
	require.Empty(t, w.ok("broker ctl tail quiet --since 10m --for 1ms"))
	require.Empty(t, w.ok("broker ctl tail orders/archive --for 1ms"), "only what comes from now on")
	require.Equal(t, 2, w.run("broker ctl tail none").code)
	require.Equal(t, 2, w.run("broker ctl tail orders/none").code)
	require.Equal(t, 1, w.run("broker ctl tail orders --every 1ms").code)
	require.Equal(t, 1, w.run("broker ctl tail orders/a/b").code)
}
