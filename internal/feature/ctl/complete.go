package ctl

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const (
	// completeWithin bounds the wait of a shell for names of the broker.
	completeWithin = 300 * time.Millisecond
	mostCompleted  = 500
)

func (s *session) completion(root *cobra.Command) *cobra.Command {
	shells := []cobra.Completion{"bash", "zsh", "fish"}
	return leaf{use: "completion SHELL", about: "print the completion of bash, zsh or fish for the program",
		long: "It completes names of the broker that is meant, too, where that answers within 300 ms.\n" +
			"For bash, in ~/.bashrc: source <(broker ctl completion bash)",
		examples: "broker ctl completion bash\nbroker ctl completion zsh\nbroker ctl completion fish", least: 1, most: 1,
		complete: cobra.FixedCompletions(shells, cobra.ShellCompDirectiveNoFileComp),
		run: func(_ *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(s.Stdout, true)
			case "zsh":
				return root.GenZshCompletion(s.Stdout)
			case "fish":
				return root.GenFishCompletion(s.Stdout, true)
			}
			return wrong("%q is none of %s", args[0], strings.Join(shells, ", "))
		}}.command()
}

// names completes the first argument with names of a kind, which the broker has.
func (s *session) names(k kind) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 && c.Flags().Lookup("channel") == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		channel, _, within := strings.Cut(typed, "/")
		switch {
		case k.noun != "consumer":
			return s.listed(c, "/"+k.noun+"s", "", typed, ""), cobra.ShellCompDirectiveNoFileComp
		case within && id("channel", channel) == nil:
			path, _ := channels.path(channel)
			return s.listed(c, path+"/consumers", channel+"/", typed, ""), cobra.ShellCompDirectiveNoFileComp
		}
		return s.listed(c, "/channels", "", typed, "/"), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// listed returns the names in a list of links that begin as typed. A broker that does not answer has none.
func (s *session) listed(c *cobra.Command, path, before, typed, after string) (names []cobra.Completion) {
	m, err := s.manager()
	if err != nil {
		return nil
	}
	under := c.Context()
	if under == nil {
		under = context.Background()
	}
	ctx, cancel := context.WithTimeout(under, completeWithin)
	defer cancel()
	_ = m.Each(ctx, path, nil, mostCompleted, func(raw json.RawMessage) error {
		var link string
		if err := json.Unmarshal(raw, &link); err != nil {
			return err
		}
		name := before + link[strings.LastIndexByte(link, '/')+1:]
		if strings.HasPrefix(name, typed) {
			names = append(names, name+after)
		}
		return nil
	})
	return names
}

// profileNames completes the name of a profile.
func (s *session) profileNames(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	all, _ := s.readProfiles() // none, where they cannot be read
	return slices.Sorted(maps.Keys(all.Profiles)), cobra.ShellCompDirectiveNoFileComp
}
