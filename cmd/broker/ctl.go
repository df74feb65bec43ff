package main

import (
	"context"
	"flag"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/penstock-broker/penstock/internal/feature/ctl"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// operate runs broker ctl, broker publish or broker listen --channel, or answers a shell that completes a command. ok:
// the arguments are theirs. They are clients: they write to stdout themselves and wait for its reader, and need nothing
// of what a broker is made of.
func operate(args []string, stdout, stderr io.Writer) (code int, ok bool) {
	if len(args) == 0 || args[0] != "ctl" && args[0] != "publish" && !forwards(args) && !ctl.Completes(args[0]) {
		return 0, false
	}
	var others [][2]string
	for _, c := range allCommands() {
		if !slices.Contains([]string{"ctl", "listen", "publish"}, c.name) {
			others = append(others, [2]string{c.name, c.about})
		}
	}
	return withSignals(func(ctx context.Context) int {
		return ctl.Run(ctx, args, ctl.Options{Stdin: os.Stdin, Stdout: stdout, Stderr: stderr, Getenv: os.Getenv,
			Nearest: problem.Nearest, Others: others})
	}), true
}

// forwards reports whether broker listen is asked to forward a channel. Otherwise it is broker sink.
func forwards(args []string) bool {
	return args[0] == "listen" && slices.ContainsFunc(args[1:], func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return name == "--channel" || name == "--forward" || name == "--play"
	})
}

// prepareCtl is for the list of commands: main hands the arguments of ctl and publish to operate before flags are
// read.
func prepareCtl(name string) func(*flag.FlagSet) func([]string, io.Writer, io.Writer) int {
	return func(*flag.FlagSet) func([]string, io.Writer, io.Writer) int {
		return func(args []string, stdout, stderr io.Writer) int {
			code, _ := operate(append([]string{name}, args...), stdout, stderr)
			return code
		}
	}
}

// tellPublish writes what broker publish needs into the data folder, and returns what removes it.
func tellPublish(base, folder string) (remove func(), err error) {
	return ctl.Demo{URL: base, Producer: sampleProducer, ProducerToken: tokenOf(sampleProducer), Channel: sampleChannel,
		ChannelToken: tokenOf(sampleChannel)}.Write(folder)
}
