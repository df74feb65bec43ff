package main

import (
	"context"
	"flag"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/penstock-broker/penstock/internal/feature/ctl"
)

// operate runs broker ctl or broker listen --channel, or answers a shell that completes a command. ok: the arguments
// are theirs. They are clients: they write to stdout themselves and wait for its reader, and need nothing of what a
// broker is made of.
func operate(args []string, stdout, stderr io.Writer) (code int, ok bool) {
	if len(args) == 0 || args[0] != "ctl" && !forwards(args) && !ctl.Completes(args[0]) {
		return 0, false
	}
	var others [][2]string
	for _, c := range allCommands() {
		if c.name != "ctl" && c.name != "listen" {
			others = append(others, [2]string{c.name, c.about})
		}
	}
	return withSignals(func(ctx context.Context) int {
		return ctl.Run(ctx, args, ctl.Options{Stdin: os.Stdin, Stdout: stdout, Stderr: stderr, Getenv: os.Getenv,
			Others: others})
	}), true
}

// forwards reports whether broker listen is asked to forward a channel. Otherwise it is broker sink.
func forwards(args []string) bool {
	return args[0] == "listen" && slices.ContainsFunc(args[1:], func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return name == "--channel" || name == "--forward" || name == "--play"
	})
}

// prepareCtl is for the list of commands: main hands the arguments of ctl to operate before flags are read.
func prepareCtl(*flag.FlagSet) func([]string, io.Writer, io.Writer) int {
	return func(args []string, stdout, stderr io.Writer) int {
		code, _ := operate(append([]string{"ctl"}, args...), stdout, stderr)
		return code
	}
}
