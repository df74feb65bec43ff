package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestArgumentsThatACommandDoesNotTakeAreAnError(t *testing.T) {
	t.Setenv("BROKER_LISTEN", "not an address") // nothing may start
	for _, args := range [][]string{
		{"serve", "now"}, {"--demo", "serve"}, {"serve", "--demos"}, {""}, {"serve", "--", "x"},
		{"migrate", "up"}, {"migrate", "--demo"}, {"migrate", "--dry-run"},
		{"healthcheck", "http://127.0.0.1:8080"}, {"healthcheck", "--ready"},
		{"version", "--short"}, {"version", "x"}, {"help", "serve"}, {"help", "-x"}, {"demo-responses", "x"}, {"demo-responses", "--demo"}, {"unknown"},
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, exitUsage, run(args, &stdout, &stderr), "%q", args)
		require.Contains(t, stderr.String(), "Usage:", "%q", args)
		require.NotContains(t, stderr.String(), "BROKER_LISTEN", "%q: the arguments come before the settings", args)
		require.Empty(t, stdout.String(), "%q", args)
	}
}

func TestEachCommandTellsItsUse(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"serve", "--help"}, {"migrate", "-h"}, {"healthcheck", "-h"}, {"version", "-h"}, {"demo-responses", "-h"}, {"help"}} {
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
