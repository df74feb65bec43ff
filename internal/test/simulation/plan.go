package simulation

import "time"

// A plan is what a seed decides beforehand: the size of the world and which kinds
// of faults it has. Rates are per thousand calls.
type plan struct {
	calm     bool // no fault at all: not one duplicate is allowed
	brokers  int
	channels int
	push     int // push consumers of each channel at the beginning
	pull     int // pull consumers of each channel at the beginning
	late     int // consumers registered while messages flow, in all
	messages int // of each producer
	window   int
	each     int           // requests in flight of one consumer
	active   time.Duration // how long messages and faults come

	retention, deadRetention time.Duration // 0: for ever

	storeSkew, queueSkew time.Duration

	store, queue seamRates
	lateness     time.Duration // the longest that a request of a call is on its way after its client gave up
	crash        int           // at a call, before or after its effect
	slow         int           // calls that take long
	consumer     consumerRates
	ponder       time.Duration // how long pull workers may look at a list before they take a job of it
	events       []trouble
	holds        bool // consumers are paused, answer 410 and have tombstones
	orders       bool // messages have ordering keys, and consumers are ordered
	rates        bool // consumers have a rate
	schedules    bool // some messages are scheduled
	responses    bool // consumers answer with responses, some of them later
	bulks        bool // files of messages are posted
	replays      bool // the past is replayed to push consumers
	purges       bool // queued jobs are purged, and delayed ones hastened
	journal      journaling
	greed        greed   // of producers beside the one whose messages count
	hanging      hanging // consumers beside the others
}

// seamRates are the faults of the calls of one seam.
type seamRates struct{ before, after, late int }

// consumerRates are the ways of consumers, while there are faults.
type consumerRates struct{ refuse, fail, throttle, slow, hang, lost int }

// A trouble is a fault that the world has at a time of its own.
type trouble struct {
	at   time.Duration
	kind troubleKind
	slot int // of the broker that is meant
	span time.Duration
}

type troubleKind int

const (
	kill troubleKind = iota
	restart
	pause
	wipe
	restartEmpty
	snapshot
	restore
	queueAway
	storeAway
	clockJump
	redrive
	retrigger
	troubleKinds // those above are troubles of all plans
	diskFull
	vacate
	stepBack
	keepState
	goBack
)

func (k troubleKind) String() string {
	return [...]string{"kill", "restart", "pause", "wipe", "restart Redis empty", "snapshot", "restore the snapshot",
		"Redis away",
		"store away", "clock of Redis jumps", "redrive", "re-trigger", "", "disk full", "gone for good",
		"clock of the store's server goes back",
		"keep the state of the store", "the store goes back to it"}[k]
}

// newPlan draws a plan. Each class of faults is there in about half of the plans,
// so that every combination is met, the quiet ones too.
func newPlan(seed uint64) plan {
	p := drawPlan(seed)
	p.journal = newJournaling(seed, &p)
	p.greed = newGreed(seed)
	p.hanging = newHanging(seed, &p)
	return p
}

func drawPlan(seed uint64) plan {
	c := draw(seed, word("plan"))
	p := plan{
		brokers: 2 + c.below(2), channels: 1 + c.below(2), push: 1 + c.below(2), pull: c.below(2), late: c.below(3),
		messages: 4 + c.below(10), window: []int{3, 8, 1000, 1000}[c.below(4)], each: []int{1, 4, 4}[c.below(3)],
		active: c.between(3*time.Second, 6*time.Second), lateness: 800 * time.Millisecond,
	}
	if c.hit(200) { // long enough for settled marks to move, and to be used by the next life
		p.active = c.between(11*time.Second, 16*time.Second)
	}
	if c.hit(400) {
		p.storeSkew = c.between(-3*time.Second, 3*time.Second)
		p.queueSkew = c.between(-3*time.Second, 3*time.Second)
	}
	some := draw(seed, word("policies")) // a draw of its own: the others stay
	p.orders, p.rates = some.hit(300), some.hit(200)
	ahead := draw(seed, word("schedules")) // a draw of its own: the others stay
	p.schedules = ahead.hit(300)
	back := draw(seed, word("responses")) // a draw of its own: the others stay
	p.responses, p.replays, p.bulks = back.hit(120), back.hit(100), back.hit(60)
	away := draw(seed, word("purges"))       // a draw of its own: the others stay
	p.purges = away.hit(150) && !p.responses // each message of which is answered
	if p.calm = c.hit(100); p.calm {
		return p
	}
	holds := draw(seed, word("holds")) // a draw of its own: the others stay
	p.holds = holds.hit(400)
	level := []int{5, 20, 60}[c.below(3)]
	class := func(rate int) int {
		if c.hit(500) {
			return 0
		}
		return rate
	}
	p.store = seamRates{before: class(level), after: class(level), late: class(level)}
	p.queue = seamRates{before: class(level), after: class(level), late: class(level)}
	p.crash, p.slow = class(3), class(level)
	p.consumer = consumerRates{refuse: class(2 * level), fail: class(5 * level), throttle: class(2 * level),
		slow: class(4 * level), hang: class(level), lost: class(2 * level)}
	for kind := range troubleKinds {
		if c.hit(600) {
			continue
		}
		for range 1 + c.below(2) {
			p.events = append(p.events, trouble{at: c.between(0, p.active), kind: kind, slot: c.below(p.brokers),
				span: c.between(200*time.Millisecond, 5*time.Second)})
		}
	}
	clock := draw(seed, word("store clock")) // a draw of its own: the others stay
	if clock.hit(250) && !p.schedules {      // whose times are those of the store's clock, which stands for a moment
		for range 1 + clock.below(2) {
			p.events = append(p.events, trouble{at: clock.between(0, p.active), kind: stepBack,
				span: clock.between(200*time.Millisecond, 10*time.Second)})
		}
	}
	older := draw(seed, word("older state"))
	// of which the state is not kept
	if older.hit(150) && !p.schedules && !p.responses && !p.replays && !p.bulks && !p.orders {
		at := older.between(time.Second, p.active/2)
		p.events = append(p.events, trouble{at: at, kind: keepState}, trouble{at: at + older.between(1500*time.Millisecond,
			p.active/2), kind: goBack})
	}
	return p
}

// storeFails tells whether the store may be away or slow at any time.
func (p *plan) storeFails() bool {
	fails := p.slow > 0 || p.store != seamRates{}
	for _, e := range p.events {
		fails = fails || e.kind == storeAway || e.kind == pause
	}
	return fails
}
