package quota

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/guard"
)

// ErrFull refuses what would exceed the bound of its producer.
var ErrFull = &problem.Problem{Status: 429, Code: "producer_full", RetryAfter: 10,
	Detail: "The producer stores as much as it may: maxStoredBytes or maxScheduled. Nothing was stored; room comes " +
		"when retention removes its messages, or its schedules are sent."}

// A Store is the part of durable.Store that counts.
type Store interface {
	LatestMessages(ctx context.Context, afterChannel uint32, limit int) ([]durable.Latest, error)
	CountStored(ctx context.Context, channelNo uint32, through ident.ID, limit int) (more bool, err error)
	Stored(ctx context.Context) (durable.Stored, error)
	ScheduledCounts(ctx context.Context, before ident.ID, of []uint32) (map[uint32]int64, error)
	ScheduledBytes(ctx context.Context, before ident.ID, of []uint32) (map[uint32]int64, error)
}

// A Cluster tells which channels this broker counts, and the store's time.
type Cluster interface {
	Owns(consumer uint32) bool
	NowMs() int64
	PastMs() int64
}

// Options of New.
type Options struct {
	Store     Store
	Catalogue *catalogue.Catalogue
	Cluster   Cluster
	// MaxStored and MaxScheduled are the bounds of producers that set none; 0: no bound.
	MaxStored, MaxScheduled int64
	Registry                prometheus.Registerer
	Log                     *slog.Logger
}

// A Quota knows what the producers with a bound store. A nil Quota bounds nothing.
type Quota struct {
	o       Options
	refused prometheus.Counter
	loaded  atomic.Bool
	loading chan struct{} // capacity 1: one load at a time
	failed  time.Time     // the last load; of the one who loads

	mu       sync.Mutex
	accounts map[uint32]*account
	sums     map[uint32]amount   // of the store, as last read
	marks    map[uint32]ident.ID // channel -> up to which message
	plan     plan
}

// An amount is what a producer stores.
type amount struct{ bytes, scheduled int64 }

func (a *amount) add(b amount) {
	a.bytes += b.bytes
	a.scheduled += b.scheduled
}

// An account is what a producer has stored through this broker beyond the sums.
type account struct {
	flight amount // on the way
	recent map[bucket]amount
}

// A bucket is the second of an ID, of messages of a channel, or of schedules and bulks.
type bucket struct {
	channel uint32 // 0: schedules; bulks: their bodies
	second  int64
}

const bulks = ^uint32(0)

// New returns the quota of a broker. Run counts.
func New(o Options) *Quota {
	q := &Quota{o: o, loading: make(chan struct{}, 1), accounts: map[uint32]*account{}, sums: map[uint32]amount{}}
	q.refused = prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_producer_full_total",
		Help: "Messages, schedules and chunks of bulks refused because their producer stores as much as it may."})
	if o.Registry != nil {
		o.Registry.MustRegister(q.refused)
	}
	return q
}

// bounds returns the bounds of a producer, 0 for none.
func (q *Quota) bounds(producer uint32) (most amount) {
	set := q.o.Catalogue.Bounds()[producer]
	return amount{set.Stored.Or(q.o.MaxStored), set.Scheduled.Or(q.o.MaxScheduled)}
}

// on reports whether any producer may have a bound.
func (q *Quota) on() bool {
	return q.o.MaxStored > 0 || q.o.MaxScheduled > 0 || len(q.o.Catalogue.Bounds()) > 0
}

// A Taken is room that a producer has taken. The zero value is none.
type Taken struct {
	q        *Quota
	producer uint32
	amount   amount
}

// Bounded reports whether the producer has a bound.
func (t Taken) Bounded() bool { return t.q != nil }

// Take takes room for bytes and schedules of a producer, or returns ErrFull. credit are bytes that the
// producer stores and that will be over: those of the body whose rows these are.
func (q *Quota) Take(producer uint32, bytes, schedules, credit int64) (Taken, error) {
	if q == nil || !q.on() {
		return Taken{}, nil
	}
	most := q.bounds(producer)
	if most == (amount{}) {
		return Taken{}, nil
	}
	if !q.knows(producer, most) {
		q.load(context.Background(), producer, most) // after a failure the store will not take the message either
	}
	wants := amount{bytes, schedules}
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.account(producer)
	if has := q.has(producer, a); most.bytes > 0 && has.bytes-credit+bytes > most.bytes || most.scheduled > 0 &&
		schedules > 0 && has.scheduled+schedules > most.scheduled {
		q.refused.Inc()
		return Taken{}, ErrFull
	}
	a.flight.add(wants)
	return Taken{q, producer, wants}, nil
}

// has returns what a producer stores. It needs mu.
func (q *Quota) has(producer uint32, a *account) amount {
	has := q.sums[producer]
	has.add(a.flight)
	for _, one := range a.recent {
		has.add(one)
	}
	return has
}

// Full reports whether a message of so many bytes is refused now, as far as this broker knows.
func (q *Quota) Full(producer uint32, bytes int64) bool {
	if q == nil || !q.on() {
		return false
	}
	most := q.bounds(producer)
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.accounts[producer]
	if a == nil {
		a = &account{}
	}
	return most.bytes > 0 && q.has(producer, a).bytes+bytes > most.bytes
}

// account needs mu.
func (q *Quota) account(producer uint32) *account {
	a := q.accounts[producer]
	if a == nil {
		a = &account{recent: map[bucket]amount{}}
		q.accounts[producer] = a
	}
	return a
}

// Messages says what became of room for messages of a channel: bytes of it are stored under IDs of
// that time; zero: the store has not given one yet.
func (t Taken) Messages(channel uint32, id ident.ID, bytes int64) {
	t.done(bucket{channel, t.second(id)}, amount{bytes: bytes})
}

// Schedule is Messages for a schedule.
func (t Taken) Schedule(id ident.ID, stored bool) {
	kept := t.amount
	if !stored {
		kept = amount{}
	}
	t.done(bucket{0, t.second(id)}, kept)
}

// Body is Messages for a part of the body of a bulk.
func (t Taken) Body(id ident.ID, stored bool) {
	kept := t.amount
	if !stored {
		kept = amount{}
	}
	t.done(bucket{bulks, t.second(id)}, kept)
}

func (t Taken) second(id ident.ID) int64 {
	switch {
	case t.q == nil:
		return 0
	case id.IsZero():
		return t.q.o.Cluster.NowMs()/1000 + 1
	}
	return id.Millis() / 1000
}

// done ends the way into the store of which kept is stored.
func (t Taken) done(b bucket, kept amount) {
	if t.q == nil {
		return
	}
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	a := t.q.account(t.producer)
	a.flight.add(amount{-t.amount.bytes, -t.amount.scheduled})
	if kept != (amount{}) {
		sum := a.recent[b]
		sum.add(kept)
		a.recent[b] = sum
	}
}

// StoreWentBack forgets what this broker has stored beyond the sums. A store that went back to an
// earlier state may not have it, and the sums pass it only with a later message of its channel.
func (q *Quota) StoreWentBack() {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range q.accounts {
		clear(a.recent)
	}
	q.plan = plan{}
}

// Run counts until ctx ends.
func (q *Quota) Run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	failing := false
	for {
		if q.on() {
			err := guard.Do("count of what producers store", func() error { return q.round(ctx) })
			if err != nil && !failing && ctx.Err() == nil {
				q.o.Log.Warn("what producers store cannot be counted; the sums before stay", "error", err)
			}
			failing = err != nil
		} else {
			q.loaded.Store(false)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
