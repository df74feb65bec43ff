package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/penstock-broker/penstock/bench"
	"github.com/penstock-broker/penstock/internal/tool/gcpace"
	"github.com/penstock-broker/penstock/internal/tool/timerslack"
)

// Exit codes, equal to those of `bench` with the same meaning.
const (
	exitOK       = 0
	exitUsage    = 1
	exitPromise  = 2 // a ledger found a loss or a corruption
	exitCannot   = 4 // a server or a file
	exitUnproven = 5 // a server had more, or fewer, messages than it should at the end
)

func main() {
	_ = timerslack.Set(timerslack.Usual) // first, as in the load generator of bench
	gcpace.Start()
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() { // ends with the program
		for s := range signals {
			cancel(signalled{s.(syscall.Signal)}) // the completed measurements are still printed
		}
	}()
	code, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	var s signalled
	if errors.As(context.Cause(ctx), &s) {
		code = 128 + int(s.Signal)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "peers:", err)
	}
	os.Exit(code)
}

// signalled is why a run ended early.
type signalled struct{ syscall.Signal }

func (s signalled) Error() string { return "stopped by signal: " + s.String() }

// run measures the subjects of the arguments. It writes the report to out and the progress to
// progress.
func run(ctx context.Context, args []string, out, progress io.Writer) (_ int, err error) {
	if len(args) > 0 && args[0] == clientsCommand {
		return runClients(ctx, args[1:], out, progress)
	}
	o, err := parseOptions(args, progress)
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
	if err := s.find(o); err != nil {
		return exitCannot, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()

	r := &report{Format: 1, Hardware: bench.ThisMachine(), Options: o.words()}
	plan := o.plan()
	for i, step := range plan {
		if ctx.Err() != nil {
			break
		}
		fmt.Fprintf(progress, "[%d/%d] round %d, %d publishers, %s: ", i+1, len(plan), step.round, step.publishers, step.subject.name)
		x := measure(ctx, s, o, step)
		fmt.Fprintln(progress, x.line())
		if x.Failure != "" && ctx.Err() != nil {
			break // an interrupted run says nothing about the subject
		}
		r.Runs = append(r.Runs, x)
	}
	if len(r.Runs) == 0 {
		return exitCannot, errors.Join(errors.New("nothing was measured"), context.Cause(ctx))
	}
	if ctx.Err() != nil {
		r.Partial = fmt.Sprintf("ended after %d of %d runs: %v", len(r.Runs), len(plan), context.Cause(ctx))
	}
	printReport(out, r)
	code := r.verdict()
	if r.Partial != "" && code == exitOK {
		code = exitUnproven
	}
	if o.json != "" {
		err = r.write(o.json)
	}
	return code, err
}
