//go:build unix

// Command relayreal relays real webhook bodies through a real broker and proves
// what came out:
//
//	relayreal -broker bin/broker -examples index.json [-expect 329]
//
// It runs a broker process on the embedded stores and then one on MySQL (or
// MariaDB) and Redis. Each gets one push and one pull consumer on one channel,
// and every body with its event name and a delivery ID as metadata headers.
// Both consumers must have received each body once, byte for byte, with its
// headers, at the first attempt, and the broker must say the same. It prints a
// table and exits with 1 when anything deviates.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/penstock-broker/penstock/internal/test/servers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	ok, err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "relayreal:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run reports whether nothing deviated. An error means that it could not be tried.
func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	flags := flag.NewFlagSet("relayreal", flag.ContinueOnError)
	binary := flags.String("broker", "bin/broker", "the broker program")
	path := flags.String("examples", "", "index.json of the examples")
	expect := flags.Int("expect", 0, "how many bodies the file must hold; 0: any number")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	text, err := os.ReadFile(*path)
	if err != nil {
		return false, err
	}
	examples, err := parseExamples(text)
	if err != nil {
		return false, err
	}
	if *expect != 0 && len(examples) != *expect {
		return false, fmt.Errorf("%s holds %d bodies, not %d", *path, len(examples), *expect)
	}

	// The servers first: without them nothing is tried, rather than half of it.
	pair, err := servers.StartPair()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, pair.Close()) }()
	dsn, drop, err := freshDatabase(ctx, pair.MySQL)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	data, err := os.MkdirTemp("", "relayreal-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()

	worlds := []struct {
		name string
		env  []string
	}{
		{"embedded", []string{"BROKER_DATA_DIR=" + data}},
		{"MySQL + Redis", []string{"BROKER_MYSQL_DSN=" + dsn, "BROKER_REDIS_URL=" + pair.Redis, "BROKER_DATA_DIR=" + data}},
	}
	fmt.Fprintf(out, "MySQL: %s; Redis: %s\n", pair.MySQLVersion, pair.RedisVersion)
	var results []result
	for _, w := range worlds {
		r, err := relay(ctx, *binary, w.env, examples)
		if err != nil {
			return false, fmt.Errorf("on %s: %w", w.name, err)
		}
		r.stores = w.name
		results = append(results, r)
	}
	return report(out, results), nil
}
