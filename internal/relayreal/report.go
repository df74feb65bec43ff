//go:build unix

package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// shown is how many deviations are printed: after a broken run they are alike.
const shown = 20

// A result is one run on one pair of stores.
type result struct {
	stores     string
	published  int // answered 201
	push, pull tally
	deviations []string // that belong to no single consumer
	took       time.Duration
}

// report prints the results and reports whether nothing deviated.
func report(out io.Writer, results []result) bool {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "stores\tconsumer\tpublished\tarrived\tidentical\tcopies\tbytes\tdeviations\tseconds\t")
	var all []string
	for _, r := range results {
		for _, c := range []struct {
			name string
			tally
		}{{"push", r.push}, {"pull", r.pull}} {
			fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f\t\n", r.stores, c.name, r.published,
				c.arrived, c.identical, c.extra, c.bytes, len(c.deviations), r.took.Seconds())
			for _, d := range c.deviations {
				all = append(all, r.stores+": "+d)
			}
		}
		for _, d := range r.deviations {
			all = append(all, r.stores+": "+d)
		}
	}
	_ = t.Flush() // only out can fail, and the exit code says enough
	if len(all) == 0 {
		fmt.Fprintln(out, "Every body arrived once, byte for byte, with its headers: nothing lost, nothing twice, nothing changed.")
		return true
	}
	fmt.Fprintf(out, "\n%d deviations:\n", len(all))
	for _, d := range all[:min(len(all), shown)] {
		fmt.Fprintln(out, "  "+d)
	}
	return false
}
