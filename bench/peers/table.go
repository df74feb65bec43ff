package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// printReport writes the report as Markdown.
func printReport(out io.Writer, r *report) {
	h := r.Hardware
	fmt.Fprintf(out, "%s, %d cores, %d GiB, Linux %s. %s.\n", h.CPU, h.Cores, h.MemoryMB>>10, h.Kernel, r.Options)
	if r.Partial != "" {
		fmt.Fprintf(out, "\n**Partial:** %s.\n", r.Partial)
	}
	for _, n := range r.publishers() {
		fmt.Fprintf(out, "\n%d publishers, medians of the rounds (smallest..largest):\n\n", n)
		printTable(out, r, n)
	}
	printVersions(out, r)
	printDoubts(out, r)
}

const tableHead = `| broker | flushed before its ack | acked/s | delivered/s | Penstock ÷ it, acked | delivered | ack p50 / p99 ms | end to end p50 / p99 ms | undelivered at the end | server CPU us | client CPU us | rounds |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
`

// printTable writes one line per subject.
func printTable(out io.Writer, r *report, publishers int) {
	fmt.Fprint(out, tableHead)
	for _, s := range subjects {
		runs := r.of(s.name, publishers)
		if len(runs) == 0 {
			continue
		}
		pick := func(f func(*sample) float64) []float64 {
			values := make([]float64, 0, len(runs))
			for _, x := range runs {
				values = append(values, f(x))
			}
			return values
		}
		mid := func(f func(*sample) float64) float64 { return median(pick(f)) }
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s | %s / %s | %s / %s | %.1f %% | %.0f | %.0f | %s |\n",
			s.title, s.flushed, spread(pick(ackedRate)), spread(pick(deliveredRate)),
			ratio(r.ratios(runs, ackedRate)), ratio(r.ratios(runs, deliveredRate)),
			millis(mid(func(x *sample) float64 { return x.Result.Ack.P50 })), millis(mid(func(x *sample) float64 { return x.Result.Ack.P99 })),
			millis(mid(func(x *sample) float64 { return x.Result.Delivery.P50 })), millis(mid(func(x *sample) float64 { return x.Result.Delivery.P99 })),
			mid(backlogShare), mid((*sample).serverMicros), mid((*sample).clientMicros), marked(runs))
	}
}

func ackedRate(x *sample) float64     { return x.Result.AckedRate }
func deliveredRate(x *sample) float64 { return x.Result.DeliveredRate }

// backlogShare returns the messages that were not delivered when publishing ended, in percent of
// all acknowledged messages, including the warm-up.
func backlogShare(x *sample) float64 {
	return 100 * float64(x.Result.BacklogAtEnd) / float64(max(x.Result.Ledger.Acked, 1))
}

// spread is a median with its range.
func spread(values []float64) string {
	if len(values) < 2 {
		return fmt.Sprintf("%.0f", median(values))
	}
	return fmt.Sprintf("%.0f (%.0f..%.0f)", median(values), slices.Min(values), slices.Max(values))
}

func ratio(values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", median(values))
}

func millis(ms float64) string {
	if ms >= 100 {
		return fmt.Sprintf("%.0f", ms)
	}
	return fmt.Sprintf("%.1f", ms)
}

// marked is the number of rounds, with a star for each that was disturbed.
func marked(runs []*sample) string {
	s := fmt.Sprint(len(runs))
	for _, x := range runs {
		if x.disturbed() {
			s += `\*`
		}
	}
	return s
}

func (r *report) publishers() (out []int) {
	for _, x := range r.Runs {
		if !slices.Contains(out, x.Publishers) {
			out = append(out, x.Publishers)
		}
	}
	return out
}

// printVersions prints the version of each measured subject once.
func printVersions(out io.Writer, r *report) {
	fmt.Fprint(out, "\nMeasured:\n\n")
	for _, s := range subjects {
		var lines []string
		for _, x := range r.Runs {
			if x.Subject == s.name && x.Version != "" {
				line := strings.Join(append([]string{x.Version}, x.Durability...), "; ")
				if !slices.Contains(lines, line) {
					lines = append(lines, line)
				}
			}
		}
		for _, line := range lines {
			fmt.Fprintf(out, "- %s: %s\n", s.title, line)
		}
	}
}

// printDoubts prints the sums of the ledgers and the doubtful runs.
func printDoubts(out io.Writer, r *report) {
	var acked, arrived, pending, lost, copies, corrupted, uncertain int64
	var doubts []string
	stars := false
	for _, x := range r.Runs {
		if d := x.doubt(); d != "" {
			doubts = append(doubts, fmt.Sprintf("- round %d, %d publishers, %s: %s", x.Round, x.Publishers, x.Subject, d))
		}
		stars = stars || x.disturbed()
		if x.Result == nil {
			continue
		}
		v := x.Result.Ledger
		acked, arrived, pending, lost = acked+v.Acked, arrived+v.Delivered, pending+v.Pending, lost+v.Lost
		copies, corrupted, uncertain = copies+v.Duplicates, corrupted+v.Corrupted, uncertain+v.Uncertain
	}
	fmt.Fprintf(out, "\nLedgers of all %d runs, warm-up included: %d acknowledged, %d of them arrived, %d counted by their server as still queued, %d lost; %d copies, %d corrupted, %d sent without an answer.\n",
		len(r.Runs), acked, arrived, pending, lost, copies, corrupted, uncertain)
	if stars {
		fmt.Fprintf(out, "\n\\* a round in which other processes took more than %.1f cores: too low.\n", disturbedCores)
	}
	if len(doubts) > 0 {
		fmt.Fprintf(out, "\n**Not proven, or not measured:**\n\n%s\n", strings.Join(doubts, "\n"))
	}
}
