package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/seedfile"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/sentence"
)

// serve runs a broker until ctx ends and returns the exit code.
func serve(ctx context.Context, demo bool, stdout, stderr io.Writer) int {
	cfg, err := readConfig(os.Environ(), (*config).checkFolder, (*config).readSeed, (*config).checkLogFile, func(c *config, f *faults) {
		if demo && !c.onLoopback() && f.fine("BROKER_LISTEN") {
			f.add("BROKER_LISTEN", "is %q, and --demo is for loopback only: the tokens of the sample are public", c.Listen)
		}
	})
	if err != nil {
		return refuseSettings(stderr, err)
	}
	hangups := make(chan os.Signal, 1) // registered before the file is opened, so that no signal is missed
	signal.Notify(hangups, syscall.SIGHUP)
	log, file, err := newLogger(cfg, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "broker: %v\n", sentence.Of(err))
		return exitUsage
	}
	defer file.Close()
	defer reopenAtHangup(hangups, file, log, stderr)()
	log, reported, err := cfg.report(log)
	if err != nil {
		return refuseSettings(stderr, err)
	}
	defer reported()
	slog.SetDefault(log) // for code without its own logger, such as problem.Write
	redis.SetLogger(redisLog{log})
	cfg.tellPassedOver(log)
	if cfg.MySQLDSN == "" || cfg.RedisURL == "" {
		log.Info("embedded stores: one process, one machine, for development and small installations; set BROKER_MYSQL_DSN and BROKER_REDIS_URL for larger ones",
			"embedded_store", cfg.MySQLDSN == "", "embedded_redis", cfg.RedisURL == "", "data", cfg.DataDir)
	}
	b, err := openBroker(ctx, cfg, log)
	if err != nil {
		log.Error("broker cannot start", "error", err)
		switch {
		case errors.Is(err, errStore):
			return exitStore
		case errors.Is(err, errSeed), errors.Is(err, errSettings):
			return exitUsage
		}
		return exitStart
	}
	defer b.close()
	if demo {
		sample, err := startDemo(ctx, b, stdout)
		if err != nil {
			log.Error("the demo cannot start", "error", err)
			return exitStart
		}
		defer sample.Close()
	}
	if err := b.Run(ctx); err != nil {
		log.Error("broker died", "error", err)
		return exitStart
	}
	log.Info("stopped")
	return exitClean
}

// tellPassedOver says which variables count for nothing.
func (c *config) tellPassedOver(log *slog.Logger) {
	if len(c.serviceLinks) > 0 {
		log.Info("variables of Kubernetes services are no settings; passed over", "names", c.serviceLinks)
	}
	if len(c.misnamed) > 0 {
		log.Warn("variables whose names look like those of settings, which begin with BROKER_, are passed over", "names", c.misnamed)
	}
	for _, text := range c.passedOver {
		log.Warn("a variable counts for nothing", "problem", text)
	}
}

// migrate brings the tables of the store up to date.
func migrate(ctx context.Context, stdout, stderr io.Writer) int {
	cfg, err := readConfig(os.Environ(), (*config).checkFolder)
	if err != nil {
		return refuseSettings(stderr, err)
	}
	for of := range cfg.eachStore() {
		store, err := openStore(ctx, of, func(message string, _ ...any) { fmt.Fprintln(stderr, "broker:", message) })
		if err == nil {
			err = store.Migrate(ctx)
			if closed := store.Close(); err == nil {
				err = closed
			}
		}
		if err != nil {
			fmt.Fprintf(stderr, "broker: %v\n", sentence.Of(err))
			return exitStore
		}
	}
	fmt.Fprintln(stdout, "the tables are up to date")
	return exitClean
}

// errSeed means that the seed file cannot be applied.
var errSeed = errors.New("BROKER_SEED_FILE: the seed file cannot be used")

// seedSetting keeps the fingerprint of the seed file that was applied last.
const seedSetting = "seed"

// A seedSource is a seed file that was read with the settings.
type seedSource struct {
	seed        seedfile.Seed
	warnings    []seedfile.Warning
	fingerprint int64
}

// readSeed reads the seed file.
func (c *config) readSeed(f *faults) {
	if c.SeedFile == "" {
		return
	}
	text, err := os.ReadFile(c.SeedFile)
	if err != nil {
		f.refuse("BROKER_SEED_FILE", "BROKER_SEED_FILE: the seed file cannot be read: %v", err)
		return
	}
	sum := sha256.Sum256(text)
	c.seed = &seedSource{fingerprint: int64(binary.BigEndian.Uint64(sum[:8]) >> 1)}
	c.seed.seed, c.seed.warnings, err = seedfile.Parse(text)
	var syntax *seedfile.SyntaxError
	if errors.As(err, &syntax) {
		for _, line := range syntax.Lines {
			f.refuse("BROKER_SEED_FILE", "BROKER_SEED_FILE: line %d of the seed file is neither [section] nor key=value, nor a comment", line)
		}
	}
}

// applySeeds creates and updates the resources of the seed file, once for each content of the file.
// Later changes through the API stay.
func (b *broker) applySeeds(ctx context.Context) error {
	if b.cfg.seed == nil || b.first != nil {
		return nil
	}
	seed, warnings := b.cfg.seed.seed, b.cfg.seed.warnings
	policy, err := egress.ParsePolicy(b.cfg.Egress, b.cfg.EgressAllow)
	if err != nil {
		return err
	}
	senders, _, _ := b.cfg.newSenders(policy, nil, nil)
	seed.Consumers = slices.DeleteFunc(seed.Consumers, func(c seedfile.Consumer) bool {
		if c.CallbackURL == "" {
			return false
		}
		err := senders.Check(c.CallbackURL)
		if err != nil { // err omits the URL, which may contain a secret
			said := egress.Say(err)
			var refused *problem.Problem
			if errors.As(err, &refused) {
				said = strings.TrimSuffix(refused.Detail, ".")
			}
			warnings = append(warnings, seedfile.Warning(fmt.Sprintf("consumer %s: the broker may not post to its callback URL: %s; not created", c.ID, said)))
		}
		return err != nil
	})
	for _, w := range warnings {
		b.log.Warn("seed skipped", "reason", w, "setting", "BROKER_SEED_FILE")
	}
	fingerprint := b.cfg.seed.fingerprint
	applied, err := b.store.Setting(ctx, seedSetting)
	if err == nil && applied != fingerprint {
		if err = seedfile.Apply(ctx, seedStore{b.store, b.portray, "seed file"}, seed); err == nil {
			err = b.store.SetSetting(ctx, seedSetting, fingerprint)
		}
	}
	switch {
	case errors.Is(err, durable.ErrNotFound), errors.Is(err, durable.ErrRejected), errors.Is(err, durable.ErrConsumerInvalid):
		return fmt.Errorf("%w: %w", errSeed, err) // the store works, but the file has an impossible request
	case err != nil:
		return fmt.Errorf("%w: %w", errStore, err)
	}
	return nil
}
