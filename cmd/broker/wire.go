package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/penstock-broker/penstock/api"
	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath"
	"github.com/penstock-broker/penstock/hotpath/balance"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/publishrate"
	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/feature/bulk"
	"github.com/penstock-broker/penstock/internal/feature/exchange"
	"github.com/penstock-broker/penstock/internal/feature/lockout"
	"github.com/penstock-broker/penstock/internal/feature/presence"
	"github.com/penstock-broker/penstock/internal/feature/redrive"
	"github.com/penstock-broker/penstock/internal/feature/reports"
	"github.com/penstock-broker/penstock/internal/feature/schedule"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/consumerstate"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/quota"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/console"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/share"
	"github.com/penstock-broker/penstock/reaper"
	"github.com/penstock-broker/penstock/redisq"
)

// wire makes the parts, each from those that exist already, and then tells them of changes
// of Redis and of the other brokers. Nothing runs yet.
func (b *broker) wire(watch *redisq.RunWatch, callbacks, fetches egress.Policy) {
	registry := b.newRegistry()
	b.catalogue.Watch(b.tellQueue) // before the parts that ask the queue about it
	worklist := reaper.NewWorklist()
	b.policies = policy.NewBook(b.cfg.policy())
	policies := b.policies
	connections := b.newPlaces()
	bodies := b.bodies
	states := consumerstate.New(consumerstate.Options{Store: b.store, Catalogue: b.catalogue, Announce: b.announce, NowMs: b.node.NowMs,
		PublicURL: strings.TrimSuffix(b.cfg.PublicURL, "/"), Changed: func() { b.alerts.Wake() }, Released: func(consumer uint32) { b.plane.Holds.Forget(consumer) }, Metrics: registry, Log: b.log})
	counts := b.newCounts(registry)
	b.quota = b.newQuota(registry)
	b.balancer = balance.New(balance.Options{
		Rule:  balance.Rule{Period: b.cfg.AdaptivePeriod, Down: b.cfg.AdaptiveDown, Slow: b.cfg.AdaptiveSlow, Max: b.cfg.AdaptiveMax},
		Store: b.store, Catalogue: b.catalogue, Policies: policies, NowMs: b.node.NowMs,
		Repaced: func(consumer uint32) { b.plane.Repaced(consumer) }, Slowed: func() { b.alerts.Wake() }, Metrics: registry, Log: b.log,
	})
	b.newBoard(registry)
	reader := &exchange.Reader{Store: b.store, Policies: policies}
	b.room = exchange.NewRoom()
	b.presence = b.newPresence()
	b.plane = hotpath.New(b.planeOptions(states, worklist, policies, bodies, counts, reader))
	b.responses = b.newResponses(policies, registry)
	service := &jobs.Service{Store: b.recorder(), Queue: b.queue, NowMs: b.node.NowMs, Wake: b.plane.Wake, Dirty: worklist.Dirty, Touched: worklist.Touch, Died: counts.Died}
	if b.cfg.RetriggerURL != "" {
		b.retrigger = reaper.NewRetrigger(b.cfg.RetriggerURL, b.cfg.AdminToken, b.prints)
	}
	b.reaper = reaper.New(reaper.Options{
		Store: b.recorder(), Queue: b.queue, Catalogue: b.catalogue, Cluster: b.node, Jobs: service, Worklist: worklist,
		RationalDelay: b.cfg.RationalDelay, Policies: policies, Wake: b.plane.Wake, Retrigger: b.retrigger,
		Retention: b.cfg.Retention, DeadRetention: b.cfg.DeadRetention, AttemptRetention: b.cfg.AttemptRetention, Archive: b.cfg.newArchive(), Died: counts.Died, Forward: b.plane.Forward, Registry: registry, Log: b.log,
	})
	b.mover = b.newMover(registry)
	b.bulks, b.redrives = b.newBulks(registry, bodies, fetches), redrive.New(redrive.Options{Store: b.store, Jobs: service, Catalogue: b.catalogue, Cluster: b.node, Policies: policies, Dirty: worklist.Dirty, Registry: registry, Log: b.log})
	b.alerts, b.status, b.feed = b.newAlerts(states, b.newExplainer(policies), registry), b.newStatusEvents(registry), b.newFeed()
	b.queue.BeforeAck(b.plane.BeforeAck)
	b.queue.OnLost(b.reaper.Lost)
	b.queue.OnLost(b.plane.Lost)
	b.followOthers(watch)
	b.registerGauges(registry, bodies)
	b.api = api.New(api.Options{
		Store: b.store, Catalogue: b.catalogue, Jobs: service, Auditor: &jobs.Auditor{Store: b.store, Queue: b.queue}, States: states, Rates: b.balancer, Holds: b.plane.Holds, Presence: b.presence, Why: b.explainer, Journalled: b.plane.Journalled, Data: b.plane, Trials: b.plane, Bulks: b.bulks, Lister: &jobs.Lister{Store: b.store, Queue: b.queue, NowMs: b.node.NowMs}, Overview: &jobs.Overview{Store: b.store, Queue: b.queue}, Policies: policies,
		PublicURL: strings.TrimSuffix(b.cfg.PublicURL, "/"), AdminToken: b.cfg.AdminToken, Portray: b.portray, Prints: b.prints, OpenManagement: b.cfg.openManagement(), AllowedHosts: b.cfg.allowedHosts(), UserAgent: b.cfg.UserAgent, CheckCallback: callbacks.CheckURL, Senders: b.senders,
		Announce:  b.announce,
		Responses: reader, Board: b.board, Stopping: b.plane.Stopping(), Answered: b.answered, EnsureReplies: b.responses.Ensure, FollowReplies: b.responses.Follow,
		TokenKeys: b.cfg.tokenKeys, Gateway: b.newGateway(bodies), Principals: b.cfg.principals, HideTokens: !b.cfg.showTokens(), Lockout: b.lockout, Proxies: b.cfg.proxies, AllowDelete: b.cfg.AllowDelete, WakeRedrives: b.redrives.Wake,
		AwaitOthers: b.awaitOthers,
		Bodies:      bodies, Answers: b.answers, Full: b.quota.Full,
		Writable: b.node.Writable, Warning: b.warning,
		PingQueue:     func(ctx context.Context) error { return b.redis.Ping(ctx).Err() },
		RationalDelay: b.cfg.RationalDelay, Retention: b.cfg.Retention, NowMs: b.node.NowMs, MaxStored: b.cfg.storedLimit, MaxScheduled: int64(b.cfg.ProducerMaxScheduled),
		Metrics: metricsPage(b.gatherer()), Stores: b.router(), StoreName: b.name, Door: b.newDoor(), SQS: b.newSQS(policies, bodies), UI: b.newUI(), Sample: b.sampler.Latest, Brokers: b.brokers, StoreKind: b.store.Describe(), Settings: b.cfg.settings(),
		Registerer: registry,
		Version:    running(),
		Log:        b.log, Access: b.cfg.access, Traces: b.traceLinks(),
	})
	if b.first == nil {
		b.server = api.NewServer(b.api.Handler, api.ServerOptions{Concurrency: connections + int(b.streams.Most()) + spareDescriptors, Answers: b.answers, Log: b.log})
	}
}

// newBoard makes what has the clients that wait for responses.
func (b *broker) newBoard(registry *prometheus.Registry) {
	b.board = exchange.NewBoard(exchange.BoardOptions{Store: b.store, Catalogue: b.catalogue, Policies: b.policies, Alone: b.node.Alone, Waiters: b.waiters, Log: b.log})
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "penstock_response_waiters",
		Help: "Clients that wait for responses at this broker."}, func() float64 { return float64(b.board.Waiting()) }))
}

// newPlaces makes the bounds of answers and connections, and returns how many connections there may
// be. One that was ended is served for a moment longer than it has its place.
func (b *broker) newPlaces() (connections int) {
	if b.first != nil {
		b.waiters, b.answers, b.bodies = b.first.waiters, b.first.answers, b.first.bodies
		return 0
	}
	b.waiters, b.bodies = intake.NewWaiters(), newBodies(b.cfg.maxBody())
	b.answers = answer.NewBound(max(answerBytes, 4*int64(b.cfg.maxBody())))
	connections = maxConnections(maxDescriptors(), b.cfg.PushConcurrency*(1+len(b.cfg.stores)))
	b.places, b.streams = api.NewPlaces(connections), newStreams(connections)
	return connections
}

// followOthers tells the parts of changes of Redis and of the other brokers.
func (b *broker) followOthers(watch *redisq.RunWatch) {
	watch.OnChange(b.reaper.RedisChanged)
	watch.OnChange(b.plane.RedisChanged)
	b.catalogue.OnRestored(b.restored)
	if b.outdated {
		b.warn(otherHistory)
		b.restored()
	}
	b.node.Restored, b.node.ClockStepped = b.restored, b.reaper.ClockStepped
	b.node.PeersChanged = func() {
		b.checkPeers()
		b.reaper.PeersChanged()
	}
}

// restored tells the parts that the store went back to an earlier state: what they remember of it
// may be of a time that never was, and Redis has jobs that the store may not have.
func (b *broker) restored() {
	b.restorations.Inc()
	b.reaper.Restored()
	b.plane.Restored()
	b.quota.StoreWentBack()
}

// registerGauges registers what the parts of this broker are asked for.
func (b *broker) registerGauges(registry *prometheus.Registry, bodies *share.Bound) {
	registry.MustRegister(b.journalGauges()...)
	b.registerOthers()
	if b.tracer != nil {
		registry.MustRegister(b.tracer.Counted())
	}
	bounds := slices.Concat(b.room.Bounds(), b.responses.Bounds(), b.bulks.Bounds(), b.client.Bounds(), b.mails.Bounds(), b.nats.bounds, b.plane.Publisher.Bounds())
	if b.first == nil { // the other stores share these
		bounds = append(append(bounds, b.places.Bounds()...), b.answers, b.waiters, b.streams, bodies)
	}
	registry.MustRegister(share.Collector(bounds))
	registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "penstock_fanout_pending_messages",
			Help: "Committed messages that wait for Redis."}, func() float64 { return float64(b.plane.FanoutPending()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "penstock_brokers",
			Help: "Brokers alive on this store, as seen by this broker."}, func() float64 { return float64(len(b.node.Peers())) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "penstock_store_clock_ahead_seconds",
			Help: "How far the store's clock is ahead of that of its server, which went back; 0 when the server has caught up."},
			func() float64 { return float64(b.node.AheadMs()) / 1000 }),
		b.evictions.metric(),
	)
}

// newPresence returns what this broker knows of workers.
func (b *broker) newPresence() *presence.Keeper {
	k := presence.New(b.queue, b.node.NowMs, b.log)
	k.Claimed = func(consumer uint32, ms int64, last bool) { b.notebook.Claimed(consumer, ms, last) }
	b.catalogue.Watch(k.Learn)
	return k
}

// newMover returns the sender of scheduled messages, which publishes on the data plane.
func (b *broker) newMover(registry *prometheus.Registry) *schedule.Mover {
	return schedule.New(schedule.Options{
		Store: b.store, Catalogue: b.catalogue, Cluster: b.node, Publish: b.publishDue, Quota: b.quota, Retention: b.cfg.Retention,
		Registry: registry, Log: b.log,
	})
}

// newBulks returns the part of this broker in bulks, which publishes on the data plane.
func (b *broker) newBulks(registry *prometheus.Registry, bodies *share.Bound, fetches egress.Policy) *bulk.Bulks {
	return bulk.New(bulk.Options{
		Store: b.store, Publisher: b.plane.Publisher, Catalogue: b.catalogue, Cluster: b.node, Quota: b.quota, Bodies: bodies,
		Client: b.client.Web(egress.ByUsers), CheckURL: fetches.CheckURL, FetchTimeout: b.cfg.BulkFetchTimeout, MostBytes: int64(b.cfg.bulkLimit),
		Retries: b.cfg.policy(), Retention: b.cfg.Retention, Registry: registry, Log: b.log,
	})
}

// newQuota returns what this broker knows of what producers store.
func (b *broker) newQuota(registry *prometheus.Registry) *quota.Quota {
	return quota.New(quota.Options{Store: b.store, Catalogue: b.catalogue, Cluster: b.node, MaxStored: b.cfg.storedLimit,
		MaxScheduled: int64(b.cfg.ProducerMaxScheduled), Registry: registry, Log: b.log})
}

// newRegistry returns a registry with the metrics of the process.
func (b *broker) newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	buildInfo := prometheus.NewGauge(prometheus.GaugeOpts{Name: "penstock_build_info", Help: "1; the labels name the version and the store.",
		ConstLabels: prometheus.Labels{"version": version, "store": b.store.Describe()}})
	buildInfo.Set(1)
	b.registry = registry
	if b.first != nil { // the process is the same
		b.lockout = b.first.lockout
		registry.MustRegister(b.newRestorations())
		return registry
	}
	registry.MustRegister(guard.Panics, console.Dropped, reports.Counted, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo)
	registry.MustRegister(b.newRestorations())
	b.lockout = lockout.New(b.cfg.AuthFailures, b.log)
	registry.MustRegister(b.lockout.Collectors()...)
	return registry
}

func (b *broker) newRestorations() prometheus.Counter {
	b.restorations = prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_store_restorations_total",
		Help: "Signs of a store that went back to an earlier state, as this broker noticed: its history or its catalogue."})
	return b.restorations
}

// planeOptions are the options of the data plane, which reports to the worklist of the reaper.
func (b *broker) planeOptions(states *consumerstate.Keeper, worklist *reaper.Worklist, policies *policy.Book, bodies *share.Bound, m *metrics.Metrics, reader *exchange.Reader) hotpath.Options {
	cfg, journals := b.cfg, b.journal.options(b.cfg, b.log)
	journals.Left = b.noticeForeign(journals.Left)
	return hotpath.Options{
		Store: b.recorder(), Queue: b.queue, Catalogue: b.catalogue, Node: b.node, Client: b.senders, States: states, Tripped: func(consumer uint32) { states.Tripped(consumer); b.tripped(consumer) },
		Balancer: b.balancer, Board: b.board, Reader: reader, Answered: b.answered, Noted: b.newNotebook().Note,
		Push: push.Settings{
			Policies: policies, Lease: cfg.DeliveryTimeout + leaseMargin(cfg), Margin: leaseMargin(cfg),
			Concurrency: cfg.PushConcurrency, PerConsumer: cfg.ConsumerConcurrency, Bytes: max(pushBytes, 4*int64(cfg.maxBody())),
			TokenHeader: cfg.ConsumerTokenHeader, UserAgent: cfg.UserAgent, Web: b.client.Web(egress.Configured), Room: b.room,
			Tokens: b.queue, Secret: b.tokenKey, Drain: cfg.DrainTimeout, Cut: b.client.Close,
		},
		Visible: cfg.visible(), Kept: cfg.RationalDelay + durable.MinRetention,
		MaxBody: cfg.maxBody(), CacheBytes: cacheBytes, Bodies: bodies, Answers: b.answers, Waiters: b.waiters, WaitingRequests: waitingRequests,
		Touched: worklist.Touch, Refill: worklist.Refill, Presence: b.presence, Traces: b.tracer,
		Journal:     journals,
		Quota:       b.quota,
		Rates:       publishrate.New(publishrate.Options{Queue: b.lead().queue, Catalogue: b.catalogue, Registry: b.registry, Log: b.log}),
		MinSchedule: cfg.MinScheduleDelay, Scheduled: func(dueMs int64) { b.mover.Accepted(dueMs) },
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

// awaitOthers waits until every other broker has a copy of the catalogue that shows a change from
// before the call. A copy is never older unless its broker cannot reach the store.
func (b *broker) awaitOthers(ctx context.Context) {
	if b.node.Alone() {
		return
	}
	select {
	case <-time.After(catalogue.PollInterval + pollMargin):
	case <-ctx.Done():
	}
}

// pollMargin is the time that a poll of the catalogue may take.
const pollMargin = 200 * time.Millisecond

func (b *broker) hinted(consumers []uint32) {
	for _, consumer := range consumers {
		if consumer == catalogueHint {
			b.catalogue.Hint()
			continue
		}
		b.plane.Hinted(consumer)
	}
}

// tellQueue tells the queue which numbers are those of replays, and which consumers get messages of
// the past.
func (b *broker) tellQueue(k *durable.Consumer) {
	switch {
	case k.Replay == nil && !k.Since.IsZero() && !k.Deleted():
		b.queue.Behind(k.No)
	case k.Replay == nil:
	case k.Deleted():
		b.queue.Join(k.No, k.Account()) // one that ended before this process started has keys to remove
		b.queue.Part(k.No)
	default:
		b.queue.Join(k.No, k.Account())
	}
}
