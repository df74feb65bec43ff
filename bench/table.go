package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// PrintRun writes the final tables of a run.
func PrintRun(out io.Writer, r *Report) {
	c := &r.Config
	load := fmt.Sprintf("closed loop, %d connections", c.Connections)
	if c.Rate > 0 {
		load = fmt.Sprintf("open loop at %.0f/s, up to %d connections", c.Rate, c.Connections)
	}
	if c.Batch > 1 {
		load += fmt.Sprintf(", %d messages per request", c.Batch)
	}
	fmt.Fprintf(out, "\nstores: %s; %s\n%s, %d bytes, %d channel(s), %d push + %d pull worker(s) per channel, sink %s\n\n",
		r.Stores, strings.Join(r.Durability, "; "), load, r.Results[0].PayloadBytes, c.Channels, c.PushConsumers, c.PullWorkers, c.Sink)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "run\tacked/s\tdelivered/s\tack p50\tp99\tp99.9 ms\tdelivery p50\tp99 ms\tbacklog at end\terrors\tCPU us/msg\t")
	for i, x := range r.Results {
		printResult(w, fmt.Sprint(i+1), x)
	}
	if len(r.Results) > 1 {
		printResult(w, "median", medianResult(r.Results))
	}
	w.Flush()
	last := r.Results[len(r.Results)-1]
	fmt.Fprintf(out, "\nCPU in cores:")
	for _, name := range slices.Sorted(maps.Keys(last.CPUSeconds)) {
		fmt.Fprintf(out, " %s %.2f", name, last.CPUSeconds[name]/max(last.Seconds, 1e-9))
	}
	fmt.Fprintf(out, " of %d\n", r.Hardware.Cores)
	if others := last.CPUSeconds[Disturbance] / max(last.Seconds, 1e-9); others > disturbed {
		fmt.Fprintf(out, "CAUTION: other processes used %.1f cores, so these numbers are too low\n", others)
	}
	if stolen := last.stolen(); stolen > deprived {
		fmt.Fprintf(out, "CAUTION: the host of this machine kept back %.2f cores that had work to do, so these numbers are too low\n", stolen)
	}
	if c.Rate > 0 {
		fmt.Fprintf(out, "From the sending, without the wait for a free connection: ack p50 %s p99 %s ms", millis(last.Service.P50), millis(last.Service.P99))
		if last.Transit.Count > 0 {
			fmt.Fprintf(out, ", delivery p50 %s p99 %s ms", millis(last.Transit.P50), millis(last.Transit.P99))
		}
		fmt.Fprintln(out)
	}
	if c.Rate == 0 {
		fmt.Fprintln(out, "Closed loop: the latencies are those of a waiting client; --rate measures those that users would see.")
	}
	printMemory(out, last)
	for i, x := range r.Results {
		printLevels(out, i+1, x)
		if c.ConsumeAfter {
			printDrain(out, i+1, x.Drain)
		}
		printLedger(out, i+1, x)
	}
}

// printDrain prints how fast the backlog was delivered, and the cost of a job for each process.
func printDrain(out io.Writer, run int, d Drain) {
	fmt.Fprintf(out, "drain %d: %d deliveries in %.1f s, %.0f/s, %.1f us of CPU each:", run, d.Deliveries, d.Seconds, d.Rate(), d.Micros())
	for _, name := range slices.Sorted(maps.Keys(d.CPUSeconds)) {
		fmt.Fprintf(out, " %s %.1f", name, d.CPUSeconds[name]*1e6/max(float64(d.Deliveries), 1))
	}
	fmt.Fprintln(out)
}

// printMemory prints the memory of the processes and its growth.
func printMemory(out io.Writer, x *Result) {
	for _, name := range slices.Sorted(maps.Keys(x.Memory)) {
		m := x.Memory[name]
		fmt.Fprintf(out, "memory of %s: %.0f MiB at the start, %.0f half-way, %.0f at the end, %.0f at most\n", name, m.Start, m.Half, m.End, m.Most)
	}
}

// printLevels prints the latency of each priority.
func printLevels(out io.Writer, run int, x *Result) {
	for _, l := range x.Levels {
		fmt.Fprintf(out, "priority %d, run %d: %d deliveries, p50 %s p99 %s ms\n", l.Priority, run, l.Delivery.Count, millis(l.Delivery.P50), millis(l.Delivery.P99))
	}
}

// disturbed is the number of cores used by other processes from which on a measurement is doubtful;
// deprived is that number for cores that the host kept back.
const disturbed, deprived = 0.3, 0.15

func printResult(w io.Writer, name string, x *Result) {
	fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%.1f\t\n", name, x.AckedRate, x.DeliveredRate,
		millis(x.Ack.P50), millis(x.Ack.P99), millis(x.Ack.P999), millis(x.Delivery.P50), millis(x.Delivery.P99),
		x.BacklogAtEnd, x.ErrorCount(), x.CPUMicros)
}

// medianResult returns the medians of the numbers that printResult prints.
func medianResult(results []*Result) *Result {
	m := func(f func(*Result) float64) float64 { return median(pick(results, f)) }
	return &Result{
		AckedRate:     m(func(r *Result) float64 { return r.AckedRate }),
		DeliveredRate: m(func(r *Result) float64 { return r.DeliveredRate }),
		Ack: Latency{P50: m(func(r *Result) float64 { return r.Ack.P50 }), P99: m(func(r *Result) float64 { return r.Ack.P99 }),
			P999: m(func(r *Result) float64 { return r.Ack.P999 })},
		Delivery:     Latency{P50: m(func(r *Result) float64 { return r.Delivery.P50 }), P99: m(func(r *Result) float64 { return r.Delivery.P99 })},
		BacklogAtEnd: int64(m(func(r *Result) float64 { return float64(r.BacklogAtEnd) })),
		Errors:       map[string]int64{"": int64(m(func(r *Result) float64 { return float64(r.ErrorCount()) }))},
		CPUMicros:    m(func(r *Result) float64 { return r.CPUMicros }),
	}
}

func printLedger(out io.Writer, run int, x *Result) {
	v := x.Ledger
	fmt.Fprintf(out, "ledger %d: %d sent, %d acked, %d refused, %d uncertain; %d deliveries owed, %d arrived, %d dead letters, %d pending; ",
		run, v.Sent, v.Acked, v.Refused, v.Uncertain, v.Expected, v.Delivered, v.Dead, v.Pending)
	fmt.Fprintf(out, "lost %d, duplicated %d, corrupted %d, unpromised %d, out of priority order %d, late %d\n",
		v.Lost, v.Duplicates, v.Corrupted, v.Unpromised, v.Overtaken, v.Late)
	if v.Receipts > 0 {
		fmt.Fprintf(out, "  answered with 202, from the journal: %d, %.2g %% of the acked\n", v.Receipts, 100*float64(v.Receipts)/float64(v.Acked))
	}
	if v.RateLimit > 0 {
		fmt.Fprintf(out, "  rate of %d in %gms: %d requests beyond it; the shortest time of %d requests was %.1f ms\n", v.RateLimit, v.RateWindowMs, v.OverRate, v.RateLimit+1, v.ShortestMs)
	}
	if v.Keys > 0 {
		fmt.Fprintf(out, "  ordering keys: %d, messages out of the order of their key: %d\n", v.Keys, v.OutOfOrder)
	}
	if v.Books+v.Askew > 0 {
		fmt.Fprintf(out, "  books of the broker: %d consumers balanced, %d not\n", v.Books, v.Askew)
	}
	if x.Unsent > 0 {
		fmt.Fprintf(out, "  %d messages were due and never sent: every connection was busy (counted in the latencies)\n", x.Unsent)
	}
	for _, kind := range slices.Sorted(maps.Keys(x.Errors)) {
		fmt.Fprintf(out, "  %d x %s: %s\n", x.Errors[kind], kind, x.ErrorSamples[kind])
	}
	for _, o := range v.Offenders {
		fmt.Fprintln(out, "  "+o)
	}
	if a := x.Audit; a != nil {
		fmt.Fprintf(out, "audit %d: %d messages, %d deliveries compared with %d bytes, %d alike; %d deviations\n",
			run, a.Messages, a.Compared, a.Bytes, a.Alike, a.Deviations)
		for _, o := range a.Offenders {
			fmt.Fprintln(out, "  "+o)
		}
	}
}
