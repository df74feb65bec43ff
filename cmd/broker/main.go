// Command broker runs Penstock, an HTTP message broker.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/console"
	"github.com/penstock-broker/penstock/internal/tool/gcpace"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/internal/tool/timerslack"
)

// version is set at build time.
var version = "dev"

// The exit codes. A second signal ends the process at once, with 128 + its number.
const (
	exitClean  = 0
	exitUsage  = 1 // usage or configuration
	exitStore  = 3 // a store cannot be reached or migrated
	exitStart  = 4 // cannot start, or died running
	exitSignal = 128
)

var (
	// errStore means that a store cannot be reached or migrated.
	errStore = errors.New("store cannot be used")
	// errSettings means that a setting does not fit the state that the broker has found.
	errSettings = errors.New("settings cannot be used")
)

func main() {
	if code, ok := operate(os.Args[1:], os.Stdout, os.Stderr); ok {
		os.Exit(code)
	}
	command, _ := split(os.Args[1:])
	if command == "serve" || command == "migrate" {
		signal.Ignore(syscall.SIGHUP) // which a program that starts over inherits
	}
	if command != "healthcheck" { // a health check ends too soon to need it
		// This comes first, because the program starts over with the new slack. If it fails, timers
		// stay as they are; the broker logs its slack when it is ready.
		_ = timerslack.Set(slack(os.Environ()))
		gcpace.Start()
	}
	signal.Ignore(syscall.SIGPIPE) // a reader of stdout or stderr that is gone ends nothing
	ignoreFileLimit()
	stdout, stderr := console.New(console.Apart(os.Stdout), "stdout"), console.New(console.Apart(os.Stderr), "stderr")
	flush := func() {
		stdout.Flush(flushWithin)
		stderr.Flush(flushWithin)
	}
	guard.BeforeEnd = flush
	code := run(os.Args[1:], stdout, stderr)
	flush()
	os.Exit(code)
}

// slack reads the setting of the timer slack and no other, because the file of a secret may be
// readable only once. The commands that read all settings report wrong ones.
func slack(environ []string) time.Duration {
	var own []string
	for _, line := range environ {
		if strings.HasPrefix(line, "BROKER_TIMER_SLACK") {
			own = append(own, line)
		}
	}
	if c, err := readConfig(own); err == nil {
		return c.TimerSlack
	}
	return timerslack.Usual
}

// withSignals runs f with a context that ends at SIGINT or SIGTERM. A second
// signal does not wait, not even for what is left to print.
func withSignals(f func(context.Context) int) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		if _, ok := <-signals; !ok {
			return
		}
		cancel()
		if s, ok := <-signals; ok {
			os.Exit(exitSignal + int(s.(syscall.Signal)))
		}
	}()
	code := f(ctx)
	signal.Stop(signals)
	close(signals)
	return code
}

// commit returns the revision of the build, if it is known.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "unknown"
}
