package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/bench"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/internal/tool/timerslack"
)

// The end-to-end tests run this test binary as the broker: a process of its
// own, that can be killed, built with the race detector when the tests are.
const (
	envMain = "PENSTOCK_TEST_MAIN" // "1": be the broker; "bench": be bench
	// "<point>:<n>": kill -9 ourselves the n-th time we come there; ":<duration>": after we stood there so long
	envKill = "PENSTOCK_TEST_KILL"
	// "<point>:<n>:<duration>": stand there so long the n-th time we come there, and go on
	envStand = "PENSTOCK_TEST_STAND"
	envFiles = "PENSTOCK_TEST_FILES" // "<n>": have at most n descriptors
	envSize  = "PENSTOCK_TEST_SIZE"  // "<bytes>": have no larger file, as with a quota
)

func TestMain(m *testing.M) {
	if os.Getenv(envMain) == "bench" {
		os.Exit(bench.Main(os.Args[1:]))
	}
	if os.Getenv(envMain) != "1" {
		_ = flag.Set("test.parallel", "1000") // parallel has the bounds
		code := m.Run()
		if folder := plainFolder.Load(); folder != nil {
			_ = os.RemoveAll(*folder)
		}
		os.Exit(code)
	}
	atPoint(os.Getenv(envKill), func(stand time.Duration) {
		time.Sleep(stand)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way
	})
	atPoint(os.Getenv(envStand), time.Sleep)
	for name, limit := range map[string]int{envFiles: syscall.RLIMIT_NOFILE, envSize: syscall.RLIMIT_FSIZE} {
		if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
			if err := syscall.Setrlimit(limit, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
				panic(err)
			}
		}
	}
	if file := os.Getenv(envRedisFile); file != "" {
		embeddedStarted = func(url string) {
			if err := os.WriteFile(file, []byte(url), 0o600); err != nil {
				panic(err)
			}
		}
	}
	main()
}

// atPoint calls do the n-th time this process comes to a point of the setting "<point>:<n>[:<duration>]".
func atPoint(setting string, do func(stand time.Duration)) {
	point, n, ok := strings.Cut(setting, ":")
	if !ok {
		return
	}
	n, pause, _ := strings.Cut(n, ":")
	count, err := strconv.Atoi(n)
	if err != nil {
		panic(err)
	}
	stand, err := time.ParseDuration(cmp.Or(pause, "0s"))
	if err != nil {
		panic(err)
	}
	left, earlier := atomic.Int64{}, failpoint.Hit
	left.Store(int64(count))
	failpoint.Hit = func(at string) {
		if earlier != nil {
			earlier(at)
		}
		if at == point && left.Add(-1) == 0 {
			do(stand)
		}
	}
}

// The settings are read again later, and a secret may come through a pipe.
func TestTheTimerSlackIsReadWithoutTheOtherSettings(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	_, err = w.WriteString("secret")
	require.NoError(t, errors.Join(err, w.Close()))
	token := fmt.Sprintf("BROKER_ADMIN_TOKEN_FILE=/dev/fd/%d", r.Fd())
	require.Equal(t, time.Millisecond, slack([]string{token, "BROKER_TIMER_SLACK=1ms"}))
	require.Equal(t, timerslack.Usual, slack([]string{token}))
	file := filepath.Join(t.TempDir(), "slack")
	require.NoError(t, os.WriteFile(file, []byte("2ms\n"), 0o600))
	require.Equal(t, 2*time.Millisecond, slack([]string{"BROKER_LISTN=:80", "BROKER_TIMER_SLACK_FILE=" + file}))
	require.Zero(t, slack([]string{"BROKER_TIMER_SLACK=0"}))
	left, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, "secret", string(left))
}
