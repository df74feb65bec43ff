package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/tool/timerslack"
)

func TestMain(m *testing.M) {
	_ = timerslack.Set(timerslack.Usual) // as main
	os.Exit(m.Run())
}

// Whom it compares with has the timers of the system, the load generator late ones.
func TestAServerHasTheTimersOfTheSystem(t *testing.T) {
	t.Parallel()
	slack, err := timerslack.Now()
	require.NoError(t, err)
	require.Equal(t, timerslack.Usual, slack)
	p, err := start("cat", t.TempDir(), syscall.SIGKILL, exec.Command("cat", "/proc/self/timerslack_ns"))
	require.NoError(t, err)
	<-p.exited
	require.NoError(t, p.err)
	require.Equal(t, "50000", strings.TrimSpace(p.lastWords()))
}

func TestAGroupStopsItsProcessesAndRemovesItsFolder(t *testing.T) {
	t.Parallel()
	s := &site{folder: t.TempDir()}
	g, err := newGroup(s)
	require.NoError(t, err)
	p, err := g.start("sleep", syscall.SIGKILL, exec.Command("sleep", "60"))
	require.NoError(t, err)
	require.Equal(t, p.cmd.Process.Pid, g.Processes()[0].PID)
	require.NoError(t, g.Close())
	require.ErrorIs(t, syscall.Kill(p.cmd.Process.Pid, 0), syscall.ESRCH)
	require.NoDirExists(t, g.folder)
}

func TestAProcessThatIgnoresSIGTERMIsKilled(t *testing.T) {
	t.Parallel()
	p, err := start("stubborn", t.TempDir(), syscall.SIGKILL, exec.Command("sh", "-c", `trap "" TERM; echo deaf; while :; do sleep 0.1; done`))
	require.NoError(t, err)
	require.NoError(t, p.ready(t.Context(), func(context.Context) error {
		if p.lastWords() == "" {
			return errors.New("not yet")
		}
		return nil
	}))
	p.grace = 100 * time.Millisecond
	require.ErrorContains(t, p.stop(), "did not stop")
	require.ErrorIs(t, syscall.Kill(p.cmd.Process.Pid, 0), syscall.ESRCH)
}

func TestAServerThatEndsWhileStartingTellsItsLastWords(t *testing.T) {
	t.Parallel()
	p, err := start("broken", t.TempDir(), syscall.SIGKILL, exec.Command("sh", "-c", "echo no such setting; exit 3"))
	require.NoError(t, err)
	err = p.ready(t.Context(), func(context.Context) error { return errors.New("refused") })
	require.ErrorContains(t, err, "no such setting")
	require.ErrorContains(t, p.stop(), "ended by itself")
}
