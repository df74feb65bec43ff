package bench

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/usage"
)

// Exit codes of Main. After a signal the exit code is 128 + the signal.
const (
	ExitOK          = 0
	ExitUsage       = 1 // flags or configuration
	ExitPromise     = 2 // the ledger found a loss, a corruption, or with --strict more
	ExitUnmet       = 3 // find-max found no rate that keeps the bound
	ExitCannotStart = 4 // broker, sink or a file
	ExitSlower      = 6 // compare found less than --least
	ExitUnproven    = 5 // deliveries were still pending when the run gave up on them
)

const help = `Usage: bench COMMAND [flags]

  run        load a broker, check every promise, report
  publish    the same without consumers
  find-max   largest open-loop rate that keeps --p99
  limits     ceilings of this machine, stage by stage
  compare    A.json B.json: do two reports differ?
  steps      NAME=A.json ...: a row for each load, what a message cost in each process
  model      NAME=A.json ...: what a request, a message, a job and a KiB cost; the rates that they predict
  chaos      break brokers, stores and links under load, check every promise
  rehearse   take something away from an installation of yours: what is lost, how long until well?

bench COMMAND --help lists the flags. Flags without a command: run.
Codes: 0 fine, 1 usage, 2 a promise was broken, 3 bound never met, 4 cannot run,
5 deliveries still pending at the end, 130/143 signal.
`

// Main runs the command line args and returns the exit code.
func Main(args []string) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	done := make(chan int)
	go func() { done <- run(ctx, args, os.Stdout, os.Stderr) }()
	for {
		select {
		case code := <-done:
			return code
		case s := <-signals:
			cancel(signalled{s}) // the run still prints its ledger
		}
	}
}

// signalled is why a run ended early.
type signalled struct{ os.Signal }

func (s signalled) Error() string { return "stopped by signal: " + s.String() }

// A command is one command of the program. It returns the exit code.
type command func(ctx context.Context, args []string, out, progress io.Writer) (int, error)

func run(ctx context.Context, args []string, out, progress io.Writer) int {
	name := "run"
	if len(args) == 0 || slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		fmt.Fprint(out, help)
		return ExitOK
	}
	if args[0] != "" && args[0][0] != '-' {
		name, args = args[0], args[1:]
	}
	commands := map[string]command{
		"run": runCommand, "publish": publishCommand, "find-max": findMaxCommand, "limits": limitsCommand,
		"compare": compareCommand, "steps": stepsCommand, "model": modelCommand, "peer": peerCommand,
		"rehearse": rehearseCommand,
	}
	maps.Copy(commands, chaosCommands())
	f, ok := commands[name]
	if !ok {
		hint := ""
		if meant := problem.Nearest(name, []string{"run", "publish", "find-max", "limits", "compare", "steps", "model",
			"chaos", "rehearse"}); meant != "" {
			hint = "; did you mean " + meant + "?"
		}
		fmt.Fprintf(progress, "bench: unknown command %q%s bench --help lists the commands\n", name, cmp.Or(hint, ";"))
		return ExitUsage
	}
	code, err := f(ctx, args, out, progress)
	var s signalled
	switch {
	case errors.Is(err, flag.ErrHelp):
		return ExitOK
	case err != nil && ctx.Err() == nil:
		fmt.Fprintln(progress, "bench:", err)
		if code == ExitOK {
			code = ExitCannotStart
		}
	case errors.As(context.Cause(ctx), &s):
		fmt.Fprintln(progress, "bench:", s)
		if n, ok := s.Signal.(syscall.Signal); ok {
			code = 128 + int(n)
		}
	}
	return code
}

func flags(name string) *flag.FlagSet {
	return flag.NewFlagSet("bench "+name, flag.ContinueOnError)
}

// parse parses flags and no other arguments. It prints help to out.
func parse(f *flag.FlagSet, args []string, out io.Writer) error {
	err := parseSome(f, args, out)
	if err == nil && f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return err
}

// parseSome is parse for a command that takes arguments after its flags.
func parseSome(f *flag.FlagSet, args []string, out io.Writer) error {
	err := usage.Parse(f, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(out, "Usage: %s [flags]\n\n", f.Name())
		usage.Help(f, out)
	case err != nil:
		return fmt.Errorf("%w; %s --help lists the flags", err, f.Name())
	}
	return err
}
