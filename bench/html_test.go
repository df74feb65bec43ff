package bench

import (
	"encoding/xml"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func measuredReport(t *testing.T) *Report {
	r := reportWith(1000, 1100)
	for _, x := range r.Results {
		rec := NewRecorder()
		for i := range 1000 {
			rec.Record(i, int64(i+1)*1e6) // 1 to 1000 ms
		}
		var err error
		x.Ack, err = Summary(rec.Total())
		require.NoError(t, err)
		x.Seconds, x.CPUSeconds = 10, map[string]float64{"bench": 5, "broker": 9, Disturbance: 4}
		x.Ledger = &Verdict{Lost: 1, Offenders: []string{"lost: <script>alert(1)</script>"}}
	}
	r.Hardware.CPU = "Test & Sons 3000"
	r.Limits = []*Limits{testLimits()}
	r.Efficiency = []Efficiency{Efficient(&Config{Batch: 1, PushConsumers: 1, PullBatch: 1}, r.Results[0],
		testLimits(), 2)}
	return r
}

func testLimits() *Limits {
	stage := func(name string, each map[string]float64) Stage {
		return Stage{Name: name, CPUMicros: total(each), Micros: each}
	}
	return &Limits{Stages: []Stage{stage(StageHTTP, map[string]float64{"bench": 12, "peer": 8}),
		stage(StageInsert, map[string]float64{"bench": 4, "mysql": 16}),
		stage(StageOutcome, map[string]float64{"bench": 1, "mysql": 4}), stage(StageRedis, map[string]float64{"bench": 3,
			"redis": 7}),
		stage(StageRedis1, map[string]float64{"bench": 20, "redis": 40}), stage(StagePush, map[string]float64{"bench": 15,
			"peer": 10})}}
}

func TestThePageHoldsTheNumbersThePlotsAndNothingFromElsewhere(t *testing.T) {
	b, err := RenderHTML(measuredReport(t))
	require.NoError(t, err)
	page := string(b)
	require.Contains(t, page, "Test &amp; Sons 3000")
	for _, title := range []string{"Latency by percentile", "Throughput over time", "Backlog over time"} {
		require.Contains(t, page, title)
	}
	require.Equal(t, 4, strings.Count(page, "<svg "))
	require.Contains(t, page, "other processes used 0.4 cores")
	require.NotContains(t, page, "<script")
	require.NotRegexp(t, regexp.MustCompile(`(src|href)=|url\(|https?://`), page)
	for _, svg := range regexp.MustCompile(`(?s)<svg .*?</svg>`).FindAllString(page, -1) {
		dec := xml.NewDecoder(strings.NewReader(svg))
		for err = nil; err == nil; _, err = dec.Token() {
		}
		require.ErrorIs(t, err, io.EOF)
		for _, line := range regexp.MustCompile(`<polyline[^>]*points="([^"]*)"`).FindAllStringSubmatch(svg, -1) {
			require.NotContains(t, line[1], "NaN")
		}
	}
	require.GreaterOrEqual(t, strings.Count(page, "<polyline"), 8)
}

func TestAPlotOfNothingOrOfNonsenseIsStillAPlot(t *testing.T) {
	for _, c := range [][]curve{nil, {{"empty", nil, nil}}, {{"one", []float64{3}, []float64{0}}},
		{{"bad", []float64{math.NaN(), 1, math.Inf(1)}, []float64{1, math.NaN(), 2}}}} {
		svg := (&plot{title: "<t>", curves: c}).svg()
		require.Contains(t, svg, "&lt;t&gt;")
		require.NotContains(t, svg, "NaN")
		require.NotContains(t, svg, "Inf")
	}
}

func TestLatenciesSurviveTheReport(t *testing.T) {
	r := measuredReport(t)
	l := r.Results[0].Ack
	require.EqualValues(t, 1000, l.Count)
	require.InDelta(t, 500, l.P50, 1)
	require.InDelta(t, 990, l.P99, 1)
	h, err := l.Histogram()
	require.NoError(t, err)
	require.EqualValues(t, 1000, h.TotalCount())
	require.InDelta(t, 500_000, h.ValueAtQuantile(50), 1000)
}

func TestIntervalsAddUpToTheTotal(t *testing.T) {
	r := NewRecorder()
	r.Record(0, 1e6)
	require.EqualValues(t, 1, r.Interval().TotalCount())
	r.Record(1, 2e6)
	r.Record(2, int64(maxLatency)*10) // clamped, not dropped
	require.EqualValues(t, 2, r.Interval().TotalCount())
	require.Zero(t, r.Interval().TotalCount())
	require.EqualValues(t, 3, r.Total().TotalCount())
}

func TestEfficiencyIsRateOverTheSumOfItsStages(t *testing.T) {
	e := Efficient(&Config{Batch: 1, PushConsumers: 1, PullBatch: 1}, &Result{AckedRate: 5000, DeliveredRate: 5000},
		testLimits(), 2)
	require.InDelta(t, 80, e.SumMicros, 1e-9) // 20 + 20 + 5 + 10 + 25
	require.InDelta(t, 25_000, e.Bound, 1e-6)
	require.InDelta(t, 0.2, e.Ratio, 1e-9)
	at := &Result{AckedRate: 5000, DeliveredRate: 5000, Messages: 1e6, CPUSeconds: map[string]float64{"bench": 44,
		"broker": 62, "mysql": 20, "redis": 14, Disturbance: 9}}
	e = Efficient(&Config{Batch: 1, PushConsumers: 1, PullBatch: 1}, at, testLimits(), 2)
	// The client of an exchange and the server of a push are the harness, the rest of both the broker.
	require.Equal(t, []ProcessCost{{"bench", 22, 44}, {"broker", 31, 62}, {"mysql", 20, 20}, {"redis", 7, 14}},
		e.Processes)
	var out strings.Builder
	PrintEfficiency(&out, &Report{Hardware: Hardware{Cores: 2}, Efficiency: []Efficiency{e}})
	require.Contains(t, out.String(), "in this run: bench 22.0 -> 44.0 broker 31.0 -> 62.0 mysql 20.0 -> 20.0 redis "+
		"7.0 -> 14.0\n")
	slow := Efficient(&Config{Batch: 1, PushConsumers: 2, PullBatch: 1}, &Result{AckedRate: 5000, DeliveredRate: 4000},
		testLimits(), 2)
	require.InDelta(t, 2000, slow.Rate, 1e-9, "deliveries that fall behind are the rate")
	pull := Efficient(&Config{Batch: 10, PullWorkers: 4, PullBatch: 100}, &Result{}, testLimits(), 2)
	require.InDelta(t, 20*(0.1+0.02)+20+5+10, pull.SumMicros, 1e-9)
}
