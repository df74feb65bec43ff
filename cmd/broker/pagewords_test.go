package main

import (
	"bytes"
	"flag"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/script"
	"github.com/penstock-broker/penstock/internal/tool/usage"
)

// Each command of the program that a page names is there, in a block or in a sentence, with its flags.
func TestEachCommandOfTheProgramOnAPageExists(t *testing.T) {
	blocks, sentences := 0, 0
	for _, page := range append(script.Pages(t), script.Glob(t, "examples/*/README.md")...) {
		whole, parts := script.Shown(script.Page(t, page))
		for _, words := range whole {
			if at := ofTheProgram(words); at > 0 {
				blocks++
				requireCommand(t, page, words[at:], true)
			}
		}
		for _, words := range parts {
			if ofTheProgram(words) == 1 && len(words) > 1 && words[1] != "is" { // the broker is ready
				sentences++
				requireCommand(t, page, words[1:], false)
			}
		}
	}
	require.Greater(t, blocks, 30)
	require.Greater(t, sentences, 100)
}

// ofTheProgram returns where the arguments of the program begin in a command, also one behind systemd-run, or 0.
func ofTheProgram(words []string) int {
	for i, word := range words {
		if filepath.Base(word) == "broker" && (i == 0 || word == "/usr/bin/broker") {
			return i + 1
		}
	}
	return 0
}

// requireCommand checks arguments of the program. Where they are whole, they are those of its usage as well.
func requireCommand(t *testing.T, page string, args []string, whole bool) {
	t.Helper()
	name, rest := split(args)
	if placeholder(name) {
		return
	}
	all := allCommands()
	at := slices.IndexFunc(all, func(c subcommand) bool { return c.name == name })
	require.GreaterOrEqual(t, at, 0, "%s: broker %s", page, args)
	if name == "ctl" || name == "publish" || forwards(append([]string{name}, rest...)) {
		requireOperation(t, page, append([]string{name}, rest...))
		return
	}
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	all[at].prepare(f)
	if whole {
		err := usage.Parse(f, rest)
		require.True(t, err == nil && all[at].takes(f.Args()) || err == flag.ErrHelp, "%s: broker %s: %v", page, args, err)
	}
	for _, flagged := range flagsOf(rest) {
		if name == "listen" && f.Lookup(flagged) == nil { // a part of the command that forwards
			requireOperation(t, page, append([]string{name}, rest...))
			return
		}
		require.True(t, flagged == "help" || f.Lookup(flagged) != nil, "%s: broker %s has no --%s", page, name, flagged)
	}
}

// requireOperation is requireCommand for commands that are clients: their help says what there is.
func requireOperation(t *testing.T, page string, args []string) {
	t.Helper()
	path := args[:1]
	for rest := args[1:]; ; rest = rest[1:] {
		var help, said bytes.Buffer
		asked := append(slices.Clone(path), "--help")
		if path[0] == "listen" {
			asked = append(asked, "--channel=c") // it is another command without
		}
		code, ok := operate(asked, &help, &said)
		require.True(t, ok && code == 0, "%s: %s%s", page, asked, said.String())
		var names []string
		for _, line := range section(help.String(), "Commands") {
			names = append(names, strings.Fields(line)[0])
		}
		if len(names) == 0 || len(rest) == 0 || placeholder(rest[0]) || rest[0][0] == '-' {
			for _, flagged := range flagsOf(rest) {
				require.Regexp(t, `(?m)^ +(-\w, )?--`+flagged+`\b|^ +-`+flagged+`, `, help.String()+"\n  --help", "%s: broker %s",
					page, args)
			}
			return
		}
		for name := range strings.SplitSeq(rest[0], "|") {
			require.Contains(t, names, name, "%s: broker %s", page, args)
		}
		path = append(slices.Clone(path), strings.Split(rest[0], "|")[0])
	}
}

// placeholder reports whether a word stands for one that the reader chooses.
func placeholder(word string) bool { return strings.IndexFunc(word, unicode.IsUpper) == 0 }

// flagsOf returns the names of the flags among arguments.
func flagsOf(args []string) (names []string) {
	for _, arg := range args {
		if name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "="); strings.HasPrefix(arg, "-") && name != "" {
			names = append(names, name)
		}
	}
	return names
}
