package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// An Efficiency compares a run with the rate that the machine would reach if a message cost only
// the sum of its stages, each measured alone.
type Efficiency struct {
	Parts     []Part
	SumMicros float64 // CPU per message
	Bound     float64 // messages per second: cores / SumMicros
	Rate      float64 // measured: acknowledged, and delivered as often as needed
	Ratio     float64 // Rate / Bound
	Stolen    float64 // cores that the host kept back while they had work to do
	Processes []ProcessCost
}

// A ProcessCost compares the cost of a process of the run per message with the cost of its part of
// the stages alone. The load client does the same work in both.
type ProcessCost struct {
	Name        string
	Alone, Here float64 // CPU microseconds
}

// standIn returns the process of a run that does the work of a process of a stage. In the stages,
// "bench" and "peer" play the load client or the broker; other names stay the same.
func standIn(stage, process string) string {
	const peer, bench, broker = "peer", "bench", "broker"
	switch {
	case stage == StageHTTP && process == bench, stage == StagePush && process == peer:
		return bench
	case process == peer, process == bench:
		return broker
	}
	return process
}

// A Part is the share of one stage in the cost of a message.
type Part struct {
	Stage  string
	Times  float64 // operations per message
	Micros float64 // CPU, in all
}

// Efficient compares a result with the ceilings that were measured with it.
func Efficient(c *Config, r *Result, l *Limits, cores int) Efficiency {
	var e Efficiency
	alone := map[string]float64{}
	add := func(stage string, times float64) {
		if s := l.Stage(stage); s != nil && times > 0 {
			e.Parts = append(e.Parts, Part{stage, times, times * s.CPUMicros})
			e.SumMicros += times * s.CPUMicros
			for process, micros := range s.Micros {
				alone[standIn(stage, process)] += times * micros
			}
		}
	}
	jobs, push, pull := float64(c.consumersPerChannel()), float64(c.PushConsumers), 0.0
	if c.PullWorkers > 0 {
		pull = 1
	}
	// A pull job at the single routes is two exchanges, and a hundredth of a list.
	pullExchanges := 2 * pull / float64(c.PullBatch)
	add(StageHTTP, 1/float64(c.Batch)+pullExchanges)
	add(StageInsert, 1)
	add(StageOutcome, jobs)
	if c.PullBatch > 1 || pull == 0 {
		add(StageRedis, jobs)
	} else {
		add(StageRedis, push)
		add(StageRedis1, pull)
	}
	add(StagePush, push)
	e.Rate = r.AckedRate
	if jobs > 0 {
		e.Rate = min(e.Rate, r.DeliveredRate/jobs)
	}
	if e.SumMicros > 0 {
		e.Bound = float64(cores) * 1e6 / e.SumMicros
		e.Ratio = e.Rate / e.Bound
	}
	e.Stolen = r.stolen()
	here := perOperation(r.CPUSeconds, max(float64(r.Messages), 1))
	for _, name := range slices.Sorted(maps.Keys(here)) {
		e.Processes = append(e.Processes, ProcessCost{name, alone[name], here[name]})
	}
	return e
}

// PrintEfficiency writes the ceilings and the ratio, where they were measured.
func PrintEfficiency(out io.Writer, r *Report) {
	if n := min(len(r.Efficiency), len(r.Limits)); n > 0 {
		fmt.Fprintln(out, "\nceilings, as measured last:")
		PrintLimits(out, r.Limits[n-1])
	}
	for i, e := range r.Efficiency {
		var parts []string
		for _, p := range e.Parts {
			parts = append(parts, fmt.Sprintf("%.3g x %s = %.1f", p.Times, p.Stage, p.Micros))
		}
		fmt.Fprintf(out, "\nrun %d: cost of a message from its stages: %s; sum %.1f us of CPU\n", i+1,
			strings.Join(parts, ", "), e.SumMicros)
		fmt.Fprintf(out, "bound: %d cores / %.1f us = %.0f messages/s; measured %.0f: efficiency %.0f %%\n",
			r.Hardware.Cores, e.SumMicros, e.Bound, e.Rate, 100*e.Ratio)
		if left := float64(r.Hardware.Cores) - e.Stolen; e.Stolen > deprived && left > 0 {
			fmt.Fprintf(out, "the host kept back %.2f cores: %.0f %% of the bound of the others\n", e.Stolen,
				100*e.Ratio*float64(r.Hardware.Cores)/left)
		}
		if len(e.Processes) > 0 {
			fmt.Fprint(out, "CPU us per message, in its stages alone -> in this run:")
			for _, p := range e.Processes {
				fmt.Fprintf(out, " %s %.1f -> %.1f", p.Name, p.Alone, p.Here)
			}
			fmt.Fprintln(out)
		}
	}
}
