package main

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/feature/consumermetrics"
)

// descriptions are the metrics of both pages, by name: what they say of themselves.
func descriptions(t *testing.T) map[string]string {
	t.Helper()
	cfg, err := readConfig([]string{"BROKER_LISTEN=127.0.0.1:0", "BROKER_DATA_DIR=" + t.TempDir(),
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:9"})
	require.NoError(t, err)
	b, err := openBroker(t.Context(), cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(b.close)
	ch := make(chan *prometheus.Desc)
	go func() {
		defer close(ch)
		b.registry.Describe(ch)
	}()
	described := regexp.MustCompile(`fqName: "([^"]+)", help: "([^"]*)".*variableLabels: \{([^}]*)\}`)
	all := map[string]string{}
	for d := range ch {
		m := described.FindStringSubmatch(d.String())
		require.NotNil(t, m, d)
		if strings.HasPrefix(m[1], "penstock_") {
			all[m[1]] = m[2] + " | " + m[3]
			for _, label := range strings.Split(m[3], ",") {
				require.NotContains(t, []string{"channel", "consumer", "producer", "message", "job"}, label,
					"%s: the page would grow with what exists", m[1])
			}
		}
	}
	for _, f := range consumermetrics.Families() {
		require.NotContains(t, all, f.Name, "each stands on one page")
		all[f.Name] = f.Help
	}
	return all
}

// metricName finds names of metrics in a text.
var metricName = regexp.MustCompile(`\bpenstock_[a-z0-9_]+`)

// metricsNamed are the metrics that a file names, those of histograms without their suffixes.
func metricsNamed(t *testing.T, file string, known map[string]string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	names := map[string]bool{}
	for _, name := range metricName.FindAllString(string(text), -1) {
		if name == "penstock_outbox" { // a table
			continue
		}
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			if base := strings.TrimSuffix(name, suffix); known[name] == "" && known[base] != "" {
				name = base
			}
		}
		names[name] = true
	}
	return names
}

// Who reads a page, a rule or a board finds what it names, and the page of metrics has all of them.
func TestEachMetricThatIsNamedExistsAndEachThatExistsIsOnThePage(t *testing.T) {
	known := descriptions(t)
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	more, err := filepath.Glob("../../docs/*/*.md")
	require.NoError(t, err)
	rules, err := filepath.Glob("../../deploy/*/*.[yj]*")
	require.NoError(t, err)
	require.NotEmpty(t, rules)
	for _, page := range slices.Concat(pages, more, rules) {
		for name := range metricsNamed(t, page, known) {
			require.Contains(t, known, name, page)
		}
	}
	rows := regexp.MustCompile("(?m)^\\| `(penstock_[a-z0-9_]+)` \\| [^|]+ \\| [^|]*\\|[^|]*\\|$")
	text, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	consumers, err := os.ReadFile("../../docs/consumer-metrics.md")
	require.NoError(t, err)
	var listed []string
	for _, m := range rows.FindAllStringSubmatch(string(text)+string(consumers), -1) {
		listed = append(listed, m[1])
	}
	slices.Sort(listed)
	require.Equal(t, slices.Sorted(maps.Keys(known)), listed, "docs/metrics.md has a row for each")
}
