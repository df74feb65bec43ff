package main

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/internal/feature/exchange"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/guard"
)

// runMovers runs what moves messages and responses on, until ctx ends.
func (b *broker) runMovers(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { b.mover.Run(ctx) })
	wg.Go(func() { guard.Loop(ctx, "samples", b.sampler.Run) })
	wg.Go(func() { b.quota.Run(ctx) })
	wg.Go(func() { b.bulks.Run(ctx) })
	wg.Go(func() { b.redrives.Run(ctx) })
	wg.Go(func() { b.feed.Run(ctx) })
	wg.Go(func() { guard.Loop(ctx, "waiting clients", b.board.Run) })
	wg.Go(func() { guard.Loop(ctx, "responses", b.responses.Run) })
	wg.Go(func() { guard.Loop(ctx, "contacts of workers", b.presence.Run) })
	wg.Wait()
}

// newResponses makes the part of this broker in carrying responses back.
func (b *broker) newResponses(policies *policy.Book, registry *prometheus.Registry) *exchange.Worker {
	return exchange.NewWorker(exchange.Options{
		Store: b.store, Catalogue: b.catalogue, Policies: policies, Owns: b.node.Owns, NowMs: b.node.NowMs,
		Retention: b.cfg.Retention,
		Publish:   b.plane.ForwardAll, Charge: b.queue.Regrant, Answered: b.board.Answered, Announce: b.announce,
		Room: b.room,
		Web:  b.client.Web(egress.Configured), Fetch: b.client.Web(egress.ByUsers), Agent: b.cfg.UserAgent,
		Token:    b.cfg.ConsumerTokenHeader,
		Registry: registry, Log: b.log,
	})
}

// answered is told of each exchange that this broker stored or that ended with a dead letter.
func (b *broker) answered(consumer uint32, id ident.ID) {
	b.board.Answered(consumer, id)
	if k := b.catalogue.ConsumerByNo(consumer); k != nil && b.policies.Of(k.Policy).Responses == policy.ResponsesCallback {
		b.responses.Stored(k.Account()) // it may be published
	}
}
