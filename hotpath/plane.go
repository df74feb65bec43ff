package hotpath

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/hotpath/cluster"
	"github.com/penstock-broker/penstock/hotpath/fanout"
	"github.com/penstock-broker/penstock/hotpath/hold"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/order"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/hotpath/publish"
	"github.com/penstock-broker/penstock/hotpath/publishrate"
	"github.com/penstock-broker/penstock/hotpath/pull"
	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/hotpath/standby"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/feature/exchange"
	"github.com/penstock-broker/penstock/internal/feature/journal"
	"github.com/penstock-broker/penstock/internal/feature/presence"
	"github.com/penstock-broker/penstock/internal/feature/tracing"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/quota"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/internal/tool/share"
	"github.com/penstock-broker/penstock/redisq"
)

// A Store is the part of durable.Store that the data plane needs.
type Store interface {
	accept.Store
	standby.ReceiptStore
	publish.ReceiptStore
	outcome.Store
	verify.Store
	pull.Store
	push.History
	verify.Chain
	order.Store
	hold.Store
}

// A Queue is the part of redisq.Queue that the data plane needs.
type Queue interface {
	fanout.Queue
	push.Queue
	pull.Queue
	outcome.Queue
	order.Queue
	hold.Queue
}

// Options assemble a data plane.
type Options struct {
	Store     Store
	Queue     Queue
	Catalogue *catalogue.Catalogue
	Node      *cluster.Node
	Client    push.Deliverer
	States    push.States
	Balancer  push.Balancer // of adaptive consumers; nil: none is slowed down
	// Tripped is told of consumers that stored outcomes made dead; nil: of none.
	Tripped func(consumer uint32)
	// Board and Reader are of the responses that requests wait for. Answered is told of stored
	// outcomes that have one; it may not block.
	Board    *exchange.Board
	Reader   *exchange.Reader
	Answered func(consumer uint32, id ident.ID)
	// Noted is told of outcomes that were stored, a batch at a time; nil: of none. It may not block.
	Noted   func(outcomes []durable.Outcome)
	Push    push.Settings
	Visible time.Duration // visibility timeout of pull jobs, without IncrementalTimeout
	// Kept is an age up to which every message is stored. A younger job without an outcome is open.
	// The message of an older one may have been removed after the job was over.
	Kept time.Duration
	// CacheBytes bounds the payloads in memory. WaitingRequests bounds the publishes that wait for
	// the store. Bodies bounds the bytes of these publishes and of all request bodies that are
	// being read.
	MaxBody int // bytes of a payload
	// MinSchedule is how far ahead a scheduled message must be. Scheduled is told when one that
	// was stored is due; it may not block.
	MinSchedule     time.Duration
	Scheduled       func(dueMs int64)
	CacheBytes      int
	Bodies          *share.Bound
	Answers         *share.Bound // of large answers, and of what batch clients have not read
	Waiters         *share.Bound // of long polls
	WaitingRequests int64
	Journal         standby.Journals
	Quota           *quota.Quota         // what producers may store; nil: any amount
	Rates           *publishrate.Limiter // nil: no publish rates
	// Touched reports consumers that now have leases or delayed jobs. Refill reports consumers
	// whose window has room while the store holds more jobs. Neither may block.
	Touched  func(consumer uint32)
	Refill   func(consumer uint32)
	Presence *presence.Keeper // hears of the contacts of workers; may be nil
	Traces   *tracing.Tracer  // nil: nothing is traced
	Metrics  *metrics.Metrics
	Log      *slog.Logger
}

// A Plane is the data plane of one broker: the routes of producers and pull consumers, and the
// goroutines behind them.
type Plane struct {
	*publish.Publisher
	*pull.Puller
	standby    *standby.Standby // nil: no journal
	Holds      *hold.Keeper
	fanout     *fanout.Fanout
	hints      *push.HintSender
	node       *cluster.Node
	catalogue  *catalogue.Catalogue
	dispatcher *push.Dispatcher
	outcomes   *outcome.Committer
	admission  *accept.Admission
	order      *order.Keeper
	verifier   *verify.Verifier
	stopping   chan struct{} // closed by Drain
}

// New assembles a data plane, the last stage first. No goroutine starts before Run.
func New(o Options) *Plane {
	p := &Plane{stopping: make(chan struct{}), admission: accept.NewAdmission(o.WaitingRequests),
		hints: push.NewHintSender(o.Queue), node: o.Node, catalogue: o.Catalogue}
	verifier := &verify.Verifier{Store: o.Store, Cache: verify.NewCache(o.CacheBytes), NowMs: o.Node.NowMs, Kept: o.Kept,
		Policies: o.Push.Policies, Chain: o.Store}
	p.verifier = verifier
	p.order = order.New(order.Options{
		Store: o.Store, Queue: o.Queue, Catalogue: o.Catalogue, Policies: o.Push.Policies, NowMs: o.Node.NowMs,
		Alone: o.Node.Alone,
		Wake:  p.wake, Touched: o.Touched, Died: func(n int) { o.Metrics.Died(durable.BlockedKey, n) }, Log: o.Log,
	})
	p.outcomes = outcome.New(outcome.Options{Store: o.Store, Queue: o.Queue, Metrics: o.Metrics, Log: o.Log,
		Tripped: o.Tripped, Node: func() int { return numberOf(o.Node) }, Answered: o.Answered, Noted: o.Noted})
	p.Holds = hold.New(hold.Options{Store: o.Store, Queue: o.Queue, NowMs: o.Node.NowMs,
		Ended: p.Repaced, Log: o.Log})
	p.dispatcher = push.New(push.Options{
		Queue: o.Queue, Catalogue: o.Catalogue, Deliverer: o.Client, Verifier: verifier, Order: p.order, Outcomes: p.outcomes,
		Pace: p.admission, History: o.Store, States: o.States, Balancer: o.Balancer, Holds: p.Holds, Settings: o.Push,
		NowMs: o.Node.NowMs, Touched: o.Touched, Refill: o.Refill, Metrics: o.Metrics, Traces: o.Traces, Log: o.Log,
	})
	p.Puller = pull.New(pull.Options{
		Behind: func(k *durable.Consumer) bool { return p.fanout.Behind(k) },
		Queue:  o.Queue, Catalogue: o.Catalogue, Store: o.Store, Verifier: verifier, Order: p.order, Outcomes: p.outcomes,
		Visible: o.Visible, Policies: o.Push.Policies,
		NowMs: o.Node.NowMs, Touched: o.Touched, Refill: o.Refill, Metrics: o.Metrics, Answers: o.Answers, Waiters: o.Waiters,
		Tell: p.tell, Stopping: p.stopping, Presence: o.Presence, Traces: o.Traces, Log: o.Log,
		Room: o.Push.Room, Answered: o.Answered,
	})
	p.fanout = fanout.New(fanout.Options{
		Queue: o.Queue, Catalogue: o.Catalogue, Push: taker{p.dispatcher}, Cache: verifier.Cache, Node: o.Node,
		Wake: p.wake, Metrics: o.Metrics, Log: o.Log,
	})
	submitter := accept.New(accept.Options{
		Store: o.Store, Catalogue: o.Catalogue, Node: o.Node, Admission: p.admission, Committed: p.fanout.Add,
		Scheduled: o.Scheduled, Bodies: o.Bodies, Quota: o.Quota, Metrics: o.Metrics, Log: o.Log,
	})
	var aside publish.Standby
	if o.Journal.Open != nil {
		p.standby = standby.New(standby.Options{Submitter: submitter, Receipts: o.Store, Catalogue: o.Catalogue, Node: o.Node,
			Bodies: o.Bodies, Journals: o.Journal, Metrics: o.Metrics, Log: o.Log})
		aside = keeper{p.standby}
	}
	p.Publisher = publish.New(publish.Options{
		Submitter: submitter, Standby: aside, Catalogue: o.Catalogue, MaxBody: o.MaxBody, MinSchedule: o.MinSchedule,
		NowMs: o.Node.NowMs, TokenHeader: o.Push.TokenHeader, Bodies: o.Bodies, Answers: o.Answers,
		Replies:  publish.Replies{Board: o.Board, Reader: o.Reader, Stopping: p.stopping},
		Receipts: o.Store, Quota: o.Quota, Rates: o.Rates, Metrics: o.Metrics, Traces: o.Traces,
	})
	o.Catalogue.Watch(p.dispatcher.Learn)
	o.Catalogue.Watch(p.Holds.Learn)
	o.Catalogue.Watch(func(k *durable.Consumer) { p.Puller.Wake(k.No) }) // it may have been resumed
	return p
}

// numberOf returns 1 + the number of a broker, 0 while it has none.
func numberOf(n *cluster.Node) int {
	lease, err := n.Lease()
	if err != nil {
		return 0
	}
	return int(lease.No) + 1
}

// A taker adapts a dispatcher to fanout.Pusher.
type taker struct{ *push.Dispatcher }

func (t taker) Reserve(consumer uint32, n int) fanout.Reservation {
	if r := t.Dispatcher.Reserve(consumer, n); r != nil {
		return r
	}
	return nil // not a Reservation that holds a nil pointer
}

// A keeper adapts a standby to publish.Standby.
type keeper struct{ *standby.Standby }

func (k keeper) Submit(ctx context.Context, t accept.Terms, budget time.Duration,
	msgs []*durable.Message) publish.Kept {
	return k.Standby.Submit(ctx, t, budget, msgs)
}

// AdoptJournals takes over the journals that others have left; see standby.Standby.Adopt.
func (p *Plane) AdoptJournals() {
	if p.standby != nil {
		p.standby.Adopt()
	}
}

// JournalState returns what the journals hold that this broker has.
func (p *Plane) JournalState() (none journal.State) {
	if p.standby == nil {
		return none
	}
	return p.standby.State()
}

// Try sends a test message to a push consumer; see push.Dispatcher.Try.
func (p *Plane) Try(k *durable.Consumer) (<-chan push.Trial, error) {
	return p.dispatcher.Try(k, p.node.IDs().Next())
}

// Journalled reports whether a message is in a journal of this broker; see standby.Standby.Journalled.
func (p *Plane) Journalled(channel uint32, keys []string, receipt string) bool {
	return p.standby.Journalled(channel, keys, receipt)
}

// Load returns how busy this broker is with a push consumer.
func (p *Plane) Load(consumer uint32) push.Load { return p.dispatcher.Load(consumer) }

// Repaced reports that the pace of a consumer has changed, or its hold ended early. It never blocks.
func (p *Plane) Repaced(consumer uint32) { p.dispatcher.Repaced(consumer) }

// Wake reports that a consumer may have due jobs, of which other brokers do not know yet. It never
// blocks.
func (p *Plane) Wake(consumer uint32) {
	p.wake(consumer)
	p.tell(consumer)
}

// wake wakes what waits at this broker.
func (p *Plane) wake(consumer uint32) {
	p.dispatcher.Wake(consumer)
	p.Puller.Wake(consumer)
}

// tell wakes the long polls of a pull consumer at the other brokers.
func (p *Plane) tell(consumer uint32) {
	if p.node.Alone() {
		return
	}
	if k := p.catalogue.ConsumerByNo(consumer); k != nil && k.Type == durable.Pull {
		p.hints.Ready(consumer)
	}
}

// Hinted handles a hint from another broker; see redisq.Queue.Subscribe. It never blocks.
func (p *Plane) Hinted(consumer uint32) {
	if consumer&redisq.LostHint != 0 {
		consumer &^= redisq.LostHint
		p.suspectLoss(consumer)
	}
	p.wake(consumer)
}

// Lost reports that Redis lost or replaced the state of a consumer. This broker and the other
// brokers then restore the leases of the consumer's jobs in flight. It never blocks.
func (p *Plane) Lost(consumer uint32) {
	p.suspectLoss(consumer)
	p.hints.Lost(consumer)
	p.wake(consumer)
}

// suspectLoss reports that Redis may have lost leases of a consumer.
func (p *Plane) suspectLoss(consumer uint32) {
	p.dispatcher.SuspectLoss(consumer)
	p.Puller.SuspectLoss(consumer)
}

// RedisChanged reports that a different Redis process answers: it may lack the leases of the jobs in
// flight. It never blocks.
func (p *Plane) RedisChanged() {
	p.dispatcher.SuspectAll()
	p.Puller.SuspectAll()
}

// Restored reports that the store went back to an earlier state: Redis and this process have jobs of
// messages that it may not have. It never blocks.
func (p *Plane) Restored() {
	p.verifier.StoreWentBack()
	if p.standby != nil {
		p.standby.StoreWentBack()
	}
	p.dispatcher.SuspectAll()
}

// BeforeAck makes the jobs ready that waited for jobs which are over; see redisq.Queue.BeforeAck.
func (p *Plane) BeforeAck(ctx context.Context, consumer uint32, ids []ident.ID) error {
	return p.order.BeforeAck(ctx, consumer, ids)
}

// Stopping is closed by Drain.
func (p *Plane) Stopping() <-chan struct{} { return p.stopping }

// Drain makes long polls answer at once, because the server is about to stop. Call it once.
func (p *Plane) Drain() { close(p.stopping) }

// FanoutPending returns how many committed messages wait for Redis.
func (p *Plane) FanoutPending() int { return p.fanout.Pending() }

// Run works until ctx ends and all accepted work is finished: publishes are answered, jobs are
// offered to Redis, deliveries in flight have ended, unsent deliveries are given back, and outcomes
// are stored. The HTTP server must have stopped before ctx ends. grace bounds the last write of
// outcomes.
func (p *Plane) Run(ctx context.Context, grace time.Duration) error {
	// Each stage stops only after the stage that feeds it.
	background := context.WithoutCancel(ctx)
	fanoutCtx, stopFanout := context.WithCancel(background)
	outcomesCtx, stopOutcomes := context.WithCancel(background)
	defer stopFanout()
	defer stopOutcomes()
	var feed, rest sync.WaitGroup
	feed.Go(func() { p.Submitter.Run(ctx) })
	if p.standby != nil {
		feed.Go(func() { p.standby.Run(ctx) })
	}
	feed.Go(func() { _ = p.dispatcher.Run(ctx) })
	rest.Go(func() { guard.Loop(fanoutCtx, "admission", p.admission.Run) })
	rest.Go(func() { guard.Vital("fan-out", func() { _ = p.fanout.Run(fanoutCtx) }) })
	rest.Go(func() { guard.Loop(fanoutCtx, "hints to others", p.hints.Run) })
	rest.Go(func() { guard.Loop(fanoutCtx, "holds", p.Holds.Run) })
	rest.Go(func() { guard.Loop(fanoutCtx, "return of workers' leases", p.RestoreLost) })
	rest.Go(func() { guard.Vital("outcomes", func() { _ = p.outcomes.Run(outcomesCtx, grace) }) })
	feed.Wait()
	stopFanout()
	stopOutcomes()
	rest.Wait()
	return nil
}
