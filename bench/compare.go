package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// A Comparison compares one number of two reports.
type Comparison struct {
	Name           string
	A, B           float64 // medians
	Ratio          float64 // B / A
	Noise          float64 // how much the number moves by itself, as a part of A
	Samples        string  // the samples that show the noise
	NoiseKnown     bool    // there are enough samples to estimate the noise
	Differs        bool    // the difference exceeds the noise
	HigherIsBetter bool
}

// minRepeats is the number of repeats from which on they show the noise better than the seconds of
// one run.
const minRepeats = 3

// contrast compares two sets of values of one measure. The difference of the medians counts if it
// is larger than the noise of each side: its whole range for up to ten values, the range without
// the outer tenths for more.
func contrast(name string, a, b []float64, higherIsBetter bool) Comparison {
	c := Comparison{Name: name, A: median(a), B: median(b), HigherIsBetter: higherIsBetter}
	noise := max(spread(a), spread(b))
	if c.A != 0 {
		c.Ratio = c.B / c.A
		c.Noise = noise / c.A
	}
	diff := c.B - c.A
	if diff < 0 {
		diff = -diff
	}
	c.NoiseKnown = len(a) > 1 && len(b) > 1
	c.Differs = c.NoiseKnown && diff > noise
	return c
}

// spread is the range of values, without the outer tenths when there are many.
func spread(values []float64) float64 {
	if len(values) < 2 {
		return 0
	}
	s := slices.Clone(values)
	slices.Sort(s)
	cut := 0
	if len(s) > 10 {
		cut = len(s) / 10
	}
	return s[len(s)-1-cut] - s[cut]
}

// A metric is taken from each repeat, or, where there are too few, from each
// second of all of them.
type metric struct {
	name           string
	higherIsBetter bool
	repeat         func(*Result) float64
	second         func(Sample) float64 // nil: not measured each second
}

var metrics = []metric{
	{"acked/s", true, func(r *Result) float64 { return r.AckedRate }, func(s Sample) float64 { return s.Acked }},
	{"delivered/s", true, func(r *Result) float64 { return r.DeliveredRate }, func(s Sample) float64 {
		return s.Delivered
	}},
	{"ack p50 ms", false, func(r *Result) float64 { return r.Ack.P50 }, func(s Sample) float64 { return s.P50 }},
	{"ack p99 ms", false, func(r *Result) float64 { return r.Ack.P99 }, func(s Sample) float64 { return s.P99 }},
	{"ack p99.9 ms", false, func(r *Result) float64 { return r.Ack.P999 }, nil},
	{"delivery p50 ms", false, func(r *Result) float64 { return r.Delivery.P50 }, nil},
	{"delivery p99 ms", false, func(r *Result) float64 { return r.Delivery.P99 }, func(s Sample) float64 {
		return s.DeliverP99
	}},
	{"CPU us/message", false, func(r *Result) float64 { return r.CPUMicros }, nil},
}

// Compare compares two reports metric by metric.
func Compare(a, b *Report) []Comparison {
	var out []Comparison
	repeats := min(len(a.Results), len(b.Results)) >= minRepeats
	for _, m := range metrics {
		va, vb := pick(a.Results, m.repeat), pick(b.Results, m.repeat)
		if median(va) == 0 && median(vb) == 0 {
			continue // not part of this kind of run
		}
		c := contrast(m.name, va, vb, m.higherIsBetter)
		c.Samples = fmt.Sprintf("%d and %d repeats", len(va), len(vb))
		if !repeats {
			// Seconds of one run are weak evidence, because they share the conditions of that run.
			// They still show how much the number varies.
			sa, sb := perSecond(a, m.second), perSecond(b, m.second)
			c.NoiseKnown, c.Differs, c.Noise, c.Samples = false, false, 0, "too few repeats"
			if len(sa) > 1 && len(sb) > 1 {
				seconds := contrast(m.name, sa, sb, m.higherIsBetter)
				c.NoiseKnown, c.Differs, c.Noise = seconds.NoiseKnown, seconds.Differs, seconds.Noise
				c.Samples = "seconds of one run: weak"
			}
		}
		out = append(out, c)
	}
	return out
}

func perSecond(r *Report, f func(Sample) float64) (out []float64) {
	if f == nil {
		return nil
	}
	for _, x := range r.Results {
		for _, s := range x.Series {
			if s.Warm {
				out = append(out, f(s))
			}
		}
	}
	return out
}

// Verdict returns the result of a comparison in a word.
func (c Comparison) Verdict() string {
	switch {
	case !c.NoiseKnown:
		return "unknown"
	case !c.Differs:
		return "within noise"
	case (c.B > c.A) == c.HigherIsBetter:
		return "better"
	default:
		return "WORSE"
	}
}

func compareCommand(_ context.Context, args []string, out, progress io.Writer) (int, error) {
	f := flags("compare")
	least := f.Float64("least", 0, "fail if the rates of B are below this part of A's, in the median of the pairs of "+
		"repeats")
	pairs := f.Bool("pairs", false, "a line for each measure: the medians, and the median of the ratios of the pairs "+
		"of repeats")
	if err := parseSome(f, args, out); err != nil {
		return ExitUsage, err
	}
	if f.NArg() != 2 {
		return ExitUsage, errors.New("compare needs two reports: A.json B.json (each may be several files, separated by " +
			"commas)")
	}
	a, err := readReports(f.Arg(0))
	if err != nil {
		return ExitUsage, err
	}
	b, err := readReports(f.Arg(1))
	if err != nil {
		return ExitUsage, err
	}
	for _, warning := range unlike(a, b) {
		fmt.Fprintln(out, "caution:", warning)
	}
	if *pairs {
		return ExitOK, printPairs(a, b, out)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "median of\tA\tB\tB/A\tnoise\t\tseen in\t")
	for _, c := range Compare(a, b) {
		fmt.Fprintf(w, "%s\t%.5g\t%.5g\t%.3f\t%.0f %%\t%s\t%s\t\n", c.Name, c.A, c.B, c.Ratio, 100*c.Noise,
			c.Verdict(), c.Samples)
	}
	if err := w.Flush(); err != nil || *least == 0 {
		return ExitOK, err
	}
	return guard(a, b, *least, out)
}

// printPairs compares repeats that ran one after the other.
func printPairs(a, b *Report, out io.Writer) error {
	if len(a.Results) != len(b.Results) {
		return errors.New("--pairs needs equally many repeats of each side")
	}
	for _, m := range metrics {
		va, vb := pick(a.Results, m.repeat), pick(b.Results, m.repeat)
		if median(va) > 0 && median(vb) > 0 {
			fmt.Fprintf(out, "%-16s A %8.5g  B %8.5g  ratio %.2f\n", m.name, median(va), median(vb), median(ratios(va, vb)))
		}
	}
	return nil
}

// ratios divides the numbers of pairs.
func ratios(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = b[i] / a[i]
	}
	return out
}

// guard reports how much B does of A, by the pairs of repeats that ran one after the other: what
// slows the machine down for a while slows both of a pair. It returns ExitSlower below least.
func guard(a, b *Report, least float64, out io.Writer) (int, error) {
	code := ExitOK
	if len(a.Results) != len(b.Results) || len(a.Results) < minRepeats {
		return ExitUsage, fmt.Errorf("--least needs %d or more repeats of each side, equally many", minRepeats)
	}
	for _, m := range metrics {
		va, vb := pick(a.Results, m.repeat), pick(b.Results, m.repeat)
		if !strings.HasSuffix(m.name, "/s") || median(va) == 0 {
			continue
		}
		verdict, ratio := "kept", median(ratios(va, vb))
		if !(ratio >= least) { // also of a pair without a rate
			verdict, code = "TOO SLOW", ExitSlower
		}
		fmt.Fprintf(out, "%s: %.3f in the median of %d pairs, at least %.2f: %s\n", m.name, ratio, len(va), least, verdict)
	}
	return code, nil
}

// readReports reads one side of a comparison. Runs that were interleaved with runs of the other
// side are in separate files.
func readReports(names string) (*Report, error) {
	var all *Report
	for name := range strings.SplitSeq(names, ",") {
		r, err := ReadReport(name)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = r
			continue
		}
		all.Results = append(all.Results, r.Results...)
	}
	return all, nil
}

// unlike lists the reasons why two reports are hard to compare.
func unlike(a, b *Report) (out []string) {
	if a.Hardware != b.Hardware {
		out = append(out, "different machines")
	}
	ca, cb := a.Config, b.Config
	type load struct {
		connections, payload, channels, batch, push, pull, pullBatch int
		rate                                                         float64
		priority, sink, stores                                       string
	}
	of := func(r *Report, c Config) load {
		return load{c.Connections, c.Payload, c.Channels, c.Batch, c.PushConsumers, c.PullWorkers, c.PullBatch, c.Rate,
			c.Priority, c.Sink, r.Stores}
	}
	if of(a, ca) != of(b, cb) {
		out = append(out, "different loads or stores")
	}
	for _, r := range []*Report{a, b} {
		for _, x := range r.Results {
			if x.Ledger != nil && !x.Ledger.OK() {
				out = append(out, "one of them broke a promise, so its speed does not count")
			}
		}
	}
	if min(len(a.Results), len(b.Results)) < minRepeats {
		out = append(out, fmt.Sprintf("fewer than %d repeats: use run --repeat", minRepeats))
	}
	return slices.Compact(out)
}
