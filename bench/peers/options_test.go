package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestThePlanAlternatesSubjectsAndTurnsTheirOrder(t *testing.T) {
	t.Parallel()
	o, err := parseOptions([]string{"-subjects", "penstock,nats-always", "-publishers", "16,64", "-rounds", "2"}, t.Output())
	require.NoError(t, err)
	var got []string
	for _, s := range o.plan() {
		got = append(got, s.subject.name)
	}
	require.Equal(t, []string{
		"penstock", "nats-always", "penstock", "nats-always",
		"nats-always", "penstock", "nats-always", "penstock",
	}, got)
}

func TestOptionsWithoutABoundOrMeaningAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-subjects", "kafka"}, {"-subjects", "penstock,penstock"}, {"-publishers", "0"}, {"-publishers", "many"},
		{"-rounds", "0"}, {"-payload", "10"}, {"-duration", "0s"}, {"-drain", "2h"}, {"-limit", "0s"}, {"-prefetch", "0"}, {"extra"},
	} {
		_, err := parseOptions(args, t.Output())
		require.Error(t, err, "%v", args)
	}
}

func TestEverySubjectNamesItsProgramsAndHasAFlagForEach(t *testing.T) {
	t.Parallel()
	for _, s := range subjects {
		require.NotEmpty(t, s.programs, s.name)
		for _, p := range s.programs {
			require.Contains(t, programFlags, p, s.name)
		}
	}
}

func TestAMissingProgramIsNamedWithTheSubjectThatNeedsIt(t *testing.T) {
	t.Parallel()
	o, err := parseOptions([]string{"-subjects", "nats-always", "-nats-server", "/nonexistent/nats-server"}, t.Output())
	require.NoError(t, err)
	s := &site{programs: map[string]string{}}
	require.ErrorContains(t, s.find(o), "nats-always needs nats-server")
}

func TestOnlySyncAlwaysIsWrittenIntoTheServersFile(t *testing.T) {
	t.Parallel()
	require.Contains(t, natsConfig(4222, "/data", true), "sync_interval: always")
	require.NotContains(t, natsConfig(4222, "/data", false), "sync_interval")
}
