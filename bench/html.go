package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
)

// RenderHTML returns a page with tables, plots, and the report itself as data.
func RenderHTML(r *Report) ([]byte, error) {
	raw, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode report: %w", err)
	}
	data := struct {
		*Report
		Plots []template.HTML
		Text  string
		JSON  string
	}{Report: r, JSON: string(raw)}
	if len(r.Results) > 0 {
		var text bytes.Buffer
		PrintRun(&text, r)
		PrintEfficiency(&text, r)
		if r.Search != nil {
			printSearch(&text, r.Search)
		}
		data.Text = text.String()
		plots, err := plotsOf(r)
		if err != nil {
			return nil, err
		}
		for i := range plots {
			data.Plots = append(data.Plots, template.HTML(plots[i].svg())) // every text in it is escaped
		}
	}
	var out bytes.Buffer
	if err := reportPage.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("render report: %w", err)
	}
	return out.Bytes(), nil
}

// plotsOf returns the plots of a run: latency by percentile, and over time the rates, the backlog
// and the latencies.
func plotsOf(r *Report) ([]plot, error) {
	byPercentile := plot{title: "Latency by percentile", xName: "percentile", yName: "ms", xTicks: percentileTicks()}
	throughput := plot{title: "Throughput over time", xName: "seconds", yName: "per second"}
	latency := plot{title: "Acknowledgement latency over time", xName: "seconds", yName: "ms"}
	backlog := plot{title: "Backlog over time", xName: "seconds", yName: "deliveries owed"}
	shown := r.Results
	if len(shown) > maxPlotted {
		shown = shown[len(shown)-maxPlotted:]
	}
	for i, x := range shown {
		tag := ""
		if len(r.Results) > 1 {
			tag = fmt.Sprintf(" %d", len(r.Results)-len(shown)+i+1)
		}
		for _, l := range []struct {
			name string
			Latency
		}{{"acknowledged" + tag, x.Ack}, {"delivered" + tag, x.Delivery}} {
			c, err := percentileCurve(l.name, l.Latency)
			if err != nil {
				return nil, err
			}
			if len(c.x) > 0 {
				byPercentile.curves = append(byPercentile.curves, c)
			}
		}
		add := func(p *plot, name string, f func(Sample) float64) {
			c := curve{name: name + tag}
			for _, s := range x.Series {
				if v := f(s); !math.IsNaN(v) {
					c.x, c.y = append(c.x, s.At), append(c.y, v)
				}
			}
			p.curves = append(p.curves, c)
		}
		add(&throughput, "acknowledged", func(s Sample) float64 { return s.Acked })
		add(&throughput, "delivered", func(s Sample) float64 { return s.Delivered })
		add(&latency, "p50", func(s Sample) float64 { return measured(s.P50) })
		add(&latency, "p99", func(s Sample) float64 { return measured(s.P99) })
		add(&backlog, "owed", func(s Sample) float64 { return float64(s.Backlog) })
	}
	return []plot{byPercentile, throughput, latency, backlog}, nil
}

// measured returns NaN, which draws no point, for a second without a measurement, as in the warm-up
// and the drain.
func measured(latency float64) float64 {
	if latency == 0 {
		return math.NaN()
	}
	return latency
}

// versionText returns a version as text. The version is a text or the version information of a
// broker.
func versionText(v any) string {
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Sprint(v)
	}
	return fmt.Sprintf("%v (commit %v, %v)", m["Version"], m["Commit"], m["Go"])
}

// maxPlotted bounds how many repeats share a plot.
const maxPlotted = 3

// tail returns the position of a percentile on an axis that stretches the tail: 0 at 0 %, 1 at 90
// %, 2 at 99 %, 3 at 99.9 %.
func tail(percentile float64) float64 { return -math.Log10(1 - percentile/100) }

func percentileTicks() (out []tick) {
	for _, p := range []float64{0, 50, 90, 99, 99.9, 99.99, 99.999} {
		out = append(out, tick{tail(p), fmt.Sprintf("%g%%", p)})
	}
	return out
}

func percentileCurve(name string, l Latency) (curve, error) {
	c := curve{name: name}
	h, err := l.Histogram()
	if err != nil || h == nil {
		return c, err
	}
	// The axis ends at the last measured value: one in n values is above 1 - 1/n.
	end := math.Log10(float64(max(l.Count, 2)))
	const steps = 120
	for i := range steps + 1 {
		at := end * float64(i) / steps
		percentile := 100 * (1 - math.Pow(10, -at))
		c.x = append(c.x, at)
		c.y = append(c.y, float64(h.ValueAtQuantile(percentile))/1000)
	}
	return c, nil
}

var reportPage = template.Must(template.New("report").Funcs(
	template.FuncMap{"version": versionText}).Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Penstock bench: {{.Kind}} {{.Created.Format "2006-01-02 15:04"}}</title>
<style>
body{font:15px/1.5 system-ui,sans-serif;max-width:980px;margin:2em auto;padding:0 1em;color:#1b1f24;background:#fff}
h1{font-size:1.4em} pre{background:#f4f6f8;padding:1em;white-space:pre-wrap;font-size:12px;line-height:1.45}
svg{width:100%;height:auto;margin:1em 0;border:1px solid #dde3e9;border-radius:6px;background:#fff}
svg text{font-size:11px;fill:#57606a}.t{font-size:14px!important;font-weight:600;fill:#1b1f24!important}
.m{text-anchor:middle}.e{text-anchor:end}.g{stroke:#e6ebf0}
dt{font-weight:600}dd{margin:0 0 .4em 1em}
@media(prefers-color-scheme:dark){body{background:#14181d;color:#dde3e9}pre{background:#1d232a}svg{background:#14181d;border-color:#2b333c}.t{fill:#dde3e9!important}svg text{fill:#9aa5b1}.g{stroke:#262d35}}
</style></head><body>
<h1>Penstock bench: {{.Kind}}</h1>
<dl>
<dt>When</dt><dd>{{.Created.Format "2006-01-02 15:04:05 MST"}}</dd>
<dt>Machine</dt><dd>{{.Hardware.CPU}}, {{.Hardware.Cores}} cores, {{.Hardware.MemoryMB}} MB, {{.Hardware.OS}} {{.Hardware.Kernel}}</dd>
<dt>Versions</dt><dd>{{range $name, $v := .Versions}}{{$name}} {{version $v}} {{end}}</dd>
<dt>Stores</dt><dd>{{.Stores}}{{range .Durability}}; {{.}}{{end}}</dd>
</dl>
{{range .Plots}}{{.}}
{{end}}<pre>{{.Text}}</pre>
<details><summary>The whole report as JSON</summary><pre id="report">{{.JSON}}</pre></details>
</body></html>
`))
