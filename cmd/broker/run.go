package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/api"
	"github.com/penstock-broker/penstock/internal/feature/lastuse"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/internal/tool/timerslack"
)

// stopGrace bounds the last requests and the last write of outcomes of a broker that stops.
const stopGrace = 10 * time.Second

// leaveWithin bounds the last advance of the settled watermarks.
const leaveWithin = 2 * time.Second

// runCatalogue keeps the copy of the catalogue fresh, and notes the uses of API tokens, until ctx ends.
func (b *broker) runCatalogue(ctx context.Context) {
	var uses sync.WaitGroup
	defer uses.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	uses.Go(func() {
		guard.Loop(ctx, "uses of tokens", (&lastuse.Keeper{Store: b.lead().store, Tokens: b.catalogue, Log: b.log}).Run)
	})
	_ = b.catalogue.Run(ctx)
}

// Run serves until ctx ends. It then drains in the order of the flow: not ready (for
// BROKER_DRAIN_DELAY), no new connections, requests answered, publishes committed, jobs offered to
// Redis, deliveries ended, outcomes stored, node number released.
func (b *broker) Run(ctx context.Context) error {
	background, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	planeCtx, stopPlane := context.WithCancel(background)
	reaperCtx, stopReaper := context.WithCancel(background)
	nodeCtx, stopNode := context.WithCancel(background)
	defer stopPlane()
	defer stopReaper()
	defer stopNode()

	b.restoreLeases(background)
	b.plane.AdoptJournals()
	var plane, loops, keeper sync.WaitGroup
	plane.Go(func() { _ = b.plane.Run(planeCtx, stopGrace) })
	loops.Go(func() { guard.Loop(reaperCtx, "balancer", b.balancer.Run) })
	loops.Go(func() { guard.Loop(reaperCtx, "catalogue", b.runCatalogue) })
	loops.Go(func() {
		guard.Loop(reaperCtx, "hints", func(ctx context.Context) { _ = b.queue.Subscribe(ctx, b.hinted) })
	})
	loops.Go(func() { b.watchStores(reaperCtx) })
	keeper.Go(func() { b.keepNotes(nodeCtx) })
	loops.Go(func() { b.alerts.Run(reaperCtx, b.cfg.Reaper) })
	loops.Go(func() { b.status.Run(reaperCtx) })
	loops.Go(func() { b.runMovers(reaperCtx) })
	if b.cfg.Reaper {
		loops.Go(func() { _ = b.reaper.Run(reaperCtx) })
	}
	keeper.Go(func() { guard.Loop(nodeCtx, "node lease", func(ctx context.Context) { _ = b.node.Run(ctx) }) })

	served := b.serve(nodeCtx, &loops)
	stopOthers := b.runOthers(background)
	defer stopOthers()
	b.ready()
	failure := b.awaitEnd(ctx, background, served)
	stopOthers()
	stopReaper()
	loops.Wait()
	b.leave(background)
	stopPlane()
	plane.Wait()
	b.keepLeases(background)
	stopNode()
	keeper.Wait()
	release, cancelRelease := context.WithTimeout(background, time.Second)
	defer cancelRelease()
	if err := b.node.Release(release); err != nil {
		b.log.Debug("node number not released; its lease expires", "error", err)
	}
	return failure
}

// awaitEnd waits until ctx ends, or the broker has to end, and drains. It returns why it has to. The part of another
// store is drained by the first one.
func (b *broker) awaitEnd(ctx, background context.Context, served <-chan error) (failure error) {
	select {
	case <-ctx.Done():
	case failure = <-b.failed:
	case failure = <-served:
		if failure == nil {
			failure = errors.New("listener closed")
		}
		b.front.Close()
		return failure
	}
	if b.first == nil {
		b.drain(background)
		<-served
	}
	return failure
}

// serve runs the listeners. The channel gets the end of the one of HTTP/1.1; wg waits for the others.
func (b *broker) serve(ctx context.Context, wg *sync.WaitGroup) <-chan error {
	served := make(chan error, 1)
	if b.first != nil {
		return served
	}
	go func() { served <- b.server.Serve(api.Listen(b.listener, b.places)) }()
	wg.Go(func() { b.front.Run(ctx) })
	return served
}

// ready logs what runs.
func (b *broker) ready() {
	slack, _ := timerslack.Now() // 0 if unknown
	if b.first != nil {
		b.log.Info("another store is ready", "server", b.store.Describe(), "node", b.nodeNo())
		return
	}
	b.log.Info("broker is ready", "listen", b.Addr(), "version", version, "store", b.store.Describe(), "node", b.nodeNo(),
		"timer_slack", slack.String())
}

// watchStores watches the place of an embedded store, and tells its folder and a real Redis the history
// of the store.
func (b *broker) watchStores(ctx context.Context) {
	var wg sync.WaitGroup
	if b.cfg.MySQLDSN == "" {
		wg.Go(func() { b.keepInPlace(ctx) })
	}
	if b.redisAway.Load() {
		wg.Go(func() { guard.Loop(ctx, "wait for Redis", b.awaitRedis) })
	}
	if b.embedded == nil {
		wg.Go(func() {
			guard.Loop(ctx, "evictions", func(ctx context.Context) { b.evictions.watch(ctx, b) })
		})
	}
	if b.embedded == nil || b.cfg.MySQLDSN == "" {
		wg.Go(func() { guard.Loop(ctx, "history", b.rememberHistory) })
	}
	wg.Wait()
}

// drain ends the HTTP server without a failed request. The broker reports that it is not ready and
// closes each connection after its answer, but serves requests until load balancers have noticed.
// It then closes all listeners and waits for the requests under way.
func (b *broker) drain(ctx context.Context) {
	delay := b.cfg.drainDelay()
	b.log.Info("stopping: not ready, finishing accepted requests", "drain_delay", delay.String())
	b.api.SetDraining(true)
	for _, part := range b.others.running() {
		part.api.SetDraining(true)
	}
	b.front.Drain()
	failpoint.At(failpoint.Draining)
	time.Sleep(delay)
	for _, part := range append(b.others.running(), b) {
		part.plane.Drain()
		part.mails.Hurry()
	}
	shutdown, cancel := context.WithTimeout(ctx, b.cfg.DrainTimeout+stopGrace) // a body may come slowly
	defer cancel()
	var wg sync.WaitGroup // side by side: a request of HTTP/2 without an end takes no time from those of HTTP/1.1
	wg.Go(func() {
		if err := b.front.Shutdown(shutdown); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			b.log.Warn("the listeners of HTTP/2 and TLS did not close cleanly", "error", err)
		}
	})
	if err := b.server.ShutdownWithContext(shutdown); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		b.log.Warn("listener did not close cleanly", "error", err)
	}
	wg.Wait()
	b.front.Close() // what is left after the time
}

// leave advances the settled watermarks for the next start, once nothing else moves them.
func (b *broker) leave(ctx context.Context) {
	if b.cfg.Reaper {
		ctx, cancel := context.WithTimeout(ctx, leaveWithin)
		defer cancel()
		b.reaper.Leave(ctx)
	}
}
