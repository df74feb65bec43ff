package api

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/bench"
	"github.com/penstock-broker/penstock/internal/feature/fleet"
	"github.com/penstock-broker/penstock/internal/feature/ui"
	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// benchReport is the name of the report in the folder of each world.
const benchReport = "nightly.html"

// benchFolder is a folder with a report, as bench writes it.
func benchFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	page, err := bench.RenderHTML(&bench.Report{Format: 1, Kind: "run",
		Config:  bench.Config{Connections: 8, PushConsumers: 1},
		Results: []*bench.Result{{Seconds: 10, AckedRate: 1500, DeliveredRate: 1490, Ledger: &bench.Verdict{Lost: 1}}}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, benchReport), page, 0o600))
	return folder
}

// A report that bench writes is recognised, and its sentence is that of its numbers.
func TestTheReportsOfBenchAreShown(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	r := w.page("/ui/bench").is(200)
	require.Equal(t, "One report of bench", r.title())
	require.Contains(t, r.Body, "1\u202f490/s delivered")
	require.Contains(t, r.Body, "Broken: 1 lost")
	require.Contains(t, r.Body, `href="/ui/bench?report=nightly.html"`)
	r = w.page("/ui/bench?report=nightly.html").is(200)
	require.Contains(t, r.Body, `<iframe class="report" sandbox src="/ui/bench/report?report=nightly.html"`)
	raw := w.get("/ui/bench/report?report=nightly.html").is(200)
	require.Contains(t, raw.Body, "<title>Penstock bench: run")
	require.Contains(t, raw.Header("Content-Security-Policy"), "sandbox")
	require.NotContains(t, raw.Header("Content-Security-Policy"), "allow-")
	require.NotContains(t, raw.Header("Content-Security-Policy"), "script-src")
	require.Empty(t, w.do("HEAD", "/ui/bench/report?report=nightly.html", "").is(200).Body)
	w.page("/ui/bench?report=" + url.QueryEscape("../nightly.html")).is(404)
	w.get("/ui/bench/report?report=none").is(404)
	w.get("/ui/bench/report").is(404)
}

// Whoever may not see the dashboard sees no report and no setting.
func TestReportsAndSettingsNeedManagement(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.OpenManagement = false })
	w.get("/ui/bench/report?report="+benchReport, browser).is(303)
	w.get("/ui/bench", browser).is(303)
	w.get("/ui/brokers?show=settings", browser).is(303)
	w.get("/settings").problem(401, "token_missing")
	admin := "X-Broker-Admin-Token: " + adminToken
	w.get("/ui/bench/report?report="+benchReport, admin).is(200)
	r := w.get("/settings", admin).is(200)
	require.NotEmpty(t, r.Header("ETag"))
	require.Equal(t, 304, w.get("/settings", admin, "If-None-Match: "+r.Header("ETag")).Status)
}

func TestTheSettingsOfABrokerAreShown(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	list := w.get("/settings").is(200).json()["Result"].([]any)
	require.Len(t, list, 2)
	require.Equal(t, map[string]any{"Name": "BROKER_ADMIN_TOKEN", "Value": "", "Default": "", "Set": true, "Secret": true,
		"Meaning": "Token of the admin."}, list[1])
	body := w.page("/ui/brokers").is(200).Body
	require.Contains(t, body, "set, a secret")
	require.NotContains(t, body, "BROKER_LISTEN")
	require.Contains(t, w.page("/ui/brokers?show=settings").is(200).Body, "BROKER_LISTEN")

	none, _ := newUIWorld(t, func(o *Options) { o.Settings = nil })
	require.Equal(t, "{\"Result\":[]}\n", none.get("/settings").is(200).Body)
	require.Contains(t, none.page("/ui/brokers").is(200).Body, "all have their defaults")
}

func TestEachBrokerSaysHowItIsDoing(t *testing.T) {
	w, _ := newUIWorld(t, func(o *Options) {
		o.Brokers = func() []ui.Broker {
			return []ui.Broker{{No: 1, Name: "a:1", Self: true, Note: &fleet.Note{Version: apitype.Version{Version: "1.2.3"}}},
				{No: 2, Name: "b:1", Note: &fleet.Note{Version: apitype.Version{Version: "1.3.0"}, Load: fleet.Load{Accepted: 1234},
					Journal: fleet.Journal{Waiting: 7, Oldest: 120_000}}}, {No: 3, Name: "c:1"}}
		}
		o.Version = apitype.Version{Version: "1.2.3"}
	})
	r := w.page("/ui/brokers").is(200)
	require.Equal(t, "Three brokers are alive, with different versions", r.title())
	require.Contains(t, r.Body, `<span class="state warn">1.3.0</span>`)
	require.NotContains(t, r.Body, `<span class="state warn">1.2.3</span>`)
	require.Contains(t, r.Body, "1\u202f234")
	require.Contains(t, r.Body, `<span class="state warn">7 messages</span>`)
	require.Contains(t, r.Body, "It says nothing of itself at present")
}
