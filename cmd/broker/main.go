// Command broker runs Penstock, an HTTP message broker.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/penstock-broker/penstock/internal/console"
	"github.com/penstock-broker/penstock/internal/gcpace"
	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/internal/timerslack"
)

// version is set at build time.
var version = "dev"

// The exit codes. A second signal ends the process at once, with 128 + its number.
const (
	exitClean  = 0
	exitUsage  = 1 // usage or configuration
	exitStore  = 3 // a store cannot be reached or migrated
	exitStart  = 4 // cannot start, or died running
	exitSignal = 128
)

var (
	// errStore means that a store cannot be reached or migrated.
	errStore = errors.New("store cannot be used")
	// errSettings means that a setting does not fit the state that the broker has found.
	errSettings = errors.New("settings cannot be used")
)

func main() {
	command, _ := split(os.Args[1:])
	if command == "serve" || command == "migrate" {
		signal.Ignore(syscall.SIGHUP) // which a program that starts over inherits
	}
	if command != "healthcheck" { // a health check ends too soon to need it
		// This comes first, because the program starts over with the new slack. If it fails, timers
		// stay as they are; the broker logs its slack when it is ready.
		_ = timerslack.Set(slack(os.Environ()))
		gcpace.Start()
	}
	signal.Ignore(syscall.SIGPIPE) // a reader of stdout or stderr that is gone ends nothing
	stdout, stderr := console.New(console.Apart(os.Stdout), "stdout"), console.New(console.Apart(os.Stderr), "stderr")
	flush := func() {
		stdout.Flush(flushWithin)
		stderr.Flush(flushWithin)
	}
	guard.BeforeEnd = flush
	code := run(os.Args[1:], stdout, stderr)
	flush()
	os.Exit(code)
}

// slack reads the setting of the timer slack and no other, because the file of a secret may be
// readable only once. The commands that read all settings report wrong ones.
func slack(environ []string) time.Duration {
	var own []string
	for _, line := range environ {
		if strings.HasPrefix(line, "BROKER_TIMER_SLACK") {
			own = append(own, line)
		}
	}
	if c, err := readConfig(own); err == nil {
		return c.TimerSlack
	}
	return timerslack.Usual
}

const usage = `Penstock is an HTTP message broker.

Usage:
  broker [serve] [--demo]   run the broker; --demo adds a sample channel with consumers
  broker migrate            create or update the tables of the store, then exit
  broker backup FILE        copy the embedded store to a new file, while the broker runs
  broker journal replay DIR store the messages that a broker which is gone left in its data folder
  broker healthcheck        ask the broker of this machine whether it is ready; --live: alive
  broker listen             a push consumer that prints what it gets; --on ADDRESS, else 127.0.0.1:9000
  broker demo-responses     show a response on its way back: a sender, a slow receiver, for seconds
  broker version            print the version

Settings come from BROKER_* environment variables: see docs/configuration.md.
`

// split returns the command and its arguments.
func split(args []string) (command string, rest []string) {
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		return args[0], args[1:]
	}
	return "serve", args
}

// withArguments are the commands that take arguments.
var withArguments = map[string]func(args []string, stdout, stderr io.Writer) int{"backup": backupCommand, "journal": journalCommand}

func run(args []string, stdout, stderr io.Writer) int {
	command, args := split(args)
	if own := withArguments[command]; own != nil {
		return own(args, stdout, stderr)
	}
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage) }
	var work func() int
	switch command {
	case "serve":
		demo := flags.Bool("demo", false, "add a sample producer, channel and consumers, and print what to try")
		work = func() int {
			return withSignals(func(ctx context.Context) int { return serve(ctx, *demo, stdout, stderr) })
		}
	case "migrate":
		work = func() int {
			return withSignals(func(ctx context.Context) int { return migrate(ctx, stdout, stderr) })
		}
	case "healthcheck":
		live := flags.Bool("live", false, "ask whether the broker is alive, instead of ready")
		work = func() int { return healthcheck(os.Environ(), *live, stdout, stderr) }
	case "listen":
		addr := flags.String("on", "127.0.0.1:9000", "address of the push consumer")
		work = func() int {
			return withSignals(func(ctx context.Context) int { return listen(ctx, *addr, stdout, stderr) })
		}
	case "demo-responses":
		work = func() int {
			return withSignals(func(ctx context.Context) int { return demoResponses(ctx, stdout, stderr) })
		}
	case "version":
		work = func() int {
			fmt.Fprintf(stdout, "penstock %s %s %s\n", version, commit(), runtime.Version())
			return exitClean
		}
	case "help":
		work = func() int {
			fmt.Fprint(stdout, usage)
			return exitClean
		}
	case "bench":
		fmt.Fprintln(stderr, "broker: the load harness is a separate program: bench (cmd/bench)")
		return exitUsage
	default:
		fmt.Fprintf(stderr, "broker: unknown command %q\n\n%s", command, usage)
		return exitUsage
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitClean
		}
		return exitUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "broker %s takes no arguments, got %q\n\n%s", command, flags.Args(), usage)
		return exitUsage
	}
	return work()
}

// withSignals runs f with a context that ends at SIGINT or SIGTERM. A second
// signal does not wait, not even for what is left to print.
func withSignals(f func(context.Context) int) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		if _, ok := <-signals; !ok {
			return
		}
		cancel()
		if s, ok := <-signals; ok {
			os.Exit(exitSignal + int(s.(syscall.Signal)))
		}
	}()
	code := f(ctx)
	signal.Stop(signals)
	close(signals)
	return code
}

// commit returns the revision of the build, if it is known.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "unknown"
}
