//go:build unix

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func summarize(events ...string) (*summary, string) {
	var out bytes.Buffer
	s := newSummary(&out)
	for _, e := range events {
		s.add([]byte(e + "\n"))
	}
	s.print(&out)
	return s, out.String()
}

const (
	runA     = `{"Action":"run","Package":"p","Test":"TestA"}`
	printA   = `{"Action":"output","Package":"p","Test":"TestA","Output":"something A said\n"}`
	passA    = `{"Action":"pass","Package":"p","Test":"TestA"}`
	failA    = `{"Action":"fail","Package":"p","Test":"TestA"}`
	skipA    = `{"Action":"skip","Package":"p","Test":"TestA"}`
	okLine   = `{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}`
	failLine = `{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}`
	passP    = `{"Action":"pass","Package":"p"}`
	failP    = `{"Action":"fail","Package":"p"}`
)

func TestAPassedRunEndsWithPackageLinesAndTotals(t *testing.T) {
	s, out := summarize(runA, printA, passA, okLine, passP)
	require.True(t, s.ok())
	require.True(t, strings.HasSuffix(out, "ok  \tp\t0.1s\n1 passed, 0 failed\n"), out)
	require.NotContains(t, out, "something A said")
}

func TestAFailedTestShowsWhatItPrinted(t *testing.T) {
	s, out := summarize(runA, printA, failA, failLine, failP)
	require.False(t, s.ok())
	require.Contains(t, out, "something A said")
	require.Contains(t, out, "0 passed, 1 failed\n")
}

func TestASkippedTestIsAFailure(t *testing.T) {
	s, out := summarize(runA, skipA, runA, passA, okLine, passP)
	require.False(t, s.ok())
	require.Contains(t, out, "skipped: p TestA")
	require.Contains(t, out, "1 passed, 1 failed\n")
}

func TestAPackageWithoutTestsIsNotASkip(t *testing.T) {
	s, out := summarize(runA, passA, okLine, passP,
		`{"Action":"output","Package":"q","Output":"?   \tq\t[no test files]\n"}`, `{"Action":"skip","Package":"q"}`)
	require.True(t, s.ok())
	require.Contains(t, out, "packages with tests        1\n")
}

func TestAPanicOutsideATestCountsAndShows(t *testing.T) {
	s, out := summarize(runA, printA,
		`{"Action":"output","Package":"p","Output":"panic: too late\n"}`, failLine, failP)
	require.False(t, s.ok())
	require.Contains(t, out, "panic: too late")
	require.Contains(t, out, "something A said")
	require.Contains(t, out, "0 passed, 1 failed\n")
}

func TestABuildFailureCountsAndShows(t *testing.T) {
	s, out := summarize(`{"ImportPath":"p","Action":"build-output","Output":"p.go:1: syntax error\n"}`,
		`{"ImportPath":"p","Action":"build-fail"}`,
		`{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}`, failP)
	require.False(t, s.ok())
	require.Contains(t, out, "syntax error")
	require.Contains(t, out, "0 passed, 1 failed\n")
}

func TestARunWithoutTestsIsNotGreen(t *testing.T) {
	s, out := summarize(passP)
	require.False(t, s.ok())
	require.Contains(t, out, "no test ran")
}

func TestLinesThatAreNoEventsArePassedOn(t *testing.T) {
	_, out := summarize("go: no such tool")
	require.Contains(t, out, "go: no such tool\n")
}
