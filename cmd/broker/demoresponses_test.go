package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/script"
)

// The demo shows the response on its way back, needs no settings and leaves nothing behind.
func TestTheDemoOfResponsesShowsTheResponseComingBack(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	t.Setenv("BROKER_LISTEN", "not an address") // the demo has settings of its own
	t.Setenv("PENSTOCK_TOKEN", "of another broker")
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitClean, demoResponses(t.Context(), &stdout, &stderr), "%s%s", stdout.String(), stderr.String())
	require.Empty(t, stderr.String())
	rest := stdout.String()
	require.Contains(t, rest, "broker    201: it has the message", "before or after the receiver has it")
	for _, step := range []string{
		`sender    publishes "sales of 2026"`, `receiver  gets "sales of 2026", answers 202`,
		"answers 202: still at work", "answers 200 with it",
		`sender    gets the response "a report of 42 pages" of receiver`, "receiver is RESPONSE_DELIVERED_TO_SENDER",
		"RESPONSE_RECEIVED", "RESPONSE_DELIVERED",
	} {
		_, after, found := strings.Cut(rest, step)
		require.True(t, found, "%q is not in the rest of\n%s", step, stdout.String())
		rest = after
	}
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, left)

	// The page has the command, and shows what the demo prints.
	page := fromRoot(t, "docs/responses.md")
	require.Contains(t, script.Blocks(page, "sh"), "make demo-responses\n")
	require.Contains(t, fromRoot(t, "Makefile"), "\n\t$(GO) run ./cmd/broker demo-responses\n")
	for line := range strings.Lines(script.Blocks(page, "")[0]) {
		_, step, _ := strings.Cut(line, " s  ")
		require.Contains(t, stdout.String(), " s  "+step)
	}
}

// A demo that is interrupted says so and leaves nothing behind.
func TestTheDemoOfResponsesEndsWithItsContext(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitStart, demoResponses(ctx, &stdout, &stderr))
	require.Contains(t, stderr.String(), "broker demo-responses: ")
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, left)
}
