//go:build pprof

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheProfilerIsForTheMachineItself(t *testing.T) {
	parallel(t)
	for _, addr := range []string{"127.0.0.1:6060", "[::1]:6060", "localhost:6060"} {
		require.NoError(t, checkProfiler(addr))
	}
	for _, addr := range []string{":6060", "0.0.0.0:6060", "[::]:6060", "192.0.2.1:6060", "example.com:6060", "6060"} {
		require.ErrorContains(t, checkProfiler(addr), "loopback", addr)
	}
}
