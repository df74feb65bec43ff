package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-broker/penstock/internal/feature/preflight"
	"github.com/penstock-broker/penstock/internal/tool/sentence"
)

const checkHelp = `It looks at the settings, the data folder, the store, Redis and the archive, and changes nothing; to a bucket of
the archive it writes a small object, which it removes. A line begins with ok,
note (good to know), mend (what to do) or unreachable. Exit code 0: nothing is to be mended. 1: something is.
3: a store could not be reached. ` + settingsHelp

func prepareCheck(f *flag.FlagSet) func([]string, io.Writer, io.Writer) int {
	asJSON := f.Bool("json", false, "print one JSON object")
	starting := f.Bool("starting", false, "the exit code counts only what keeps a broker from starting")
	return signalled(func(ctx context.Context, stdout, stderr io.Writer) int {
		return check(ctx, *asJSON, *starting, stdout, stderr)
	})
}

// check says what a broker with these settings would start on. The file of a seed is not read: that
// is for the broker.
func check(ctx context.Context, asJSON, starting bool, stdout, stderr io.Writer) int {
	cfg, err := readConfig(os.Environ(), (*config).checkFolder)
	o := preflight.Options{Version: version, MySQLDSN: cfg.MySQLDSN, Others: cfg.stores, RedisURL: cfg.RedisURL,
		RedisMaster: cfg.RedisMaster, DataDir: cfg.DataDir, MaxBody: cfg.maxBody(), Journal: cfg.journalLimit,
		Starting: starting, ArchiveDir: cfg.ArchiveDir}
	if store := cfg.archiveStore; store != nil {
		o.Bucket, o.Probe = store.Root(), store.Probe
	}
	var all settingsError
	switch {
	case errors.As(err, &all):
		for _, m := range all {
			o.Faults = append(o.Faults, m.text)
		}
	case err != nil:
		o.Faults = []string{sentence.Of(err)}
	}
	redis.SetLogger(quietRedis{}) // each error has its line
	r := preflight.Run(ctx, o)
	write := r.Print
	if asJSON {
		write = r.JSON
	}
	if err := write(stdout); err != nil {
		fmt.Fprintf(stderr, "broker check: %s\n", strings.TrimSpace(sentence.Of(err)))
	}
	return r.Code
}

type quietRedis struct{}

func (quietRedis) Printf(context.Context, string, ...any) {}
