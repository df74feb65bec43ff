package ctl

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// printHelp prints all about a command, in the form of the other commands of the program.
func printHelp(c *cobra.Command) {
	out := c.OutOrStdout()
	fmt.Fprintf(out, "Usage: %s\n\n%s.\n", usageOf(c), strings.ToUpper(c.Short[:1])+c.Short[1:])
	if c.Long != "" {
		fmt.Fprintf(out, "%s\n", c.Long)
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprint(out, "\nCommands:\n")
		listed(out, c.Commands())
	}
	if c.Example != "" {
		fmt.Fprintf(out, "\nExamples:\n  %s\n", strings.ReplaceAll(c.Example, "\n", "\n  "))
	}
	if own := c.LocalFlags().FlagUsages(); c.HasAvailableLocalFlags() {
		fmt.Fprintf(out, "\nFlags:\n%s", own)
	}
	if c.HasAvailableInheritedFlags() {
		fmt.Fprintf(out, "\nFlags of all commands:\n%s", c.InheritedFlags().FlagUsages())
	}
	if c.Name() == "ctl" {
		fmt.Fprint(out, "\nExit codes: 0 done, 1 wrong usage, 2 refused or not found, 3 no broker was reached.\n")
	}
}

// usageOf is a command with its arguments.
func usageOf(c *cobra.Command) string {
	if c.HasSubCommands() {
		return c.CommandPath() + " COMMAND"
	}
	return c.UseLine()
}

func listed(out io.Writer, all []*cobra.Command) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, c := range all {
		if c.IsAvailableCommand() {
			fmt.Fprintf(w, "  %s\t%s\n", c.Name(), c.Short)
		}
	}
	_ = w.Flush()
}
