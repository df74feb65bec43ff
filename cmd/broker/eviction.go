package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/redisq"
)

// evictionLook is the interval at which a broker asks whether Redis drops keys now.
const evictionLook = 10 * time.Second

// evictions notices a Redis whose settings were changed at run time so that it drops keys of the queue
// when its memory is full. A dropped key is noticed and rebuilt as after a wipe, but jobs are late, and
// jobs in flight may be repeated. A broker does not start on such a Redis.
type evictions struct{ found atomic.Bool }

// begin warns of a Redis that would drop keys if it had a bound of its memory.
func (e *evictions) begin(ctx context.Context, b *broker) {
	if b.embedded != nil {
		return
	}
	servers, err := redisq.Servers(ctx, b.redis)
	if err != nil {
		b.log.Debug("maxmemory-policy of Redis cannot be read", "error", err)
	}
	for _, s := range servers {
		if s.MayEvict() {
			b.log.Warn("Redis may evict keys of the queue once it has a maxmemory; set maxmemory-policy noeviction",
				"maxmemory_policy", s.Policy)
			return
		}
	}
}

// watch asks until ctx ends.
func (e *evictions) watch(ctx context.Context, b *broker) {
	tick := time.NewTicker(evictionLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			servers, err := redisq.Servers(ctx, b.redis)
			e.look(b, servers, err)
		}
	}
}

// look logs each change once. One that evicts is enough; that none does needs the word of all.
func (e *evictions) look(b *broker, servers []redisq.Server, err error) {
	for _, s := range servers {
		if !s.Evicts() {
			continue
		}
		if e.found.CompareAndSwap(false, true) {
			b.log.Error("Redis drops keys of the queue when its memory is full: jobs will be late, and some repeated; set "+
				"maxmemory-policy noeviction. A broker that starts now refuses this Redis", "maxmemory_policy", s.Policy,
				"maxmemory", s.MaxMemory)
		}
		return
	}
	if err == nil && e.found.CompareAndSwap(true, false) {
		b.log.Info("Redis no longer drops keys of the queue")
	}
}

// metric is 1 while Redis drops keys.
func (e *evictions) metric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "penstock_redis_evicts",
		Help: "1: Redis has a maxmemory and a maxmemory-policy other than noeviction, so it drops keys of the queue."},
		func() float64 {
			if e.found.Load() {
				return 1
			}
			return 0
		})
}
