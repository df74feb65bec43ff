package main

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/feature/preflight"
	"github.com/penstock-broker/penstock/internal/test/script"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

// The commands of the page serve TLS, HTTP/2 and requests with certificates, one after the other.
func TestTheCommandsOfThePageAboutTLSWork(t *testing.T) {
	parallel(t)
	w := embeddedWorld(t).with("BROKER_OPEN_MANAGEMENT=false")
	p := w.start()
	require.Equal(t, 201, p.do("PUT", "/channel/orders", "", "X-Broker-Admin-Token", adminToken).status)
	require.Zero(t, p.stop())
	b, secure := w.forPage(), freeAddr(t)
	_, port, err := net.SplitHostPort(secure)
	require.NoError(t, err)
	out := b.run("docs/how-to/tls-and-http2.md", "127.0.0.1:8443", secure, "localhost:8443", "localhost:"+port,
		"127.0.0.1:8081", freeAddr(t), "go test ./cmd/broker -run '^$' -bench BenchmarkPublishOverHTTP2", "true")
	require.Contains(t, out, `"/channel/orders"`, "the certificate opens management")
	refused := b.script().Text(t, "curl -sS --cacert cert.pem https://localhost:"+port+"/livez || echo refused\n")
	require.Contains(t, refused, "refused\n", "without a certificate")
	require.Equal(t, 401, b.broker().do("GET", "/channels", "").status)
}

// The commands of the page make a key and encrypt with it what a broker has stored, and the page shows what they print.
func TestTheCommandsOfThePageAboutEncryptionWork(t *testing.T) {
	parallel(t)
	w := embeddedWorld(t).with("BROKER_SHOW_TOKENS=false")
	p := w.start()
	p.sample("k")
	require.Zero(t, p.stop())
	secrets := []string{"p-token", "c-token", "k-token"}
	require.Equal(t, secrets, w.keeps(secrets...))
	const page = "docs/how-to/encrypt-secrets.md"
	key := filepath.Join(t.TempDir(), "token-key")
	out := w.forPage().run(page, "/etc/penstock/token-key", key)
	require.Empty(t, w.keeps(secrets...))
	shown := script.Blocks(script.Page(t, page), "")
	require.Equal(t, ofAnyKey(shown[1]), ofAnyKey(out))
	info, err := os.Stat(key)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())

	p = w.start("BROKER_TOKEN_KEY_FILE=" + key)
	p.publish("hello")
	require.Zero(t, p.stop())
	p = w.launch("BROKER_TOKEN_KEY=" + otherKey)
	p.awaitEnd()
	require.Equal(t, exitUsage, p.cmd.ProcessState.ExitCode())
	require.Contains(t, ofAnyKey(p.log.String()), ofAnyKey(shown[0]))
}

// ofAnyKey is a text without its line ends, numbers, and the names of keys.
func ofAnyKey(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	text = regexp.MustCompile(`(key |KEY \()[a-z2-7]{8}\b`).ReplaceAllString(text, "${1}K")
	return regexp.MustCompile(`\b\d+\b`).ReplaceAllString(text, "N")
}

// The command of the page finds nothing to mend, its lines have the form that the page shows, and the page has each
// check of it.
func TestTheCommandsOfThePageAboutTheCheckWork(t *testing.T) {
	parallel(t)
	const page = "docs/operate/check.md"
	text := script.Page(t, page)
	line := regexp.MustCompile(`^(ok|note|mend|unreachable) +([a-z.]+) +\S`)
	out := embeddedWorld(t).forPage().run(page)
	require.Contains(t, out, "\nok           folder              ")
	for one := range strings.Lines(out + script.Blocks(text, "")[0]) {
		found := line.FindStringSubmatch(one)
		require.NotNil(t, found, one)
		require.Equal(t, 13, strings.Index(one, found[2]), "the columns of the page: %s", one)
		require.Contains(t, text, "`"+found[2]+"`", "the page lists the checks")
	}
	names, listed := regexp.MustCompile(`\b(?:add|stops|clock|schema|room)\((?:r, )?"([a-z.]+)"`), 0
	for _, file := range script.Glob(t, "internal/feature/preflight/*.go") {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, found := range names.FindAllStringSubmatch(fromRoot(t, file), -1) {
			require.True(t, strings.Contains(text, "`"+found[1]+"`"), "the page does not list %s", found[1])
			if of, ok := strings.CutSuffix(found[1], ".room"); ok {
				require.Contains(t, text, "`"+of+".disk`")
			}
			listed++
		}
	}
	require.Greater(t, listed, 15)
	var report preflight.Report
	strictjson.Decode(t, []byte(script.Blocks(text, "json")[0]), &report)
	require.Equal(t, preflight.CodeMend, report.Code)
}

// The first commands of the page send spans, and the last one links a timeline to them.
func TestTheCommandsOfThePageAboutTracesWork(t *testing.T) {
	parallel(t)
	w, r := embeddedWorld(t), newTraceReceiver(t)
	p := w.start()
	p.sample("k")
	require.Zero(t, p.stop())
	b := w.forPage()
	b.run("docs/tracing.md", "http://127.0.0.1:4318", r.URL, "export OTEL_TRACES_SAMPLER", "curl -sS "+b.base+
		"/channel/c/broadcast -H 'X-Broker-Channel-Token: c-token' -H 'X-Broker-Producer-ID: p' "+
		"-H 'X-Broker-Producer-Token: p-token' -d hello\nexport OTEL_TRACES_SAMPLER")
	r.await(t, 1, "send c")
	own := b.broker().publish("hello", "traceparent", callerParent)
	timeline := b.broker().do("GET", own+"/timeline", "")
	require.Equal(t, "http://127.0.0.1:16686/trace/"+callerTrace, timeline.json(t)["TraceURL"])
	require.Zero(t, b.broker().stop())
	require.Equal(t, callerTrace, r.await(t, 2, "send c")[1].Trace)
}

// A broker with the settings of the page reports a consumer that fails.
func TestTheCommandsOfThePageAboutErrorReportsWork(t *testing.T) {
	parallel(t)
	reports := newReportReceiver(t)
	b := embeddedWorld(t).with(quick...).with("BROKER_TOMBSTONE_AFTER=1").forPage()
	b.run("docs/error-reports.md", "https://KEY@sentry.example/", strings.Replace(reports.url, "://", "://KEY@", 1)+"/")
	reports.requireDead(t, b.broker().stage(t, "k="+newSink(t, func(int, received) int { return 500 }).URL))
	require.Contains(t, reports.text(), "/api/1/envelope/\n")
	require.Contains(t, reports.text(), `"environment":"staging"`)
}

// A broker with the settings of the page takes a consumer of mails, and says what the mail server did.
func TestTheCommandsOfThePageAboutMailsWork(t *testing.T) {
	parallel(t)
	w := embeddedWorld(t)
	p := w.start()
	p.put("/channel/orders")
	require.Zero(t, p.stop())
	out := w.forPage().run("docs/mail.md", "@mail.example.com", "@127.0.0.1:1")
	require.Contains(t, out, "the mail server refused the connection")
}

// The command of the page rehearses at a broker. What it breaks belongs to somebody: here a command of that name notes
// what it is asked for.
func TestTheCommandsOfThePageAboutRehearsalsWork(t *testing.T) {
	parallel(t)
	b := embeddedWorld(t).with("BROKER_ALLOW_DELETE=true").forPage()
	folder := b.world.folder
	require.NoError(t, os.WriteFile(filepath.Join(folder, "ssh"), []byte("#!/bin/sh\necho \"$@\" >>"+
		filepath.Join(folder, "asked")+"\n"), 0o700))
	p := b.world.start()
	const page = "docs/operate/rehearsal.md"
	run := b.script("http://broker.staging:8080", p.base, "--i-own-this-broker",
		"--i-own-this-broker --calm 3s --outage 1s --wait 2m")
	run.Env = append(run.Env, "PATH="+folder+":"+os.Getenv("PATH"))
	out := run.Page(t, page)
	require.Contains(t, out, "redis-down at "+p.base+": nothing was lost, and all was well ")
	for _, line := range strings.Split(script.Blocks(script.Page(t, page), "text")[0], "\n") {
		if words := strings.Fields(line); len(words) > 0 && (words[0] == "posts" || words[0] == "consumer") {
			require.Contains(t, strings.Join(strings.Fields(out), " "), strings.Join(words, " "))
		}
	}
	asked, err := os.ReadFile(filepath.Join(folder, "asked"))
	require.NoError(t, err)
	require.Equal(t, "redis.staging systemctl stop redis\nredis.staging systemctl start redis\n", string(asked))
	require.Equal(t, http.StatusOK, p.do("GET", "/channels", "").status)
	require.NotContains(t, p.do("GET", "/channels", "").body, "rehearsal-")
}
