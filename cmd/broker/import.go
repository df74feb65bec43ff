package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/hotpath/cluster"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/publish"
	"github.com/penstock-broker/penstock/internal/feature/audit"
	"github.com/penstock-broker/penstock/internal/feature/importer"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/sentence"
	"github.com/penstock-broker/penstock/internal/tool/usage"
)

// importFrom is the only broker that there is an import from.
const importFrom = "webhook-broker"

// importDSN is the setting for a DSN that no list of processes shows; with _FILE it names a file.
const importDSN = "PENSTOCK_IMPORT_DSN"

const importHelp = "It reads the MySQL database of the older implementation, changes nothing there, and stores what " +
	"is missing here:\na second run goes on where one ended. DSN: mysql://user:password@host:3306/database. Without " +
	"--dsn it is that of\n" + importDSN + ", or of the file that " + importDSN + fileSuffix + " names, or that of the " +
	"file of --seed.\nExit code 0: everything is here. 3: a store or the database failed. 4: some rows cannot be " +
	"imported, or are missing;\neach is named. " + settingsHelp + "\nAn embedded store is in use by its broker: stop " +
	"it for the import. See docs/how-to/move-from-webhook-broker.md."

// importFlags are the flags of broker import.
type importFlags struct {
	dsn, seed                                string
	dryRun, follow, paused, resume, openOnly bool
	poll                                     time.Duration
}

func prepareImport(f *flag.FlagSet) func([]string, io.Writer, io.Writer) int {
	var o importFlags
	f.StringVar(&o.dsn, "dsn", "", "`DSN` of the database of the older implementation")
	f.StringVar(&o.seed, "seed", "", "INI `FILE` of the older implementation")
	f.BoolVar(&o.dryRun, "dry-run", false, "say what would be imported into an empty broker, and change nothing")
	f.BoolVar(&o.follow, "follow", false, "go on with what is new until SIGINT or SIGTERM; new consumers are paused")
	f.BoolVar(&o.paused, "paused", false, "pause new consumers also without --follow")
	f.BoolVar(&o.resume, "resume", false, "resume the consumers that an import has paused, once everything is here")
	f.BoolVar(&o.openOnly, "open-only", false, "leave out messages whose jobs are all delivered")
	f.DurationVar(&o.poll, "poll", 2*time.Second, "time between two looks with --follow")
	return func(args []string, stdout, stderr io.Writer) int {
		err := usage.Parse(f, args[1:]) // flags may stand behind the name, too
		switch {
		case errors.Is(err, flag.ErrHelp):
			fmt.Fprint(stdout, "Usage: broker import webhook-broker [--dsn DSN] [--seed FILE] [--dry-run|--follow]\n\nFlags:\n")
			usage.Help(f, stdout)
			fmt.Fprintf(stdout, "\n%s\n", importHelp)
			return exitClean
		case err == nil && f.NArg() > 0:
			err = fmt.Errorf("unexpected arguments %q", f.Args())
		case err == nil:
			err = o.check()
		}
		if err != nil {
			fmt.Fprintf(stderr, "broker import: %s\n", sentence.Of(err))
			return exitUsage
		}
		return withSignals(func(ctx context.Context) int { return importOld(ctx, o, stdout, stderr) })
	}
}

func (o *importFlags) check() error {
	switch {
	case o.dryRun && (o.follow || o.resume):
		return errors.New("--dry-run changes nothing: it goes with neither --follow nor --resume")
	case o.follow && o.resume:
		return errors.New("--resume is for the last run, after --follow: the old broker must not deliver any more")
	case o.poll < 10*time.Millisecond || o.poll > time.Hour:
		return errors.New("--poll must be 10ms to 1h")
	}
	return nil
}

// importOld runs an import, and returns the exit code.
func importOld(ctx context.Context, o importFlags, stdout, stderr io.Writer) int {
	fail := func(code int, err error) int {
		fmt.Fprintf(stderr, "broker import: %s\n", sentence.Of(err))
		return code
	}
	cfg, err := readConfig(os.Environ())
	if err != nil {
		return refuseSettings(stderr, err)
	}
	seed, dsn, err := o.source()
	if err != nil {
		return fail(exitUsage, err)
	}
	seed.Print(stdout)
	log, file, err := newLogger(cfg, stderr)
	if err != nil {
		return fail(exitUsage, err)
	}
	defer file.Close()
	old, err := importer.OpenOld(ctx, dsn)
	if err != nil {
		return fail(exitStore, err)
	}
	defer func() { _ = old.Close() }()
	if o.dryRun { // of an empty broker, which is thrown away
		cfg.MySQLDSN = ""
		if cfg.DataDir, err = os.MkdirTemp("", "penstock-dry-run-"); err != nil {
			return fail(exitStart, err)
		}
		defer func() { _ = os.RemoveAll(cfg.DataDir) }()
	}
	store, err := openStore(ctx, cfg, log.Info)
	if err != nil {
		return fail(exitStore, err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		return fail(exitStore, err)
	}
	r, err := importInto(ctx, store, cfg, log, importer.Options{Old: old, Seed: seed, DryRun: o.dryRun,
		Follow: o.follow, Paused: o.paused || o.follow, Resume: o.resume, OpenOnly: o.openOnly, Poll: o.poll, Out: stdout})
	switch {
	case err != nil:
		return fail(exitStore, fmt.Errorf("%w; what is imported stays, and another run goes on", err))
	case !r.Complete():
		return exitStart
	}
	return exitClean
}

// source reads the INI file and finds the DSN of the database.
func (o *importFlags) source() (seed importer.Seed, dsn string, err error) {
	if o.seed != "" {
		text, err := os.ReadFile(o.seed)
		if err == nil {
			seed, err = importer.ReadSeed(text)
		}
		if err != nil {
			return seed, "", fmt.Errorf("--seed: %w", err)
		}
	}
	if file := os.Getenv(importDSN + fileSuffix); o.dsn == "" && file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return seed, "", fmt.Errorf("%s%s: %w", importDSN, fileSuffix, err)
		}
		o.dsn = strings.TrimRight(string(text), "\r\n")
	}
	if dsn = cmp.Or(o.dsn, os.Getenv(importDSN), seed.DSN); dsn == "" {
		return seed, "", fmt.Errorf("--dsn or %s is missing, and no file of --seed names a MySQL database", importDSN)
	}
	return seed, dsn, nil
}

// importInto runs an import beside the brokers of a store, or instead of that of an embedded one: as one of them,
// which delivers nothing. It needs no Redis.
func importInto(ctx context.Context, store *durable.Store, cfg config, log *slog.Logger,
	o importer.Options) (r *importer.Report, err error) {
	prints, err := newPrinter(ctx, store)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	node, err := cluster.New(ctx, store, nodeName(host, os.Getpid(), cfg)+" (import)"+cluster.NoFailSafe, log)
	if err != nil {
		return nil, err
	}
	cat, counts, bodies := catalogue.New(store, log), metrics.New(prometheus.NewRegistry()), newBodies(cfg.maxBody())
	submitter := accept.New(accept.Options{Store: store, Catalogue: cat, Node: node,
		Admission: accept.NewAdmission(waitingRequests), Committed: func([]*durable.Message) {}, Bodies: bodies,
		Metrics: counts, Log: log})
	policy, err := egress.ParsePolicy(cfg.Egress, cfg.EgressAllow)
	if err != nil {
		return nil, errors.Join(err, node.Release(context.WithoutCancel(ctx)))
	}
	o.Store = importStore{store, seedStore{store, audit.Portray(prints), "import"}}
	o.Catalogue, o.NowMs, o.Egress = cat, node.NowMs, policy
	o.TokenHeader, o.Log = cfg.ConsumerTokenHeader, log
	o.Publisher = publish.New(publish.Options{Submitter: submitter, Catalogue: cat, MaxBody: cfg.maxBody(),
		NowMs: node.NowMs, TokenHeader: cfg.ConsumerTokenHeader, Bodies: bodies, Receipts: store, Metrics: counts})
	background, stop := context.WithCancel(context.WithoutCancel(ctx)) // what was submitted has its outcome
	var keepers sync.WaitGroup
	keepers.Go(func() { _ = node.Run(background) })
	keepers.Go(func() { _ = cat.Run(background) })
	keepers.Go(func() { submitter.Run(background) })
	r, err = importer.New(o).Run(ctx)
	stop()
	keepers.Wait()
	return r, errors.Join(err, node.Release(context.WithoutCancel(ctx)))
}

// An importStore writes what an import changes of resources into the audit log.
type importStore struct {
	*durable.Store
	audited seedStore
}

// PutProducer implements importer.Store, as the others do.
func (s importStore) PutProducer(ctx context.Context, p durable.Put) (durable.Producer, bool, error) {
	return s.audited.PutProducer(ctx, p)
}

func (s importStore) PutChannel(ctx context.Context, p durable.Put) (durable.Channel, bool, error) {
	return s.audited.PutChannel(ctx, p)
}

func (s importStore) PutConsumer(ctx context.Context, p durable.ConsumerPut) (durable.Consumer, bool, error) {
	return s.audited.PutConsumer(ctx, p)
}

func (s importStore) ChangeState(ctx context.Context, path string, p durable.StateChange) (bool, error) {
	action := "resume consumer"
	if p.To == durable.StatePaused {
		action = "pause consumer"
	}
	_, changed, err := s.SetConsumerState(s.audited.as(ctx, action, path), p)
	return changed, err
}
