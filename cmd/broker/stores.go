package main

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/redisq"
)

// embeddedTimeout bounds a call of the embedded Redis. It is never away, only slow when the
// machine is busy.
const embeddedTimeout = 10 * time.Second

func openStore(ctx context.Context, cfg config) (*durable.Store, error) {
	if cfg.MySQLDSN != "" {
		return durable.OpenMySQL(ctx, cfg.MySQLDSN, durable.Options{IdempotencyRetention: cfg.IdempotencyRetention})
	}
	return durable.OpenSQLite(ctx, cfg.DataDir, durable.Options{IdempotencyRetention: cfg.IdempotencyRetention})
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
	client, watch, err := redisq.Connect(ctx, redisq.ConnectOptions{URL: url, Master: b.cfg.RedisMaster, Timeout: timeout})
	if err != nil {
		return nil, err
	}
	b.redis = client
	b.checkEviction(ctx)
	b.queue = redisq.New(client, redisq.Options{Window: b.cfg.QueueWindow, Runs: watch, Logger: b.log})
	return watch, nil
}

// checkEviction warns of a Redis that may drop keys under memory pressure. A dropped key is noticed
// and rebuilt like a wiped Redis, but jobs are late and jobs in flight may be repeated.
func (b *broker) checkEviction(ctx context.Context) {
	if b.embedded != nil {
		return
	}
	policy, err := b.redis.ConfigGet(ctx, "maxmemory-policy").Result()
	if err != nil {
		b.log.Debug("maxmemory-policy of Redis cannot be read", "error", err)
		return
	}
	if p := policy["maxmemory-policy"]; p != "" && p != "noeviction" {
		b.log.Warn("Redis may evict keys of the queue; set maxmemory-policy noeviction", "maxmemory_policy", p)
	}
}
