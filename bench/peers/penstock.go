package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/penstock-broker/penstock/bench"
)

// measurePenstock starts the stores, and has `bench run` start a broker on
// them and load it.
func measurePenstock(ctx context.Context, s *site, o *options, x *sample) (err error) {
	g, err := newGroup(s)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := g.Close(); err == nil {
			err = cerr
		}
	}()
	starting, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	dsn, err := startMariaDB(starting, s, g)
	if err != nil {
		return err
	}
	addr, redisVersion, err := startRedis(starting, s, g, "everysec")
	if err != nil {
		return err
	}
	file := filepath.Join(g.folder, "report.json")
	code, words, err := runBench(ctx, g.folder, o, x.Publishers, dsn, "redis://"+addr+"/0", file)
	if err != nil {
		return err
	}
	if code != bench.ExitOK && code != bench.ExitPromise && code != bench.ExitUnproven {
		return fmt.Errorf("bench run ended with code %d:\n%s", code, words)
	}
	r, err := bench.ReadReport(file)
	if err != nil {
		return fmt.Errorf("bench run ended with code %d: %w\n%s", code, err, words)
	}
	x.Result = r.Results[0]
	x.Durability = r.Durability
	x.Version = fmt.Sprintf("%s; %s", brokerVersion(r.Versions["broker"]), redisVersion)
	if x.Result.Ledger == nil {
		return errors.New("the report of bench run has no ledger")
	}
	if x.Result.Messages == 0 {
		return fmt.Errorf("nothing was acknowledged: %v", x.Result.ErrorSamples)
	}
	return nil
}

// brokerVersion returns the broker's version from the report.
func brokerVersion(told any) string {
	v, ok := told.(map[string]any)
	if !ok {
		return "Penstock of unknown version"
	}
	return fmt.Sprintf("Penstock %v, commit %v, %v", v["Version"], v["Commit"], v["Go"])
}

// runBench runs the harness and returns its exit code and its last words.
func runBench(ctx context.Context, folder string, o *options, connections int, dsn, redis, file string) (int, string, error) {
	binary, err := filepath.Abs(o.broker)
	if err != nil {
		return 0, "", err
	}
	// The harness is built beside the broker.
	cmd := exec.Command(filepath.Join(filepath.Dir(binary), "bench"), append([]string{
		"run", "--broker-binary", binary, "--mysql", dsn, "--redis", redis, "--json", file,
		"--connections", strconv.Itoa(connections), "--payload", strconv.Itoa(o.payload), "--push-consumers", "1",
		"--warmup", o.warmup.String(), "--duration", o.duration.String(), "--drain", o.drain.String(),
	}, o.brokerFlags...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+folder) // the files of its broker are removed with the folder
	// SIGTERM lets it stop the broker that it started.
	p, err := start("bench", folder, syscall.SIGTERM, cmd)
	if err != nil {
		return 0, "", err
	}
	p.grace = time.Minute // it asks about missing messages and stops a broker
	// Start, ledger inquiry and stop have bounds of their own, below this one.
	const overhead = 5 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, o.warmup+o.duration+o.drain+overhead)
	defer cancel()
	select {
	case <-p.exited:
	case <-ctx.Done():
		return 0, "", errors.Join(context.Cause(ctx), p.stop())
	}
	return cmd.ProcessState.ExitCode(), p.lastWords(), nil
}
