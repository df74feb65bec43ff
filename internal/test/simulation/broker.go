package simulation

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/hotpath"
	"github.com/penstock-broker/penstock/hotpath/cluster"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/feature/bulk"
	"github.com/penstock-broker/penstock/internal/feature/exchange"
	redriving "github.com/penstock-broker/penstock/internal/feature/redrive"
	"github.com/penstock-broker/penstock/internal/feature/schedule"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/consumerstate"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/share"
	"github.com/penstock-broker/penstock/reaper"
)

// A broker is the core of one process, wired as cmd/broker wires it.
type broker struct {
	life      *life
	queue     *queueSeam
	catalogue *catalogue.Catalogue
	node      *cluster.Node
	states    *consumerstate.Keeper
	plane     *hotpath.Plane
	bodies    *share.Bound
	reaper    *reaper.Reaper
	service   *jobs.Service
	mover     *schedule.Mover  // nil: no message of this run is scheduled
	responses *exchange.Worker // nil: no consumer of this run responds
	bulks     *bulk.Bulks      // nil: this run has no bulks
	redrives  *redriving.Runner

	once    sync.Once
	stopped chan struct{} // closed by stop
}

// unread are the metrics that all runs share.
var unread = metrics.New(prometheus.NewRegistry())

var silent = slog.New(slog.DiscardHandler)

// noRegistry takes metrics and forgets them.
type noRegistry struct{}

func (noRegistry) Register(prometheus.Collector) error  { return nil }
func (noRegistry) MustRegister(...prometheus.Collector) {}
func (noRegistry) Unregister(prometheus.Collector) bool { return true }

// policies are how all consumers are delivered to.
var policies = policy.NewBook(policy.Policy{
	Timeout: deliveryTimeout, MaxRetries: maxAttempts - 1, MaxDelay: time.Second,
	Backoff: policy.Waits(100*time.Millisecond, 300*time.Millisecond),
})

// newBroker starts like a process: it needs the store, and fails without it.
func newBroker(ctx context.Context, l *life) (*broker, error) {
	w := l.w
	store := storeSeam{l, w.store}
	b := &broker{life: l, queue: newQueueSeam(l, w.server), catalogue: catalogue.New(store, silent),
		bodies: share.New(share.Options{Most: bodiesMost}), stopped: make(chan struct{})}
	if err := b.catalogue.Refresh(ctx); err != nil {
		return nil, err
	}
	var err error
	if b.node, err = cluster.New(ctx, store, fmt.Sprintf("broker %d", l.no), silent); err != nil {
		return nil, err
	}
	l.seed(b.node)
	worklist := reaper.NewWorklist()
	b.states = consumerstate.New(consumerstate.Options{Store: store, Catalogue: b.catalogue, NowMs: b.node.NowMs,
		Log: silent})
	b.plane = hotpath.New(hotpath.Options{
		Store: store, Queue: b.queue, Catalogue: b.catalogue, Node: b.node, Client: deliverer{l}, States: b.states,
		Tripped: b.states.Tripped,
		Push: push.Settings{
			Policies: policies, Lease: pushLease, Margin: pushLease - deliveryTimeout,
			Concurrency: 8, PerConsumer: w.plan.each, Bytes: 1 << 20, TokenHeader: "X-Broker-Consumer-Token",
			UserAgent: "simulation",
		},
		Visible: pullLease, Kept: keptFor, MaxBody: 1 << 20, CacheBytes: 1 << 20, Bodies: b.bodies, WaitingRequests: 64,
		Touched: worklist.Touch, Refill: worklist.Refill, Metrics: unread, Log: silent,
		Scheduled: func(dueMs int64) { b.mover.Accepted(dueMs) }, Answered: b.answered, Journal: l.journals(),
	})
	if w.plan.schedules {
		b.mover = schedule.New(schedule.Options{Store: store, Catalogue: b.catalogue, Cluster: b.node,
			Publish: b.plane.ForwardAll, Log: silent})
	}
	if w.plan.responses {
		b.responses = b.newResponses(store)
	}
	if w.plan.bulks {
		b.bulks = b.newBulks(store)
	}
	b.service = &jobs.Service{Store: store, Queue: b.queue, NowMs: b.node.NowMs, Wake: b.plane.Wake, Dirty: worklist.Dirty}
	b.reaper = reaper.New(reaper.Options{
		Store: store, Queue: b.queue, Catalogue: b.catalogue, Cluster: b.node, Jobs: b.service, Worklist: worklist,
		RationalDelay: rationalDelay, Policies: policies, Wake: b.plane.Wake, Registry: noRegistry{}, Log: silent,
		Forward:   b.plane.Forward,
		Retention: w.plan.retention, DeadRetention: w.plan.deadRetention,
	})
	b.redrives = redriving.New(redriving.Options{Store: store, Jobs: b.service, Catalogue: b.catalogue, Cluster: b.node,
		Policies: policies, Dirty: worklist.Dirty, Registry: noRegistry{}, Log: silent})
	b.queue.onLost = func(consumer uint32) {
		b.reaper.Lost(consumer)
		b.plane.Lost(consumer)
	}
	b.queue.beforeAck = b.plane.BeforeAck
	b.queue.onRun = func() {
		b.reaper.RedisChanged()
		b.plane.RedisChanged()
	}
	b.node.PeersChanged, b.node.ClockStepped = b.reaper.PeersChanged, b.reaper.ClockStepped
	b.node.Restored = func() {
		if w.flaw != historyIsIgnored {
			b.reaper.Restored()
			b.plane.Restored()
		}
	}
	b.plane.AdoptJournals()
	return b, nil
}

// stop asks the broker to stop in order: SIGTERM.
func (b *broker) stop() { b.once.Do(func() { close(b.stopped) }) }

// run works until the life is over or stop is called, and returns once every
// goroutine has ended.
func (b *broker) run() {
	l := b.life
	reaperCtx, stopReaper := context.WithCancel(context.Background())
	planeCtx, stopPlane := context.WithCancel(context.Background())
	nodeCtx, stopNode := context.WithCancel(context.Background())
	defer stopReaper()
	defer stopPlane()
	defer stopNode()
	var plane, loops, keeper sync.WaitGroup
	plane.Go(func() { _ = b.plane.Run(planeCtx, stopGrace) })
	loops.Go(func() { _ = b.catalogue.Run(reaperCtx) })
	loops.Go(func() { _ = b.reaper.Run(reaperCtx) })
	loops.Go(func() { b.redrives.Run(reaperCtx) })
	if b.mover != nil {
		loops.Go(func() { b.mover.Run(reaperCtx) })
	}
	if b.responses != nil {
		loops.Go(func() { b.responses.Run(reaperCtx) })
	}
	if b.bulks != nil {
		loops.Go(func() { b.bulks.Run(reaperCtx) })
	}
	keeper.Go(func() { _ = b.node.Run(nodeCtx) })
	select {
	case <-l.over:
		stopNode()
		stopPlane()
	case <-b.stopped:
		l.note("stops", 0, none, "")
		if l.w.plan.storeFails() { // outcomes that it does not take in time are lost
			l.w.checker.disturb(l.no, l.w.now(), l.w.now()+bound)
		}
	}
	b.plane.Drain()
	stopReaper()
	loops.Wait()
	stopPlane()
	plane.Wait()
	stopNode()
	keeper.Wait()
	release, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = b.node.Release(release) // else it expires
}

// occupy keeps a broker in a slot: where one ends another one starts.
func (w *world) occupy(slot int) {
	r := draw(w.seed, word("occupy"), uint64(slot))
	for !w.closing.Load() && !w.vacated(slot) {
		time.Sleep(r.between(time.Millisecond, 500*time.Millisecond))
		w.mu.Lock()
		w.lives++
		l := newLife(w, w.lives, slot)
		w.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		b, err := newBroker(ctx, l)
		cancel()
		if err != nil {
			l.note("cannot start", 0, none, err.Error())
			continue
		}
		w.mu.Lock()
		gone := w.vacant[slot] // meanwhile
		if !gone {
			w.brokers[slot] = b
		}
		if w.closing.Load() {
			b.stop()
		}
		w.mu.Unlock()
		if gone {
			l.crash("for good")
			l.unlock()
			return
		}
		l.note("starts", 0, none, "")
		ended := make(chan struct{})
		w.brokering.Go(func() {
			b.run()
			close(ended)
		})
		select { // a corpse needs a while to fall down, but takes no place
		case <-l.over:
			l.unlock()
		case <-ended:
		}
	}
}
