//go:build pprof

package main

import (
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof" // registers its handlers
	"os"
	"runtime"

	"github.com/penstock-broker/penstock/internal/tool/sentence"
)

// A broker built with -tags pprof serves the Go profiler on the loopback address
// in PENSTOCK_PPROF. A normal build has no such route.
func init() {
	addr := os.Getenv("PENSTOCK_PPROF")
	if addr == "" {
		return
	}
	if err := checkProfiler(addr); err != nil {
		fmt.Fprintln(os.Stderr, "broker:", sentence.Of(err))
		os.Exit(exitUsage)
	}
	runtime.SetMutexProfileFraction(100)
	runtime.SetBlockProfileRate(100_000)
	go func() { _ = http.ListenAndServe(addr, nil) }()
}

// checkProfiler refuses an address that other machines reach: profiles have parts of the memory, and the profiler asks
// for no token.
func checkProfiler(addr string) error {
	if host, _, err := net.SplitHostPort(addr); err != nil || !isLoopback(host) {
		return fmt.Errorf("PENSTOCK_PPROF must be a loopback address with a port, like 127.0.0.1:6060, not %q", addr)
	}
	return nil
}
