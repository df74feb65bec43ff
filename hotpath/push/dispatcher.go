// Package push claims the jobs of push consumers and POSTs them.
//
// Each consumer has a lane, which holds its slots, its claimed jobs and the time of its next claim.
// A consumer that hangs takes only the slots of its own lane. A claimed job is verified (package
// verify), delivered, and judged by the consumer's policy. Its outcome goes to package outcome.
//
// The steps of one attempt, each called by the one before: deliver gives the job to a worker, work frees its slot
// at the end, attempt decides on the outcome, guardedSend traces and catches a panic, send chooses the sender of the
// URL. That of http is Web: postUnlessProcessed asks the status URL, post fills the request, request sends it.
package push

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/feature/exchange"
	"github.com/penstock-broker/penstock/internal/feature/tracing"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/internal/tool/share"
	"github.com/penstock-broker/penstock/redisq"
)

const (
	// servers is the number of lanes that claim at the same time.
	servers = 4
	// claimPause is the least time between two claims of a lane that still has half of its slots in
	// use. It makes batches larger at the same latency.
	claimPause = 2 * time.Millisecond
	// claimMax bounds the jobs of one claim.
	claimMax = 100
	// idlePollsPerSecond bounds the cost of polling idle consumers in Redis. Wake-ups carry the
	// load; polling repairs lost wake-ups.
	idlePollsPerSecond = 4
	// storePause is the wait after a failure of the store or of Redis.
	storePause = 250 * time.Millisecond
)

// A Dispatcher claims jobs of push consumers and delivers them.
type Dispatcher struct {
	queue     Queue
	catalogue *catalogue.Catalogue
	client    Deliverer
	verifier  *verify.Verifier
	order     verify.Order
	outcomes  Outcomes
	pace      Pace
	balancer  Balancer
	holds     Holds
	states    States
	history   History
	settings  Settings
	nowMs     func() int64
	touched   func(consumer uint32)
	refill    func(consumer uint32)
	log       *slog.Logger
	metrics   *metrics.Metrics
	traces    *tracing.Tracer

	began time.Time    // of the dispatcher
	live  atomic.Int64 // time of the last live claim, ns after began

	mu      sync.Mutex
	lanes   map[uint32]*lane
	run     []*lane // woken, not yet served
	slots   int     // free, of settings.Concurrency
	starved []*lane // woken while no slot was free
	stopped bool
	ready   sync.Cond // run is not empty, or stopped

	deliveries sync.WaitGroup
	idle       chan *delivery  // unbuffered: to workers that wait for work
	quit       chan struct{}   // closed when stopped
	life       context.Context // ends when a stop cuts the requests under way
	endLife    context.CancelFunc
	inFlight   inFlight
	large      largePayloads
	tokens     tokenBook
	fits       verify.Fits        // number of jobs to ask for in a claim of a lane
	loading    chan struct{}      // capacity servers: a claim is loading payloads
	suspects   *dedupQueue[*lane] // lanes whose leases Redis may have lost
	trials     *share.Bound       // test messages under way
}

// policy returns the delivery policy of the consumer.
func (d *Dispatcher) policy(k *durable.Consumer) *policy.Policy {
	return d.settings.Policies.Of(k.Policy)
}

// lease returns the visibility timeout of the consumer's jobs, which covers a whole attempt. It is
// never shorter than settings.Lease, so one heartbeat period suits all consumers.
func (d *Dispatcher) lease(k *durable.Consumer) time.Duration {
	return max(d.settings.Lease, d.policy(k).Timeout+d.settings.Margin)
}

// New returns a dispatcher. No job is claimed before Run.
func New(o Options) *Dispatcher {
	d := &Dispatcher{queue: o.Queue, catalogue: o.Catalogue, client: o.Deliverer, verifier: o.Verifier, order: o.Order,
		outcomes: o.Outcomes, pace: o.Pace, balancer: o.Balancer, holds: o.Holds, history: o.History, states: o.States,
		settings: o.Settings, nowMs: o.NowMs, touched: o.Touched, refill: o.Refill, log: o.Log, metrics: o.Metrics,
		traces: o.Traces}
	d.lanes, d.began = map[uint32]*lane{}, time.Now()
	d.live.Store(-int64(liveFor))
	d.slots = d.settings.Concurrency
	d.large.most = d.settings.Bytes
	if d.settings.Room == nil {
		d.settings.Room = exchange.NewRoom()
	}
	d.loading = make(chan struct{}, servers)
	d.idle, d.quit = make(chan *delivery), make(chan struct{})
	d.life, d.endLife = context.WithCancel(context.Background())
	d.inFlight.byLane = map[*lane]map[*delivery]struct{}{}
	d.ready.L = &d.mu
	d.suspects = newDedupQueue[*lane](restorers)
	d.trials = share.New(share.Options{Name: "consumer_tests", Most: mostTrials})
	return d
}

// Learn adds a new consumer, updates a changed one, or drops a deleted one. The requests in
// flight of a deleted consumer end as usual; its other claimed jobs are given back.
func (d *Dispatcher) Learn(k *durable.Consumer) {
	d.mu.Lock()
	l := d.lanes[k.No]
	if k.Deleted() {
		if delete(d.lanes, k.No); l != nil {
			l.forgetReplay()
			l.consumer.Store(k)
			l.stopTimer()
		}
		d.mu.Unlock()
		return
	}
	if l == nil {
		if k.Type != durable.Push {
			d.mu.Unlock()
			return
		}
		l = &lane{no: k.No, limit: d.settings.PerConsumer}
		d.lanes[k.No] = l
		if k.Replay != nil {
			d.learnReplay(l, k)
		}
	}
	l.consumer.Store(k)
	l.until.Store(nil) // of the policy before
	d.mu.Unlock()
	d.Wake(k.No)
}

// Wake reports that the consumer may have due jobs. It never blocks, and does nothing for pull
// consumers.
func (d *Dispatcher) Wake(consumer uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.lanes[consumer]; l != nil {
		d.wake(l)
	}
}

// WakeAfter calls Wake after a delay.
func (d *Dispatcher) WakeAfter(consumer uint32, after time.Duration) {
	if l := d.lane(consumer); l != nil {
		l.setTimer(after, func() { d.Wake(consumer) })
	}
}

// lane returns the lane of a consumer. It returns nil for one that has never been a push consumer.
func (d *Dispatcher) lane(consumer uint32) *lane {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lanes[consumer]
}

func (d *Dispatcher) wake(l *lane) {
	if d.stopped {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queued {
		l.again = true
		return
	}
	l.queued = true
	d.run = append(d.run, l)
	d.ready.Signal()
}

// Run dispatches until ctx ends. It then waits for the deliveries under way, for at most settings.Drain.
func (d *Dispatcher) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		d.mu.Lock()
		d.stopped = true
		for _, l := range d.lanes {
			l.stopTimer()
		}
		d.mu.Unlock()
		close(d.quit)
		d.ready.Broadcast()
	})
	defer stop()
	var wg sync.WaitGroup
	for range servers {
		wg.Go(func() { guard.Vital("dispatcher", func() { d.serve(ctx) }) })
	}
	wg.Go(func() { guard.Vital("dispatcher poll", func() { d.poll(ctx) }) })
	heartbeat, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var beat sync.WaitGroup
	beat.Go(func() { guard.Loop(heartbeat, "heartbeat of leases", d.heartbeat) })
	for range restorers {
		beat.Go(func() { guard.Loop(heartbeat, "return of leases", d.restoreSuspected) })
	}
	wg.Wait()
	d.awaitDeliveries()
	cancel()
	beat.Wait()
	return nil
}

// awaitDeliveries waits for the deliveries under way. Those that consumers have not answered in the time
// of a stop are cut: they end as they would with the process, and their jobs are sent again.
func (d *Dispatcher) awaitDeliveries() {
	defer d.endLife()
	if d.settings.Drain > 0 {
		defer time.AfterFunc(d.settings.Drain, func() {
			d.log.Warn(
				"consumers have not answered in the time of a stop; their requests are cut, and their jobs are sent again", "after",
				d.settings.Drain.String())
			d.endLife()
			d.settings.Cut()
		}).Stop()
	}
	d.deliveries.Wait()
}

// cutLease is the rest of a lease whose request was cut: the next broker need not wait for a timeout
// that may be long.
const cutLease = time.Second

// cut ends a delivery whose request was cut. Its result is unknown, and no attempt is counted: the lease
// ends, as that of a broker that is gone. A crash before that leaves the lease as it was.
func (v *delivery) cut() {
	d := v.d
	v.dropKept() // of a part
	d.inFlight.remove(v)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := guard.Do("end of a cut lease", func() error {
		_, err := d.queue.Extend(ctx, v.lane.no, []redisq.Lease{v.lease}, cutLease)
		return err
	})
	if err != nil {
		d.log.Debug("the lease of a cut request ends later", v.about("error", err)...)
	}
	d.returnProbe(v)
}

func (d *Dispatcher) serve(ctx context.Context) {
	for {
		d.mu.Lock()
		for len(d.run) == 0 && !d.stopped {
			d.ready.Wait()
		}
		if d.stopped {
			d.mu.Unlock()
			return
		}
		l := d.run[0]
		d.run = d.run[1:]
		d.mu.Unlock()

		more := d.claim(ctx, l)

		l.mu.Lock()
		l.queued = false
		again := l.again || more
		l.again = false
		l.mu.Unlock()
		if again {
			d.mu.Lock()
			d.wake(l)
			d.mu.Unlock()
		}
	}
}

// poll wakes every lane periodically. It repairs lost wake-ups, and lost hints that Redis lost a
// consumer's state.
func (d *Dispatcher) poll(ctx context.Context) {
	for {
		d.mu.Lock()
		all := make([]*lane, 0, len(d.lanes))
		for _, l := range d.lanes {
			all = append(all, l)
		}
		d.mu.Unlock()
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		pause := time.Second / time.Duration(min(max(len(all), 1), idlePollsPerSecond))
		if len(all) == 0 {
			all = []*lane{nil}
		}
		for _, l := range all {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			if l != nil {
				d.mu.Lock()
				d.wake(l)
				d.mu.Unlock()
				if l.room() <= 0 {
					d.look(ctx, l)
				}
			}
		}
	}
}
