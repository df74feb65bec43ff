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
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/egress"
	"github.com/penstock-broker/penstock/internal/seedfile"
)

// openTimeout bounds reaching and migrating the stores at start.
const openTimeout = 60 * time.Second

// serve runs a broker until ctx ends and returns the exit code.
func serve(ctx context.Context, demo bool, stdout, stderr io.Writer) int {
	cfg, err := readConfig(os.Environ())
	if err != nil {
		fmt.Fprintf(stderr, "broker: %v\n", err)
		return exitUsage
	}
	if demo && !cfg.onLoopback() {
		fmt.Fprintf(stderr, "broker: --demo is for loopback only, and BROKER_LISTEN is %q: the tokens of the sample are public\n", cfg.Listen)
		return exitUsage
	}
	hangups := make(chan os.Signal, 1) // registered before the file is opened, so that no signal is missed
	signal.Notify(hangups, syscall.SIGHUP)
	log, file, err := newLogger(cfg, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "broker: %v\n", err)
		return exitUsage
	}
	defer file.Close()
	defer reopenAtHangup(hangups, file, log, stderr)()
	slog.SetDefault(log) // for code without its own logger, such as problem.Write
	redis.SetLogger(redisLog{log})
	if len(cfg.serviceLinks) > 0 {
		log.Info("variables of Kubernetes services are no settings; passed over", "names", cfg.serviceLinks)
	}
	if cfg.MySQLDSN == "" || cfg.RedisURL == "" {
		log.Info("embedded stores: one process, one machine, for development and small installations; set BROKER_MYSQL_DSN and BROKER_REDIS_URL for larger ones",
			"embedded_store", cfg.MySQLDSN == "", "embedded_redis", cfg.RedisURL == "", "data", cfg.DataDir)
	}
	open, cancel := context.WithTimeout(ctx, openTimeout)
	b, err := openBroker(open, cfg, log)
	cancel()
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

// migrate brings the tables of the store up to date.
func migrate(ctx context.Context, stdout, stderr io.Writer) int {
	cfg, err := readConfig(os.Environ())
	if err != nil {
		fmt.Fprintf(stderr, "broker: %v\n", err)
		return exitUsage
	}
	open, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	store, err := openStore(open, cfg)
	if err == nil {
		err = store.Migrate(open)
		if closed := store.Close(); err == nil {
			err = closed
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "broker: %v\n", err)
		return exitStore
	}
	fmt.Fprintln(stdout, "the tables are up to date")
	return exitClean
}

// errSeed means that the seed file cannot be applied.
var errSeed = errors.New("seed file cannot be used")

// seedSetting keeps the fingerprint of the seed file that was applied last.
const seedSetting = "seed"

// applySeeds creates and updates the resources of the seed file, once for each content of the file.
// Later changes through the API stay.
func (b *broker) applySeeds(ctx context.Context) error {
	if b.cfg.SeedFile == "" {
		return nil
	}
	text, err := os.ReadFile(b.cfg.SeedFile)
	if err != nil {
		return fmt.Errorf("%w: %w", errSeed, err)
	}
	seed, warnings, err := seedfile.Parse(text)
	if err != nil {
		return fmt.Errorf("%w: %w", errSeed, err)
	}
	policy, err := egress.ParsePolicy(b.cfg.Egress, b.cfg.EgressAllow)
	if err != nil {
		return err
	}
	seed.Consumers = slices.DeleteFunc(seed.Consumers, func(c seedfile.Consumer) bool {
		if c.CallbackURL == "" {
			return false
		}
		err := policy.CheckURL(c.CallbackURL)
		if err != nil { // err omits the URL, which may contain a secret
			warnings = append(warnings, seedfile.Warning(fmt.Sprintf("consumer %s: the broker may not post to its callback URL: %v; not created", c.ID, err)))
		}
		return err != nil
	})
	for _, w := range warnings {
		b.log.Warn("seed skipped", "reason", w)
	}
	sum := sha256.Sum256(text)
	fingerprint := int64(binary.BigEndian.Uint64(sum[:8]) >> 1)
	applied, err := b.store.Setting(ctx, seedSetting)
	if err == nil && applied != fingerprint {
		if err = seedfile.Apply(ctx, b.store, seed); err == nil {
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
