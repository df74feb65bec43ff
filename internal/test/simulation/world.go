package simulation

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/test/queuemodel"
)

// The settings of the brokers: as in production, in short. As there, what a lease
// is longer than a request is more than a third of it, and less than half.
const (
	deliveryTimeout = 1200 * time.Millisecond
	pushLease       = 2 * time.Second
	pullLease       = 1500 * time.Millisecond
	rationalDelay   = 2 * time.Second
	stopGrace       = 300 * time.Millisecond
	maxAttempts     = 4
	keptFor         = rationalDelay + durable.MinRetention
)

// A world is one run: the servers, the brokers on them, the people around.
type world struct {
	seed  uint64
	plan  plan
	flaw  flaw
	start time.Time

	history history
	checker *checker
	store   *store
	server  *server
	disk    *disk
	folders string // of the data folders of the brokers

	faults     atomic.Bool // faults may happen now
	resting    atomic.Bool // pull workers begin nothing new
	closing    atomic.Bool // no broker is to be started any more
	storeAway  away
	queueAway  away
	brokering  sync.WaitGroup // brokers and their slots
	working    sync.WaitGroup // pull workers: they work as long as there are brokers
	rounds     group          // what pull workers have begun
	acting     group          // goroutines that end by themselves: producers, operators, late requests
	savedLanes map[uint32]*queuemodel.Consumer
	savedState *olderState  // of the store
	hanging    atomic.Int32 // requests to hanging neighbours

	mu        sync.Mutex
	lives     int
	brokers   []*broker       // by slot; nil while there is none
	vacant    []bool          // slots that stay empty
	hung      map[uint32]bool // the consumers that are hanging neighbours; as it is before the first broker starts
	channels  []uint32
	published []*post
	byPayload map[string]*post
	receivers receivers
	bulks     []*bulkPost
	joined    map[uint32]time.Duration // consumer -> when its registration was answered
}

// A group is goroutines that are waited for, where new ones may begin during the
// wait: a WaitGroup does not allow that.
type group struct {
	mu    sync.Mutex
	ended sync.Cond
	n     int
}

// Go runs f in a goroutine of the group.
func (g *group) Go(f func()) {
	g.begin()
	go func() {
		defer g.end()
		f()
	}()
}

func (g *group) begin() {
	g.mu.Lock()
	g.n++
	g.mu.Unlock()
}

func (g *group) end() {
	g.mu.Lock()
	g.n--
	g.mu.Unlock()
	g.ended.Broadcast()
}

// Wait returns when no goroutine of the group runs.
func (g *group) Wait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.n > 0 {
		g.ended.Wait()
	}
}

// An away is a server that does not answer for a while.
type away struct{ until atomic.Int64 }

func (a *away) now() bool             { return time.Now().UnixNano() < a.until.Load() }
func (a *away) begin(d time.Duration) { a.until.Store(time.Now().Add(d).UnixNano()) }

func newWorld(seed uint64, p plan, f flaw, st *store) *world {
	w := &world{seed: seed, plan: p, flaw: f, start: time.Now(), byPayload: map[string]*post{},
		joined: map[uint32]time.Duration{}}
	w.receivers.given, w.receivers.results = map[jobKey][]string{}, map[string]result{}
	w.history.start = w.start
	w.acting.ended.L, w.rounds.ended.L = &w.acting.mu, &w.rounds.mu
	w.checker = newChecker(w)
	w.store = st
	w.store.report = func(format string, args ...any) { w.checker.report(none, format, args...) }
	w.server = newServer(func() time.Time { return time.Now().Add(p.queueSkew) }, w.store.behind)
	w.store.flaw, w.server.flaw = f, f
	w.brokers, w.vacant = make([]*broker, p.brokers), make([]bool, p.brokers)
	w.disk = &disk{w: w, files: map[string]*diskFile{}}
	return w
}

// now is the time since the run began.
func (w *world) now() time.Duration { return time.Since(w.start) }

// faulty tells whether faults may happen.
func (w *world) faulty() bool { return w.faults.Load() }

func (w *world) note(what, detail string) {
	w.history.add(event{what: what, detail: detail})
}

// told records the answer to a client.
func (w *world) told(what, detail string) {
	w.history.add(event{what: what, detail: detail, routine: true})
}

// notify is a hint over pub/sub: those that live get it.
func (w *world) notify(consumers []uint32) {
	w.mu.Lock()
	brokers := append([]*broker(nil), w.brokers...)
	w.mu.Unlock()
	for _, b := range brokers {
		if b == nil || b.life.dead() {
			continue
		}
		for _, consumer := range consumers {
			b.plane.Hinted(consumer)
		}
	}
}

// broker returns a broker that lives, of a slot if possible, or nil.
func (w *world) broker(slot int) *broker {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.brokers {
		if b := w.brokers[(slot+i)%len(w.brokers)]; b != nil && !b.life.dead() {
			return b
		}
	}
	return nil
}

// join registers a consumer: from its answer on, every message reaches it, and those after since.
func (w *world) join(channel uint32, kind durable.ConsumerType, since ident.ID) {
	k := w.store.putConsumer(channel, kind, w.policy(channel, kind), since)
	w.mu.Lock()
	w.joined[k.No] = w.now()
	w.mu.Unlock()
	w.note("consumer joins", fmt.Sprintf("%d, %s, channel %d, since %s", k.No, kind, channel, since))
	if kind == durable.Pull {
		for n := range 2 {
			w.working.Go(func() { w.pull(k, n) })
		}
	}
}

// run is the whole run.
func (w *world) run() {
	settings, err := policy.MergeSender("", map[string]string{"replyUrl": senderURL})
	if err != nil {
		panic(err) // it is a URL
	}
	w.store.putProducer("p", settings)
	for n := range w.plan.greed.producers {
		w.store.putProducer(greedyName(n), "")
	}
	for c := range w.plan.channels {
		no := w.store.putChannel(fmt.Sprintf("c%d", c+1))
		w.channels = append(w.channels, no)
	}
	w.takeIn()
	w.faults.Store(!w.plan.calm)
	for _, no := range w.channels {
		for range w.plan.push {
			w.join(no, durable.Push, none)
		}
		for range w.plan.pull {
			w.join(no, durable.Pull, none)
		}
	}
	w.joinHanging()
	for slot := range w.plan.brokers {
		w.brokering.Go(func() { w.occupy(slot) })
	}
	for _, no := range w.channels {
		for producer := range 2 {
			w.acting.Go(func() { w.produce(no, producer) })
		}
	}
	w.acting.Go(w.register)
	w.acting.Go(w.reschedule)
	w.acting.Go(w.trouble)
	w.acting.Go(w.hold)
	w.acting.Go(w.pause)
	w.acting.Go(w.replay)
	w.acting.Go(w.purge)
	w.acting.Go(w.bulk)
	w.acting.Go(w.beGreedy)
	w.acting.Go(w.wonder)

	time.Sleep(w.plan.active)
	w.quiet()
	w.acting.Wait()
	w.awaitEnd()
	w.closing.Store(true)
	w.mu.Lock()
	for _, b := range w.brokers {
		if b != nil {
			b.stop()
		}
	}
	w.mu.Unlock()
	w.working.Wait()
	w.brokering.Wait()
	w.acting.Wait()
	if !w.checker.failed() {
		w.final()
	}
}

// quiet ends all faults.
func (w *world) quiet() {
	w.note("quiet", "no faults from here on")
	w.faults.Store(false)
	w.storeAway.begin(0)
	w.queueAway.begin(0)
	w.disk.full.begin(0)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.brokers {
		if b != nil {
			b.life.thaw()
		}
	}
}

// bound is how long everything may take to be over after the last fault: the
// longest net, the walk over open jobs, comes once a minute (I5).
const bound = 150 * time.Second

// awaitEnd waits until everything is over.
func (w *world) awaitEnd() {
	left, id := "", ident.ID{}
	for began := w.now(); w.now()-began < bound; time.Sleep(200 * time.Millisecond) {
		w.unhold()
		w.unblock()
		w.resend()
		w.resume()
		w.unpause()
		if left, id = w.unfinished(); left == "" {
			left, id = w.rest()
		}
		if left == "" || w.checker.failed() {
			return
		}
	}
	w.checker.report(id, "I5: %s, %s after the last fault", left, bound)
}

// rest lets pull workers end what they have begun, and says what is not over then. A
// worker that listed a job before it died may take it up again: such a job is open once
// more, and the workers go on.
func (w *world) rest() (string, ident.ID) {
	w.resting.Store(true)
	w.rounds.Wait()
	left, id := w.unfinished()
	if left != "" {
		w.resting.Store(false)
	}
	return left, id
}
