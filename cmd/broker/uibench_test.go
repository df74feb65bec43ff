package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/bench"
	"github.com/penstock-broker/penstock/internal/feature/fleet"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/browser"
	"github.com/penstock-broker/penstock/redisq"
)

// benchReports is a folder with a fine report, one of a broken promise, and one that attacks whoever opens it.
func benchReports(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	report := func(name string, lost int64, ago time.Duration) string {
		r := &bench.Report{Format: 1, Kind: "run", Created: time.Now(), Stores: "SQLite, embedded Redis",
			Hardware: bench.Hardware{CPU: "an example", Cores: 8, MemoryMB: 16_384},
			Config:   bench.Config{Connections: 16, PushConsumers: 2},
			Results: []*bench.Result{{Seconds: 30, AckedRate: 8431, DeliveredRate: 16_862,
				Ack:      bench.Latency{Count: 252_930, P50: 1.5, P90: 3.1, P95: 4.4, P99: 9.2, P999: 14, Max: 30},
				Delivery: bench.Latency{Count: 505_860, P50: 2.1, P90: 4.2, P95: 6, P99: 12, P999: 19, Max: 41},
				Ledger:   &bench.Verdict{Lost: lost}}}}
		for i := range 30 {
			r.Results[0].Series = append(r.Results[0].Series, bench.Sample{At: float64(i), Acked: 8400 + float64(i),
				Delivered: 16_800, P50: 1.5, P99: 9 + float64(i%7)})
		}
		page, err := bench.RenderHTML(r)
		require.NoError(t, err)
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, page, 0o600))
		require.NoError(t, os.Chtimes(path, time.Now().Add(-ago), time.Now().Add(-ago)))
		return string(page)
	}
	page := report("nightly.html", 0, time.Minute)
	report("with a fault.html", 3, time.Hour)
	attack := strings.Replace(page, "</body>", `<script>document.title = "attacked"; parent.document.title = "attacked"
		</script><img src=x onerror="document.title='attacked'"><form action="/ui/logout" method="post"><button>go</button>
		</form><meta http-equiv="refresh" content="0; url=/ui/login"></body>`, 1)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "attack.html"), []byte(attack), 0o600))
	return folder
}

// The frame of a report shows it, and what is in it runs nothing, loads nothing and goes nowhere.
func TestAReportOfBenchReachesNothingOfTheDashboard(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start("BROKER_UI_BENCH=" + benchReports(t))
	b := browser.Start(t)
	b.RunScripts("UTC")
	require.Empty(t, b.Open(p.base+"/ui/bench"))
	require.Empty(t, b.Press(`a[href="/ui/bench?report=nightly.html"]`), "the page and its frame have no error")
	require.Contains(t, b.Eval("document.querySelector('h1').textContent"), "Every promise was kept")
	require.Equal(t, "null", b.Eval("String(document.querySelector('iframe').contentDocument)"), "it has another origin")
	_, colours := look(t, b.Picture())
	require.Greater(t, colours, 10)

	b.Open(p.base + "/ui/bench?report=attack.html")
	require.NotContains(t, b.Eval("document.title"), "attacked")
	faults := strings.Join(b.Faults(), "\n")
	require.NotContains(t, faults, "attacked")

	b.Open(p.base + "/ui/bench/report?report=attack.html") // by itself
	require.Contains(t, b.Eval("document.title"), "Penstock bench: run")
	require.Equal(t, "null", b.Eval("self.origin"))
	require.Contains(t, b.Eval("location.href"), "/ui/bench/report")
}

// secrets of settings are in no answer, and what counts is.
func TestTheSettingsOfABrokerHaveNoSecret(t *testing.T) {
	parallel(t)
	folder := t.TempDir()
	file := filepath.Join(folder, "secret")
	require.NoError(t, os.WriteFile(file, []byte("whsec_"+strings.Repeat("Abcd", 10)+"\n"), 0o600))
	p := embeddedWorld(t).start("BROKER_ALERT_WEBHOOK_SECRET_FILE="+file,
		"BROKER_ALERT_WEBHOOK_URL=https://alerts.example/s3cr3t-path",
		"BROKER_ALERT_SMTP_URL=smtp://me:s3cr3t@mail.example:25",
		"BROKER_ALERT_FROM=a@mail.example", "BROKER_ALERT_TO=b@mail.example,c@mail.example",
		"BROKER_RETRIGGER_URL=http://me:s3cr3t@127.0.0.1:1", "BROKER_RETENTION=30d",
		"OTEL_EXPORTER_OTLP_HEADERS=authorization=s3cr3t")
	for _, path := range []string{"/settings", "/ui/brokers", "/ui/brokers?show=settings"} {
		r := p.do("GET", path, "")
		require.Equal(t, 200, r.status, r.body)
		for _, secret := range []string{"s3cr3t", "whsec_Abcd", adminToken} {
			require.NotContains(t, r.body, secret, path)
		}
	}
	var got apitype.Settings
	require.NoError(t, json.Unmarshal([]byte(p.do("GET", "/settings", "").body), &got))
	of := map[string]apitype.Setting{}
	for _, s := range got.Result {
		of[s.Name] = s
		require.NotEmpty(t, s.Meaning, s.Name)
	}
	names, _ := settingNames()
	for _, name := range names {
		require.Contains(t, of, name)
	}
	for name, value := range map[string]string{"BROKER_RETENTION": "720h", "BROKER_OPEN_MANAGEMENT": "true",
		"BROKER_ALERT_TO": "b@mail.example,c@mail.example", "BROKER_RETRY_JITTER": "0.1", "BROKER_MAX_BODY": "4MiB",
		"BROKER_RETRIGGER_URL": "http://(left out)@127.0.0.1:1", "BROKER_STOP_TIMEOUT": "30s"} {
		require.Equal(t, value, of[name].Value, name)
	}
	require.True(t, of["BROKER_RETENTION"].Set)
	require.False(t, of["BROKER_RETRY_JITTER"].Set)
	for _, name := range []string{"BROKER_ALERT_WEBHOOK_SECRET", "BROKER_ALERT_SMTP_URL", "OTEL_EXPORTER_OTLP_HEADERS"} {
		require.Equal(t, []any{true, true, ""}, []any{of[name].Set, of[name].Secret, of[name].Value}, name)
	}
	require.False(t, of["BROKER_REDIS_URL"].Set)
}

// The embedded queue keeps the note of its broker, too.
func TestABrokerSaysHowItIsDoing(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	p.sample("pull")
	eventually(t, "the load of the broker", func() bool {
		body := p.page("/ui/brokers").body
		return strings.Contains(body, "said at") && strings.Contains(body, "MiB") && strings.Contains(body, "this one")
	})
}

// Each of two brokers shows the load of both, also after a wipe of Redis, until one ends.
func TestTwoBrokersShowHowBothAreDoing(t *testing.T) {
	parallel(t)
	w := realWorld(t)
	a, b := w.start(), w.start()
	both := func(what string) {
		for _, p := range []*process{a, b} {
			eventually(t, what, func() bool {
				body := p.page("/ui/brokers").body
				return strings.Contains(body, "Two brokers are alive") && strings.Count(body, "said at") == 2 &&
					strings.Count(body, `data-label="Memory"`) == 2 && strings.Count(body, "this one") == 1
			})
		}
	}
	both("the load of both at each")
	at, err := redis.ParseURL(w.redis.URL())
	require.NoError(t, err)
	client := redis.NewClient(at)
	defer func() { _ = client.Close() }()
	noted := func(n int64) {
		t.Helper()
		eventually(t, fmt.Sprint(n, " notes in Redis"), func() bool {
			return client.HLen(t.Context(), redisq.DefaultPrefix+"brokers").Val() == n
		})
	}
	noted(2)
	w.flushall()
	noted(2)
	both("the load of both after a wipe")
	b.stop()
	noted(1)
	eventually(t, "one broker", func() bool {
		return strings.Contains(a.page("/ui/brokers").body, "One broker is alive")
	})
}

func TestTheNewestNoteOfANodeCounts(t *testing.T) {
	notes := []fleet.Note{{No: 1, Name: "a", AtMs: 5}, {No: 1, Name: "a", AtMs: 9}, {No: 1, Name: "a", AtMs: 7},
		{No: 1, Name: "b", AtMs: 99}, {No: 2, Name: "a", AtMs: 99}}
	require.EqualValues(t, 9, noteOf(notes, 1, "a").AtMs)
	require.Nil(t, noteOf(notes, 3, "a"))
}
