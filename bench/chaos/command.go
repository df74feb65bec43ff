//go:build unix

package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/usage"
)

// Config is a run as the flags describe it.
type Config struct {
	Minutes float64 // of load and faults, all campaigns together
	Seed    uint64
	Redis   string // a topology, or "all"
	Brokers int
	Broker  string        // the program, built with the tag failpoint; empty: see target.Broker
	Next    string        // the program of a newer release, which replaces Broker; empty: none
	Rate    float64       // messages per second
	Every   time.Duration // from one fault to the next
	Deaths  float64       // of clients, per second

	Neighbours int // goroutines that attack; 0: none

	Dir  string // empty: a temporary folder
	JSON string
	Keep bool
}

// maxMinutes bounds a run: sequence numbers and memory are planned for a day.
const maxMinutes = 24 * 60

// Parse reads the flags of `bench chaos`. It prints help to out.
func Parse(args []string, out io.Writer) (*Config, error) {
	c := &Config{}
	f := flag.NewFlagSet("bench chaos", flag.ContinueOnError)
	f.Float64Var(&c.Minutes, "minutes", 10, "time of load and faults, divided among the campaigns, without the time "+
		"for draining")
	f.Uint64Var(&c.Seed, "seed", 0, "of the schedule; 0: a new one")
	f.StringVar(&c.Redis, "redis", standalone, "standalone, sentinel, cluster, or all of them in sequence")
	f.IntVar(&c.Brokers, "brokers", 3, "brokers")
	f.StringVar(&c.Broker, "broker", "", "broker `program`, built with the tag failpoint; default: broker in the "+
		"folder of this program, otherwise in PATH")
	f.StringVar(&c.Next, "next", "", "newer `program`, which replaces that of each broker, one after the other, during "+
		"the load and the faults; default: none")
	f.Float64Var(&c.Rate, "rate", 700, "messages per second")
	f.DurationVar(&c.Every, "every", 5*time.Second, "from one fault to the next")
	f.Float64Var(&c.Deaths, "deaths", 4, "clients per second that die during an exchange, up to 100; 0: none")
	f.IntVar(&c.Neighbours, "neighbours", 0, fmt.Sprintf("goroutines of greedy neighbours, which hold what users share "+
		"until the faults end, up to %d; 0: none", neighboursAtMost))
	f.StringVar(&c.Dir, "dir", "", "`folder` for journals and logs, which must not exist; default: a temporary one")
	f.StringVar(&c.JSON, "json", "", "write the verdicts to this `file`")
	f.BoolVar(&c.Keep, "keep", false, "keep the folder also when every promise was kept")
	if err := usage.Parse(f, args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(out, "Usage: bench chaos [flags]\n\n")
		usage.Help(f, out)
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("%w; bench chaos --help lists the flags", err)
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if c.Seed == 0 {
		c.Seed = uint64(time.Now().UnixNano())
	}
	return c, c.check()
}

func (c *Config) check() error {
	var errs []error
	if !(c.Minutes > 0 && c.Minutes <= maxMinutes) {
		errs = append(errs, fmt.Errorf("--minutes: want more than 0 and at most %d", maxMinutes))
	}
	if c.Redis != "all" && !slices.Contains(topologies, c.Redis) {
		errs = append(errs, fmt.Errorf("--redis: want %s or all", strings.Join(topologies, ", ")))
	}
	if c.Brokers < 1 || c.Brokers > 16 {
		errs = append(errs, errors.New("--brokers: want 1 to 16"))
	}
	if !(c.Rate >= 1 && c.Rate <= 100_000) || math.IsNaN(c.Rate) {
		errs = append(errs, errors.New("--rate: want 1 to 100000"))
	}
	if !(c.Deaths >= 0 && c.Deaths <= 100) {
		errs = append(errs, errors.New("--deaths: want 0 to 100"))
	}
	if c.Neighbours < 0 || c.Neighbours > neighboursAtMost {
		errs = append(errs, fmt.Errorf("--neighbours: want 0 to %d", neighboursAtMost))
	}
	if c.Every <= 0 {
		errs = append(errs, errors.New("--every: want more than 0"))
	}
	return errors.Join(errs...)
}

// campaigns are the topologies to run on.
func (c *Config) campaigns() []string {
	if c.Redis == "all" {
		return topologies
	}
	return []string{c.Redis}
}

// replay returns the command that injects the same faults again.
func (c *Config) replay(topology string, d time.Duration) string {
	command := fmt.Sprintf("bench chaos --seed %d --redis %s --minutes %.4g --every %v --rate %g --brokers %d "+
		"--deaths %g --neighbours %d --keep", c.Seed, topology, d.Minutes(), c.Every, c.Rate, c.Brokers, c.Deaths,
		c.Neighbours)
	if c.Next != "" {
		command += " --broker " + c.Broker + " --next " + c.Next
	}
	return command
}

// Run runs the campaigns and prints their verdicts. kept is false if a promise was broken. An error
// is a failure of the rig itself and says nothing about the promises.
func Run(ctx context.Context, c *Config, out, progress io.Writer) (kept bool, err error) {
	dir := c.Dir
	if dir == "" {
		dir, err = os.MkdirTemp("", "penstock-chaos-")
	} else if dir, err = filepath.Abs(dir); err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	if err != nil {
		return true, err
	}
	fmt.Fprintf(progress, "chaos: seed %d, folder %s\n", c.Seed, dir)
	d := time.Duration(c.Minutes / float64(len(c.campaigns())) * float64(time.Minute))
	var all []*Verdict
	kept = true
	for _, topology := range c.campaigns() {
		v, failure := campaign(ctx, c, topology, filepath.Join(dir, topology), d, progress)
		if failure != nil {
			err = fmt.Errorf("%s: %w\nthe logs are in %s; again: %s", topology, failure, dir, c.replay(topology, d))
			break // the verdicts of the earlier campaigns are still printed
		}
		all = append(all, v)
		if !v.OK() {
			kept, v.Dir = false, filepath.Join(dir, topology)
		}
	}
	err = errors.Join(err, c.report(all, d, out))
	if err == nil && kept && !c.Keep {
		err = os.RemoveAll(dir)
	}
	return kept, err
}

// report prints the verdicts and the violations. Several campaigns also get a column for their sum.
func (c *Config) report(all []*Verdict, d time.Duration, out io.Writer) error {
	if len(all) == 0 {
		return nil
	}
	columns := all
	if len(all) > 1 {
		sum := newVerdict(&Evidence{})
		sum.Redis = "all"
		for _, v := range all {
			sum.add(v)
		}
		columns = append(slices.Clone(all), sum)
	}
	if err := Print(out, columns); err != nil {
		return err
	}
	for _, v := range all {
		if !v.OK() {
			fmt.Fprintf(out, "\nBROKEN on %s. Evidence: %s\n%s\nagain: %s\n", v.Redis, v.Dir,
				strings.Join(v.Samples[:min(len(v.Samples), 20)], "\n"), c.replay(v.Redis, d))
		}
	}
	if c.JSON == "" {
		return nil
	}
	return writeJSON(c.JSON, all)
}

// campaign builds a rig, breaks it for d, and checks the evidence.
func campaign(ctx context.Context, c *Config, topology, dir string, d time.Duration, progress io.Writer) (v *Verdict,
	err error) {
	start := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(progress, "%7.1fs %s: %s\n", time.Since(start).Seconds(), topology, fmt.Sprintf(format, args...))
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	r, err := build(ctx, c, topology, dir)
	defer func() { err = errors.Join(err, r.Close()) }()
	if err != nil {
		return nil, err
	}
	if err := r.run(ctx, c, d, say); err != nil {
		return nil, err
	}
	say("reading the evidence")
	e, err := r.gather(ctx)
	if err != nil {
		return nil, err
	}
	v = Check(e)
	v.Redis, v.Brokers, v.Seed, v.Seconds = topology, c.Brokers, c.Seed, time.Since(start).Seconds()
	return v, v.write(dir, e)
}
