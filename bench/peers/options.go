package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/bench"
)

// options are the flags.
type options struct {
	broker      string
	subjects    []*subject
	publishers  []int
	rounds      int
	payload     int
	warmup      time.Duration
	duration    time.Duration
	drain       time.Duration
	prefetch    int
	handlers    int
	limit       time.Duration
	dir         string
	json        string
	brokerFlags list
	programs    map[string]string // by the name of the flag
}

// defaultPrefetch is the largest prefetch that a quorum queue accepts. In measurements with 256
// publishers and a prefetch of 256, the quorum queue and JetStream deliver a third less than they
// acknowledge; from 1000 on both keep up.
const defaultPrefetch = 2000

// A list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func parseOptions(args []string, progress io.Writer) (*options, error) {
	o := &options{programs: map[string]string{}}
	f := flag.NewFlagSet("peers", flag.ContinueOnError)
	f.SetOutput(progress)
	names := f.String("subjects", strings.Join(subjectNames(), ","), "subjects to measure; the others are compared with penstock")
	publishers := f.String("publishers", "16,64,256", "numbers of publishers, each with its own connection")
	f.StringVar(&o.broker, "broker", "bin/broker", "the broker's `program`, whose `bench run` measures Penstock")
	f.Var(&o.brokerFlags, "bench-flag", "further `--flag=value` for `bench run`; may be repeated")
	f.IntVar(&o.rounds, "rounds", 3, "measurements of each subject; the report has medians")
	f.IntVar(&o.payload, "payload", 1024, "bytes of a message")
	f.DurationVar(&o.warmup, "warmup", 2*time.Second, "not measured, but reconciled")
	f.DurationVar(&o.duration, "duration", 10*time.Second, "measured time of a run")
	f.DurationVar(&o.drain, "drain", 60*time.Second, "how long the rest may take to arrive after publishing")
	f.IntVar(&o.prefetch, "prefetch", defaultPrefetch, "messages that RabbitMQ and JetStream send ahead of their acknowledgement")
	f.IntVar(&o.handlers, "handlers", 64, "concurrent handlers of the asynq consumer, as many as Penstock's default of deliveries in flight")
	f.DurationVar(&o.limit, "limit", 2*time.Hour, "bound of all measurements; the report has those completed by then")
	f.StringVar(&o.dir, "dir", "", "`folder` for the servers' data, on a real disk (default: the system's temporary folder)")
	f.StringVar(&o.json, "json", "", "write all runs to this `file`")
	for name, usage := range programFlags {
		f.Func(name, usage, func(path string) error { o.programs[name] = path; return nil })
	}
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	var errs []error
	for name := range strings.SplitSeq(*names, ",") {
		s, err := subjectNamed(strings.TrimSpace(name))
		errs = append(errs, err)
		for _, other := range o.subjects {
			if other == s && s != nil {
				errs = append(errs, fmt.Errorf("-subjects: %s twice", s.name))
			}
		}
		o.subjects = append(o.subjects, s)
	}
	for text := range strings.SplitSeq(*publishers, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 || n > maxPublishers {
			errs = append(errs, fmt.Errorf("-publishers: %q: want numbers from 1 to %d", text, maxPublishers))
		}
		o.publishers = append(o.publishers, n)
	}
	return o, errors.Join(append(errs, o.validate())...)
}

// maxPublishers is below what the servers allow in connections by default.
const maxPublishers = 2048

func (o *options) validate() error {
	between := func(name string, v, low, high int) error {
		if v < low || v > high {
			return fmt.Errorf("-%s is %d: want %d to %d", name, v, low, high)
		}
		return nil
	}
	lasting := func(name string, v, low, high time.Duration) error {
		if v < low || v > high {
			return fmt.Errorf("-%s is %s: want %s to %s", name, v, low, high)
		}
		return nil
	}
	return errors.Join(
		between("rounds", o.rounds, 1, 100),
		between("payload", o.payload, bench.IdentitySize, 1<<20),
		between("prefetch", o.prefetch, 1, 10_000),
		between("handlers", o.handlers, 1, 1024),
		lasting("warmup", o.warmup, 0, 10*time.Minute),
		lasting("duration", o.duration, 100*time.Millisecond, time.Hour),
		lasting("drain", o.drain, time.Second, time.Hour),
		lasting("limit", o.limit, time.Second, 24*time.Hour),
	)
}

// words returns the options as text for a report.
func (o *options) words() string {
	s := fmt.Sprintf("%d bytes, closed loop, one consumer; warm-up %s, %s measured, %d round(s), subjects alternating; prefetch %d, %d asynq handlers",
		o.payload, o.warmup, o.duration, o.rounds, o.prefetch, o.handlers)
	if len(o.brokerFlags) > 0 {
		s += "; bench run " + o.brokerFlags.String()
	}
	return s
}

// A step is one run of the plan.
type step struct {
	round, publishers int
	subject           *subject
}

// plan lists all runs. Subjects alternate. Each round begins with another one, so that no subject
// always runs after the same neighbour, with its dirty pages.
func (o *options) plan() []step {
	var out []step
	for round := range o.rounds {
		for _, n := range o.publishers {
			for i := range o.subjects {
				out = append(out, step{round + 1, n, o.subjects[(i+round)%len(o.subjects)]})
			}
		}
	}
	return out
}
