package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/sentence"
	"github.com/penstock-broker/penstock/internal/tool/usage"
)

// A subcommand is one of the words after the name of the program.
type subcommand struct {
	name  string
	usage string // flags and arguments, as a line of help has them
	about string // a line, for the list of commands
	more  string // what its own help says besides
	takes func(args []string) bool
	// prepare adds the flags of the command. The function that it returns runs the command, and
	// returns the exit code.
	prepare func(f *flag.FlagSet) func(args []string, stdout, stderr io.Writer) int
}

// signalled is the work of a command that SIGINT and SIGTERM end.
func signalled(work func(ctx context.Context, stdout, stderr io.Writer) int) func([]string, io.Writer, io.Writer) int {
	return func(_ []string, stdout, stderr io.Writer) int {
		return withSignals(func(ctx context.Context) int { return work(ctx, stdout, stderr) })
	}
}

const settingsHelp = "Settings come from BROKER_* environment variables: see docs/configuration.md."

// allCommands are all of them, in the order in which the help lists them.
func allCommands() []subcommand {
	none, each := func(args []string) bool { return len(args) == 0 }, func([]string) bool { return true }
	return []subcommand{
		{"serve", "[--demo]", "run the broker, also without the word serve; --demo adds a sample channel with consumers",
			settingsHelp, none, prepareServe},
		{"migrate", "", "create or update the tables of the store, then exit", settingsHelp, none,
			func(*flag.FlagSet) func([]string, io.Writer, io.Writer) int { return signalled(migrate) }},
		{"check", "[--json] [--starting]", "look at the settings, the folder and the stores, and say what is to be mended",
			checkHelp, none, prepareCheck},
		{"backup", "FILE", "copy the embedded store to a new file, while the broker runs",
			"FILE is a new file for a copy of the embedded store in BROKER_DATA_DIR. The broker may run meanwhile.",
			func(args []string) bool { return len(args) == 1 },
			func(*flag.FlagSet) func([]string, io.Writer, io.Writer) int { return backupCommand }},
		{"restore", "[--force] FILE", "make a copy of broker backup the embedded store, while no broker runs",
			"FILE is checked first. A store in BROKER_DATA_DIR is replaced with --force only, and kept under another name.",
			func(args []string) bool { return len(args) == 1 }, prepareRestore},
		{"reencrypt", "[--decrypt]", "encrypt tokens and secrets in the store with the present BROKER_TOKEN_KEY",
			reencryptHelp, none, prepareReencrypt},
		{"journal", "replay DIR", "store the messages that a broker which is gone left in its data folder",
			"DIR is the data folder (BROKER_DATA_DIR) of a broker that is gone; the settings are those of the broker.",
			func(args []string) bool { return len(args) == 2 && args[0] == "replay" },
			func(*flag.FlagSet) func([]string, io.Writer, io.Writer) int {
				return func(args []string, stdout, stderr io.Writer) int {
					return withSignals(func(ctx context.Context) int { return replayJournal(ctx, args[1], stdout, stderr) })
				}
			}},
		{"outbox", "--dsn DSN", "publish the rows of an outbox table of another database", outboxHelp, none, prepareOutbox},
		{"archive", "ls|grep PATTERN|restore [FILE...]", "list, search and restore what retention has archived", archiveHelp,
			takesArchive, prepareArchive},
		{"import", "webhook-broker [--dsn DSN]", "move a broker of the older implementation into this one", importHelp,
			func(args []string) bool { return len(args) > 0 && args[0] == importFrom }, prepareImport},
		{"healthcheck", "[--live]", "ask the broker of this machine whether it is ready; --live: alive",
			"The broker is the one that listens at BROKER_LISTEN. Exit code 0: it is ready, or alive.", none,
			prepareHealthcheck},
		{"listen", "[--on ADDRESS]",
			"forward a channel to a URL of this machine; without --channel, as sink",
			"With --channel it forwards: broker listen --channel CHANNEL --help tells more.\n" + sinkHelp, none, prepareListen},
		{"sink", "[--on ADDRESS]", "a push consumer that prints what it gets; --on ADDRESS, else 127.0.0.1:9000", sinkHelp,
			none, prepareListen},
		{"demo-responses", "", "show a response on its way back: a sender, a slow receiver, for seconds", "", none,
			func(*flag.FlagSet) func([]string, io.Writer, io.Writer) int { return signalled(demoResponses) }},
		{"publish", "CHANNEL PAYLOAD", "publish a message to the broker of serve --demo", "", each, prepareCtl("publish")},
		{"ctl", "COMMAND", "manage a broker from the command line: consumers, dead letters, why, check", "", each,
			prepareCtl("ctl")},
		{"version", "", "print the version", "", none, prepareVersion},
		{"help", "", "print this list", "broker COMMAND --help tells about one command.", none,
			func(*flag.FlagSet) func([]string, io.Writer, io.Writer) int {
				return func(_ []string, stdout, _ io.Writer) int { listCommands(stdout); return exitClean }
			}},
	}
}

func prepareServe(f *flag.FlagSet) func([]string, io.Writer, io.Writer) int {
	demo := f.Bool("demo", false, "add a sample producer, channel and consumers, and print what to try")
	return signalled(func(ctx context.Context, stdout, stderr io.Writer) int { return serve(ctx, *demo, stdout, stderr) })
}

func prepareHealthcheck(f *flag.FlagSet) func([]string, io.Writer, io.Writer) int {
	live := f.Bool("live", false, "ask whether the broker is alive, instead of ready")
	return func(_ []string, stdout, stderr io.Writer) int {
		return healthcheck(os.Environ(), *live, stdout, stderr)
	}
}

const sinkHelp = "It answers each delivery with 204. Register it as a consumer with " +
	"callbackUrl=http://127.0.0.1:9000/hook."

func prepareListen(f *flag.FlagSet) func([]string, io.Writer, io.Writer) int {
	addr := f.String("on", "127.0.0.1:9000", "`ADDRESS` of the push consumer")
	return signalled(func(ctx context.Context, stdout, stderr io.Writer) int { return listen(ctx, *addr, stdout, stderr) })
}

func prepareVersion(*flag.FlagSet) func([]string, io.Writer, io.Writer) int {
	return func(_ []string, stdout, _ io.Writer) int {
		fmt.Fprintf(stdout, "penstock %s %s %s\n", version, commit(), runtime.Version())
		return exitClean
	}
}

// split returns the command and its arguments. The usual flags for help and version are commands, too.
func split(args []string) (name string, rest []string) {
	if len(args) == 0 || args[0] == "" {
		return "serve", args
	}
	switch args[0] {
	case "-h", "-help", "--help":
		return "help", args[1:]
	case "-version", "--version":
		return "version", args[1:]
	}
	if args[0][0] != '-' {
		return args[0], args[1:]
	}
	return "serve", args
}

// run runs the command of the arguments and returns the exit code. What was asked for goes to stdout,
// also help; mistakes go to stderr.
func run(args []string, stdout, stderr io.Writer) int {
	name, args := split(args)
	var c *subcommand
	var names []string
	for _, known := range allCommands() {
		if names = append(names, known.name); known.name == name {
			c = &known
		}
	}
	if c == nil {
		hint := "; broker --help lists the commands"
		if meant := problem.Nearest(name, names); meant != "" {
			hint = "; did you mean " + meant + "?"
		} else if name == "bench" {
			hint = ": the load harness is a program of its own, bench (cmd/bench)"
		}
		fmt.Fprintf(stderr, "broker: unknown command %q%s\nUsage: broker COMMAND\n", name, hint)
		return exitUsage
	}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	work := c.prepare(flags)
	err := usage.Parse(flags, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		c.help(flags, stdout)
		return exitClean
	case err == nil && c.takes(flags.Args()):
		return work(flags.Args(), stdout, stderr)
	case err == nil:
		err = fmt.Errorf("unexpected arguments %q", flags.Args())
		if flags.NArg() == 0 {
			err = errors.New("arguments are missing")
		}
	}
	fmt.Fprintf(stderr, "broker %s: %s\n%s; broker %s --help tells more\n", name, sentence.Of(err), c.line(), name)
	return exitUsage
}

// line is the usage of a command.
func (c *subcommand) line() string {
	return strings.TrimRight("Usage: broker "+c.name+" "+c.usage, " ")
}

// help prints all about a command.
func (c *subcommand) help(flags *flag.FlagSet, out io.Writer) {
	fmt.Fprintf(out, "%s\n\n%s.\n", c.line(), strings.ToUpper(c.about[:1])+c.about[1:])
	flagged := false
	flags.VisitAll(func(*flag.Flag) { flagged = true })
	if flagged {
		fmt.Fprint(out, "\nFlags:\n")
		usage.Help(flags, out)
	}
	if c.more != "" {
		fmt.Fprintf(out, "\n%s\n", c.more)
	}
}

// listCommands prints the help of the program.
func listCommands(out io.Writer) {
	fmt.Fprint(out, "Penstock is an HTTP message broker.\n\nUsage: broker [COMMAND]\n\nCommands:\n")
	for _, c := range allCommands() {
		fmt.Fprintf(out, "  %-23s %s\n", strings.TrimRight(c.name+" "+c.usage, " "), c.about)
	}
	fmt.Fprintf(out, "\nbroker COMMAND --help tells about one command.\n%s\n", settingsHelp)
}
