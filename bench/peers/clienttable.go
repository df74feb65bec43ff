package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// printClients writes the report as Markdown.
func printClients(out io.Writer, r *clientReport) {
	h := r.Hardware
	fmt.Fprintf(out, "%s, %d cores, %d GiB, Linux %s. %s. Load of the machine before: %s; after: %s.\n",
		h.CPU, h.Cores, h.MemoryMB>>10, h.Kernel, r.Options, r.Load[0], r.Load[1])
	if r.Partial != "" {
		fmt.Fprintf(out, "\n**Partial:** %s.\n", r.Partial)
	}
	fmt.Fprint(out, "\n| client | flushed before its ack | published/s | done/s | efficiency | result p50 / p99 ms |",
		" worker MiB: all, shared once | killed: lost, repeated | last one done after s |\n",
		"|---|---|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, c := range clients {
		if runs := r.of(c); len(runs) > 0 {
			printClient(out, r, c, runs)
		}
	}
	r.printRatios(out)
	fmt.Fprint(out, "\nMeasured:\n\n")
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		fmt.Fprintf(out, "- %s: %s\n", name, r.Versions[name])
	}
	r.printFailures(out)
}

func printClient(out io.Writer, r *clientReport, c *clientSubject, runs []*clientRun) {
	pick := func(f func(*clientRun) float64) []float64 { return values(runs, f) }
	mib := func(f func(*clientRun) int64) float64 {
		return median(pick(func(x *clientRun) float64 { return float64(f(x)) / (1 << 20) }))
	}
	killed, recovered := "-", "-"
	for _, x := range r.Killed {
		if x.Client == c.name && x.Failure == "" {
			killed = fmt.Sprintf("%d, %d of %d", x.Lost, x.Repeated, x.Acked)
			recovered = fmt.Sprintf("%.0f", x.Recovered)
		}
	}
	fmt.Fprintf(out, "| %s | %s | %s | %s | %.2f | %.1f / %.1f | %.0f, %.0f | %s | %s |\n", c.title, c.flushed,
		spread(pick(publishedRate)), spread(pick(doneRate)), median(pick(efficiency)),
		median(pick(askP50)), median(pick(func(x *clientRun) float64 { return x.AskP99 })),
		mib(func(x *clientRun) int64 { return x.RSS }), mib(func(x *clientRun) int64 { return x.PSS }), killed, recovered)
}

func publishedRate(x *clientRun) float64 { return x.Published }
func doneRate(x *clientRun) float64      { return x.Done }
func efficiency(x *clientRun) float64    { return x.Efficiency }
func askP50(x *clientRun) float64        { return x.AskP50 }
func sharedMemory(x *clientRun) float64  { return float64(x.PSS) }

func values(runs []*clientRun, f func(*clientRun) float64) []float64 {
	out := make([]float64, 0, len(runs))
	for _, x := range runs {
		out = append(out, f(x))
	}
	return out
}

// of returns the runs of a client that have a result, by round.
func (r *clientReport) of(c *clientSubject) (out []*clientRun) {
	for _, x := range r.Runs {
		if x.Client == c.name && x.Failure == "" {
			out = append(out, x)
		}
	}
	return out
}

// printRatios compares ours with the others of the same language, round by round.
func (r *clientReport) printRatios(out io.Writer) {
	fmt.Fprint(out, "\nOurs ÷ theirs, medians of the rounds' own ratios:\n\n",
		"| ours | theirs | published/s | done/s | efficiency | result p50 | memory |\n|---|---|---:|---:|---:|---:|---:|\n")
	for _, a := range clients {
		for _, b := range clients {
			if !a.ours() || b.ours() || a.language != b.language || len(r.of(a)) == 0 || len(r.of(b)) == 0 {
				continue
			}
			ratioOf := func(f func(*clientRun) float64) string { return ratio(r.clientRatios(a, b, f)) }
			fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s | %s |\n", a.title, b.title,
				ratioOf(publishedRate), ratioOf(doneRate), ratioOf(efficiency), ratioOf(askP50), ratioOf(sharedMemory))
		}
	}
}

func (r *clientReport) clientRatios(a, b *clientSubject, f func(*clientRun) float64) (out []float64) {
	for _, x := range r.of(a) {
		for _, y := range r.of(b) {
			if x.Round == y.Round && f(y) > 0 {
				out = append(out, f(x)/f(y))
			}
		}
	}
	return out
}

func (r *clientReport) printFailures(out io.Writer) {
	lost, repeated := 0, 0
	for _, x := range r.Runs {
		lost, repeated = lost+x.Lost, repeated+x.Repeated
		if x.Failure != "" {
			fmt.Fprintf(out, "\n**Not measured:** round %d, %s: %s\n", x.Round, x.Client, x.Failure)
		}
	}
	for _, x := range r.Killed {
		if x.Failure != "" {
			fmt.Fprintf(out, "\n**Not measured:** killed, %s: %s\n", x.Client, x.Failure)
		}
	}
	fmt.Fprintf(out, "\nWithout kills, of all clients: %d jobs lost, %d repeated.\n", lost, repeated)
}
