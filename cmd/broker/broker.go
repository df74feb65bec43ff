package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/api"
	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath"
	"github.com/penstock-broker/penstock/hotpath/cluster"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/egress"
	"github.com/penstock-broker/penstock/internal/failpoint"
	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/internal/intake"
	"github.com/penstock-broker/penstock/internal/jobs"
	"github.com/penstock-broker/penstock/internal/policy"
	"github.com/penstock-broker/penstock/internal/timerslack"
	"github.com/penstock-broker/penstock/reaper"
	"github.com/penstock-broker/penstock/redisq"
)

// Bounds of one process that are not settings. They only have to be above the capacity of the
// machine and below its memory.
const (
	cacheBytes      = 128 << 20 // payloads kept for delivery
	bodyBytes       = 256 << 20 // bodies of requests that arrive or wait for the store
	pushBytes       = 128 << 20 // large payloads of deliveries under way
	waitingRequests = 8192      // publishes waiting for the store
	stopGrace       = 10 * time.Second
	// The embedded Redis is never away, only slow when the machine is busy.
	embeddedTimeout = 10 * time.Second
)

// catalogueHint is a number that no consumer has. In a hint between brokers it means that the
// catalogue has changed.
const catalogueHint = 0

// A broker has the wired parts of one process.
type broker struct {
	cfg config
	log *slog.Logger

	store     *durable.Store
	embedded  *embeddedRedis // nil with a real Redis
	redis     redis.UniversalClient
	queue     *redisq.Queue
	catalogue *catalogue.Catalogue
	node      *cluster.Node
	client    *egress.Client
	plane     *hotpath.Plane
	reaper    *reaper.Reaper
	retrigger *reaper.Retrigger
	api       *api.API
	server    *fasthttp.Server
	listener  net.Listener
	failed    chan error // capacity 1: why the broker must end
}

// openBroker opens the stores, migrates, and wires all parts. Nothing runs yet. Errors for exit
// code 3 are errStore, those for code 1 errSettings and errSeed.
func openBroker(ctx context.Context, cfg config, log *slog.Logger) (_ *broker, err error) {
	b := &broker{cfg: cfg, log: log, failed: make(chan error, 1)}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.store, err = openStore(ctx, cfg); err != nil {
		return nil, fmt.Errorf("%w: %w", errStore, err)
	}
	if err := b.store.CheckPayload(cfg.maxBody()); err != nil {
		return nil, fmt.Errorf("%w: BROKER_MAX_BODY is too large: %w, or BROKER_MAX_BODY lower", errSettings, err)
	}
	if err := b.store.Migrate(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", errStore, err)
	}
	if cfg.MySQLDSN == "" {
		// This process has the lock of the folder, so any other owner of a node lease in it is
		// dead. Its consumers can be taken over at once.
		if err := b.store.ForgetNodes(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", errStore, err)
		}
	}
	for _, w := range b.store.Warnings() {
		log.Warn("the store is set up to lose data", "problem", w)
	}
	if cfg.openManagement() && !cfg.onLoopback() {
		log.Warn("management is open beyond loopback: every machine that reaches this broker reads all tokens and changes everything without one; only browsers under a name that is not allowed are refused",
			"listen", cfg.Listen, "allowed_hosts", cfg.allowedHosts(), "setting", "BROKER_OPEN_MANAGEMENT")
	}
	watch, err := b.openQueue(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errStore, err)
	}
	if err := b.applySeeds(ctx); err != nil {
		return nil, err
	}
	b.catalogue = catalogue.New(b.store, log)
	if err := b.catalogue.Refresh(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", errStore, err)
	}
	host, _ := os.Hostname()
	if err := b.awaitAlone(ctx); err != nil {
		return nil, err
	}
	if b.node, err = cluster.New(ctx, b.store, nodeName(host, os.Getpid(), cfg), log); err != nil {
		return nil, fmt.Errorf("%w: %w", errStore, err)
	}
	if err := b.stillAlone(ctx); err != nil {
		return nil, errors.Join(err, b.node.Release(ctx))
	}
	callbacks, err := egress.ParsePolicy(cfg.Egress, cfg.EgressAllow)
	if err != nil {
		return nil, err
	}
	b.client = egress.NewClient(egress.Options{Policy: callbacks, UserAgent: cfg.UserAgent, MaxConnsPerHost: cfg.PushConcurrency})
	b.wire(watch, callbacks)
	if b.listener, err = net.Listen("tcp", cfg.Listen); err != nil {
		return nil, err
	}
	return b, nil
}

func openStore(ctx context.Context, cfg config) (*durable.Store, error) {
	if cfg.MySQLDSN != "" {
		return durable.OpenMySQL(ctx, cfg.MySQLDSN, durable.Options{})
	}
	return durable.OpenSQLite(ctx, cfg.DataDir, durable.Options{})
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

// wire connects the parts. They form cycles: the data plane reports work to the reaper, and the
// reaper wakes the data plane. Functions close these cycles; they are called only after everything
// runs.
func (b *broker) wire(watch *redisq.RunWatch, callbacks egress.Policy) {
	cfg, log := b.cfg, b.log
	registry := prometheus.NewRegistry()
	registry.MustRegister(guard.Panics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	buildInfo := prometheus.NewGauge(prometheus.GaugeOpts{Name: "penstock_build_info", Help: "1; the labels name the version and the store.",
		ConstLabels: prometheus.Labels{"version": version, "store": b.store.Describe()}})
	buildInfo.Set(1)
	registry.MustRegister(buildInfo)

	wake := func(consumer uint32) { b.plane.Wake(consumer) }
	desk := &jobs.Desk{Store: b.store, Queue: b.queue, NowMs: b.node.NowMs, Wake: wake, Dirty: func(consumer uint32) { b.reaper.Dirty(consumer) }}
	if cfg.RetriggerURL != "" {
		b.retrigger = reaper.NewRetrigger(cfg.RetriggerURL, cfg.AdminToken)
	}
	policies := policy.NewBook(cfg.policy())
	b.reaper = reaper.New(reaper.Options{
		Store: b.store, Queue: b.queue, Catalogue: b.catalogue, Cluster: b.node, Desk: desk,
		RationalDelay: cfg.RationalDelay, Policies: policies, Wake: wake, Retrigger: b.retrigger,
		Retention: cfg.Retention, DeadRetention: cfg.DeadRetention,
		Registry: registry, Log: log,
	})
	bodies := intake.NewBound(bodyBytes)
	b.plane = hotpath.New(hotpath.Options{
		Store: b.store, Queue: b.queue, Catalogue: b.catalogue, Node: b.node, Client: push.Over(b.client),
		Push: push.Settings{
			Policies: policies, Lease: cfg.DeliveryTimeout + leaseMargin(cfg), Margin: leaseMargin(cfg),
			Concurrency: cfg.PushConcurrency, PerConsumer: cfg.ConsumerConcurrency, Bytes: max(pushBytes, 4*int64(cfg.maxBody())),
			TokenHeader: cfg.ConsumerTokenHeader, UserAgent: cfg.UserAgent,
		},
		Visible: cfg.StopTimeout + cfg.RationalDelay, Kept: cfg.RationalDelay + durable.MinRetention,
		MaxBody: cfg.maxBody(), CacheBytes: cacheBytes, Bodies: bodies, WaitingRequests: waitingRequests,
		Touched: b.reaper.Touch, Refill: b.reaper.Refill,
		Metrics: metrics.New(registry), Log: log,
	})
	b.queue.OnLost(func(consumer uint32) {
		b.reaper.Lost(consumer)
		b.plane.Lost(consumer)
	})
	watch.OnChange(b.reaper.RedisChanged)
	watch.OnChange(b.plane.RedisChanged)
	b.node.PeersChanged = func() {
		b.checkPeers()
		b.reaper.PeersChanged()
	}

	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "penstock_fanout_pending_messages",
		Help: "Committed messages that wait for Redis."}, func() float64 { return float64(b.plane.FanoutPending()) }))
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "penstock_brokers",
		Help: "Brokers alive on this store, as seen by this broker."}, func() float64 { return float64(len(b.node.Peers())) }))

	b.api = api.New(api.Options{
		Store: b.store, Catalogue: b.catalogue, Desk: desk, Data: b.plane, Policies: policies,
		AdminToken: cfg.AdminToken, OpenManagement: cfg.openManagement(), AllowedHosts: cfg.allowedHosts(), CheckCallback: callbacks.CheckURL,
		Announce:      b.announce,
		Bodies:        bodies,
		PingQueue:     func(ctx context.Context) error { return b.redis.Ping(ctx).Err() },
		RationalDelay: cfg.RationalDelay,
		Metrics:       metricsPage(registry),
		Registerer:    registry,
		Version:       api.VersionView{Version: version, Commit: commit(), Go: runtime.Version()},
		Log:           log,
	})
	b.server = api.NewServer(b.api.Handler, api.ServerOptions{Concurrency: maxConnections(maxDescriptors(), cfg.PushConcurrency), Log: log})
}

// leaseMargin is how much longer the lease of a push job is than its attempt. The broker stores the
// outcome in that time.
func leaseMargin(cfg config) time.Duration { return cfg.RationalDelay + 3*time.Second }

// announce sends a hint to the other brokers that the catalogue has changed. The hint may get lost,
// since they also poll.
func (b *broker) announce() {
	if b.node.Alone() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := b.queue.Notify(ctx, []uint32{catalogueHint}); err != nil {
		b.log.Debug("catalogue change not announced; the others poll", "error", err)
	}
}

func (b *broker) hinted(consumers []uint32) {
	for _, consumer := range consumers {
		if consumer == catalogueHint {
			b.catalogue.Hint()
			continue
		}
		b.plane.Hinted(consumer)
	}
}

// Addr is where the broker listens.
func (b *broker) Addr() string { return b.listener.Addr().String() }

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

	var plane, loops, keeper sync.WaitGroup
	plane.Go(func() { _ = b.plane.Run(planeCtx, stopGrace) })
	loops.Go(func() { guard.Loop(reaperCtx, "catalogue", func(ctx context.Context) { _ = b.catalogue.Run(ctx) }) })
	loops.Go(func() {
		guard.Loop(reaperCtx, "hints", func(ctx context.Context) { _ = b.queue.Subscribe(ctx, b.hinted) })
	})
	if b.cfg.MySQLDSN == "" {
		loops.Go(func() { b.keepInPlace(reaperCtx) })
	}
	if b.cfg.Reaper {
		loops.Go(func() { _ = b.reaper.Run(reaperCtx) })
	}
	keeper.Go(func() { guard.Loop(nodeCtx, "node lease", func(ctx context.Context) { _ = b.node.Run(ctx) }) })

	served := make(chan error, 1)
	go func() { served <- b.server.Serve(api.Listen(b.listener)) }()
	slack, _ := timerslack.Now() // 0 if unknown
	b.log.Info("broker is ready", "listen", b.Addr(), "version", version, "store", b.store.Describe(), "node", b.nodeNo(), "timer_slack", slack.String())

	var failure error
	select {
	case <-ctx.Done():
		b.drain(background)
		<-served
	case failure = <-b.failed:
		b.drain(background)
		<-served
	case failure = <-served:
		if failure == nil {
			failure = errors.New("listener closed")
		}
	}
	stopReaper()
	loops.Wait()
	stopPlane()
	plane.Wait()
	stopNode()
	keeper.Wait()
	release, cancelRelease := context.WithTimeout(background, time.Second)
	defer cancelRelease()
	if err := b.node.Release(release); err != nil {
		b.log.Debug("node number not released; its lease expires", "error", err)
	}
	return failure
}

// drain ends the HTTP server without a failed request. The broker reports that it is not ready and
// closes each connection after its answer, but serves requests until load balancers have noticed.
// It then closes the listener and waits for the requests under way.
func (b *broker) drain(ctx context.Context) {
	delay := b.cfg.drainDelay()
	b.log.Info("stopping: not ready, finishing accepted requests", "drain_delay", delay.String())
	b.api.SetDraining(true)
	failpoint.At(failpoint.Draining)
	time.Sleep(delay)
	b.plane.Drain()
	shutdown, cancel := context.WithTimeout(ctx, b.cfg.DeliveryTimeout+stopGrace)
	defer cancel()
	if err := b.server.ShutdownWithContext(shutdown); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		b.log.Warn("listener did not close cleanly", "error", err)
	}
}

func (b *broker) nodeNo() uint16 {
	lease, err := b.node.Lease()
	if err != nil {
		return 0
	}
	return lease.No
}

// close closes the opened parts in reverse order.
func (b *broker) close() {
	if b.listener != nil {
		_ = b.listener.Close() // closed already after Run
	}
	if b.retrigger != nil {
		b.retrigger.Close()
	}
	if b.client != nil {
		b.client.Close()
	}
	if b.redis != nil {
		_ = b.redis.Close()
	}
	if b.embedded != nil {
		b.embedded.Close()
	}
	if b.store != nil {
		if err := b.store.Close(); err != nil {
			b.log.Warn("store did not close cleanly", "error", err)
		}
	}
}
