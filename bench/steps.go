package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
)

// stepsCommand prints a row for each set of reports: what a message cost in each process. The first
// one is what the others are compared with, in pairs of repeats.
func stepsCommand(_ context.Context, args []string, out, progress io.Writer) (int, error) {
	f := flags("steps")
	if err := parseSome(f, args, out); err != nil {
		return ExitUsage, err
	}
	if f.NArg() == 0 {
		return ExitUsage, errors.New("steps needs reports: NAME=FILE[,FILE ...] ..., which `bench run --json` wrote, turn " +
			"by turn")
	}
	var rows []step
	err := readNamed(f.Args(), func(name string, r *Report) error {
		rows = append(rows, step{name, r.Results})
		return nil
	})
	if err != nil {
		return ExitUsage, err
	}
	return ExitOK, printSteps(rows, out)
}

// readNamed reads reports that arguments name as NAME=FILE[,FILE ...], those of an argument as one.
func readNamed(args []string, f func(name string, r *Report) error) error {
	for _, arg := range args {
		name, files, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q is not NAME=FILE", arg)
		}
		r, err := readReports(files)
		if err != nil {
			return err
		}
		if err := f(name, r); err != nil {
			return err
		}
	}
	return nil
}

// A step is one set of repeats of the same load.
type step struct {
	name    string
	results []*Result
}

func printSteps(rows []step, out io.Writer) error {
	processes := map[string]bool{}
	for _, row := range rows {
		for _, r := range row.results {
			for name := range r.CPUSeconds {
				if !Foreign(name) {
					processes[name] = true
				}
			}
		}
	}
	names := slices.Sorted(maps.Keys(processes))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "step\tacked/s\tratio\tdelivered/s\tratio\t")
	for _, name := range names {
		fmt.Fprintf(w, "%s us\tswitches\t", name)
	}
	fmt.Fprintln(w, "idle\tack p50\tdelivery p50 ms\t")
	first := rows[0].results
	for _, row := range rows {
		acked, delivered := pick(row.results, ackedRate), pick(row.results, deliveredRate)
		fmt.Fprintf(w, "%s\t%.0f\t%s\t%.0f\t%s\t", row.name, median(acked), pairRatio(pick(first, ackedRate), acked),
			median(delivered), pairRatio(pick(first, deliveredRate), delivered))
		for _, name := range names {
			fmt.Fprintf(w, "%.1f\t%.2f\t", median(pick(row.results, func(r *Result) float64 {
				return r.CPUSeconds[name] * 1e6 / max(float64(r.Messages), 1)
			})),
				median(pick(row.results, func(r *Result) float64 { return r.Switches[name] / max(float64(r.Messages), 1) })))
		}
		fmt.Fprintf(w, "%.0f %%\t%.1f\t%.1f\t\n", 100*median(pick(row.results, (*Result).idle)),
			median(pick(row.results, func(r *Result) float64 { return r.Ack.P50 })), median(pick(row.results,
				func(r *Result) float64 { return r.Delivery.P50 })))
	}
	return w.Flush()
}

func ackedRate(r *Result) float64     { return r.AckedRate }
func deliveredRate(r *Result) float64 { return r.DeliveredRate }

// pairRatio is the median of the ratios of repeats that ran in one turn, "-" without pairs.
func pairRatio(a, b []float64) string {
	if len(a) != len(b) || median(a) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", median(ratios(a, b)))
}

// idle is the part of the processors of this machine that nobody used.
func (r *Result) idle() float64 {
	var used float64
	for _, seconds := range r.CPUSeconds {
		used += seconds
	}
	return max(0, 1-used/max(r.Seconds, 1e-9)/float64(runtime.NumCPU()))
}
