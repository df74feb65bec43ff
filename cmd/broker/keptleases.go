package main

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/redisq"
)

// The embedded Redis ends with its process. The workers of pull consumers go on meanwhile, and were
// told until when they have their jobs. So a broker that stops leaves their leases to its next
// start. One that is killed does not: its jobs in flight are given out again.

const (
	// keptLeases bounds the leases of a consumer that are kept.
	keptLeases = 100_000
	// keepWithin bounds the time that keeping and restoring them take.
	keepWithin = 5 * time.Second
)

// keepLeases stores the leases of pull consumers. Nothing claims or ends one any more.
func (b *broker) keepLeases(ctx context.Context) {
	if b.embedded == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, keepWithin)
	defer cancel()
	var kept []durable.KeptLease
	for _, no := range b.catalogue.QueueNos() {
		if k := b.catalogue.ConsumerByNo(no); k == nil || k.Type != durable.Pull {
			continue
		}
		leases, ends, err := b.queue.Leases(ctx, no, keptLeases)
		if err != nil {
			b.log.Warn("leases are not kept for the next start; their jobs will be given out again", "consumer", no,
				"error", err)
			continue
		}
		for i, l := range leases {
			kept = append(kept, durable.KeptLease{ConsumerNo: no, ID: l.ID, Priority: l.Priority, Attempt: l.Attempt,
				Token: l.Token, UntilMs: ends[i].UnixMilli(), Worker: l.Worker})
		}
	}
	if len(kept) == 0 {
		return
	}
	if err := b.store.KeepLeases(ctx, kept); err != nil {
		b.log.Warn("leases are not kept for the next start; their jobs will be given out again", "jobs", len(kept),
			"error", err)
		return
	}
	b.log.Info("leases of pull jobs are kept for the next start", "jobs", len(kept))
}

// restoreLeases gives the embedded Redis the leases that the last broker kept, before anything claims
// or scans. A lease that has ended meanwhile is restored for a moment: it ends as any lost lease.
func (b *broker) restoreLeases(ctx context.Context) {
	if b.embedded == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, keepWithin)
	defer cancel()
	kept, err := b.store.TakeLeases(ctx)
	if err != nil {
		b.log.Warn("leases of the last start cannot be read; their jobs will be given out again", "error", err)
		return
	}
	type group struct {
		consumer uint32
		untilMs  int64
	}
	groups := map[group][]redisq.Lease{}
	for _, l := range kept {
		g := group{l.ConsumerNo, l.UntilMs}
		groups[g] = append(groups[g], redisq.Lease{ID: l.ID, Priority: l.Priority, Attempt: l.Attempt, Token: l.Token,
			Worker: l.Worker})
	}
	restored := 0
	for g, leases := range groups {
		if k := b.catalogue.ConsumerByNo(g.consumer); k == nil || k.Deleted() {
			continue
		}
		left := max(time.Until(time.UnixMilli(g.untilMs)), time.Millisecond)
		if _, err := b.queue.RestoreLeases(ctx, g.consumer, leases, left); err != nil {
			b.log.Warn("leases cannot be restored; their jobs will be given out again", "consumer", g.consumer, "jobs",
				len(leases), "error", err)
			continue
		}
		b.reaper.Touch(g.consumer)
		restored += len(leases)
	}
	if restored > 0 {
		b.log.Info("leases of pull jobs are restored", "jobs", restored)
	}
}
