package hotpath

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/failpoint"
	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// settleStored tells Redis of stored outcomes until o.unsettled is closed. Storing
// does not wait for it: a Redis that hangs, or one node of it, must not keep the
// outcomes of deliveries from the disk.
func (o *outcomes) settleStored(ctx context.Context) {
	for range o.unsettled {
		o.mu.Lock()
		batch := o.stored
		o.stored = nil
		o.mu.Unlock()
		_ = guard.Do("settling of outcomes", func() error { // without it the leases end by themselves
			o.settle(ctx, batch)
			return nil
		})
		failpoint.At(failpoint.AfterSettle)
		// After Redis: who is told that a job is over may ask for its next state at once.
		o.finish(batch, nil)
	}
}

// settle ends the leases of stored outcomes. Redis may fail here without harm.
func (o *outcomes) settle(ctx context.Context, batch []result) {
	acks := map[uint32][]ident.ID{}
	type nacks struct {
		leases []redisq.Lease
		delays []time.Duration
	}
	retries := map[uint32]*nacks{}
	for _, r := range batch {
		k := r.outcome.ConsumerNo
		if r.outcome.Kind != durable.OutcomeRetry {
			acks[k] = append(acks[k], r.outcome.ID)
			continue
		}
		n := retries[k]
		if n == nil {
			n = &nacks{}
			retries[k] = n
		}
		n.leases = append(n.leases, r.lease)
		n.delays = append(n.delays, r.delay)
	}
	if len(acks) > 0 {
		batches := make([]redisq.Done, 0, len(acks))
		for k, ids := range acks {
			batches = append(batches, redisq.Done{Consumer: k, IDs: ids})
		}
		if _, errs := o.queue.AckMany(ctx, batches); firstError(errs) != nil {
			o.metrics.SettleErrors.Inc()
			o.log.Debug("acks not taken by Redis; the leases will end", "error", firstError(errs))
		}
	}
	for k, n := range retries {
		if _, err := o.queue.Nack(ctx, k, n.leases, n.delays); err != nil {
			o.metrics.SettleErrors.Inc()
			o.log.Debug("nacks not taken by Redis; the leases will end", "error", err)
			continue
		}
		for _, d := range n.delays {
			o.wake(k, d)
		}
	}
}
