package main

import (
	"cmp"
	"flag"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-broker/penstock/internal/failpoint"
)

// The end-to-end tests run this test binary as the broker: a process of its
// own, that can be killed, built with the race detector when the tests are.
const (
	envMain  = "PENSTOCK_TEST_MAIN"  // "1": be the broker
	envKill  = "PENSTOCK_TEST_KILL"  // "<point>:<n>": kill -9 ourselves the n-th time we come there; ":<duration>": after we stood there so long
	envFiles = "PENSTOCK_TEST_FILES" // "<n>": have at most n descriptors
)

func TestMain(m *testing.M) {
	if os.Getenv(envMain) != "1" {
		// These tests wait more than they compute; -parallel still overrides it.
		_ = flag.Set("test.parallel", "6")
		os.Exit(m.Run())
	}
	if point, n, ok := strings.Cut(os.Getenv(envKill), ":"); ok {
		left := atomic.Int64{}
		n, pause, _ := strings.Cut(n, ":")
		count, err := strconv.Atoi(n)
		if err != nil {
			panic(err)
		}
		stand, err := time.ParseDuration(cmp.Or(pause, "0s"))
		if err != nil {
			panic(err)
		}
		left.Store(int64(count))
		failpoint.Hit = func(at string) {
			if at == point && left.Add(-1) == 0 {
				time.Sleep(stand)
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {} // the signal is on its way
			}
		}
	}
	if n, err := strconv.ParseUint(os.Getenv(envFiles), 10, 64); err == nil {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
			panic(err)
		}
	}
	main()
}
