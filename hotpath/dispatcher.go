package hotpath

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/internal/policy"
	"github.com/penstock-broker/penstock/redisq"
)

const (
	// servers is how many lanes claim at the same time.
	servers = 4
	// claimPause is the least time between two claims of a lane that still has
	// half of its slots in use: larger batches, same latency.
	claimPause = 2 * time.Millisecond
	// claimMax bounds one claim.
	claimMax = 100
	// idlePollsPerSecond bounds what polling idle consumers costs Redis. Wake-ups
	// carry the load; polling repairs lost ones.
	idlePollsPerSecond = 4
	// storePause is the wait after the store or Redis failed a claim.
	storePause = 250 * time.Millisecond
)

// A Claimer is the part of redisq.Queue that the dispatcher needs.
type Claimer interface {
	Generation() uint64
	Claim(ctx context.Context, consumer uint32, n int, lease time.Duration) (redisq.Claim, error)
	Extend(ctx context.Context, consumer uint32, leases []redisq.Lease, lease time.Duration) ([]bool, error)
	RestoreLeases(ctx context.Context, consumer uint32, leases []redisq.Lease, lease time.Duration) ([]bool, error)
	Release(ctx context.Context, consumer uint32, leases []redisq.Lease) ([]bool, error)
	Ack(ctx context.Context, consumer uint32, ids []ident.ID) (int, error)
}

// Outcomes are where the ends of attempts go: an outcome.Committer.
type Outcomes interface {
	Add(r outcome.Result)
	Room() int
}

// PushOptions are the settings of push delivery.
type PushOptions struct {
	Policies    *policy.Book  // timeout, attempts, backoff, and what an answer means
	Lease       time.Duration // visibility timeout of a push job where Margin leaves it as long
	Margin      time.Duration // by which a lease is longer than the timeout of an attempt
	Concurrency int           // requests in flight, this process
	PerConsumer int           // requests in flight, one consumer
	Bytes       int64         // of large payloads under way, this process
	TokenHeader string
	UserAgent   string
}

// A dispatcher claims jobs of push consumers and delivers them.
type dispatcher struct {
	queue     Claimer
	catalogue *catalogue.Catalogue
	client    Deliverer
	verifier  *verify.Verifier
	outcomes  Outcomes
	admission *admission
	options   PushOptions
	nowMs     func() int64          // the clock of the store
	touched   func(consumer uint32) // the consumer has leases: the reaper must watch
	refill    func(consumer uint32) // the store holds more of its jobs
	log       *slog.Logger
	metrics   *metrics.Metrics

	mu      sync.Mutex
	lanes   map[uint32]*lane
	run     []*lane // woken, not yet served
	slots   int     // free, of options.Concurrency
	starved []*lane // woken while there was no free slot
	stopped bool
	ready   sync.Cond // run is not empty, or stopped

	deliveries sync.WaitGroup
	idle       chan *delivery // unbuffered: to workers that wait for work
	quit       chan struct{}  // closed when stopped
	held       held
	large      largeHeld
	fits       verify.Fits        // how many jobs a claim of a lane should bring
	loading    chan struct{}      // capacity servers: a claim is loading payloads
	doubts     *dedupQueue[*lane] // whose leases Redis may have lost
}

// policy is how the consumer is delivered to.
func (d *dispatcher) policy(k *durable.Consumer) *policy.Policy {
	return d.options.Policies.Of(k.Policy)
}

// lease is the visibility timeout of the consumer's jobs: it covers a whole attempt. It
// is never shorter than the usual one, so one heartbeat suits all.
func (d *dispatcher) lease(k *durable.Consumer) time.Duration {
	return max(d.options.Lease, d.policy(k).Timeout+d.options.Margin)
}

// newDispatcher completes a dispatcher whose fields up to metrics are set.
func newDispatcher(d *dispatcher) *dispatcher {
	d.lanes = map[uint32]*lane{}
	d.slots = d.options.Concurrency
	d.large.most = d.options.Bytes
	d.loading = make(chan struct{}, servers)
	d.idle, d.quit = make(chan *delivery), make(chan struct{})
	d.held.byLane = map[*lane]map[*delivery]struct{}{}
	d.ready.L = &d.mu
	d.doubts = newDedupQueue[*lane](holders)
	return d
}

// Learn is told of every consumer that is new or changed.
func (d *dispatcher) Learn(k *durable.Consumer) {
	d.mu.Lock()
	l := d.lanes[k.No]
	if l == nil {
		if k.Type != durable.Push {
			d.mu.Unlock()
			return
		}
		l = &lane{no: k.No, limit: d.options.PerConsumer}
		d.lanes[k.No] = l
	}
	l.consumer.Store(k)
	d.mu.Unlock()
	d.Wake(k.No)
}

// Wake says that the consumer may have jobs that are due. It never blocks, and
// does nothing for pull consumers.
func (d *dispatcher) Wake(consumer uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.lanes[consumer]; l != nil {
		d.wake(l)
	}
}

// WakeAfter is Wake after a while.
func (d *dispatcher) WakeAfter(consumer uint32, after time.Duration) {
	if l := d.lane(consumer); l != nil {
		l.setTimer(after, func() { d.Wake(consumer) })
	}
}

// lane returns the lane of a consumer, nil when it never was a push consumer.
func (d *dispatcher) lane(consumer uint32) *lane {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lanes[consumer]
}

func (d *dispatcher) wake(l *lane) {
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

// Run dispatches until ctx ends, then waits for the deliveries under way, at
// most for the delivery timeout, which each of them obeys by itself.
func (d *dispatcher) Run(ctx context.Context) error {
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
	for range holders {
		beat.Go(func() { guard.Loop(heartbeat, "return of leases", d.holdDoubted) })
	}
	wg.Wait()
	d.deliveries.Wait()
	cancel()
	beat.Wait()
	return nil
}

func (d *dispatcher) serve(ctx context.Context) {
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

// claim takes what the lane has room for and starts its deliveries. It reports
// whether the lane should be served again at once.
func (d *dispatcher) claim(ctx context.Context, l *lane) bool {
	k := l.consumer.Load()
	if k.Type != durable.Push {
		return false
	}
	// Until a claim has told otherwise there may be something: whatever keeps us
	// from claiming now, the end of a request tries again.
	l.leftMore(true)
	room := l.room()
	if room <= 0 || l.short.Load() {
		return false
	}
	if since := time.Since(l.claimed); since < claimPause && room < l.limit/2 {
		l.setTimer(claimPause-since, func() { d.Wake(l.no) })
		return false
	}
	if d.outcomes.Room() < claimMax {
		l.setTimer(storePause, func() { d.Wake(l.no) })
		return false
	}
	n := d.reserve(l, d.fits.Of(l.no, min(room, claimMax)))
	if n == 0 {
		return false // starved: a free slot wakes the lane
	}
	start := time.Now()
	l.claimed = start
	doubted := l.doubted.Load()
	var c redisq.Claim
	err := guard.Do("claim for push", func() (err error) {
		c, err = d.queue.Claim(ctx, l.no, n, d.lease(k))
		return err
	})
	generation := d.queue.Generation() // after it: the claim may be what met another Redis
	if err != nil {
		d.unreserve(l, n)
		if ctx.Err() == nil {
			l.setTimer(storePause, func() { d.Wake(l.no) })
		}
		return false
	}
	got := len(c.Leases)
	d.unreserve(l, n-got)
	l.leftMore(c.Ready > 0)
	if got > 0 {
		left := d.verify(ctx, l, k, d.start(l, k, c.Leases, start, generation), start)
		d.fits.Learn(l.no, got, got-left)
		d.doubtSince(l, doubted)
	}
	// What it left although it had room for it waits for something outside.
	if c.Spilled && (c.Ready < l.limit*2 || got < n) {
		d.refill(l.no)
	}
	if c.Ready > 0 && got == n {
		return true
	}
	if c.NextDue > 0 {
		l.setTimer(c.NextDue, func() { d.Wake(l.no) })
	}
	return false
}

// reserve takes up to n slots of the process for the lane: never more than half
// of those that are left, so that consumers that hang cannot take them all.
func (d *dispatcher) reserve(l *lane, n int) int {
	d.mu.Lock()
	n = min(n, max(d.slots/2, 1), d.slots)
	if n == 0 {
		d.starved = append(d.starved, l)
	}
	d.slots -= n
	d.mu.Unlock()
	l.reserve(n)
	d.metrics.PushInFlight.Add(float64(n))
	return n
}

// unreserve gives back slots that a claim did not use.
func (d *dispatcher) unreserve(l *lane, n int) {
	if n > 0 {
		l.unreserve(n)
		d.free(n)
	}
}

// free gives slots of the process back, and wakes the lanes that wait for some.
func (d *dispatcher) free(n int) {
	d.metrics.PushInFlight.Sub(float64(n))
	d.mu.Lock()
	d.slots += n
	starved := d.starved
	d.starved = nil
	for _, s := range starved {
		d.wake(s)
	}
	d.mu.Unlock()
}

// release gives leases back that were not sent, at their old place, uncharged.
func (d *dispatcher) release(l *lane, leases []redisq.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	d.metrics.Released.Add(float64(len(leases)))
	err := guard.Do("release of leases", func() error {
		_, err := d.queue.Release(ctx, l.no, leases)
		return err
	})
	if err != nil {
		d.log.Debug("unsent jobs could not be given back; their leases will end", "error", err)
	}
}

// poll asks every consumer now and then: the net under the wake-ups, and under the
// hints that Redis lost a consumer's state.
func (d *dispatcher) poll(ctx context.Context) {
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
