package main

import (
	"database/sql"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/screens"
)

const (
	// storedDead is that each such message of the first consumer is a dead letter; the others are delivered.
	storedDead = 100
	// storedOpen is the number of jobs of the second consumer that failed once and wait.
	storedOpen = 50_000
	// storedAge is the age of the newest message, storedPerMs how many have the same time.
	storedAge, storedPerMs = 2 * time.Hour, 4
	// storedAsks is how often each route is asked.
	storedAsks = 15
)

// BenchmarkDrillStored asks the routes of operators and the pages of the dashboard while the store has JOBS
// messages of one channel: one
// consumer got all of them, of which one in a hundred is a dead letter, and another one has 50 000 jobs that
// failed once. The goal is 200 ms for each answer:
//
//	make drills DRILL=Stored JOBS=10000000
func BenchmarkDrillStored(b *testing.B) {
	r := newRig(b)
	n := drillJobs(b)
	template := r.prepareStored()
	ids := r.store(n, template)
	p := r.start()
	p.put("/producer/other", "token", "t")
	p.put("/group/g")
	r.say("%d messages are stored", n)
	asks := append(routesOfOperators(ids, n), screensOfOperators(p, ids, n)...)
	slowest := 0.0
	for _, ask := range asks {
		var took []float64
		var last reply
		for range storedAsks {
			begun := time.Now()
			last = p.do(ask.method, ask.path, ask.body, "Accept", ask.accept)
			took = append(took, float64(time.Since(begun).Microseconds())/1000)
			if last.status != 200 {
				b.Fatalf("%s: %d %s", ask.path, last.status, last.body)
			}
		}
		slices.Sort(took)
		slowest = max(slowest, took[len(took)-1])
		r.say("%-40s median %8.1f ms, slowest %8.1f ms, %6d bytes", ask.name, took[len(took)/2], took[len(took)-1],
			len(last.body))
	}
	r.report("slowest-ms", slowest, "the slowest answer")
}

// A storedAsk is a request of BenchmarkDrillStored.
type storedAsk struct{ name, method, path, body, accept string }

func routesOfOperators(ids func(i int) ident.ID, n int) (asks []storedAsk) {
	at := func(i int) string { return ids(i).Time().Format(time.RFC3339) }
	for _, ask := range [][4]string{
		{"all consumers", "GET", "/consumers?sort=oldest", ""},
		{"held consumers", "GET", "/consumers?held=true", ""},
		{"a consumer", "GET", "/channel/c/consumer/k", ""},
		{"why of a consumer", "GET", "/channel/c/consumer/k/why", ""},
		{"why with jobs that wait", "GET", "/channel/c/consumer/pull/why", ""},
		{"why of a message", "GET", "/channel/c/message/" + ids(n/2).String() + "/why", ""},
		{"why of a dead job", "GET", "/channel/c/consumer/k/job/" + ids(storedDead).Job(0).String() + "/why", ""},
		{"workers", "GET", "/channel/c/consumer/pull/workers", ""},
		{"newest messages", "GET", "/channel/c/messages?order=desc", ""},
		{"messages of a time", "GET", "/channel/c/messages?from=" + at(n/2) + "&to=" + at(n/2+10_000), ""},
		{"messages of a producer", "GET", "/channel/c/messages?order=desc&producer=p", ""},
		{"messages of no producer", "GET", "/channel/c/messages?order=desc&producer=other", ""},
		{"dead ones of a consumer", "GET", "/channel/c/messages?order=desc&consumer=k&status=DEAD", ""},
		{"a text that none has", "GET", "/channel/c/messages?order=desc&contains=needle", ""},
		{"queued jobs", "GET", "/channel/c/consumer/pull/jobs?status=QUEUED", ""},
		{"delayed jobs", "GET", "/channel/c/consumer/pull/jobs?status=DELAYED&order=desc", ""},
		{"jobs in flight", "GET", "/channel/c/consumer/k/jobs?status=INFLIGHT", ""},
		{"dead jobs", "GET", "/channel/c/consumer/k/jobs?status=DEAD", ""},
		{"newest dead letters", "GET", "/channel/c/consumer/k/dlq?order=desc", ""},
		{"dead letters of a cause", "GET", "/channel/c/consumer/k/dlq?fingerprint=0000000000000007", ""},
		{"dead letters of a time", "GET", "/channel/c/consumer/k/dlq?from=" + at(n/2) + "&to=" + at(n/2+100_000), ""},
		{"groups of dead letters", "GET", "/channel/c/consumer/k/dlq/groups", ""},
		{"count for a redrive", "POST", "/channel/c/consumer/k/dlq/redrive", `{"DryRun":true}`},
		{"count by reason", "POST", "/channel/c/consumer/k/dlq/redrive", `{"Reason":"attempts_exhausted","DryRun":true}`},
		{"history", "GET", "/history?channel=c&consumer=k", ""},
		{"metrics of consumers", "GET", "/metrics/consumers", ""},
	} {
		asks = append(asks, storedAsk{ask[0], ask[1], ask[2], ask[3], "application/json"})
	}
	return asks
}

// screensOfOperators are the pages of the dashboard, each of the table of routes at least once.
func screensOfOperators(p *process, ids func(i int) ident.ID, n int) (asks []storedAsk) {
	p.t.Helper()
	paths := []string{"/ui/", "/ui/?over=30d", "/ui/channels", "/ui/groups", "/ui/channel/c", "/ui/consumers?sort=dead",
		"/ui/channel/c/consumer/k", "/ui/channel/c/consumer/pull?over=30d", "/ui/channel/c/message/" + ids(n/2).String(),
		"/ui/channel/c/message/" + ids(n/2).String() + "/raw",
		"/ui/channel/c/consumer/k/job/" + ids(storedDead).Job(0).String(), "/ui/dlq", "/ui/dlq?channel=c&consumer=k",
		"/ui/dlq/export?channel=c&consumer=k", "/ui/redrives?channel=c&consumer=k", "/ui/scheduled?channel=c",
		"/ui/bulks?channel=c", "/ui/replays?channel=c&consumer=k", "/ui/brokers", "/ui/brokers?show=settings", "/ui/bench",
		"/ui/publish?channel=c&again=" + ids(n/2).String(), "/ui/search?q=pu", "/ui/search?q=" + ids(n/2).String(),
		"/ui/search?q=consumer:k+state:dead+age%3E1h+error:500", "/ui/search?q=consumer:k+state:dead+payload:needle",
		"/ui/search?q=consumer:pull+state:delayed+error:worker", "/ui/group/g/action/pause", "/ui/channel/c/action/pause",
		"/ui/channel/c/consumer/k/action/redrive?canary=true", "/ui/channel/c/consumer/pull/action/purge",
		"/ui/channel/c/consumer/pull/action/retry", "/ui/login"}
	require.Empty(p.t, screens.Missed(screenRoutes(), append(paths, revealScreen)))
	for _, at := range paths {
		name, _ := url.QueryUnescape(strings.NewReplacer(ids(n/2).String(), "ID", ids(storedDead).Job(0).String(),
			"JOB").Replace(at))
		asks = append(asks, storedAsk{name, "GET", at, "", "text/html"})
	}
	return asks
}

// prepareStored makes the channel and the consumers of store, which stand still, and returns the message that the
// others are like.
func (r *rig) prepareStored() ident.ID {
	r.b.Helper()
	p := r.start()
	defer p.stop()
	p.sample("k=http://127.0.0.1:1/", "pull")
	for _, k := range []string{"k", "pull"} {
		if a := p.do("POST", "/channel/c/consumer/"+k+"/pause", ""); a.status != 200 {
			r.b.Fatal(a.body)
		}
	}
	template, err := ident.Parse(path.Base(p.publish("template")))
	if err != nil {
		r.b.Fatal(err)
	}
	return template
}

// store fills the tables with n messages like the template, the last one two hours old, and returns their IDs by their
// numbers from 1.
func (r *rig) store(n int, template ident.ID) func(i int) ident.ID {
	r.b.Helper()
	db, err := sql.Open("mysql", r.dsn())
	if err != nil {
		r.b.Fatal(err)
	}
	defer db.Close()
	run := func(text string, args ...any) {
		if _, err := db.Exec(text, args...); err != nil {
			r.b.Fatalf("%v: %s", err, text)
		}
	}
	run("CREATE TABLE numbers (n BIGINT PRIMARY KEY)")
	run("INSERT INTO numbers VALUES (1)")
	for have := 1; have < n; have *= 2 {
		run("INSERT INTO numbers SELECT n + ? FROM numbers WHERE n + ? <= ?", have, have, n)
	}
	var channel int
	if err := db.QueryRow("SELECT no FROM channels WHERE id = 'c'").Scan(&channel); err != nil {
		r.b.Fatal(err)
	}
	base := time.Now().Add(-storedAge).UnixMilli() - int64(n/storedPerMs)
	// The messages of a millisecond are told apart by their sequence numbers. The last two bytes are those of jobs.
	id := fmt.Sprintf("UNHEX(CONCAT(LPAD(HEX(%d + n DIV %d), 12, '0'), '0000', "+
		"LPAD(HEX(n MOD %[2]d), 4, '0'), '0000'))", base, storedPerMs)
	part := func(into, columns, values, where string) {
		for from := 0; from < n; from += 500_000 {
			run(fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM numbers JOIN messages t ON t.channel_no = %d AND "+
				"t.id = UNHEX('%x') WHERE n > ? AND n <= ? AND %s", into, columns, values, channel, template[:], where), from,
				from+500_000)
		}
	}
	columns := "channel_no, producer_no, priority, audience, content_type, headers"
	part("messages", columns+", id, payload", "t."+strings.ReplaceAll(columns, ", ", ", t.")+", "+id+
		", CONCAT('message ', n, REPEAT('x', 80))", "TRUE")
	consumer := func(name string) (no int) {
		if err := db.QueryRow("SELECT no FROM consumers WHERE id = ?", name).Scan(&no); err != nil {
			r.b.Fatal(err)
		}
		return no
	}
	k, pull := consumer("k"), consumer("pull")
	delivered := "consumer_no, message_id, attempts, at_ms, status_code"
	part("deliveries", delivered, fmt.Sprintf("%d, %s, 1, %d, 200", k, id, base), fmt.Sprint("n % ", storedDead, " <> 0"))
	part("deliveries", delivered, fmt.Sprintf("%d, %s, 1, %d, 200", pull, id, base), fmt.Sprint("n <= ", n-storedOpen))
	part("dead_jobs", "consumer_no, message_id, priority, attempts, died_ms, status_code, reason, answer, reason_code, "+
		"fingerprint", fmt.Sprintf("%d, %s, 0, 6, %d + n DIV 4, 500, 'status 500', '', 1, 7", k, id, base),
		fmt.Sprint("n % ", storedDead, " = 0"))
	part("open_jobs", "consumer_no, message_id, priority, attempts, next_ms, changed_ms, status_code, error",
		fmt.Sprintf("%d, %s, 0, 1, %d, %d, 0, 'the worker failed'", pull, id, base, base), fmt.Sprint("n > ", n-storedOpen))
	run("INSERT INTO dead_groups (consumer_no, fingerprint, jobs, first_ms, last_ms, status_code, sample, sample_id) " +
		"SELECT consumer_no, 7, COUNT(*), MIN(died_ms), MAX(died_ms), 500, 'status 500', MAX(message_id) FROM dead_jobs " +
		"GROUP BY consumer_no")
	for _, no := range []int{k, pull} {
		run("REPLACE INTO marks (consumer_no, message_id) SELECT ?, "+id+" FROM numbers WHERE n = ?", no, n)
	}
	return func(i int) (out ident.ID) {
		out = ident.AtMillis(base + int64(i/4))
		out[9] = byte(i % 4)
		return out
	}
}
