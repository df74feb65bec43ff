package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/bench"
)

// clientsCommand is the first argument that compares clients and their workers instead of brokers.
const clientsCommand = "clients"

// slots is how many jobs each worker does at a time.
const slots = 10

// clientOptions are the flags of clientsCommand.
type clientOptions struct {
	subjects []*clientSubject
	rounds   int
	backlog  int
	sleeps   int
	asks     int
	killed   int
	limit    time.Duration

	broker   string // program
	folder   string // with jobs.py, jobs.mjs and its node_modules
	python   string // program
	ours     string // folder of Penstock's package for Python
	node     string // program
	dir      string
	json     string
	progress io.Writer
}

func parseClientOptions(args []string, progress io.Writer) (*clientOptions, error) {
	o := &clientOptions{progress: progress}
	f := flag.NewFlagSet("peers "+clientsCommand, flag.ContinueOnError)
	f.SetOutput(progress)
	names := f.String("subjects", strings.Join(clientNames(), ","), "clients to measure")
	f.IntVar(&o.rounds, "rounds", 3, "measurements of each client; the report has medians")
	f.IntVar(&o.backlog, "backlog", 4000, "jobs that do nothing, published before their worker starts")
	f.IntVar(&o.sleeps, "sleeps", 200, "jobs of 100 ms, a multiple of the slots")
	f.IntVar(&o.asks, "asks", 200, "jobs whose result is awaited, one after the other")
	f.IntVar(&o.killed, "killed", 600, "jobs of 50 ms whose worker is killed three times; 0: none")
	f.DurationVar(&o.limit, "limit", 9*time.Minute+30*time.Second, "bound of it all; the report has what was completed")
	f.StringVar(&o.broker, "broker", "bin/broker", "the broker's `program`")
	f.StringVar(&o.folder, "programs", "bin/peers/clients", "`folder` with jobs.py, jobs.mjs and its node_modules")
	f.StringVar(&o.python, "python", "/usr/bin/python3", "`program` that has Celery and redis")
	f.StringVar(&o.ours, "penstock-python", "clients/python", "`folder` of Penstock's package for Python")
	f.StringVar(&o.node, "node", "node", "`program`")
	f.StringVar(&o.dir, "dir", "", "`folder` for data, on a real disk (default: the system's temporary folder)")
	f.StringVar(&o.json, "json", "", "write all runs to this `file`")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	var errs []error
	for name := range strings.SplitSeq(*names, ",") {
		s, err := clientNamed(strings.TrimSpace(name))
		errs = append(errs, err)
		o.subjects = append(o.subjects, s)
	}
	for _, path := range []*string{&o.broker, &o.folder, &o.ours} {
		absolute, err := filepath.Abs(*path)
		errs, *path = append(errs, err), absolute
	}
	if f.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q", f.Arg(0)))
	}
	return o, errors.Join(append(errs, o.validate())...)
}

func (o *clientOptions) validate() error {
	between := func(name string, v, low, high int) error {
		if v < low || v > high {
			return fmt.Errorf("-%s is %d: want %d to %d", name, v, low, high)
		}
		return nil
	}
	return errors.Join(
		between("rounds", o.rounds, 1, 100),
		between("backlog", o.backlog, slots, 1_000_000),
		between("sleeps", o.sleeps, 3*slots, 10_000),
		between("asks", o.asks, 1, 10_000),
		between("killed", o.killed, 0, 100_000),
	)
}

// words returns the options as text for a report.
func (o *clientOptions) words() string {
	return fmt.Sprintf("%d slots a worker; %d round(s), clients alternating: %d jobs that do nothing, %d of 100 ms,"+
		" %d whose result is awaited; then %d of 50 ms with %d kills, all clients at once",
		slots, o.rounds, o.backlog, o.sleeps, o.asks, o.killed, kills)
}

// A clientReport is everything that was measured, as -json writes it.
type clientReport struct {
	Format   int // of this file; 1
	Hardware bench.Hardware
	Options  string
	Versions map[string]string
	Load     [2]string // of the machine, before and after
	Partial  string    `json:",omitempty"`
	Runs     []*clientRun
	Killed   []*killRun
}

// runClients measures the clients of the arguments. It writes the report to out.
func runClients(ctx context.Context, args []string, out, progress io.Writer) (_ int, err error) {
	o, err := parseClientOptions(args, progress)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK, err
	}
	if err != nil {
		return exitUsage, err
	}
	s, err := newSite(o.dir)
	if err != nil {
		return exitCannot, err
	}
	defer func() { err = errors.Join(err, s.remove()) }()
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	stores, err := startClientStores(ctx, s, o)
	if err != nil {
		return exitCannot, err
	}
	defer func() { err = errors.Join(err, stores.Close()) }()
	r := &clientReport{Format: 1, Hardware: bench.ThisMachine(), Options: o.words(), Versions: stores.versions}
	r.Load[0] = loadAverage()
	o.measure(ctx, s, stores, r)
	r.Load[1] = loadAverage()
	if len(r.Runs) == 0 {
		return exitCannot, errors.Join(errors.New("nothing was measured"), context.Cause(ctx))
	}
	printClients(out, r)
	if o.json != "" {
		err = r.write(o.json)
	}
	return r.verdict(), err
}

// measure runs the rounds and then the kills.
func (o *clientOptions) measure(ctx context.Context, s *site, stores *clientStores, r *clientReport) {
	for round := range o.rounds {
		for i := range o.subjects {
			if end, ok := ctx.Deadline(); ok && o.killed > 0 && time.Until(end) < killWithin {
				r.Partial = fmt.Sprintf("round %d was not ended: the rest of the time was for the kills", round+1)
				r.Killed = killAll(ctx, o, stores)
				return
			}
			// Each round begins with another one, so that none always has the same neighbour.
			c := o.subjects[(i+round)%len(o.subjects)]
			s.flushPages()
			x := &clientRun{Client: c.name, Round: round + 1}
			if err := x.measure(ctx, o, stores, c); err != nil {
				x.Failure = err.Error() // the next one may work
			}
			if ctx.Err() != nil {
				r.Partial = fmt.Sprintf("ended in round %d: %v", round+1, context.Cause(ctx))
				return
			}
			fmt.Fprintf(o.progress, "round %d, %s: %s\n", round+1, c.name, x.line())
			r.Runs = append(r.Runs, x)
		}
	}
	if o.killed == 0 {
		return
	}
	r.Killed = killAll(ctx, o, stores)
	for _, x := range r.Killed {
		fmt.Fprintf(o.progress, "killed, %s: %s\n", x.Client, x.line())
	}
	if ctx.Err() != nil {
		r.Partial = fmt.Sprintf("ended while workers were killed: %v", context.Cause(ctx))
	}
}

// verdict returns the exit code: a loss of a client of ours is a broken promise.
func (r *clientReport) verdict() int {
	code := exitOK
	if r.Partial != "" {
		code = exitUnproven
	}
	for _, x := range r.Runs {
		if x.Failure != "" {
			code = exitCannot
		}
	}
	for _, x := range r.Killed {
		c, err := clientNamed(x.Client)
		switch {
		case x.Failure != "":
			code = exitCannot
		case err == nil && c.ours() && x.Lost > 0:
			return exitPromise
		}
	}
	return code
}

func (r *clientReport) write(path string) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// loadAverage returns the load of the machine over 1, 5 and 15 minutes.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:3], ", ")
}
