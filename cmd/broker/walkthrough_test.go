package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The pages of the walkthrough: one run, in one terminal. pageBreak stands between their texts.
const (
	walkthroughPage  = "docs/walkthrough.md"
	walkthroughPage2 = "docs/walkthrough-2.md"
	pageBreak        = "<!-- the next page -->\n"
)

// Every command of the walkthrough does what its pages say, on both stores, and does it again on the
// data that the first run has left.
func TestRealWalkthroughAnswersAsItsPageSays(t *testing.T) {
	text := fromRoot(t, walkthroughPage) + pageBreak + fromRoot(t, walkthroughPage2)
	page := parseWalkthrough(t, text)
	if *update { // the answers of the embedded broker
		page.walk(t, emptyWorld(t))
		first, second, _ := strings.Cut(page.String(), pageBreak)
		require.NoError(t, os.WriteFile(filepath.Join("../..", walkthroughPage), []byte(first), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join("../..", walkthroughPage2), []byte(second), 0o644))
		return
	}
	onEachStore(t, func(t *testing.T, w *world) {
		got := parseWalkthrough(t, text)
		got.walk(t, w)
		requireSameLines(t, masked(page.String()), masked(got.String()))
		again := parseWalkthrough(t, text)
		again.walk(t, w)
		i := again.answerTo(t, "-X PUT $BROKER/producer/shop")
		require.True(t, strings.HasPrefix(again[i].text, "HTTP/1.1 200 OK\n"), "the producer is there already: %s",
			again[i].text)
		again[i].text = got[i].text
		requireSameLines(t, masked(page.String()), masked(again.String()))
	})
}

// answerTo returns the index of the answer to a command.
func (page walkthrough) answerTo(t *testing.T, words string) int {
	t.Helper()
	i := slices.IndexFunc(page, func(p part) bool { return p.kind == command && strings.Contains(p.text, words) })
	require.Positive(t, i, words)
	require.Equal(t, result, page[i+2].kind)
	return i + 2
}

// requireSameLines names the first difference, not the whole page.
func requireSameLines(t *testing.T, page, got string) {
	t.Helper()
	want := strings.Split(page, "\n")
	for i, line := range strings.Split(got, "\n") {
		require.Less(t, i, len(want), "the page ends before this answer: %s", line)
		require.Equal(t, want[i], line,
			"line %d of the pages is stale: go test ./cmd/broker -run TestRealWalkthrough -update", i+1)
	}
}

// What differs from run to run is masked, and nothing else.
func TestAMaskedWalkthroughStillTellsIDsApart(t *testing.T) {
	a := masked(`"ID":"0d6a6pq3k8n00004000g" "ID":"0d6a6pq3k8n000040010" again "ID":"0d6a6pq3k8n00004000g"`)
	require.Equal(t, `"ID":"<id 1>" "ID":"<id 2>" again "ID":"<id 1>"`, a)
	require.Equal(t, masked("at 2025-01-02T03:04:05.678Z"), masked("at 2026-11-12T13:14:15.000Z"))
	require.NotEqual(t, masked("HTTP/1.1 202 Accepted"), masked("HTTP/1.1 200 OK"))
	require.NotEqual(t, masked(`{"Attempts":1}`), masked(`{"Attempts":2}`))
	require.NotEqual(t, masked("http://127.0.0.1:9/a"), masked("http://127.0.0.1:4040/a"))
}

// The parts of a page.
type partKind int

const (
	prose           partKind = iota
	startCommand             // starts the broker
	command                  // run by bash
	result                   // what the command before it printed
	brokerPrinted            // what the broker's demo printed
	listenCommand            // starts make listen
	listenerPrinted          // what make listen printed
)

type part struct {
	kind partKind
	text string // prose with its line ends; blocks without their fences
}

type walkthrough []part

// Marks in front of the blocks that are not plain commands.
const (
	markStart  = "<!-- start -->\n"
	markPrints = "<!-- broker prints -->\n"
	markHeard  = "<!-- listener prints -->\n"
)

var fence = regexp.MustCompile("(?ms)^```(sh|text)\n(.*?)^```\n")

func parseWalkthrough(t *testing.T, text string) walkthrough {
	t.Helper()
	var page walkthrough
	last := prose
	for {
		at := fence.FindStringSubmatchIndex(text)
		if at == nil {
			return append(page, part{prose, text})
		}
		before, language, block := text[:at[0]], text[at[2]:at[3]], text[at[4]:at[5]]
		text = text[at[1]:]
		kind := command
		switch {
		case language == "sh" && strings.HasSuffix(before, markStart):
			kind = startCommand
		case language == "sh" && block == "make listen\n":
			kind = listenCommand
		case language == "text" && strings.HasSuffix(before, markPrints):
			kind = brokerPrinted
		case language == "text" && strings.HasSuffix(before, markHeard):
			kind = listenerPrinted
		case language == "text":
			require.Equal(t, command, last, "an answer follows a command: %s", block)
			kind = result
		}
		page = append(page, part{prose, before}, part{kind, block})
		last = kind
	}
}

// String is the inverse of parseWalkthrough.
func (page walkthrough) String() string {
	var b strings.Builder
	for _, p := range page {
		switch p.kind {
		case prose:
			b.WriteString(p.text)
		case startCommand, command, listenCommand:
			b.WriteString("```sh\n" + p.text + "```\n")
		default:
			b.WriteString("```text\n" + p.text + "```\n")
		}
	}
	return b.String()
}

// separator stands between the outputs of two commands.
const separator = "=== end of block ===\n"

// walk runs the page against a new broker and replaces its answers by what came. A page that starts make listen has a
// listener of its own.
func (page walkthrough) walk(t *testing.T, w *world) {
	t.Helper()
	p, printed := page.start(t, w)
	defer func() { require.Equal(t, exitClean, p.stop()) }()
	heard := &syncBuffer{}
	sink, err := startSink("127.0.0.1:0", heard)
	require.NoError(t, err)
	defer sink.Close()
	listener := sink.listener.Addr().String()
	outputs := page.run(t, p, "127.0.0.1:9000", listener, "http://127.0.0.1:8080", p.base)
	next := 0
	for i := range page {
		if page[i].kind != command {
			continue
		}
		output := strings.ReplaceAll(outputs[next], listener, "127.0.0.1:9000")
		next++
		if output != "" && !strings.HasSuffix(output, "\n") {
			output += "\n"
		}
		if i+2 < len(page) && page[i+2].kind == result {
			page[i+2].text = output
		} else {
			require.Empty(t, output, "this prints something that the page does not show: %s", page[i].text)
		}
	}
	page.delivered(t, brokerPrinted, printed)
	page.delivered(t, listenerPrinted, heard)
}

// run runs the commands of the page in one shell, with other texts where pairs say so, and returns what each block
// printed.
func (page walkthrough) run(t *testing.T, p *process, pairs ...string) []string {
	t.Helper()
	var script strings.Builder
	for _, p := range page {
		if p.kind == command {
			script.WriteString(p.text + "echo '" + strings.TrimSuffix(separator, "\n") + "'\n")
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	bash := exec.CommandContext(ctx, "bash")
	bash.Env = append(clearedEnv(), "BROKER="+p.base, "NO_PROXY=*", "LC_ALL=C")
	bash.Stdin = strings.NewReader(strings.NewReplacer(pairs...).Replace(script.String()))
	var out bytes.Buffer
	bash.Stdout, bash.Stderr = &out, &out
	bash.WaitDelay = patience // a curl in front of grep -q ends later
	require.NoError(t, bash.Run(), out.String())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the commands printed:\n%s", out.String())
		}
	})
	return strings.Split(strings.ReplaceAll(out.String(), "\r\n", "\n"), separator)
}

// delivered replaces the blocks of a kind by the deliveries that a consumer printed, one each.
func (page walkthrough) delivered(t *testing.T, kind partKind, printed *syncBuffer) {
	t.Helper()
	deliveries := 0
	for i := range page {
		if page[i].kind == kind {
			deliveries++
			eventually(t, fmt.Sprintf("delivery %d to be printed", deliveries), func() bool {
				return len(deliveriesIn(printed.String())) >= deliveries
			})
			page[i].text = deliveriesIn(printed.String())[deliveries-1]
		}
	}
	require.Len(t, deliveriesIn(printed.String()), deliveries, "each delivery is on the page")
}

// start runs a broker as the page's start command, make run, does.
func (page walkthrough) start(t *testing.T, w *world) (p *process, printed *syncBuffer) {
	t.Helper()
	i := slices.IndexFunc(page, func(p part) bool { return p.kind == startCommand })
	require.Equal(t, "make run\n", page[i].text)
	require.Contains(t, fromRoot(t, "Makefile"), "\n\t@$(GO) build -o bin/broker ./cmd/broker\n"+
		"\tbin/broker serve --demo\n")
	return startDemoBroker(t, w)
}

// startDemoBroker runs a broker with the sample channel. printed is what it writes to stdout.
func startDemoBroker(t *testing.T, w *world) (p *process, printed *syncBuffer) {
	t.Helper()
	addr := freeAddr(t)
	printed = &syncBuffer{}
	p = &process{t: t, base: "http://" + addr, log: &syncBuffer{}, done: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0], "serve", "--demo")
	p.cmd.Env = append(clearedEnv(), envMain+"=1", "BROKER_LISTEN="+addr)
	p.cmd.Env = append(p.cmd.Env, w.env...)
	p.cmd.Stdout, p.cmd.Stderr = printed, p.log
	require.NoError(t, p.cmd.Start())
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	t.Cleanup(func() {
		p.kill() // a test that fails has not stopped it
		if t.Failed() {
			t.Logf("log of %s:\n%s", p.base, tail(p.log.String(), 6000))
		}
		require.NotContains(t, p.log.String(), "DATA RACE")
	})
	p.awaitReady()
	return p, printed
}

// deliveriesIn returns what the demo's consumer printed, one text a delivery.
func deliveriesIn(printed string) []string {
	var all []string
	for _, text := range strings.SplitAfter(printed, "\n\n") {
		if strings.Contains(text, " got POST ") && strings.HasSuffix(text, "\n\n") {
			all = append(all, strings.TrimSuffix(text, "\n"))
		}
	}
	return all
}

var (
	idText = regexp.MustCompile(`\b[0-9a-v]{20}\b`)
	masks  = []struct {
		what *regexp.Regexp
		by   string
	}{
		{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "<time>"},
		{regexp.MustCompile(`(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT`), "<date>"},
		{regexp.MustCompile(`(?m)^Etag: ".*"$`), "Etag: <etag>"},
		{regexp.MustCompile(`(?m)^X-Broker-Lease: \S+$`), "X-Broker-Lease: <lease>"},
		{regexp.MustCompile(`"Lease":"[^"]+"`), `"Lease":"<lease>"`},
		{regexp.MustCompile(`127\.0\.0\.1:\d{4,5}\b`), "127.0.0.1:<port>"},
		{regexp.MustCompile(`\b(orders|news)-\d{10}\b`), "$1-<run>"},
		{regexp.MustCompile(`"DurationMs":\d+`), `"DurationMs":<ms>`},
		// Ports have four or five digits, so lengths differ.
		{regexp.MustCompile(`(?m)^Content-Length: [1-9]\d*$`), "Content-Length: <length>"},
	}
)

// masked replaces what no two runs have in common. IDs are numbered, so that
// the same ID in two places of one text stays the same.
func masked(text string) string {
	for _, m := range masks {
		text = m.what.ReplaceAllString(text, m.by)
	}
	numbers := map[string]int{}
	return idText.ReplaceAllStringFunc(text, func(id string) string {
		if numbers[id] == 0 {
			numbers[id] = len(numbers) + 1
		}
		return fmt.Sprintf("<id %d>", numbers[id])
	})
}
