package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	penstock "github.com/penstock-broker/penstock/clients/go"
	"github.com/penstock-broker/penstock/internal/feature/outbox"
	"github.com/penstock-broker/penstock/internal/tool/sentence"
)

// outboxDSN is the setting for a DSN that no list of processes shows; with _FILE it names a file.
const outboxDSN = "PENSTOCK_OUTBOX_DSN"

const outboxHelp = "DSN is of the database with the table: mysql://user:password@host:3306/database, " +
	"postgres://user:password@host:5432/database or sqlite:/path/of/the.db.\nWithout --dsn it is that of " +
	outboxDSN + ", or of the file that " + outboxDSN + fileSuffix + " names.\nThe broker and its tokens come from " +
	"PENSTOCK_URL and the other variables of docs/clients.md.\nSeveral of these commands may run " +
	"side by side. See docs/how-to/outbox.md."

// outboxFlags are the flags of broker outbox.
type outboxFlags struct {
	dsn, table string
	once       bool
	poll       time.Duration
}

func prepareOutbox(f *flag.FlagSet) func([]string, io.Writer, io.Writer) int {
	var o outboxFlags
	f.StringVar(&o.dsn, "dsn", "", "`DSN` of the database")
	f.StringVar(&o.table, "table", "penstock_outbox", "`NAME` of the table")
	f.BoolVar(&o.once, "once", false, "publish what is due, then exit")
	f.DurationVar(&o.poll, "poll", 500*time.Millisecond, "time between two looks at an empty table")
	return signalled(func(ctx context.Context, stdout, stderr io.Writer) int {
		return relayOutbox(ctx, o, stdout, stderr)
	})
}

// relayOutbox publishes the rows of an outbox until a signal comes, or once.
func relayOutbox(ctx context.Context, o outboxFlags, stdout, stderr io.Writer) int {
	fail := func(code int, err error) int {
		fmt.Fprintf(stderr, "broker outbox: %s\n", sentence.Of(err))
		return code
	}
	dsn, err := dsnOfOutbox(o.dsn)
	if err != nil {
		return fail(exitUsage, err)
	}
	if o.poll < 10*time.Millisecond || o.poll > time.Hour {
		return fail(exitUsage, fmt.Errorf("--poll must be 10ms to 1h"))
	}
	log := slog.New(slog.NewJSONHandler(stdout, nil))
	client, err := penstock.New(penstock.Options{Logger: log})
	if err != nil {
		return fail(exitUsage, err)
	}
	defer client.Close()
	relay, err := outbox.Open(outbox.Options{DSN: dsn, Table: o.table, Poll: o.poll, To: client, Log: log})
	if err != nil {
		return fail(exitUsage, err)
	}
	defer func() { _ = relay.Close() }()
	if o.once {
		sent, err := relay.Once(ctx)
		fmt.Fprintf(stdout, "%d messages published\n", sent)
		if err != nil {
			return fail(exitStore, err)
		}
		if n := relay.Refused(); n > 0 {
			return fail(exitStart, fmt.Errorf("%d rows were refused: the column error of the table says why", n))
		}
		return exitClean
	}
	log.Info("the outbox is read", "table", o.table, "poll", o.poll.String())
	if err := relay.Run(ctx); err != nil {
		return fail(exitStore, err)
	}
	log.Info("stopped")
	return exitClean
}

// dsnOfOutbox returns the DSN of the flag or of the environment.
func dsnOfOutbox(given string) (string, error) {
	if file := os.Getenv(outboxDSN + fileSuffix); given == "" && file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("%s%s: %w", outboxDSN, fileSuffix, err)
		}
		given = strings.TrimRight(string(text), "\r\n")
	}
	if given = cmp.Or(given, os.Getenv(outboxDSN)); given == "" {
		return "", fmt.Errorf("--dsn or %s is missing", outboxDSN)
	}
	return given, nil
}
