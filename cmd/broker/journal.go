package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/hotpath/cluster"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/standby"
	"github.com/penstock-broker/penstock/internal/feature/journal"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/tool/sentence"
)

// A journalSigner signs receipts with a secret of the store, so every broker of the store knows
// the receipts of the others, and no journal is replayed into another store.
type journalSigner struct{ secret []byte }

func newJournalSigner(ctx context.Context, store *durable.Store) (journalSigner, error) {
	secret, err := store.Secret(ctx, "journal")
	return journalSigner{secret}, err
}

func (s journalSigner) sign(part []byte) (sum [4]byte) {
	mac := hmac.New(sha256.New, s.secret)
	mac.Write(part)
	copy(sum[:], mac.Sum(nil))
	return sum
}

// options are those of the journals in the data folder.
func (s journalSigner) options(cfg config, log *slog.Logger) standby.Journals {
	o := journal.Options{MaxBytes: cfg.journalLimit, MaxAge: cfg.JournalMaxAge, Sign: s.sign, Log: log}
	return standby.Journals{
		Sign: s.sign,
		Open: func() (*journal.Journal, error) { return journal.Open(cfg.DataDir, o) },
		Left: func() ([]*journal.Journal, error) {
			left, _, err := journal.Left(cfg.DataDir, o)
			return left, err
		},
	}
}

// journalGauges say what the journals of the broker hold.
func (b *broker) journalGauges() []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "penstock_journal_messages",
			Help: "Messages in the journals of this broker that wait for the store."}, func() float64 {
			return float64(b.plane.JournalState().Waiting)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "penstock_journal_bytes",
			Help: "Size of the journals of this broker."}, func() float64 { return float64(b.plane.JournalState().Bytes) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "penstock_journal_oldest_seconds",
			Help: "Age of the oldest message that waits in a journal of this broker."}, func() float64 {
			return b.plane.JournalState().Oldest.Seconds()
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "penstock_journal_held_messages",
			Help: "Messages in the journals of this broker that wait for a paused channel to be resumed, or for which the " +
				"store fails."}, func() float64 { return float64(b.plane.JournalState().Held) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "penstock_journal_held_bytes",
			Help: "Bytes of the held messages in the journals of this broker."}, func() float64 {
			return float64(b.plane.JournalState().HeldBytes)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "penstock_journal_damaged_files",
			Help: "Files of the journals of this broker that are kept because a piece of them was not understood."},
			func() float64 { return float64(b.plane.JournalState().Damaged) }),
	}
}

// replayJournal stores the messages in the journals of a data folder, each in the store that it is of. It needs the
// stores and no Redis: the brokers that run find the messages there, as they find those of a broker that died.
func replayJournal(ctx context.Context, dir string, stdout, stderr io.Writer) (code int) {
	fail := func(code int, err error) int {
		fmt.Fprintf(stderr, "broker: journal replay: %v\n", sentence.Of(err))
		return code
	}
	cfg, err := readConfig(os.Environ())
	if err != nil {
		return refuseSettings(stderr, err)
	}
	log, file, err := newLogger(cfg, stderr)
	if err != nil {
		return fail(exitUsage, err)
	}
	defer file.Close()
	folders, err := cfg.journalsIn(dir)
	if err != nil {
		return fail(exitUsage, err)
	}
	var became standby.Drained
	for of := range cfg.eachStore() {
		if folder, ok := folders[of.storeName]; ok {
			one, failed, err := replayStore(ctx, of, folder, log)
			became.Stored, became.Refused, became.Lost = became.Stored+one.Stored, became.Refused+one.Refused,
				became.Lost+one.Lost
			if err != nil { // the journals of the other stores need not wait
				code = fail(failed, err)
			}
		}
	}
	fmt.Fprintf(stdout, "%d messages are stored, %d cannot be, %d are lost\n", became.Stored, became.Refused, became.Lost)
	return code
}

// journalsIn returns the data folders of the stores with journals below dir, by the names of the stores.
func (c *config) journalsIn(dir string) (map[string]string, error) {
	folders := map[string]string{}
	add := func(name, folder string) {
		if info, err := os.Stat(filepath.Join(folder, "journal")); err == nil && info.IsDir() {
			folders[name] = folder
		}
	}
	add("", dir)
	parts, err := os.ReadDir(filepath.Join(dir, storesFolder))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, part := range parts {
		add(part.Name(), filepath.Join(dir, storesFolder, part.Name()))
	}
	for name := range folders {
		if _, named := c.stores[name]; !named && name != "" {
			return nil, fmt.Errorf("%s has a journal of the store %s, which BROKER_MYSQL_DSNS does not name", dir, name)
		}
	}
	if len(folders) == 0 {
		return nil, fmt.Errorf("%s has no journal", dir)
	}
	return folders, nil
}

// replayStore stores the messages in the journals of the data folder of one store. code: the exit code of an error.
func replayStore(ctx context.Context, cfg config, dir string, log *slog.Logger) (became standby.Drained, code int,
	err error) {
	store, err := openStore(ctx, cfg, log.Info)
	if err != nil {
		return became, exitStore, err
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		return became, exitStore, err
	}
	open, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	signer, err := newJournalSigner(open, store)
	if errors.Is(err, durable.ErrKeys) {
		return became, exitUsage, ofKeys(err)
	}
	if err != nil {
		return became, exitStore, err
	}
	left, busy, err := journal.Left(dir, journal.Options{MaxBytes: cfg.journalLimit, MaxAge: cfg.JournalMaxAge,
		Sign: signer.sign, Log: log})
	defer func() {
		for _, j := range left {
			_ = j.Close()
		}
	}()
	if busy {
		return became, exitStart, fmt.Errorf("%w: it replays its journal itself", journal.ErrInUse)
	}
	if err == nil {
		became, err = replayInto(ctx, store, cfg, log, signer, left)
	}
	return became, exitStart, err
}

// replayInto stores the messages of journals.
func replayInto(ctx context.Context, store *durable.Store, cfg config, log *slog.Logger, signer journalSigner,
	left []*journal.Journal) (became standby.Drained, err error) {
	cat := catalogue.New(store, log)
	if err := cat.Refresh(ctx); err != nil {
		return became, err
	}
	host, _ := os.Hostname()
	node, err := cluster.New(ctx, store, nodeName(host, os.Getpid(), cfg)+" (journal replay)"+cluster.NoFailSafe, log)
	if err != nil {
		return became, err
	}
	bodies, counts := newBodies(cfg.maxBody()), metrics.New(prometheus.NewRegistry())
	submitter := accept.New(accept.Options{
		Store: store, Catalogue: cat, Node: node, Admission: accept.NewAdmission(waitingRequests),
		Committed: func([]*durable.Message) {}, Bodies: bodies, Metrics: counts, Log: log,
	})
	replayer := standby.New(standby.Options{Submitter: submitter, Receipts: store, Catalogue: cat, Node: node,
		Bodies: bodies, Journals: signer.options(cfg, log), Metrics: counts, Log: log})
	background, stop := context.WithCancel(ctx)
	var keepers sync.WaitGroup
	keepers.Go(func() { _ = node.Run(background) })
	keepers.Go(func() { _ = cat.Run(background) })
	for _, j := range left {
		one, e := replayer.Drain(ctx, j)
		became.Stored, became.Refused, became.Lost = became.Stored+one.Stored, became.Refused+
			one.Refused, became.Lost+one.Lost
		err = errors.Join(err, e)
	}
	stop()
	keepers.Wait()
	return became, errors.Join(err, node.Release(context.WithoutCancel(ctx)))
}
