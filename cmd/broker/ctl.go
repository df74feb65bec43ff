package main

import (
	"context"
	"flag"
	"io"
	"os"

	"github.com/penstock-broker/penstock/internal/feature/ctl"
)

// operate runs broker ctl, or answers a shell that completes a command. ok: the arguments are theirs. Both are
// clients: they write to stdout themselves and wait for its reader, and need nothing of what a broker is made of.
func operate(args []string, stdout, stderr io.Writer) (code int, ok bool) {
	if len(args) == 0 || args[0] != "ctl" && !ctl.Completes(args[0]) {
		return 0, false
	}
	var others [][2]string
	for _, c := range allCommands() {
		if c.name != "ctl" {
			others = append(others, [2]string{c.name, c.about})
		}
	}
	return withSignals(func(ctx context.Context) int {
		return ctl.Run(ctx, args, ctl.Options{Stdin: os.Stdin, Stdout: stdout, Stderr: stderr, Getenv: os.Getenv,
			Others: others})
	}), true
}

// prepareCtl is for the list of commands: main hands the arguments of ctl to operate before flags are read.
func prepareCtl(*flag.FlagSet) func([]string, io.Writer, io.Writer) int {
	return func(args []string, stdout, stderr io.Writer) int {
		code, _ := operate(append([]string{"ctl"}, args...), stdout, stderr)
		return code
	}
}
