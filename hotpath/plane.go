package hotpath

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/hotpath/cluster"
	"github.com/penstock-broker/penstock/hotpath/fanout"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/hotpath/pull"
	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/internal/intake"
	"github.com/penstock-broker/penstock/redisq"
)

// A Store is the part of durable.Store that the data plane needs.
type Store interface {
	accept.Store
	outcome.Store
	verify.Store
	pull.Store
}

// A Queue is the part of redisq.Queue that the data plane needs.
type Queue interface {
	fanout.Queue
	push.Queue
	pull.Queue
	outcome.Queue
}

// Options assemble a data plane.
type Options struct {
	Store     Store
	Queue     Queue
	Catalogue *catalogue.Catalogue
	Node      *cluster.Node
	Client    push.Deliverer
	Push      push.Settings
	Visible   time.Duration // visibility timeout of pull jobs, without IncrementalTimeout
	// Kept is an age up to which every message is stored. A younger job without outcome is open;
	// the message of an older one may have been removed after the job was over.
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

// A Plane is the data plane of one broker: the routes of producers and of pull
// consumers, and the goroutines behind them.
type Plane struct {
	*accept.Publisher
	*pull.Puller
	fanout       *fanout.Fanout
	lossNotifier *push.LossNotifier
	dispatcher   *push.Dispatcher
	outcomes     *outcome.Committer
	admission    *accept.Admission
	stopping     chan struct{} // closed by Drain
}

// New assembles a data plane, the last room first. Nothing runs before Run.
func New(o Options) *Plane {
	p := &Plane{stopping: make(chan struct{}), admission: accept.NewAdmission(o.WaitingRequests), lossNotifier: push.NewLossNotifier(o.Queue)}
	verifier := &verify.Verifier{Store: o.Store, Cache: verify.NewCache(o.CacheBytes), NowMs: o.Node.NowMs, Kept: o.Kept}
	p.outcomes = outcome.New(o.Store, o.Queue, o.Metrics, o.Log)
	p.dispatcher = push.New(push.Options{
		Queue: o.Queue, Catalogue: o.Catalogue, Deliverer: o.Client, Verifier: verifier, Outcomes: p.outcomes, Pace: p.admission, Settings: o.Push,
		NowMs: o.Node.NowMs, Touched: o.Touched, Refill: o.Refill, Metrics: o.Metrics, Log: o.Log,
	})
	p.Puller = pull.New(pull.Options{
		Queue: o.Queue, Catalogue: o.Catalogue, Store: o.Store, Verifier: verifier, Outcomes: p.outcomes, Visible: o.Visible,
		NowMs: o.Node.NowMs, Touched: o.Touched, Refill: o.Refill, Metrics: o.Metrics, Stopping: p.stopping,
	})
	p.fanout = fanout.New(fanout.Options{
		Queue: o.Queue, Catalogue: o.Catalogue, Push: taker{p.dispatcher}, Cache: verifier.Cache, Node: o.Node,
		Wake: p.Wake, Metrics: o.Metrics, Log: o.Log,
	})
	p.Publisher = accept.New(accept.Options{
		Store: o.Store, Catalogue: o.Catalogue, Node: o.Node, Admission: p.admission, Committed: p.fanout.Add, MaxBody: o.MaxBody,
		TokenHeader: o.Push.TokenHeader, WaitingRequests: o.WaitingRequests, Bodies: o.Bodies, Metrics: o.Metrics, Log: o.Log,
	})
	o.Catalogue.Watch(p.dispatcher.Learn)
	return p
}

// A taker lets a dispatcher take jobs on their way into Redis.
type taker struct{ *push.Dispatcher }

func (t taker) Reserve(consumer uint32, n int) fanout.Reservation {
	if r := t.Dispatcher.Reserve(consumer, n); r != nil {
		return r
	}
	return nil // and not a Reservation that holds a nil pointer
}

// Wake says that a consumer may have due jobs. It never blocks.
func (p *Plane) Wake(consumer uint32) {
	p.dispatcher.Wake(consumer)
	p.Puller.Wake(consumer)
}

// Hinted takes a hint from another broker, see redisq.Queue.Subscribe. It never blocks.
func (p *Plane) Hinted(consumer uint32) {
	if consumer&redisq.LostHint != 0 {
		consumer &^= redisq.LostHint
		p.dispatcher.SuspectLoss(consumer)
	}
	p.Wake(consumer)
}

// Lost says that Redis lost or replaced the state of a consumer. The brokers
// restore the leases of its deliveries in flight, here and elsewhere. Lost never blocks.
func (p *Plane) Lost(consumer uint32) {
	p.dispatcher.SuspectLoss(consumer)
	p.lossNotifier.Lost(consumer)
	p.Wake(consumer)
}

// RedisChanged says that another Redis process answers than before: it may know
// nothing of the deliveries under way. It never blocks.
func (p *Plane) RedisChanged() { p.dispatcher.SuspectAll() }

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
	feed.Go(func() { p.Publisher.Run(ctx) })
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
