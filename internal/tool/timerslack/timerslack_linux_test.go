package timerslack

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asked is the environment variable that makes this test program set its slack.
const asked = "TIMERSLACK_OF_A_TEST"

func TestMain(m *testing.M) {
	slack, err := time.ParseDuration(os.Getenv(asked))
	if err != nil {
		os.Exit(m.Run())
	}
	fmt.Printf("pid %d\n", os.Getpid())
	if err := Set(slack); err != nil {
		fmt.Println(err)
	}
	for range 4 { // threads that the runtime makes have it, too
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // and never unlocked: the thread ends
			now, err := Now()
			fmt.Println(now, err)
		}()
		<-done
	}
	fmt.Println(strings.Join(os.Args[1:], " "), len(os.Getenv(startedOver)))
	os.Exit(0)
}

func ask(t *testing.T, slack string, env ...string) (pid int, lines []string) {
	cmd := exec.Command(os.Args[0], "one", "two words")
	cmd.Env = append(append(os.Environ(), asked+"="+slack), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return cmd.Process.Pid, strings.Split(strings.TrimSpace(string(out)), "\n")
}

func TestAProgramStartsOverOnceInTheSameProcess(t *testing.T) {
	pid, lines := ask(t, "321us")
	me := "pid " + strconv.Itoa(pid)
	one := "321µs <nil>"
	require.Equal(t, []string{me, me, one, one, one, one, "one two words 0"}, lines)
}

func TestZeroLeavesTheSlackAlone(t *testing.T) {
	before, err := Now()
	require.NoError(t, err)
	_, lines := ask(t, "0")
	require.Len(t, lines, 6, "it did not start over")
	require.Equal(t, fmt.Sprint(before, " <nil>"), lines[1])
}

func TestWhatTheSlackIsAlreadyNeedsNoNewStart(t *testing.T) {
	before, err := Now()
	require.NoError(t, err)
	_, lines := ask(t, before.String())
	require.Len(t, lines, 6)
}

// The test simulates a system that resets the slack when a program starts over.
func TestAProgramStartsOverOnlyOnce(t *testing.T) {
	before, err := Now()
	require.NoError(t, err)
	pid, lines := ask(t, "321us", startedOver+"=1")
	require.Len(t, lines, 7)
	require.Equal(t, "pid "+strconv.Itoa(pid), lines[0])
	require.Contains(t, lines[1], errAgain.Error())
	require.Equal(t, fmt.Sprint(before, " <nil>"), lines[2])
	require.Equal(t, "one two words 0", lines[6])
}
