package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

// The exit codes.
const (
	exitDone        = 0
	exitUsage       = 1   // the command line is wrong, or something of this machine
	exitRefused     = 2   // the broker refused, or there is no such thing
	exitUnreachable = 3   // no broker answered
	exitDifferent   = 4   // diff has found changes
	exitInterrupted = 130 // by SIGINT or SIGTERM
)

// Options are what the commands have of their process.
type Options struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	// Nearest returns the known name that is meant by a misspelled one, or "".
	Nearest func(name string, known []string) string
	Others  [][2]string // the other commands of the program with a line about each, for completion
}

// Completes reports whether the first argument of the program is a question of a shell for what may come next.
func Completes(name string) bool {
	return name == cobra.ShellCompRequestCmd || name == cobra.ShellCompNoDescRequestCmd
}

// Run runs a command and returns the exit code. args are those of the program: ctl, listen or publish comes first, or
// a question of a shell.
func Run(ctx context.Context, args []string, o Options) int {
	s := &session{Options: o}
	defer s.close()
	root := s.commands()
	root.SetArgs(args)
	root.SetIn(o.Stdin)
	root.SetOut(o.Stdout)
	root.SetErr(o.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return exitDone
	case ctx.Err() != nil:
		return exitInterrupted
	}
	code := codeOf(err)
	if text := err.Error(); text != "" {
		fmt.Fprintf(o.Stderr, "%s: %s\n", cmd.CommandPath(), said(err))
	}
	if wrong := (*usageError)(nil); errors.As(err, &wrong) && wrong.hint {
		fmt.Fprintf(o.Stderr, "Usage: %s; %s --help tells more\n", usageOf(cmd), cmd.CommandPath())
	}
	return code
}

// A session is one run of the program.
type session struct {
	Options
	url, token, profile string // flags
	json                bool
	client              *penstock.Client // nil: not made yet
	target              target
}

func (s *session) close() {
	if s.client != nil {
		s.client.Close()
	}
}

// A usageError is a wrong command line, or a mistake in what it names on this machine.
type usageError struct {
	text string
	hint bool // the usage of the command helps
}

func (e *usageError) Error() string { return e.text }

// wrong is a mistake in the command line.
func wrong(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...), true} }

// local is a mistake elsewhere on this machine.
func local(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...), false} }

// A verdict is an exit code of which everything is said already.
type verdict int

func (verdict) Error() string { return "" }

// A stoppedError is an error that has its words already.
type stoppedError struct {
	text string
	err  error
}

func (e *stoppedError) Error() string { return e.text }
func (e *stoppedError) Unwrap() error { return e.err }

// codeOf is the exit code of an error.
func codeOf(err error) int {
	var v verdict
	var e *penstock.Error
	switch {
	case errors.As(err, &v):
		return int(v)
	case errors.As(err, &e) && (e.Status == 0 || e.Code == "" && e.Status >= 500): // of a proxy without a broker
		return exitUnreachable
	case errors.As(err, &e):
		return exitRefused
	}
	return exitUsage
}

// said is an error in the words of the broker, where it has refused.
func said(err error) string {
	var e *penstock.Error
	var ended *stoppedError
	switch {
	case errors.As(err, &ended):
		return ended.text
	case !errors.As(err, &e):
		return strings.TrimPrefix(err.Error(), "penstock: ")
	case e.Status == 0:
		return fmt.Sprintf("the broker cannot be reached: %v", e.Err)
	case e.Code == "":
		return fmt.Sprintf("the answer to %s %s is %d, and none of a broker", e.Method, e.Path, e.Status)
	}
	return e.Detail + " (" + e.Code + ")"
}
