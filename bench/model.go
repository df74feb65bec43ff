package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// modelCommand fits what a message costs each process to runs of several kinds, predicts the rates of other
// runs from that, and says how many cores a rate takes.
func modelCommand(_ context.Context, args []string, out, _ io.Writer) (int, error) {
	f := flags("model")
	var checks list
	f.Var(&checks, "check", "`NAME=FILE[,FILE ...]` of runs whose rate is predicted; may be repeated")
	within := f.Float64("within", 0, "exit 3 if a rate of --check differs by more than this part of it; 0: never")
	var want Config
	f.IntVar(&want.PushConsumers, "push-consumers", 1, "of the channel whose cores are told")
	f.IntVar(&want.Batch, "batch", 1, "messages per request there")
	f.IntVar(&want.Payload, "payload", 1024, "bytes of a body there")
	rate := f.Float64("rate", 1e6, "messages a second there")
	if err := parseSome(f, args, out); err != nil {
		return ExitUsage, err
	}
	fit, err := readRuns(f.Args())
	if err != nil {
		return ExitUsage, err
	}
	check, err := readRuns(checks)
	if err != nil {
		return ExitUsage, err
	}
	if want.Batch < 1 || want.PushConsumers < 0 || want.Payload < 0 || *rate <= 0 || *within < 0 {
		return ExitUsage, errors.New("--push-consumers, --payload and --within: at least 0; --batch: at least 1; " +
			"--rate: above 0")
	}
	m, err := newModel(fit)
	if err != nil {
		return ExitUsage, err
	}
	worst, err := m.print(out, fit, check)
	if err != nil {
		return ExitCannotStart, err
	}
	var cores []string
	for _, name := range m.processes {
		cores = append(cores, fmt.Sprintf("%.1f of %s", *rate*m.micros(name, amounts(&want))/1e6, name))
	}
	fmt.Fprintf(out, "\n%.0f messages/s of %d bytes to %d push consumers, %d in a request, take cores: %s\n", *rate,
		want.Payload, want.PushConsumers, want.Batch, strings.Join(cores, ", "))
	if *within > 0 && worst > *within {
		return ExitUnmet, nil
	}
	return ExitOK, nil
}

// A modelRun is repeats of one load.
type modelRun struct {
	name   string
	amount []float64            // how often a message has each unit
	micros map[string][]float64 // CPU per message of each process
	rate   []float64            // messages per second
	used   []float64            // part of the cores that the processes had
	cores  float64
}

func readRuns(args []string) (runs []modelRun, err error) {
	err = readNamed(args, func(name string, r *Report) error {
		run, err := newModelRun(name, r)
		runs = append(runs, run)
		return err
	})
	return runs, err
}

func newModelRun(name string, r *Report) (modelRun, error) {
	c := r.Config
	if r.Results[0].PayloadBytes > 0 {
		c.Payload = r.Results[0].PayloadBytes
	}
	run := modelRun{name: name, amount: amounts(&c), micros: map[string][]float64{}, cores: float64(r.Hardware.Cores),
		rate: pick(r.Results, ackedRate)}
	if c.PullWorkers > 0 || slices.Min(run.rate) <= 0 {
		return run, fmt.Errorf("%s: the model is of publishing and push, of runs in which messages were acknowledged", name)
	}
	for process := range r.Results[0].CPUSeconds {
		if !Foreign(process) {
			run.micros[process] = pick(r.Results, func(r *Result) float64 {
				return r.CPUSeconds[process] * 1e6 / max(float64(r.Messages), 1)
			})
		}
	}
	run.used = pick(r.Results, func(r *Result) float64 {
		return total(r.CPUSeconds) / (max(r.Seconds, 1e-9) * run.cores)
	})
	return run, nil
}

// units are what the cost of a message is made of.
var units = []string{"a request", "a message", "a push job", "a KiB of a message", "a KiB of a push job"}

// amounts returns how often a message of a load has each unit.
func amounts(c *Config) []float64 {
	kib, jobs := float64(c.Payload)/1024, float64(c.PushConsumers)
	return []float64{1 / float64(max(c.Batch, 1)), 1, jobs, kib, kib * jobs}
}

// A model is the CPU time that each unit costs each process, in microseconds: the medians of its turns. A machine
// that others use is faster in one turn than in the next, so each turn has a model of its own.
type model struct {
	processes []string
	costs     map[string][]float64 // by process, of each unit
	used      float64              // of a turn: the part of the cores that the processes have where the load has no end
	turns     []*model
}

// newModel fits a model to each turn of the runs.
func newModel(runs []modelRun) (*model, error) {
	if len(runs) == 0 {
		return nil, errors.New("model needs reports: NAME=FILE[,FILE ...] ..., which `bench run --json` wrote, turn by turn")
	}
	m := &model{processes: slices.Sorted(maps.Keys(runs[0].micros)), costs: map[string][]float64{}}
	for i := range runs[0].rate {
		turn, err := m.turn(runs, i)
		if err != nil {
			return nil, err
		}
		m.turns = append(m.turns, turn)
	}
	for _, process := range m.processes {
		for unit := range units {
			var costs []float64
			for _, turn := range m.turns {
				costs = append(costs, turn.costs[process][unit])
			}
			m.costs[process] = append(m.costs[process], median(costs))
		}
	}
	return m, nil
}

// turn fits the costs to the runs of a turn: the sum of the squares of the errors, each as a part of what a message of
// its run cost in all, is the least, and no cost is negative.
func (m *model) turn(runs []modelRun, i int) (*model, error) {
	out := &model{processes: m.processes, costs: map[string][]float64{}}
	var used []float64
	for _, r := range runs {
		if len(r.rate) != len(runs[0].rate) {
			return nil, fmt.Errorf("%s has %d turns, and %s has %d", r.name, len(r.rate), runs[0].name, len(runs[0].rate))
		}
		used = append(used, r.used[i])
	}
	out.used = median(used)
	for _, process := range m.processes {
		var rows [][]float64
		var costs []float64
		for _, r := range runs {
			if len(r.micros[process]) != len(r.rate) {
				return nil, fmt.Errorf("%s: it does not have the CPU time of %s", r.name, process)
			}
			sum := 0.0
			for _, of := range r.micros {
				sum += of[i]
			}
			row := make([]float64, len(units))
			for unit, n := range r.amount {
				row[unit] = n / max(sum, 1e-9)
			}
			rows, costs = append(rows, row), append(costs, r.micros[process][i]/max(sum, 1e-9))
		}
		cost, ok := leastSquares(rows, costs)
		if !ok {
			return nil, errors.New("these runs do not tell the costs apart of " + strings.Join(units, ", ") +
				": they need batches and none, bodies of several sizes, consumers and none")
		}
		out.costs[process] = cost
	}
	return out, nil
}

// micros is what a message of some amounts costs a process.
func (m *model) micros(process string, amount []float64) (sum float64) {
	for i, n := range amount {
		sum += n * m.costs[process][i]
	}
	return sum
}

// rate is how many messages a second cores give if all processes share them.
func (m *model) rate(amount []float64, cores float64) float64 {
	var sum float64
	for _, process := range m.processes {
		sum += m.micros(process, amount)
	}
	return m.used * cores * 1e6 / max(sum, 1e-9)
}

// print writes the costs, and the rates beside those that they predict. worst is the largest difference of a check, as
// a part of what was measured.
func (m *model) print(out io.Writer, fit, check []modelRun) (worst float64, err error) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "us of CPU for\t")
	for _, process := range m.processes {
		fmt.Fprintf(w, "%s\t", process)
	}
	fmt.Fprintln(w)
	for i, unit := range units {
		fmt.Fprintf(w, "%s\t", unit)
		for _, process := range m.processes {
			fmt.Fprintf(w, "%.2f\t", m.costs[process][i])
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "\t\nrun\tmeasured/s\tpredicted/s\tratio\tidle\t\n")
	for i, r := range slices.Concat(fit, check) {
		var predicted, ratio []float64
		for turn := range min(len(r.rate), len(m.turns)) {
			p := m.turns[turn].rate(r.amount, r.cores)
			predicted, ratio = append(predicted, p), append(ratio, p/r.rate[turn])
		}
		of := "fit"
		if i >= len(fit) {
			worst, of = max(worst, math.Abs(median(ratio)-1)), "check"
		}
		fmt.Fprintf(w, "%s: %s\t%.0f\t%.0f\t%.2f\t%.0f %%\t\n", of, r.name, median(r.rate), median(predicted), median(ratio),
			100*(1-median(r.used)))
	}
	if err := w.Flush(); err != nil {
		return worst, err
	}
	if len(check) > 0 {
		fmt.Fprintf(out, "\nthe largest difference of a check is %.0f %%\n", 100*worst)
	}
	return worst, nil
}

// leastSquares finds the numbers x, none negative, for which the products of the rows with x are as close to right as
// possible. ok is false if the rows do not determine them.
func leastSquares(rows [][]float64, right []float64) (x []float64, ok bool) {
	n := len(rows[0])
	in := make([]int, n) // the unknowns that are not held at 0
	for i := range in {
		in[i] = i
	}
	for {
		part, ok := solve(rows, right, in)
		if !ok {
			return nil, false
		}
		lowest := slices.Index(part, slices.Min(part))
		if part[lowest] >= 0 {
			x = make([]float64, n)
			for i, unknown := range in {
				x[unknown] = part[i]
			}
			return x, true
		}
		if in = slices.Delete(slices.Clone(in), lowest, lowest+1); len(in) == 0 {
			return make([]float64, n), true
		}
	}
}

// solve is leastSquares of some unknowns without the bound: the normal equations, by elimination with pivots. The
// columns have length 1 there, so a small pivot means the same for all.
func solve(rows [][]float64, right []float64, in []int) ([]float64, bool) {
	n := len(in)
	length := make([]float64, n)
	for i, unknown := range in {
		for _, row := range rows {
			length[i] = math.Hypot(length[i], row[unknown])
		}
		if length[i] == 0 {
			return nil, false
		}
	}
	a := make([][]float64, n) // with the right side as the last column
	for i := range a {
		a[i] = make([]float64, n+1)
		for at, row := range rows {
			of := row[in[i]] / length[i]
			for j := range n {
				a[i][j] += of * row[in[j]] / length[j]
			}
			a[i][n] += of * right[at]
		}
	}
	for i := range n {
		best := i
		for j := i + 1; j < n; j++ {
			if math.Abs(a[j][i]) > math.Abs(a[best][i]) {
				best = j
			}
		}
		a[i], a[best] = a[best], a[i]
		if math.Abs(a[i][i]) < 1e-9 {
			return nil, false
		}
		for j := range n {
			if j == i {
				continue
			}
			by := a[j][i] / a[i][i]
			for k := i; k <= n; k++ {
				a[j][k] -= by * a[i][k]
			}
		}
	}
	x := make([]float64, n)
	for i := range n {
		x[i] = a[i][n] / a[i][i] / length[i]
	}
	return x, true
}
