//go:build unix

// Command testrun runs the project's tests against real servers.
//
//	testrun [-run regexp] [package ...]
//	testrun -exec command [argument ...]
//
// It starts one MySQL (or MariaDB) and one Redis for the whole run, or uses
// those that PENSTOCK_TEST_MYSQL and PENSTOCK_TEST_REDIS name, then runs `go
// test -race` over the packages (default ./..., the slowest ones first), `go vet` beside it, and
// prints what ran against what. It fails when a test fails, when one is skipped, or when none ran.
// Up to three tests that failed are run once more when the others are done, see suspects. A run of all
// tests ends with the comparison of openapi.json with their traffic, and with the tests of other modules. With
// -exec it runs that command instead, with the servers in its environment and empty databases in
// PENSTOCK_BENCH_MYSQL and PENSTOCK_BENCH_MYSQL_OTHER.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/penstock-broker/penstock/internal/test/servers"
	"github.com/penstock-broker/penstock/internal/test/traffic"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	ok, err := run(ctx, os.Args[1:], os.Stdout)
	interrupted := ctx.Err() != nil
	cancel()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	case interrupted:
		os.Exit(130)
	case !ok:
		os.Exit(1)
	}
}

// slowest are the packages whose tests take longest. They begin first, so that none of them is
// still at work when everything else is done.
var slowest = []string{"./cmd/broker", "./internal/test/simulation", "./durable"}

// unwatched leaves two packages out of the race detector, which makes them several times as slow:
// SQLite with its C library is translated from C, its memory is not Go's; the Lua of the embedded
// Redis is an interpreter that one goroutine has for itself. miniredis cannot be left out: it has a
// copy of the generic code of sync.Map, the linker gives one copy to all packages, and the detector
// does not see what an unwatched copy orders.
var unwatched = []string{
	"-gcflags=modernc.org/...=-race=false",
	"-gcflags=github.com/yuin/gopher-lua/...=-race=false",
}

// run reports whether everything passed. An error means that the tests could
// not be run at all.
func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	flags := flag.NewFlagSet("testrun", flag.ContinueOnError)
	pattern := flags.String("run", "", "only tests that match this regular expression, as of go test")
	instead := flags.Bool("exec", false, "run a command with the servers instead of the tests")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	packages := flags.Args()
	whole := len(packages) == 0 && *pattern == ""
	if len(packages) == 0 {
		packages = append(slices.Clone(slowest), "./...")
	}

	if !*instead { // which may be a measurement, where a disk counts
		if err := filesInMemory(); err != nil {
			return false, err
		}
	}
	pair, err := servers.StartPair()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, pair.Close()) }()
	fmt.Fprintf(out, "MySQL: %s; Redis: %s\n", pair.MySQLVersion, pair.RedisVersion)

	if *instead {
		return runInstead(ctx, pair, flags.Args(), out)
	}

	vetted := vet(ctx, packages)
	// No result from a cache: the servers are not the ones of last time.
	testArgs := slices.Concat([]string{"test", "-json", "-race"}, unwatched, []string{"-count=1", "-timeout", "80m",
		"-vet=off"})
	if *pattern != "" {
		testArgs = append(testArgs, "-run", *pattern)
	}
	testArgs = slices.Clip(testArgs)
	env := append(os.Environ(), pair.Environment()...)
	env = append(env, raceOptions(), collectLess(), "CGO_ENABLED=1") // the race detector needs cgo
	if whole {
		folder, err := os.MkdirTemp("", "traffic-")
		if err != nil {
			return false, err
		}
		defer os.RemoveAll(folder)
		env = append(env, traffic.Folder+"="+folder)
	}
	started := time.Now()
	s, err := test(ctx, append(testArgs, packages...), env, out)
	if err != nil {
		return false, err
	}
	for pkg, tests := range s.suspects() {
		fmt.Fprintln(out, "once more, alone:", pkg, strings.Join(tests, " "))
		second, err := test(ctx, append(testArgs, "-run", onlyThese(tests), pkg), env, out)
		if err != nil {
			return false, err
		}
		s.passedAlone(pkg, tests, second)
	}
	complaints := <-vetted
	fmt.Fprint(out, complaints.text)
	s.vet, s.mysql, s.redis, s.elapsed = complaints.err, pair.MySQLVersion, pair.RedisVersion, time.Since(started)
	s.print(out)
	if !s.ok() || !whole {
		return s.ok(), nil // the traffic of tests that failed is not whole
	}
	return compareTraffic(ctx, env, out) && testModules(ctx, env, out), nil
}

// A verdictOfVet is what go vet said and how it ended.
type verdictOfVet struct {
	text string
	err  error
}

// vet starts `go vet` beside the tests, which do not compile the same things: it fills the time in
// which they wait. What does not compile fails in the tests by name.
func vet(ctx context.Context, packages []string) <-chan verdictOfVet {
	done := make(chan verdictOfVet, 1)
	go func() {
		text, err := command(ctx, append([]string{"vet"}, packages...)...).CombinedOutput()
		done <- verdictOfVet{string(text), err}
	}()
	return done
}

// runInstead runs a command with the servers and reports whether it succeeded.
func runInstead(ctx context.Context, pair *servers.Pair, args []string, out io.Writer) (ok bool, failed error) {
	if len(args) == 0 {
		return false, errors.New("-exec needs a command")
	}
	env := append(os.Environ(), pair.Environment()...)
	for _, name := range []string{"PENSTOCK_BENCH_MYSQL", "PENSTOCK_BENCH_MYSQL_OTHER"} {
		dsn, drop, err := pair.Database()
		if err != nil {
			return false, err
		}
		defer func() { failed = errors.Join(failed, drop()) }()
		env = append(env, name+"="+dsn)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return false, nil
	}
	return err == nil, err
}

// test runs `go` with args and returns what its events add up to.
func test(ctx context.Context, args, env []string, out io.Writer) (*summary, error) {
	cmd := command(ctx, args...)
	cmd.Env = env
	cmd.Stderr = out
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := newSummary(out)
	lines := bufio.NewReader(pipe)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			s.add(line)
		}
		if err != nil {
			break
		}
	}
	s.exit = cmd.Wait()
	return s, nil
}

// command returns `go args`, which an end of ctx interrupts and, when that
// does not help, kills.
func command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}
