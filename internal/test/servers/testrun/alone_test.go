//go:build unix

package main

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	failSub = `{"Action":"fail","Package":"p","Test":"TestA/real"}`
	failB   = `{"Action":"fail","Package":"p","Test":"TestB"}`
	failC   = `{"Action":"fail","Package":"q","Test":"TestC"}`
	failD   = `{"Action":"fail","Package":"q","Test":"TestD"}`
	raceA   = `{"Action":"output","Package":"p","Test":"TestA","Output":"WARNING: DATA RACE\n"}`
	panicP  = `{"Action":"output","Package":"p","Test":"TestA","Output":"panic: too late\n"}`
	buildP  = `{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}`
	failQ   = `{"Action":"fail","Package":"q"}`
	passInQ = `{"Action":"pass","Package":"q","Test":"TestE"}`
)

func TestFewFailuresGetASecondRun(t *testing.T) {
	s, _ := summarize(failSub, failA, failLine, failP, failC, failQ)
	require.Equal(t, map[string][]string{"p": {"TestA"}, "q": {"TestC"}}, s.suspects())
	s, _ = summarize(failSub, failA, failB, failLine, failP, failC, failD, failQ)
	require.Empty(t, s.suspects(), "four are no accident")
	s, _ = summarize(passInQ)
	require.Empty(t, s.suspects())
}

func TestRacesPanicsAndWhatNeverEndedGetNoSecondRun(t *testing.T) {
	const runB = `{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN   TestB\n"}`
	const hitA = `{"Action":"output","Package":"p","Test":"TestA","Output":"race detected during execution of test\n"}`
	const logA = `{"Action":"output","Package":"p","Test":"TestA","Output":"    broker b reported a race or a panic:\n"}`
	const deepA = `{"Action":"output","Package":"p","Test":"TestA","Output":"        \t    \tpanic: boom\n"}`
	for _, events := range [][]string{{hitA, failA, failLine, failP}, {failA, runB, failLine, failP},
		{raceA, failA, failLine, failP}, {panicP, failA, failLine, failP}, {buildP, failP},
		{logA, failA, failLine, failP}, {deepA, failA, failLine, failP}} {
		s, _ := summarize(events...)
		require.Empty(t, s.suspects(), events)
	}
	// The worker of a client catches the panic of a handler, and a test of it makes one.
	const caughtA = `{"Action":"output","Package":"p","Test":"TestA","Output":"WARN a job failed error=\"panic: boom\"\n"}`
	s, _ := summarize(caughtA, failA, failLine, failP)
	require.NotEmpty(t, s.suspects())
}

func TestWhatPassesAloneIsNamedAndWhatFailsAgainFails(t *testing.T) {
	first, _ := summarize(printA, failSub, failA, failLine, failP, failC, failQ, passInQ)
	first.exit = errors.New("exit status 1")
	good, _ := summarize(passA, okLine, passP)
	bad, _ := summarize(failC, failQ)
	first.passedAlone("p", []string{"TestA"}, good)
	first.passedAlone("q", []string{"TestC"}, bad)
	require.False(t, first.ok())
	first.passedAlone("q", []string{"TestC"}, good)
	require.True(t, first.ok())
	var out bytes.Buffer
	first.print(&out)
	require.Contains(t, out.String(), "and passed alone: p TestA\n")
	require.Contains(t, out.String(), "1 passed, 0 failed\n")
}
