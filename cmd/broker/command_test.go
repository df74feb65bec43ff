package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// runProcess runs the broker as a process of its own.
func runProcess(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(clearedEnv(), envMain+"=1", "BROKER_LISTEN=not an address") // nothing may start
	var out, errors bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errors
	_ = cmd.Run() // its code says it
	return cmd.ProcessState.ExitCode(), out.String(), errors.String()
}

func TestHelpAndVersionGoToStdout(t *testing.T) {
	for _, args := range []string{"--help", "-h", "-help", "help"} {
		code, stdout, stderr := runProcess(t, args)
		require.Zero(t, code, args)
		require.Empty(t, stderr, args)
		for _, c := range allCommands() {
			require.Contains(t, stdout, "\n  "+c.name+" ", args)
		}
	}
	for _, args := range []string{"--version", "-version", "version"} {
		code, stdout, stderr := runProcess(t, args)
		require.Zero(t, code, args)
		require.Empty(t, stderr, args)
		require.Regexp(t, `^penstock \S+ \S+ go\S+\n$`, stdout)
	}
	flags := map[string]string{"serve": "--demo", "healthcheck": "--live", "listen": "--on ADDRESS", "backup": "FILE",
		"journal": "replay DIR"}
	for _, c := range allCommands() {
		for _, flag := range []string{"--help", "-h"} {
			code, stdout, stderr := runProcess(t, c.name, flag)
			require.Zero(t, code, c.name)
			require.Empty(t, stderr, c.name)
			require.True(t, strings.HasPrefix(stdout, "Usage: broker "+c.name), stdout)
			require.Contains(t, stdout, flags[c.name])
		}
	}
	code, stdout, _ := runProcess(t, "--demo", "--help")
	require.Zero(t, code)
	require.Contains(t, stdout, "Usage: broker serve [--demo]")
}

// A mistake in the arguments is one line on stderr, with what was meant or where to look.
func TestAMistakeInTheArgumentsIsALineWithAHint(t *testing.T) {
	for args, want := range map[string]string{
		"serve --demos":    "broker serve: unknown flag \"--demos\"; did you mean --demo?\n",
		"--demo1":          "broker serve: unknown flag \"--demo1\"; did you mean --demo?\n",
		"serve --colour":   "broker serve: unknown flag \"--colour\"\n",
		"serve --demo=x":   "broker serve: invalid boolean value \"x\" for -demo: parse error\n",
		"listen --on":      "broker listen: flag needs an argument: -on\n",
		"migrate up":       "broker migrate: unexpected arguments [\"up\"]\n",
		"backup":           "broker backup: arguments are missing\n",
		"backup a b":       "broker backup: unexpected arguments [\"a\" \"b\"]\n",
		"journal":          "broker journal: arguments are missing\n",
		"journal show dir": "broker journal: unexpected arguments [\"show\" \"dir\"]\n",
		"srve":             "broker: unknown command \"srve\"; did you mean serve?\n",
		"versions":         "broker: unknown command \"versions\"; did you mean version?\n",
		"colour":           "broker: unknown command \"colour\"; broker --help lists the commands\n",
		"bench":            "broker: unknown command \"bench\": the load harness is a program of its own, bench (cmd/bench)\n",
	} {
		code, stdout, stderr := runProcess(t, strings.Fields(args)...)
		require.Equal(t, exitUsage, code, args)
		require.Empty(t, stdout, args)
		require.True(t, strings.HasPrefix(stderr, want), "%s: %s", args, stderr)
		require.Equal(t, 2, strings.Count(stderr, "\n"), stderr)
		require.Contains(t, stderr, "\nUsage: broker ", args)
	}
}

func TestArgumentsThatACommandDoesNotTakeAreAnError(t *testing.T) {
	t.Setenv("BROKER_LISTEN", "not an address") // nothing may start
	for _, args := range [][]string{
		{"serve", "now"}, {"--demo", "serve"}, {"serve", "--demos"}, {""}, {"serve", "--", "x"},
		{"migrate", "up"}, {"migrate", "--demo"}, {"migrate", "--dry-run"},
		{"healthcheck", "http://127.0.0.1:8080"}, {"healthcheck", "--ready"},
		{"version", "--short"}, {"version", "x"}, {"help", "serve"}, {"help", "-x"}, {"demo-responses", "x"},
		{"demo-responses", "--demo"}, {"unknown"},
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, exitUsage, run(args, &stdout, &stderr), "%q", args)
		require.Contains(t, stderr.String(), "Usage:", "%q", args)
		require.NotContains(t, stderr.String(), "BROKER_LISTEN", "%q: the arguments come before the settings", args)
		require.Empty(t, stdout.String(), "%q", args)
	}
}

func TestEachCommandTellsItsUse(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"serve", "--help"}, {"migrate", "-h"}, {"healthcheck", "-h"},
		{"version", "-h"}, {"demo-responses", "-h"}, {"help"}} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, exitClean, run(args, &stdout, &stderr), "%q", args)
		require.Contains(t, stdout.String()+stderr.String(), "Usage:", "%q", args)
	}
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitClean, run([]string{"version"}, &stdout, &stderr))
	require.Contains(t, stdout.String(), version)
}

// Everybody knows the tokens of the sample.
func TestTheDemoStaysOnLoopback(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		t.Setenv("BROKER_LISTEN", listen)
		t.Setenv("BROKER_ADMIN_TOKEN", "s3cret")
		data := t.TempDir() + "/data"
		t.Setenv("BROKER_DATA_DIR", data)
		var stdout, stderr bytes.Buffer
		require.Equal(t, exitUsage, run([]string{"--demo"}, &stdout, &stderr))
		require.Contains(t, stderr.String(), "--demo is for loopback only")
		require.NotContains(t, stderr.String(), "s3cret")
		require.NoDirExists(t, data)
	}
}
