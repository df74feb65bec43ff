package main

import (
	"context"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/penstock-broker/penstock/api"
	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/apitype"
	"github.com/penstock-broker/penstock/internal/egress"
	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/internal/intake"
	"github.com/penstock-broker/penstock/internal/jobs"
	"github.com/penstock-broker/penstock/internal/policy"
	"github.com/penstock-broker/penstock/reaper"
	"github.com/penstock-broker/penstock/redisq"
)

// wire makes the parts, each from those that exist already, and then tells them of changes
// of Redis and of the other brokers. Nothing runs yet.
func (b *broker) wire(watch *redisq.RunWatch, callbacks egress.Policy) {
	registry := b.newRegistry()
	agenda := reaper.NewAgenda()
	policies := policy.NewBook(b.cfg.policy())
	bodies := intake.NewBound(bodyBytes)
	b.plane = hotpath.New(b.planeOptions(agenda, policies, bodies, metrics.New(registry)))
	desk := &jobs.Desk{Store: b.store, Queue: b.queue, NowMs: b.node.NowMs, Wake: b.plane.Wake, Dirty: agenda.Dirty}
	if b.cfg.RetriggerURL != "" {
		b.retrigger = reaper.NewRetrigger(b.cfg.RetriggerURL, b.cfg.AdminToken)
	}
	b.reaper = reaper.New(reaper.Options{
		Store: b.store, Queue: b.queue, Catalogue: b.catalogue, Cluster: b.node, Desk: desk, Agenda: agenda,
		RationalDelay: b.cfg.RationalDelay, Policies: policies, Wake: b.plane.Wake, Retrigger: b.retrigger,
		Retention: b.cfg.Retention, DeadRetention: b.cfg.DeadRetention,
		Registry: registry, Log: b.log,
	})
	b.queue.OnLost(b.reaper.Lost)
	b.queue.OnLost(b.plane.Lost)
	watch.OnChange(b.reaper.RedisChanged)
	watch.OnChange(b.plane.RedisChanged)
	b.node.PeersChanged = func() {
		b.checkPeers()
		b.reaper.PeersChanged()
	}
	registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "penstock_fanout_pending_messages",
			Help: "Committed messages that wait for Redis."}, func() float64 { return float64(b.plane.FanoutPending()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "penstock_brokers",
			Help: "Brokers alive on this store, as seen by this broker."}, func() float64 { return float64(len(b.node.Peers())) }),
	)
	b.api = api.New(api.Options{
		Store: b.store, Catalogue: b.catalogue, Desk: desk, Data: b.plane, Policies: policies,
		AdminToken: b.cfg.AdminToken, OpenManagement: b.cfg.openManagement(), AllowedHosts: b.cfg.allowedHosts(), CheckCallback: callbacks.CheckURL,
		Announce:      b.announce,
		Bodies:        bodies,
		PingQueue:     func(ctx context.Context) error { return b.redis.Ping(ctx).Err() },
		RationalDelay: b.cfg.RationalDelay,
		Metrics:       metricsPage(registry),
		Registerer:    registry,
		Version:       apitype.Version{Version: version, Commit: commit(), Go: runtime.Version()},
		Log:           b.log,
	})
	b.server = api.NewServer(b.api.Handler, api.ServerOptions{Concurrency: maxConnections(maxDescriptors(), b.cfg.PushConcurrency), Log: b.log})
}

// newRegistry returns a registry with the metrics of the process.
func (b *broker) newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	buildInfo := prometheus.NewGauge(prometheus.GaugeOpts{Name: "penstock_build_info", Help: "1; the labels name the version and the store.",
		ConstLabels: prometheus.Labels{"version": version, "store": b.store.Describe()}})
	buildInfo.Set(1)
	registry.MustRegister(guard.Panics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo)
	return registry
}

// planeOptions are the options of the data plane, which reports to the agenda of the reaper.
func (b *broker) planeOptions(agenda *reaper.Agenda, policies *policy.Book, bodies *intake.Bound, m *metrics.Metrics) hotpath.Options {
	cfg := b.cfg
	return hotpath.Options{
		Store: b.store, Queue: b.queue, Catalogue: b.catalogue, Node: b.node, Client: push.Over(b.client),
		Push: push.Settings{
			Policies: policies, Lease: cfg.DeliveryTimeout + leaseMargin(cfg), Margin: leaseMargin(cfg),
			Concurrency: cfg.PushConcurrency, PerConsumer: cfg.ConsumerConcurrency, Bytes: max(pushBytes, 4*int64(cfg.maxBody())),
			TokenHeader: cfg.ConsumerTokenHeader, UserAgent: cfg.UserAgent,
		},
		Visible: cfg.StopTimeout + cfg.RationalDelay, Kept: cfg.RationalDelay + durable.MinRetention,
		MaxBody: cfg.maxBody(), CacheBytes: cacheBytes, Bodies: bodies, WaitingRequests: waitingRequests,
		Touched: agenda.Touch, Refill: agenda.Refill,
		Metrics: m, Log: b.log,
	}
}

// catalogueHint is a number that no consumer has. In a hint between brokers it means that the
// catalogue has changed.
const catalogueHint = 0

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
