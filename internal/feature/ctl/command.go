package ctl

import (
	"strings"

	"github.com/spf13/cobra"
)

// commands returns the program as cobra sees it. Its other commands are there for completion alone.
func (s *session) commands() *cobra.Command {
	root := &cobra.Command{Use: "broker", SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}}
	root.SetHelpCommand(&cobra.Command{Use: "no-help", Hidden: true})
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { printHelp(c) })
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return wrong("%s", err) })
	for _, other := range s.Others {
		root.AddCommand(&cobra.Command{Use: other[0], Short: other[1], DisableFlagParsing: true,
			Run: func(*cobra.Command, []string) {}})
	}
	ctl := group("ctl", "manage a broker from the command line",
		s.resource(channels), s.resource(groups), s.resource(consumers), s.resource(producers), s.publish(), s.request(),
		s.bulk(), s.schedule(), s.why(), s.message(), s.deadLetters(), s.audit(), s.replay(), s.workers(), s.tail(), s.top(),
		s.check(),
		s.doctor(), s.mcp(), s.export(), s.diff(), s.apply(), s.tokens(), s.profiles(), s.completion(root))
	ctl.Long = "Everything is done over the HTTP API of a broker, local or not. See docs/ctl.md."
	ctl.Example = `broker ctl consumer ls
broker ctl why orders/billing
broker ctl check`
	s.inTarget(ctl)
	root.AddCommand(ctl, s.listen(), s.publishHere())
	return root
}

// inTarget adds the flags that say which broker is meant.
func (s *session) inTarget(c *cobra.Command) {
	f := c.PersistentFlags()
	f.StringVar(&s.url, "url", "", "`URL` of the broker; PENSTOCK_URL, or "+defaultURL)
	f.StringVar(&s.token, "token", "", "admin or API `TOKEN`; PENSTOCK_TOKEN, which no list of processes shows")
	f.StringVar(&s.profile, "profile", "", "`NAME` of a profile with URL and token")
	f.BoolVar(&s.json, "json", false, "print JSON, and lists as one JSON object in each line")
	_ = c.RegisterFlagCompletionFunc("profile", s.profileNames)
}

// group is a command that has commands.
func group(name, about string, of ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: name, Short: about}
	c.AddCommand(of...)
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		c.SuggestionsMinimumDistance = 2
		hint := "; " + c.CommandPath() + " --help lists the commands"
		if meant := c.SuggestionsFor(args[0]); len(meant) > 0 {
			hint = "; did you mean " + strings.Join(meant, " or ") + "?"
		}
		return wrong("unknown command %q%s", args[0], hint)
	}
	return c
}

// A leaf is a command that does something.
type leaf struct {
	use, about string
	long       string
	examples   string
	least      int // of the arguments
	most       int // -1: any number
	complete   cobra.CompletionFunc
	run        func(c *cobra.Command, args []string) error
}

func (l leaf) command() *cobra.Command {
	c := &cobra.Command{Use: l.use, Short: l.about, Long: l.long, Example: l.examples, RunE: l.run,
		ValidArgsFunction: l.complete, DisableFlagsInUseLine: true}
	c.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < l.least:
			return wrong("an argument is missing")
		case l.most >= 0 && len(args) > l.most:
			return wrong("unexpected argument %q", args[l.most])
		}
		return nil
	}
	return c
}
