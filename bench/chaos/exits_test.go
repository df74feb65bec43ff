//go:build unix

package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The test is a process of the rig, too: with this variable it does what it says.
const envEnding = "PENSTOCK_TEST_ENDING"

func TestMain(m *testing.M) {
	switch os.Getenv(envEnding) {
	case "panic":
		fmt.Println("a line before")
		panic("planted")
	case "sleep":
		time.Sleep(time.Minute)
	default:
		os.Exit(m.Run())
	}
}

func startEnding(t *testing.T, how string) *child {
	g, err := startGuard()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	c := &child{name: "broker-0", dir: t.TempDir(), guard: g, env: append(os.Environ(), envEnding+"="+how),
		args: func(int) []string { return nil }}
	require.NoError(t, c.start())
	t.Cleanup(c.kill)
	return c
}

func TestABrokerThatPanicsIsAViolationThatShowsItsPanic(t *testing.T) {
	c := startEnding(t, "panic")
	<-c.ended
	c.kill() // a fault comes before anything has noticed
	e := newCase(1)
	e.Exits = c.ends()
	v := Check(e.Evidence)
	require.Equal(t, map[string]int{"brokers that died by themselves": 1}, v.Violations)
	require.Contains(t, v.Samples[0], "exit status 2")
	require.Contains(t, v.Samples[0], "panic: planted")
	require.NotContains(t, v.Samples[0], "a line before")
}

func TestOnlyTheRigsOwnKillsArePlanned(t *testing.T) {
	c := startEnding(t, "sleep")
	c.kill()
	require.NoError(t, c.start())
	require.NoError(t, syscall.Kill(c.cmd.Process.Pid, syscall.SIGKILL))
	<-c.ended
	e := newCase(1)
	e.Exits = c.ends()
	v := Check(e.Evidence)
	require.Equal(t, map[string]int{"brokers that died by themselves": 1}, v.Violations)
	require.EqualValues(t, 1, v.PlannedExits)
}

func TestTheLastLinesOfALogAreThoseOfItsPanic(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	old := "panic: of the process before\n"
	long := strings.Repeat("goroutine\n", 100_000)
	for text, want := range map[string][]string{
		"":                                nil,
		"one\ntwo\n":                      {"one", "two"},
		strings.Repeat("x\n", 50) + "end": append(strings.Split(strings.Repeat("x", tailLines-1), ""), "end"),
		"one\nfatal error: oops\n" + long: append([]string{"fatal error: oops"},
			strings.Split(strings.TrimSuffix(strings.Repeat("goroutine\n", tailLines-1), "\n"), "\n")...),
	} {
		require.NoError(t, os.WriteFile(path, []byte(old+text), 0o600))
		require.Equal(t, want, lastLines(path, int64(len(old))))
	}
	require.Nil(t, lastLines(path+"-missing", 0))
}
