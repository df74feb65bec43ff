package ui

import (
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/feature/fleet"
)

// reportOf is a file as bench writes it, with some data. api and cmd/broker have tests with files of bench itself.
func reportOf(data string) string {
	return reportBegin + "<head><meta charset=\"utf-8\">\n<title>Penstock bench: run</title></head><body>" + dataBegin +
		html.EscapeString(data) + dataEnd + "</body></html>\n"
}

// write puts a file into a folder, written so long ago.
func write(t *testing.T, folder, name, text string, ago time.Duration) {
	t.Helper()
	path := filepath.Join(folder, name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	require.NoError(t, os.Chtimes(path, now.Add(-ago), now.Add(-ago)))
}

// benchOf is a dashboard with a folder.
func benchOf(folder string) *Dashboard {
	return New(Options{Bench: folder, Now: func() time.Time { return now }})
}

// ask asks a dashboard for a page with a query.
func ask(d *Dashboard, page string, query url.Values) *fasthttp.RequestCtx {
	var rq fasthttp.Request
	rq.SetRequestURI(page + "?" + query.Encode())
	rc := &fasthttp.RequestCtx{}
	rc.Init(&rq, nil, nil)
	d.Serve(rc, rc, Visit{Page: page, Open: true, Source: empty{}})
	return rc
}

const fineRun = `{"Kind":"run","Config":{"Connections":8,"PushConsumers":2},"Results":[` +
	`{"Seconds":10,"AckedRate":100,"Ack":{"P99":9}},{"Seconds":10,"AckedRate":1234.4,"DeliveredRate":2468,` +
	`"Ack":{"P99":4.16},"Delivery":{"P99":12.2},"Ledger":{}},{"Seconds":10,"AckedRate":5000,"Ack":{"P99":1}}]}`

func TestAReportIsSaidInASentence(t *testing.T) {
	for data, want := range map[string]found{
		fineRun: {Said: "Run, 3 times 10 s with 8 connections, 2 push consumers: 1\u202f234/s accepted, p99 4.2 ms; " +
			"2\u202f468/s delivered, p99 12 ms", Verdict: "Every promise was kept"},
		`{"Kind":"publish","Config":{"Connections":1,"Rate":50,"Channels":3,"PullWorkers":2},"Results":[{"Seconds":1.5,` +
			`"AckedRate":50,"Ledger":{"Lost":2,"Askew":1}}]}`: {Said: "Publish of 1.5 s with 1 connection, 50 messages/s " +
			"asked for, 3 channels, 2 pull workers: 50/s accepted, p99 0 ms",
			Verdict: "Broken: 2 lost, 1 books that do not balance", Bad: true},
		`{"Results":[{"Ledger":{"Pending":3}}]}`: {Said: "Run of 0 s with 0 connections: 0/s accepted, p99 0 ms",
			Verdict: "Nothing was lost, and 3 were pending at the end"},
		`{"Kind":"run","Results":[{}]}`:                         {Said: "Run of 0 s with 0 connections: 0/s accepted, p99 0 ms"},
		`{"Kind":"find-max","Search":{"P99Ms":20,"Best":7400}}`: {Said: "Find-max: 7\u202f400 messages/s kept p99 below 20 ms"},
		`{"Kind":"find-max","Search":{"P99Ms":20}}`:             {Said: "Find-max: no rate kept p99 below 20 ms"},
		`{"Kind":"limits"}`:                                     {Said: "Limits: it has no run"},
		`{"Results":"none"}`:                                    {Said: "A report whose numbers cannot be read"},
		`{"Kind":"` + strings.Repeat("x", 99) + `"}`:            {Said: "X" + strings.Repeat("x", mostKind-1) + "…: it has no run"},
	} {
		folder := t.TempDir()
		write(t, folder, "a.html", reportOf(data), time.Hour)
		list, more, err := benchOf(folder).reports.list()
		require.NoError(t, err)
		require.False(t, more)
		require.Len(t, list, 1)
		require.Equal(t, want, list[0].found)
		one, err := benchOf(folder).reports.one("a.html")
		require.NoError(t, err)
		require.Equal(t, list[0], one)
	}
}

func TestOnlyReportsOfTheFolderAreShown(t *testing.T) {
	above := t.TempDir()
	folder := filepath.Join(above, "reports")
	require.NoError(t, os.Mkdir(folder, 0o700))
	text := reportOf(fineRun)
	write(t, folder, "fine.html", text, 3*time.Hour)
	write(t, folder, "name with a blank & more", text, 2*time.Hour)
	write(t, folder, `"><script>alert(1)`, text, time.Hour)
	write(t, above, "outside.html", text, 0)
	write(t, folder, "notes.txt", "secret=1", 0)
	write(t, folder, "empty.html", "", 0)
	write(t, folder, "short.html", reportBegin, 0)
	write(t, folder, "other.html", reportBegin+strings.Repeat(" ", reportHead)+reportTitle, 0)
	write(t, folder, ".hidden.html", text, 0)
	write(t, folder, "line\nbreak.html", text, 0)
	write(t, folder, "wrong\xff.html", text, 0)
	write(t, folder, "large.html", text, 0)
	require.NoError(t, os.Truncate(filepath.Join(folder, "large.html"), mostReport+1))
	require.NoError(t, os.Mkdir(filepath.Join(folder, "sub.html"), 0o700))
	write(t, filepath.Join(folder, "sub.html"), "in.html", text, 0)
	require.NoError(t, os.Symlink(filepath.Join(above, "outside.html"), filepath.Join(folder, "out.html")))
	require.NoError(t, os.Symlink("fine.html", filepath.Join(folder, "in.html")))
	require.NoError(t, os.Symlink("loop.html", filepath.Join(folder, "loop.html")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(folder, "pipe.html"), 0o600))
	d := benchOf(folder)

	rc := ask(d, "/ui/bench", nil)
	require.Equal(t, 200, rc.Response.StatusCode())
	body := string(rc.Response.Body())
	require.Contains(t, body, "Three reports of bench")
	require.Equal(t, 3, strings.Count(body, "<tr><td"), body)
	require.NotContains(t, body, "<script>alert")
	require.Less(t, strings.Index(body, "blank"), strings.Index(body, "fine.html"), "the newest first")

	for _, name := range []string{"fine.html", "name with a blank & more"} {
		rc = ask(d, reportPath, url.Values{"report": {name}})
		require.Equal(t, 200, rc.Response.StatusCode(), name)
		require.Equal(t, text, string(rc.Response.Body()))
		require.Equal(t, reportPolicy, string(rc.Response.Header.Peek("Content-Security-Policy")))
		require.Equal(t, "nosniff", string(rc.Response.Header.Peek("X-Content-Type-Options")))
		rc = ask(d, "/ui/bench", url.Values{"report": {name}})
		require.Equal(t, 200, rc.Response.StatusCode())
		require.Contains(t, string(rc.Response.Body()), "<iframe class=\"report\" sandbox src=\"/ui/bench/report?report=")
		require.True(t, strings.HasSuffix(string(rc.Response.Header.Peek("Content-Security-Policy")), framePolicy))
	}
	for _, name := range []string{"", ".", "..", "../outside.html", "./fine.html", "sub.html", "sub.html/in.html",
		"sub.html/../fine.html", "/etc/passwd", filepath.Join(folder, "fine.html"), "out.html", "in.html", "loop.html",
		"pipe.html", "notes.txt", "empty.html", "short.html", "other.html", "large.html", "none.html", ".hidden.html",
		"line\nbreak.html", "fine.html\x00", "wrong\xff.html", `..\outside.html`, "%2e%2e/outside.html",
		strings.Repeat("a", 300), hostile} {
		rc = ask(d, reportPath, url.Values{"report": {name}})
		require.Equal(t, 404, rc.Response.StatusCode(), "%q", name)
		require.NotContains(t, string(rc.Response.Body()), "secret=1")
		if name != "" {
			require.Equal(t, 404, ask(d, "/ui/bench", url.Values{"report": {name}}).Response.StatusCode(), "%q", name)
		}
	}
}

func TestTheListOfReportsHasABoundAndReadsAFileOnce(t *testing.T) {
	folder := t.TempDir()
	for i := range mostReports + 5 {
		write(t, folder, fmt.Sprintf("%02d.html", i), reportOf(fineRun), time.Duration(i)*time.Minute)
	}
	d := benchOf(folder)
	body := string(ask(d, "/ui/bench", nil).Response.Body())
	require.Equal(t, mostReports, strings.Count(body, "<tr><td"))
	require.Contains(t, body, "The folder has more files.")
	require.Contains(t, body, "00.html")
	require.NotContains(t, body, fmt.Sprintf("%02d.html", mostReports))
	require.Len(t, d.reports.known, mostReports)

	// One of the same size and time is not read again; a newer one is.
	write(t, folder, "00.html", reportOf(strings.Replace(fineRun, `"AckedRate":1234.4`, `"AckedRate":1299.4`, 1)), 0)
	require.NotContains(t, string(ask(d, "/ui/bench", nil).Response.Body()), "1\u202f299/s")
	write(t, folder, "00.html", reportOf(strings.Replace(fineRun, `"AckedRate":1234.4`, `"AckedRate":1299.4`, 1)), -time.Second)
	require.Contains(t, string(ask(d, "/ui/bench", nil).Response.Body()), "1\u202f299/s")
}

func TestAFolderOfReportsThatIsNoneSaysSo(t *testing.T) {
	rc := ask(benchOf(""), "/ui/bench", nil)
	require.Equal(t, 200, rc.Response.StatusCode())
	require.Contains(t, string(rc.Response.Body()), "BROKER_UI_BENCH")
	require.Equal(t, 404, ask(benchOf(""), reportPath, url.Values{"report": {"a.html"}}).Response.StatusCode())
	empty := t.TempDir()
	require.Contains(t, string(ask(benchOf(empty), "/ui/bench", nil).Response.Body()), "The folder has no report")
	gone := benchOf(filepath.Join(empty, "secret-place"))
	for _, query := range []url.Values{nil, {"report": {"a.html"}}} {
		rc = ask(gone, "/ui/bench", query)
		require.Equal(t, 503, rc.Response.StatusCode())
		require.NotContains(t, string(rc.Response.Body()), "secret-place")
	}
}

func TestHostileReportsAreShownAsText(t *testing.T) {
	folder := t.TempDir()
	kind, err := json.Marshal(hostile)
	require.NoError(t, err)
	write(t, folder, "<img src=x onerror=alert(1)>", reportOf(`{"Kind":`+string(kind)+`,"Results":[{}]}`), 0)
	rc := ask(benchOf(folder), "/ui/bench", nil)
	for _, rc := range []*fasthttp.RequestCtx{rc, ask(benchOf(folder), "/ui/bench",
		url.Values{"report": {"<img src=x onerror=alert(1)>"}})} {
		require.Equal(t, 200, rc.Response.StatusCode())
		body := unscripted(rc)
		require.NotContains(t, body, "<script")
		require.NotContains(t, body, "<img")
		require.NotContains(t, body, "ZgotmplZ")
		require.Contains(t, body, "&lt;img src=x")
	}
}

func TestABrokerIsDescribedByItsNote(t *testing.T) {
	for _, c := range []struct {
		j    fleet.Journal
		want Mark
	}{
		{fleet.Journal{}, Mark{Class: "off", Word: "Empty"}},
		{fleet.Journal{Waiting: 1, Bytes: 1536, Oldest: 2000}, Mark{Word: "1 message", Sub: "1.5 KiB, the oldest for 2 s"}},
		{fleet.Journal{Waiting: 3, Oldest: 61_000}, Mark{Class: "warn", Word: "3 messages", Sub: "0 B, the oldest for 61 s"}},
		{fleet.Journal{Held: 2, Damaged: 1}, Mark{Class: "warn", Word: "2 messages held, 1 damaged file"}},
	} {
		require.Equal(t, c.want, markOfJournal(&c.j))
	}
	r := rowOfBroker(&Broker{Note: &fleet.Note{BeganMs: now.Add(-3 * time.Hour).UnixMilli(),
		Load: fleet.Load{Processors: 0.5, Memory: 64 << 20}}}, now)
	require.Equal(t, []string{"3 h", "0.5", "64 MiB"}, []string{r.Up, r.Processors, r.Memory})
	require.Empty(t, rowOfBroker(&Broker{}, now).Up)
}
