//go:build pprof

package main

import (
	"net/http"
	_ "net/http/pprof" // registers its handlers
	"os"
	"runtime"
)

// A broker built with -tags pprof serves the Go profiler on the loopback address
// in PENSTOCK_PPROF. A normal build has no such route.
func init() {
	if addr := os.Getenv("PENSTOCK_PPROF"); addr != "" {
		runtime.SetMutexProfileFraction(100)
		runtime.SetBlockProfileRate(100_000)
		go func() { _ = http.ListenAndServe(addr, nil) }()
	}
}
