// Package usage reads the flags of the programs. What was asked for, also help, is for stdout; a
// mistake is one line, with the nearest flag.
package usage

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/penstock-broker/penstock/internal/model/problem"
)

// Parse parses flags and prints nothing. Its error is flag.ErrHelp where help was asked for, and else
// a line.
func Parse(f *flag.FlagSet, args []string) error {
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	err := f.Parse(args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return err
	}
	name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !ok {
		return err
	}
	var known []string
	f.VisitAll(func(one *flag.Flag) { known = append(known, one.Name) })
	if meant := problem.Nearest(name, known); meant != "" {
		return fmt.Errorf("unknown flag %q; did you mean --%s?", "--"+name, meant)
	}
	return fmt.Errorf("unknown flag %q", "--"+name)
}

// Help prints the flags.
func Help(f *flag.FlagSet, out io.Writer) {
	f.VisitAll(func(one *flag.Flag) {
		value, about := flag.UnquoteUsage(one)
		if one.DefValue != "" && one.DefValue != "false" && one.DefValue != "0" {
			about += " (default " + one.DefValue + ")"
		}
		fmt.Fprintf(out, "  --%s\n      %s\n", strings.TrimRight(one.Name+" "+value, " "), about)
	})
}
