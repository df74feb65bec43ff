package hotpath

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/hotpath/cluster"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/internal/intake"
	"github.com/penstock-broker/penstock/redisq"
)

// Options assemble a data plane.
type Options struct {
	Store     Store
	Queue     Queue
	Catalogue *catalogue.Catalogue
	Node      *cluster.Node
	Client    Deliverer
	Push      PushOptions
	Visible   time.Duration // visibility timeout of pull jobs, without IncrementalTimeout
	// Kept is an age up to which every message is stored: what is younger and has no
	// outcome is open, what is older may have been removed since it was over.
	Kept time.Duration
	// CacheBytes bounds the payloads kept in memory, WaitingRequests the publishes
	// that wait for the store, and Bodies the bytes of those and of all bodies that
	// come.
	MaxBody         int // bytes of a payload
	CacheBytes      int
	Bodies          *intake.Bound
	WaitingRequests int64
	// Touched is told of consumers that have leases or delayed jobs now, Refill
	// of consumers whose window has room while the store holds more. Neither may block.
	Touched func(consumer uint32)
	Refill  func(consumer uint32)
	Metrics *metrics.Metrics
	Log     *slog.Logger
}

// A Plane is the data plane of one broker: three doors over HTTP and the
// goroutines behind them.
type Plane struct {
	*publisher
	*puller
	committer    *committer
	fanout       *fanout
	lossNotifier *lossNotifier
	dispatcher   *dispatcher
	outcomes     *outcome.Committer
	admission    *admission
	stopping     chan struct{} // closed by Drain
}

// New assembles a data plane. Nothing runs before Run.
func New(o Options) *Plane {
	verifier := &verify.Verifier{Store: o.Store, Cache: verify.NewCache(o.CacheBytes), NowMs: o.Node.NowMs, Kept: o.Kept}
	p := &Plane{stopping: make(chan struct{}), admission: newAdmission(min(admissionMost, int(o.WaitingRequests)), int(o.WaitingRequests))}
	p.outcomes = outcome.New(o.Store, o.Queue, o.Metrics, o.Log)
	p.dispatcher = newDispatcher(&dispatcher{
		queue: o.Queue, catalogue: o.Catalogue, client: o.Client, verifier: verifier, outcomes: p.outcomes, admission: p.admission,
		options: o.Push, nowMs: o.Node.NowMs, touched: o.Touched, refill: o.Refill, log: o.Log, metrics: o.Metrics,
	})
	p.fanout = newFanout(o.Queue, p.dispatcher, o.Catalogue, verifier.Cache, o.Node, p.Wake, o.Metrics, o.Log)
	p.lossNotifier = newLossNotifier(o.Queue)
	p.committer = newCommitter(o.Store, o.Catalogue, o.Node, AnswerWithin-commitLeast, p.fanout.Add, o.Metrics, o.Log)
	p.publisher = &publisher{catalogue: o.Catalogue, committer: p.committer, admission: p.admission, metrics: o.Metrics, maxBody: o.MaxBody,
		tokenHeader: o.Push.TokenHeader, maxWrites: o.WaitingRequests, bytes: o.Bodies}
	p.puller = newPuller(&puller{catalogue: o.Catalogue, queue: o.Queue, store: o.Store, verifier: verifier, outcomes: p.outcomes, nowMs: o.Node.NowMs,
		touched: o.Touched, refill: o.Refill, visible: o.Visible, metrics: o.Metrics, stopping: p.stopping})
	o.Catalogue.Watch(p.dispatcher.Learn)
	return p
}

// Wake says that a consumer may have due jobs: something outside this package
// put them there. It never blocks.
func (p *Plane) Wake(consumer uint32) {
	p.dispatcher.Wake(consumer)
	p.waiters.Wake(consumer)
}

// Hinted takes a hint from another broker, see redisq.Queue.Subscribe. It never blocks.
func (p *Plane) Hinted(consumer uint32) {
	if consumer&redisq.LostHint != 0 {
		consumer &^= redisq.LostHint
		p.dispatcher.Doubt(consumer)
	}
	p.Wake(consumer)
}

// Lost says that Redis lost or replaced the state of a consumer: what is being
// delivered to it gets its leases back, here and at the other brokers. It never
// blocks.
func (p *Plane) Lost(consumer uint32) {
	p.dispatcher.Doubt(consumer)
	p.lossNotifier.lost.add(consumer)
	p.Wake(consumer)
}

// RedisChanged says that another Redis process answers than before: it may know
// nothing of the deliveries under way. It never blocks.
func (p *Plane) RedisChanged() { p.dispatcher.DoubtAll() }

// Drain lets long polls answer at once: the server is about to stop. Call it once.
func (p *Plane) Drain() { close(p.stopping) }

// FanoutPending returns how many committed messages wait for Redis.
func (p *Plane) FanoutPending() int { return p.fanout.Pending() }

// Run works until ctx ends and everything that was accepted before is in order:
// publishes answered, jobs offered to Redis, deliveries under way ended, unsent
// ones given back, outcomes stored. The HTTP server must have stopped by then.
// grace bounds the last write of outcomes.
func (p *Plane) Run(ctx context.Context, grace time.Duration) error {
	// Each stage stops only after the one that feeds it.
	background := context.WithoutCancel(ctx)
	fanoutCtx, stopFanout := context.WithCancel(background)
	outcomesCtx, stopOutcomes := context.WithCancel(background)
	defer stopFanout()
	defer stopOutcomes()
	var feed, rest sync.WaitGroup
	feed.Go(func() { _ = p.committer.Run(ctx) })
	feed.Go(func() { _ = p.dispatcher.Run(ctx) })
	rest.Go(func() { guard.Loop(fanoutCtx, "admission", p.admission.Run) })
	rest.Go(func() { guard.Vital("fan-out", func() { _ = p.fanout.Run(fanoutCtx) }) })
	rest.Go(func() { guard.Loop(fanoutCtx, "loss notifier", p.lossNotifier.Run) })
	rest.Go(func() { guard.Vital("outcomes", func() { _ = p.outcomes.Run(outcomesCtx, grace) }) })
	feed.Wait()
	stopFanout()
	stopOutcomes()
	rest.Wait()
	return nil
}
