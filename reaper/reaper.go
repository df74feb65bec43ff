package reaper

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/internal/jobs"
	"github.com/penstock-broker/penstock/internal/policy"
	"github.com/penstock-broker/penstock/redisq"
)

// A Store is the part of durable.Store that the reaper reads and writes.
type Store interface {
	Heads(ctx context.Context, channelNo uint32, after, through ident.ID, limit int) ([]durable.Head, error)
	LevelHeads(ctx context.Context, channelNo uint32, priority int, after, through ident.ID, limit int) ([]durable.Head, error)
	Levels(ctx context.Context, channelNo uint32) ([]int, error)
	AllDelivered(ctx context.Context, k durable.Consumer, after, through ident.ID) (bool, error)
	LevelDelivered(ctx context.Context, k durable.Consumer, priority int, after, through ident.ID, limit int) (last ident.ID, all bool, err error)
	LatestMessages(ctx context.Context, afterChannel uint32, limit int) ([]durable.Latest, error)
	JobStates(ctx context.Context, consumerNo uint32, ids []ident.ID) (map[ident.ID]durable.JobState, error)
	OpenJobs(ctx context.Context, consumerNo uint32, from ident.ID, limit int) ([]durable.OpenJob, error)
	Record(ctx context.Context, outcomes []durable.Outcome) error
	Watermarks(ctx context.Context) (map[uint32]ident.ID, error)
	SaveWatermarks(ctx context.Context, watermarks map[uint32]ident.ID) error
	Purge(ctx context.Context, p durable.Purge) (durable.Purged, error)
}

// A Queue is the part of redisq.Queue that the reaper uses.
type Queue interface {
	Reclaim(ctx context.Context, consumer uint32, limit, maxAttempts int) (redisq.Expired, error)
	Recover(ctx context.Context, consumer uint32, epoch string, batch []redisq.Job) (redisq.Enqueued, error)
	Probe(ctx context.Context, consumer uint32, ids []ident.ID) ([]redisq.Standing, error)
	Ack(ctx context.Context, consumer uint32, ids []ident.ID) (int, error)
	Peek(ctx context.Context, consumer uint32, after *redisq.Cursor, limit int) ([]redisq.Waiting, error)
	Stats(ctx context.Context, consumer uint32) (redisq.Stats, error)
	SettleSpilled(ctx context.Context, consumer uint32, priority int, spills int64) (bool, error)
	Renew(ctx context.Context, consumer uint32) error
	Window() int
}

// A Cluster says which consumers this broker looks after, and the store's time.
type Cluster interface {
	Owns(consumer uint32) bool
	NowMs() int64
	PastMs() int64 // the store's clock shows at least that
}

// Options of New. All fields are required but Retrigger and the two retentions.
type Options struct {
	Store         Store
	Queue         Queue
	Catalogue     *catalogue.Catalogue
	Cluster       Cluster
	Desk          *jobs.Desk
	RationalDelay time.Duration // age at which the fail-safe steps in
	Policies      *policy.Book  // how many attempts a job has
	// Retention is the age at which a message whose jobs are all over is removed, 0:
	// never, else at least RationalDelay + durable.MinRetention. DeadRetention is how
	// long a dead letter counts as not over, 0: for ever.
	Retention, DeadRetention time.Duration
	Wake                     func(consumer uint32)
	Retrigger                *Retrigger // nil: repair in process
	Registry                 prometheus.Registerer
	Log                      *slog.Logger
}

// A Reaper is the fail-safe of one broker.
type Reaper struct {
	Options
	reclaimed, exhausted, recovered, adopted, purged prometheus.Counter
	walkSeconds                                      prometheus.Histogram
	overdue                                          prometheus.Gauge

	mu      sync.Mutex
	ledgers map[uint32]*ledger
	watch   map[uint32]time.Time // consumers with leases or delayed jobs -> when to look
	sweep   bool                 // look at all consumers soon: a broker came or went
	reread  bool                 // brokers came or went: others have settled what may be ours now
	resting map[uint32]time.Time // consumers whose state was lost -> when to rebuild it
	renew   bool                 // another Redis process answers: its state is in doubt
	wake    chan struct{}        // capacity 1: reconcile now

	unrenewed []uint32 // consumers that still need a new epoch; only the reconcile loop uses it
}

// lossGrace is how long the reconciler leaves a consumer alone whose state in Redis
// was lost: meanwhile the brokers that are delivering its jobs give Redis their leases
// back. A job that is put back earlier may be sent a second time. This process has
// nothing under way when it meets a consumer for the first time; others may.
const lossGrace = 300 * time.Millisecond

// horizonLeast keeps the reconciler away from IDs that may still be committed:
// twice what durable lets a message ID age before it is inserted.
const horizonLeast = 2 * durable.MaxIDAge

// New returns a reaper. It reads nothing before Run.
func New(o Options) *Reaper {
	r := &Reaper{Options: o, ledgers: map[uint32]*ledger{}, watch: map[uint32]time.Time{}, sweep: true,
		resting: map[uint32]time.Time{}, wake: make(chan struct{}, 1)}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		o.Registry.MustRegister(c)
		return c
	}
	r.reclaimed = counter("penstock_reclaimed_jobs_total", "Jobs whose lease ended and that are due again.")
	r.exhausted = counter("penstock_exhausted_jobs_total", "Jobs whose last lease ended: dead letters.")
	r.recovered = counter("penstock_recovered_jobs_total", "Jobs that the reconciler put into Redis.")
	r.adopted = counter("penstock_redis_adoptions_total", "Times the Redis state of a consumer was met new, lost or replaced.")
	r.purged = counter("penstock_purged_messages_total", "Messages removed because all their jobs were over and their retention was.")
	r.walkSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "penstock_reconcile_duration_seconds",
		Help: "Time of one reconcile round.", Buckets: prometheus.ExponentialBuckets(.001, 2, 14)})
	r.overdue = prometheus.NewGauge(prometheus.GaugeOpts{Name: "penstock_retention_overdue_seconds",
		Help: "How far the removal of messages past their retention is behind; 0 when it has caught up."})
	o.Registry.MustRegister(r.walkSeconds, r.overdue)
	return r
}

// Touch says that a consumer has leases or delayed jobs: watch it. Never blocks.
func (r *Reaper) Touch(consumer uint32) {
	r.mu.Lock()
	_, known := r.watch[consumer]
	if !known {
		r.watch[consumer] = time.Now().Add(settleIn)
	}
	r.mu.Unlock()
}

// Lost says that Redis lost or replaced the state of a consumer: walk again from
// its settled mark, in a moment. Never blocks.
func (r *Reaper) Lost(consumer uint32) {
	r.adopted.Inc()
	r.mu.Lock()
	if l := r.ledgers[consumer]; l != nil {
		l.lost = true
	}
	r.watch[consumer] = time.Now()
	r.resting[consumer] = time.Now().Add(lossGrace)
	r.mu.Unlock()
	time.AfterFunc(lossGrace, r.poke)
}

// Dirty says that the store may hold open jobs of a consumer that Redis lacks.
// Never blocks.
func (r *Reaper) Dirty(consumer uint32) {
	r.mu.Lock()
	if l := r.ledgers[consumer]; l != nil {
		l.openFrom, l.openDone = ident.ID{}, false
	}
	r.mu.Unlock()
	r.poke()
}

// Refill says that the window of a consumer has room while the queue takes jobs
// to be outside it. Where that is not so any more, because they came in on another
// way, somebody has to say so: until then every new job stays outside. Never blocks.
func (r *Reaper) Refill(consumer uint32) {
	r.mu.Lock()
	if l := r.ledgers[consumer]; l != nil {
		l.spilled = true
	}
	r.mu.Unlock()
	r.poke()
}

// PeersChanged says that a broker came or went: what it held must be looked at,
// and consumers change hands. Never blocks.
func (r *Reaper) PeersChanged() {
	r.mu.Lock()
	r.sweep, r.reread = true, true
	r.mu.Unlock()
	r.poke()
}

// RedisChanged says that another Redis process answers than before. What it
// holds may be older than what was acknowledged: every consumer gets a new
// epoch, which makes all brokers doubt and walk. Never blocks.
func (r *Reaper) RedisChanged() {
	r.mu.Lock()
	r.renew, r.sweep = true, true
	r.mu.Unlock()
	r.poke()
}

func (r *Reaper) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run repairs until ctx ends and returns nil then. An error of one round is
// logged and the next round tries again: nothing waits for the reaper.
func (r *Reaper) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { guard.Loop(ctx, "reclaim", r.reclaimLoop) })
	wg.Go(func() { guard.Loop(ctx, "reconcile", r.reconcileLoop) })
	wg.Go(func() { guard.Loop(ctx, "settle", r.settleLoop) })
	wg.Go(func() { guard.Loop(ctx, "retention", r.retentionLoop) })
	wg.Wait()
	return nil
}

// A streak is a row of rounds of one loop that failed: only the first is told.
type streak struct{ failing bool }

// round takes in how a round ended; warning says what does not work meanwhile.
func (s *streak) round(ctx context.Context, log *slog.Logger, warning string, err error) {
	if err != nil && ctx.Err() == nil && !s.failing {
		log.Warn(warning, "error", err)
	}
	s.failing = err != nil
}
