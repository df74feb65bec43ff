package bench

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func reportWith(rates ...float64) *Report {
	r := &Report{Format: reportFormat, Kind: "run"}
	for _, rate := range rates {
		x := &Result{AckedRate: rate, Ack: Latency{P50: 1000 / rate, P99: 5000 / rate}, Ledger: &Verdict{}}
		for i := range 10 {
			x.Series = append(x.Series, Sample{At: float64(i), Acked: rate * (0.9 + 0.02*float64(i)), Warm: true})
		}
		r.Results = append(r.Results, x)
	}
	return r
}

func TestADifferenceCountsOnlyBeyondTheNoise(t *testing.T) {
	for name, c := range map[string]struct {
		a, b    []float64
		differs bool
	}{
		"the same":                 {[]float64{100, 101, 102}, []float64{100, 101, 102}, false},
		"clearly more":             {[]float64{100, 101, 102}, []float64{120, 121, 122}, true},
		"clearly less":             {[]float64{120, 121, 122}, []float64{100, 101, 102}, true},
		"apart, but less so":       {[]float64{100, 110, 120}, []float64{121, 125, 130}, false},
		"overlapping":              {[]float64{100, 110, 130}, []float64{120, 140, 150}, false},
		"one of each says nothing": {[]float64{100}, []float64{500}, false},
		"an outlier among many": {[]float64{1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 90}, []float64{9, 8, 9, 8, 9, 8, 9, 8, 9, 8,
			9, 8}, true},
	} {
		require.Equal(t, c.differs, contrast("x", c.a, c.b, true).Differs, name)
	}
}

func TestCompareSaysWhichSideIsBetter(t *testing.T) {
	verdicts := map[string]string{}
	for _, c := range Compare(reportWith(100, 101, 102), reportWith(150, 151, 152)) {
		verdicts[c.Name] = c.Verdict()
	}
	require.Equal(t, map[string]string{"acked/s": "better", "ack p50 ms": "better", "ack p99 ms": "better"}, verdicts)
	for _, c := range Compare(reportWith(150, 151, 152), reportWith(100, 101, 102)) {
		require.Equal(t, "WORSE", c.Verdict(), c.Name)
		require.Equal(t, "3 and 3 repeats", c.Samples)
	}
}

func TestOneRunIsComparedByItsSecondsAndCalledWeak(t *testing.T) {
	c := Compare(reportWith(100), reportWith(200))[0]
	require.True(t, c.Differs)
	require.Contains(t, c.Samples, "weak")
	require.InDelta(t, 2, c.Ratio, 1e-9)
	require.False(t, Compare(reportWith(100), reportWith(105))[0].Differs)
}

func TestCompareReadsWhatRunWrites(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json")
	require.NoError(t, reportWith(100, 101, 102).Write(a))
	broken := reportWith(150, 151, 152)
	broken.Results[1].Ledger.Lost = 1
	broken.Config.Payload = 5
	require.NoError(t, broken.Write(b))
	var out, progress bytes.Buffer
	require.Equal(t, ExitOK, run(context.Background(), []string{"compare", a, b}, &out, &progress), progress.String())
	require.Contains(t, out.String(), "broke a promise")
	require.Contains(t, out.String(), "different loads")
	require.Regexp(t, `acked/s +101 +151 +1.495 .*better`, out.String())
}

func TestTheSearchFindsTheEdge(t *testing.T) {
	for _, edge := range []float64{3, 950, 1000, 1500, 77_777} {
		steps := 0
		best, err := searchFor(1000, 0.02, 40, func(rate float64) (bool, error) {
			steps++
			return rate <= edge, nil
		})
		require.NoError(t, err)
		require.LessOrEqual(t, best, edge)
		require.Greater(t, best, edge*0.95)
		require.Less(t, steps, 20)
	}
	best, err := searchFor(1000, 0.02, 40, func(float64) (bool, error) { return false, nil })
	require.NoError(t, err)
	require.Zero(t, best)
}

func TestTheGuardLooksAtPairs(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, rates ...float64) string {
		path := filepath.Join(dir, name)
		require.NoError(t, reportWith(rates...).Write(path))
		return path
	}
	// The machine slows down in the middle: only pairs tell.
	a := write("a", 1000, 400, 900, 500, 1000)
	for name, c := range map[string]struct {
		b    string
		code int
	}{
		"the same":        {write("same", 1000, 400, 900, 500, 1000), ExitOK},
		"a little slower": {write("little", 960, 390, 870, 485, 960), ExitOK},
		"too slow":        {write("slow", 940, 370, 840, 465, 940), ExitSlower},
		"one slow turn":   {write("turn", 1000, 100, 900, 500, 1000), ExitOK},
		"fewer turns":     {write("fewer", 1000, 400, 900), ExitUsage},
	} {
		var out bytes.Buffer
		code, _ := compareCommand(context.Background(), []string{"--least", "0.95", a, c.b}, &out, &out)
		require.Equal(t, c.code, code, "%s: %s", name, out.String())
	}
}
