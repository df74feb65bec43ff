package reaper

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/redisq"
)

// A Store is the part of durable.Store that the reaper reads and writes.
type Store interface {
	Heads(ctx context.Context, channelNo uint32, after, through ident.ID, limit int) ([]durable.Head, error)
	LevelHeads(ctx context.Context, channelNo uint32, priority int, after, through ident.ID, limit int) ([]durable.Head,
		error)
	Levels(ctx context.Context, channelNo uint32) ([]int, error)
	AllDelivered(ctx context.Context, k durable.Consumer, after, through ident.ID) (t durable.Tally, all bool, err error)
	LevelDelivered(ctx context.Context, k durable.Consumer, priority int, after, through ident.ID,
		limit int) (last ident.ID, all bool, err error)
	LatestMessages(ctx context.Context, afterChannel uint32, limit int) ([]durable.Latest, error)
	JobStates(ctx context.Context, consumerNo uint32, ids []ident.ID) (map[ident.ID]durable.JobState, error)
	OpenJobs(ctx context.Context, consumerNo uint32, from ident.ID, limit int) ([]durable.OpenJob, error)
	Record(ctx context.Context, outcomes []durable.Outcome) error
	RecordLeaseEnds(ctx context.Context, consumerNo uint32, ends []durable.LeaseEnd, atMs int64) error
	Watermarks(ctx context.Context) (map[uint32]ident.ID, error)
	SaveWatermarks(ctx context.Context, seen durable.Clock, settled []durable.Settled) (others map[uint32]ident.ID,
		err error)
	CheckHistory(ctx context.Context, seen durable.Clock) (now durable.Clock, err error)
	ForgetWatermarks(ctx context.Context) error
	RewindWatermarks(ctx context.Context, to ident.ID) error
	RewindWatermark(ctx context.Context, consumerNo uint32, to ident.ID) error
	Books(ctx context.Context, k durable.Consumer, after, through ident.ID) (durable.Books, error)
	FirstBookRow(ctx context.Context, consumerNo uint32, after ident.ID) (begin ident.ID, found bool, err error)
	RemoveStrays(ctx context.Context, k durable.Consumer, after, through ident.ID, limit int) (removed int, err error)
	RaiseAlert(ctx context.Context, a durable.Alert) error
	OpenAlarm(ctx context.Context, a durable.Alert) (opened bool, err error)
	CloseAlarm(ctx context.Context, a durable.Alert) (closed bool, err error)
	TrimBooks(ctx context.Context, consumerNo uint32, before ident.ID) error
	Purge(ctx context.Context, p durable.Purge) (durable.Purged, error)
	Over(ctx context.Context, p durable.Purge) (ids []ident.ID, out durable.Purged, err error)
	CountMessages(ctx context.Context, channelNo uint32, through ident.ID, limit int,
		full func(durable.Stretch) bool) (more bool, err error)
	Stretches(ctx context.Context, channelNo uint32) ([]durable.Stretch, error)
	NewestSizes(ctx context.Context, channelNo uint32, after, through ident.ID, limit int) ([]durable.Stretch, error)
	TrimStretches(ctx context.Context, channelNo uint32, through ident.ID) error
	Removal(ctx context.Context, channelNo uint32) (durable.Removal, error)
	RemoveOldAttempts(ctx context.Context, p durable.OldAttempts) (last ident.ID, removed int64, err error)
	HeadsOf(ctx context.Context, channelNo uint32, ids []ident.ID) ([]durable.Head, error)
	Expiring(ctx context.Context, after durable.Expiry, nowMs int64, limit int) ([]durable.Expiry, error)
	Expire(ctx context.Context, over, later []durable.Expiry, laterMs int64) error
	DeadHeads(ctx context.Context, consumerNo uint32, from ident.ID, limit int) (dead []durable.DeadHead,
		next ident.ID, err error)
	Dispose(ctx context.Context, consumerNo uint32, dead []durable.DeadHead, to durable.Disposal) error
	LastDelivery(ctx context.Context, consumerNo uint32) (int64, error)
	ForgetKeys(ctx context.Context, nowMs int64, limit int) (removed int, err error)
	ForgetReceipts(ctx context.Context, nowMs int64, limit int) (removed int, err error)
	Messages(ctx context.Context, channelNo uint32, ids []ident.ID) ([]durable.Message, error)
	LeaveOut(ctx context.Context, k durable.Consumer, ids []ident.ID) error
	MessagesUpTo(ctx context.Context, channelNo uint32, ids []ident.ID, budget int) (msgs []durable.Message,
		read int, err error)
	Replay(ctx context.Context, no uint32) (durable.Replay, error)
	RedriveLetters(ctx context.Context, consumerNo, no uint32, ids []ident.ID) ([]ident.ID, error)
	Sizes(ctx context.Context, channelNo uint32, after, through ident.ID, limit int) ([]durable.Sized, error)
	AdvanceReplay(ctx context.Context, no uint32, from, to ident.ID, jobs, bytes int64) (moved bool, err error)
	SetReplayState(ctx context.Context, no uint32, to durable.ReplayState) (durable.Replay, error)
}

// A Queue is the part of redisq.Queue that the reaper uses.
type Queue interface {
	Reclaim(ctx context.Context, consumer uint32, limit, maxAttempts int) (redisq.Expired, error)
	Recover(ctx context.Context, consumer uint32, epoch string, batch []redisq.Job) (redisq.Enqueued, error)
	Probe(ctx context.Context, consumer uint32, ids []ident.ID) ([]redisq.Standing, error)
	AckLeases(ctx context.Context, consumer uint32, leases []redisq.Lease) ([]bool, error)
	Nack(ctx context.Context, consumer uint32, leases []redisq.Lease, delays []time.Duration) ([]bool, error)
	ClaimEach(ctx context.Context, consumer uint32, wishes []redisq.Wish) ([]redisq.Grant, error)
	Release(ctx context.Context, consumer uint32, leases []redisq.Lease) ([]bool, error)
	Peek(ctx context.Context, consumer uint32, after *redisq.Cursor, limit int) ([]redisq.Waiting, error)
	Stats(ctx context.Context, consumer uint32) (redisq.Stats, error)
	ReplaceSpilled(ctx context.Context, consumer uint32, priority int, spills int64) (bool, error)
	Complete(ctx context.Context, consumer uint32, epoch string) error
	Renew(ctx context.Context, consumer uint32) error
	Window() int
	Forget(ctx context.Context, consumer uint32) error
}

// A Cluster tells which consumers this broker repairs, and the store's time.
type Cluster interface {
	Owns(consumer uint32) bool
	NowMs() int64
	PastMs() int64  // the store's clock shows at least that
	FloorMs() int64 // and never less than that
	Clock() durable.Clock
}

// Options of New. All fields are required but Retrigger, Died, Archive and the two retentions.
type Options struct {
	Store         Store
	Queue         Queue
	Catalogue     *catalogue.Catalogue
	Cluster       Cluster
	Jobs          *jobs.Service
	Worklist      *Worklist     // of this Reaper alone
	RationalDelay time.Duration // age at which the fail-safe steps in
	Policies      *policy.Book  // how many attempts a job has
	// Retention is the age at which a message whose jobs are all over is removed, 0:
	// never, else at least RationalDelay + durable.MinRetention. DeadRetention is how
	// long a dead letter counts as not over, 0: for ever.
	Retention, DeadRetention time.Duration
	// AttemptRetention is how long a failed attempt of a job that is over is kept; 0: as long as its message.
	AttemptRetention time.Duration
	// Archive begins a file for messages of a channel, which are removed once the file is sealed. nil: there is
	// no archive.
	Archive func(ctx context.Context, channel string) (ArchiveFile, error)
	Wake    func(consumer uint32)
	Died    func(reason durable.Reason, jobs int) // told of jobs that the reaper ended
	// Forward publishes a message without HTTP. Its error is that of the store's Insert.
	Forward   func(ctx context.Context, m *durable.Message) error
	Retrigger *Retrigger // nil: repair in process
	Registry  prometheus.Registerer
	Log       *slog.Logger
}

// A Reaper is the fail-safe of one broker.
type Reaper struct {
	Options
	*Worklist
	reclaimed, exhausted, recovered, adopted, purged prometheus.Counter
	reconcileSeconds                                 prometheus.Histogram
	overdue, difference                              prometheus.Gauge
	cut                                              *prometheus.CounterVec
	archived, attempts                               prometheus.Counter
	archiveFailing                                   prometheus.Gauge

	unrenewed []uint32 // consumers that still need a new epoch; only the reconcile loop uses it
	departed  departed
	restored  restorations
}

// lossGrace is the time for which the reconciler leaves a consumer alone after Redis lost
// the consumer's state. Meanwhile the brokers that are delivering its jobs restore their
// leases. A job that the reconciler offers earlier may be sent a second time. The grace
// also applies when this process meets a consumer for the first time: this broker has no
// job of it in flight then, but other brokers may.
const lossGrace = 300 * time.Millisecond

// horizonLeast keeps scans behind the IDs that may still be committed. It is twice the
// age at which the insert refuses a message ID.
const horizonLeast = 2 * durable.MaxIDAge

// New returns a reaper. It reads nothing before Run.
func New(o Options) *Reaper {
	r := &Reaper{Options: o, Worklist: o.Worklist}
	r.restored.saving = make(chan struct{}, 1)
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		o.Registry.MustRegister(c)
		return c
	}
	r.reclaimed = counter("penstock_reclaimed_jobs_total", "Jobs that are due again because their lease ended.")
	r.exhausted = counter("penstock_exhausted_jobs_total", "Jobs that became dead letters because the lease of their "+
		"last attempt ended.")
	r.recovered = counter("penstock_recovered_jobs_total", "Jobs that Redis lacked and the reconciler offered.")
	r.adopted = counter("penstock_redis_adoptions_total", "Times a broker found the Redis state of a consumer new, "+
		"lost or replaced.")
	r.purged = counter("penstock_purged_messages_total", "Messages removed because their retention had passed and all "+
		"their jobs were over.")
	r.reconcileSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "penstock_reconcile_duration_seconds",
		Help: "Time of one reconcile round.", Buckets: prometheus.ExponentialBuckets(.001, 2, 14)})
	r.overdue = prometheus.NewGauge(prometheus.GaugeOpts{Name: "penstock_retention_overdue_seconds",
		Help: "Delay of the removal of messages past their retention; 0 when it has caught up."})
	r.difference = prometheus.NewGauge(prometheus.GaugeOpts{Name: "penstock_books_difference_jobs",
		Help: "Jobs by which the books of this broker's consumers did not balance at the last look; 0: nothing is lost or " +
			"double."})
	r.cut = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_limited_messages_total",
		Help: "Messages among the purged ones that a limit of their channel has removed, by its field."}, []string{"limit"})
	r.archived = prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_archived_messages_total",
		Help: "Messages in files of the archive that this broker has sealed."})
	r.attempts = prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_purged_attempts_total",
		Help: "Failed attempts that were removed before their messages."})
	r.archiveFailing = prometheus.NewGauge(prometheus.GaugeOpts{Name: "penstock_archive_failing",
		Help: "1 while the archive takes no messages, so that retention removes none."})
	o.Registry.MustRegister(r.reconcileSeconds, r.overdue, r.difference, r.cut, r.archived, r.attempts, r.archiveFailing)
	o.Catalogue.Watch(r.learn)
	return r
}

// Lost reports that Redis lost or replaced the state of a consumer. After lossGrace the
// reconciler scans again from the settled watermark. Lost never blocks.
func (r *Reaper) Lost(consumer uint32) {
	if r.deleted(consumer) {
		return
	}
	r.adopted.Inc()
	r.mu.Lock()
	if l := r.scanStates[consumer]; l != nil {
		l.lost = true
	}
	r.watch[consumer] = time.Now()
	r.resting[consumer] = time.Now().Add(lossGrace)
	r.mu.Unlock()
	time.AfterFunc(lossGrace, r.poke)
}

// PeersChanged reports that a broker came or went. Its leases may have ended, and consumers
// move between brokers. PeersChanged never blocks.
func (r *Reaper) PeersChanged() {
	r.mu.Lock()
	r.sweep, r.reread = true, true
	r.mu.Unlock()
	r.poke()
}

// RedisChanged reports that another Redis process answers than before. Its data may be
// older than the last acknowledged changes. The reconciler therefore gives every consumer
// a new epoch, which makes all brokers restore their leases and scan again. RedisChanged
// never blocks.
func (r *Reaper) RedisChanged() {
	r.mu.Lock()
	r.renew, r.sweep = true, true
	r.mu.Unlock()
	r.poke()
}

// Run repairs until ctx ends and returns nil then. Run logs an error of one round, and the
// next round tries again.
func (r *Reaper) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { guard.Loop(ctx, "reclaim", r.reclaimLoop) })
	wg.Go(func() { guard.Loop(ctx, "reconcile", r.reconcileLoop) })
	wg.Go(func() { guard.Loop(ctx, "settle", r.watermarkLoop) })
	wg.Go(func() { guard.Loop(ctx, "retention", r.retentionLoop) })
	wg.Go(func() { guard.Loop(ctx, "expiry", r.expireLoop) })
	wg.Go(func() { guard.Loop(ctx, "idempotency keys", r.keysLoop) })
	wg.Go(func() { guard.Loop(ctx, "dead letters", r.dlqLoop) })
	wg.Go(func() { guard.Loop(ctx, "deleted consumers", r.forgetLoop) })
	wg.Go(func() { guard.Loop(ctx, "replays", r.replayLoop) })
	wg.Go(func() { guard.Loop(ctx, "books", r.booksLoop) })
	wg.Wait()
	return nil
}

func (r *Reaper) died(reason durable.Reason, jobs int) {
	if r.Died != nil {
		r.Died(reason, jobs)
	}
}

// A streak is a sequence of failed rounds of one loop. Only its first failure is logged.
type streak struct{ failing bool }

// round records the result of a round. It logs warning with the error of the first failure.
func (s *streak) round(ctx context.Context, log *slog.Logger, warning string, err error) {
	if err != nil && ctx.Err() == nil && !s.failing {
		log.Warn(warning, "error", err)
	}
	s.failing = err != nil
}

// rounds calls round at an interval until ctx ends. It logs warning with the error of the first
// failure.
func (r *Reaper) rounds(ctx context.Context, every time.Duration, warning string, round func(context.Context) error) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var failures streak
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		failures.round(ctx, r.Log, warning, round(ctx))
	}
}
