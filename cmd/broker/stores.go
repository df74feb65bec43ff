package main

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/redisq"
)

// embeddedTimeout bounds a call of the embedded Redis. It is never away, only slow when the
// machine is busy.
const embeddedTimeout = 10 * time.Second

// openTimeout bounds reaching the stores at start. Bringing large tables up to date takes longer, and has no bound.
const openTimeout = 60 * time.Second

// openStore opens the store. Where tell is not nil, it is told what takes time.
func openStore(ctx context.Context, cfg config, tell func(message string, args ...any)) (*durable.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	o := durable.Options{IdempotencyRetention: cfg.IdempotencyRetention, Tell: tell}
	open, from, setting := durable.OpenSQLite, cfg.DataDir, "BROKER_DATA_DIR"
	if cfg.MySQLDSN != "" {
		open, from, setting = durable.OpenMySQL, cfg.MySQLDSN, cfg.dsnSetting()
	}
	store, err := open(ctx, from, o)
	if err != nil {
		return nil, aboutSetting(setting, err)
	}
	store.UseKeys(cfg.sealKeys)
	return store, nil
}

// aboutSetting says which setting an error is about.
func aboutSetting(setting string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", setting, err)
}

func (b *broker) openQueue(ctx context.Context) (*redisq.RunWatch, error) {
	url, timeout := b.cfg.RedisURL, time.Duration(0)
	if url == "" {
		timeout = embeddedTimeout
		var err error
		if b.embedded, err = startEmbeddedRedis(); err != nil {
			return nil, err
		}
		url = b.embedded.URL()
	}
	client, watch, err := redisq.Connect(ctx, redisq.ConnectOptions{URL: url, Master: b.cfg.RedisMaster, Timeout: timeout,
		Away: func(err error) {
			b.redisAway.Store(true)
			b.log.Warn("Redis cannot be reached; the broker starts without it, and delivers when it is there", "setting",
				"BROKER_REDIS_URL", "error", err)
		}})
	if err != nil {
		return nil, aboutSetting("BROKER_REDIS_URL", err)
	}
	b.redis = client
	b.evictions.begin(ctx, b)
	b.queue = redisq.New(client, redisq.Options{Prefix: b.keyPrefix(), Window: b.cfg.QueueWindow, Runs: watch,
		Logger: b.log})
	return watch, nil
}

// redisLook is the interval at which a broker looks for a Redis that was away when it began.
const redisLook = time.Second

// awaitRedis waits for a Redis that was away when this broker began, and makes up for what the start could
// not look at: what Redis remembers of the store, and whether the settings fit it. Where they do not, the
// broker ends.
func (b *broker) awaitRedis(ctx context.Context) {
	for b.redisAway.Load() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(redisLook):
		}
		err := redisq.Check(ctx, b.redis)
		switch {
		case err == nil:
			err = b.recallHistory(ctx)
		case redisq.Away(err):
			continue
		}
		if err != nil && ctx.Err() == nil {
			select {
			case b.failed <- fmt.Errorf("%w: %w", errStore, err):
			default: // the broker is already stopping
			}
			return
		}
		if b.outdated {
			b.warn(otherHistory)
			b.restored()
		}
		b.redisAway.Store(false)
		b.evictions.begin(ctx, b)
		b.log.Info("Redis is there; deliveries begin")
	}
}
