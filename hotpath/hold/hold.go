// Package hold keeps the jobs of a consumer back on all brokers while an answer of the consumer asks for
// that: 429 or 503 with Retry-After, or 401 to an access token that was just renewed.
//
// A hold is a row of the durable store, and ends at its time, or as soon as its reason is gone: the store
// removes the row in the transaction that changes where or how the consumer is called, or that pauses,
// resumes or revives it, and for whoever redrives or re-triggers its jobs. Each broker reads the rows
// every second and claims nothing for a consumer that is held. So a lost Redis, a restart and a new
// broker change nothing, and a hold that has ended is over everywhere within a second.
//
// Redis keeps a hold for its first seconds, until every broker has read the row, or the store takes it
// again. A crash before the row is stored leaves those seconds and no hold: the next answer begins
// another one. A crash after a row is removed leaves at most those seconds, too.
package hold

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/tool/guard"
)

const (
	// inRedis is the longest hold in Redis: a multiple of readEvery, so that brokers which are slow to
	// read the store hold the consumer as well.
	inRedis = 5 * time.Second
	// readEvery is the interval at which holds are read.
	readEvery = time.Second
	// gather is the least time between two transactions: many consumers may begin holds.
	gather = 50 * time.Millisecond
	// callWithin bounds a call of Redis, storeWithin one of the store.
	callWithin  = time.Second
	storeWithin = 5 * time.Second
	// unread is the rest of a hold until the holds were read for the first time.
	unread = 100 * time.Millisecond
)

// A Store has the holds: the durable store.
type Store interface {
	KeepHolds(ctx context.Context, holds []durable.Hold) (kept []bool, err error)
	Holds(ctx context.Context, nowMs int64) ([]durable.Hold, error)
	HoldOf(ctx context.Context, consumerNo uint32) (durable.Hold, error)
	EndHolds(ctx context.Context, consumers []uint32) error
}

// A Queue holds the first seconds: a redisq.Queue.
type Queue interface {
	Hold(ctx context.Context, consumer uint32, wait time.Duration) error
}

// Options assemble a Keeper.
type Options struct {
	Store Store
	Queue Queue
	NowMs func() int64 // the clock of the store
	// Ended is told of a consumer whose hold has ended before its time, on every broker. It must not
	// block.
	Ended func(consumer uint32)
	Log   *slog.Logger
}

// An entry is a hold that this broker knows.
type entry struct {
	durable.Hold
	stored time.Time // since when the store is known to have it; zero: it has not
}

// A Keeper begins holds and knows those of all brokers. It is safe for concurrent use.
type Keeper struct {
	o      Options
	loaded atomic.Bool
	count  atomic.Int64  // len of known: nothing is looked up where nothing is held
	look   chan struct{} // capacity 1

	mu       sync.Mutex
	known    map[uint32]*entry
	outdated []uint32 // consumers whose holds Learn has ended, and nobody was told yet
}

// New returns a keeper. It learns holds while Run runs.
func New(o Options) *Keeper {
	return &Keeper{o: o, look: make(chan struct{}, 1), known: map[uint32]*entry{}}
}

// Rest returns the time until the hold of the consumer ends, 0 or less where it is not held.
func (k *Keeper) Rest(consumer uint32) time.Duration {
	if k.count.Load() == 0 {
		if !k.loaded.Load() {
			return unread
		}
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.known[consumer]; e != nil {
		return k.rest(e)
	}
	return 0
}

func (k *Keeper) rest(e *entry) time.Duration {
	return time.Duration(e.UntilMs-k.o.NowMs()) * time.Millisecond
}

// Begin holds a consumer, in the state in which it was called, for that long. A longer hold stays.
func (k *Keeper) Begin(called *durable.Consumer, wait time.Duration, by string) {
	now := k.o.NowMs()
	h := durable.Hold{ConsumerNo: called.No, SinceMs: now, UntilMs: now + wait.Milliseconds(), By: by,
		Version: called.Version}
	k.mu.Lock()
	old := k.known[h.ConsumerNo]
	if old != nil && old.UntilMs >= h.UntilMs {
		k.mu.Unlock()
		return
	}
	if old != nil && old.UntilMs > now {
		h.SinceMs = old.SinceMs
	}
	k.known[h.ConsumerNo] = &entry{Hold: h}
	k.count.Store(int64(len(k.known)))
	k.mu.Unlock()
	k.tellRedis(h.ConsumerNo, min(wait, inRedis))
	k.Look()
}

// tellRedis tells the other brokers.
func (k *Keeper) tellRedis(consumer uint32, wait time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), callWithin)
	defer cancel()
	if err := guard.Do("hold of a consumer", func() error { return k.o.Queue.Hold(ctx, consumer, wait) }); err != nil {
		k.o.Log.Debug("Redis does not know whether a consumer is held", "consumer", consumer, "error", err)
	}
}

// Look reads the holds soon: some may have ended. It never blocks.
func (k *Keeper) Look() {
	select {
	case k.look <- struct{}{}:
	default:
	}
}

// Learn reads the holds soon if a consumer has changed that is held. A hold that is not stored yet is over at
// once: the store takes none of a former version.
func (k *Keeper) Learn(c *durable.Consumer) {
	if k.count.Load() == 0 || k.Rest(c.Account()) <= 0 {
		return
	}
	k.mu.Lock()
	if e := k.known[c.No]; e != nil && e.stored.IsZero() && e.Version < c.Version {
		delete(k.known, c.No)
		k.count.Store(int64(len(k.known)))
		k.outdated = append(k.outdated, c.No)
	}
	k.mu.Unlock()
	k.Look()
}

// tellOutdated tells of the holds that Learn has ended.
func (k *Keeper) tellOutdated() {
	k.mu.Lock()
	over := k.outdated
	k.outdated = nil
	k.mu.Unlock()
	for _, no := range over {
		k.ended(no)
	}
}

// Of returns the hold of a consumer, as the store has it; ok is false where there is none. Without the
// store it is what this broker knows.
func (k *Keeper) Of(ctx context.Context, consumer uint32) (h durable.Hold, ok bool) {
	k.mu.Lock()
	e := k.known[consumer]
	if e != nil {
		h = e.Hold
	}
	own := e != nil && e.stored.IsZero()
	k.mu.Unlock()
	if !own {
		if stored, err := k.o.Store.HoldOf(ctx, consumer); err == nil {
			h = stored
		}
	}
	return h, h.UntilMs > k.o.NowMs()
}

// Known returns the holds that are not over, as this broker knows, by consumer.
func (k *Keeper) Known() map[uint32]durable.Hold {
	out := map[uint32]durable.Hold{}
	if k.count.Load() == 0 {
		return out
	}
	now := k.o.NowMs()
	k.mu.Lock()
	defer k.mu.Unlock()
	for no, e := range k.known {
		if e.UntilMs > now {
			out[no] = e.Hold
		}
	}
	return out
}

// KnownOf returns the hold of a consumer that this broker knows; ok is false where there is none. stored says
// whether the store had it at a time: a read that began then and did not find it proves that it is over. It
// asks nobody.
func (k *Keeper) KnownOf(consumer uint32, at time.Time) (h durable.Hold, stored, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.known[consumer]
	if e == nil || k.rest(e) <= 0 {
		return durable.Hold{}, false, false
	}
	return e.Hold, !e.stored.IsZero() && e.stored.Before(at), true
}

// End ends the holds of consumers: a person wants their jobs to be sent.
func (k *Keeper) End(ctx context.Context, consumers ...uint32) error {
	if err := k.o.Store.EndHolds(ctx, consumers); err != nil {
		return err
	}
	for _, no := range consumers {
		k.Forget(no)
	}
	return nil
}

// Forget ends the hold of a consumer at this broker: the store has ended it.
func (k *Keeper) Forget(consumer uint32) {
	k.forget(consumer, nil)
	k.Look()
}

// forget ends a hold at this broker; of is the entry that must still be the known one, nil for any.
func (k *Keeper) forget(consumer uint32, of *entry) {
	k.mu.Lock()
	e := k.known[consumer]
	if e == nil || of != nil && e != of {
		k.mu.Unlock()
		return
	}
	delete(k.known, consumer)
	k.count.Store(int64(len(k.known)))
	k.mu.Unlock()
	k.ended(consumer)
}

// ended tells of a hold that ended before its time.
func (k *Keeper) ended(consumer uint32) {
	k.tellRedis(consumer, 0)
	k.o.Ended(consumer)
}

// Run stores and reads holds until ctx ends. Then it stores those that are left.
func (k *Keeper) Run(ctx context.Context) {
	for failing := false; ; {
		err := k.round(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			k.o.Log.Warn("the holds of consumers cannot be stored or read; this broker goes by those that it knows",
				"error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), callWithin)
			defer cancel()
			_ = k.keep(last)
			return
		case <-time.After(readEvery):
			continue
		case <-k.look:
		}
		select {
		case <-ctx.Done(): // the next round ends at once
		case <-time.After(gather):
		}
	}
}

func (k *Keeper) round(ctx context.Context) error {
	k.tellOutdated()
	ctx, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	if err := k.keep(ctx); err != nil {
		return err
	}
	holds, err := k.o.Store.Holds(ctx, k.o.NowMs())
	if err == nil {
		k.adopt(holds)
	}
	return err
}

// keep stores the holds that began here. Until it succeeds, Redis has them for a few seconds each time.
func (k *Keeper) keep(ctx context.Context) error {
	var entries []*entry
	k.mu.Lock()
	for _, e := range k.known {
		if e.stored.IsZero() {
			entries = append(entries, e)
		}
	}
	k.mu.Unlock()
	if len(entries) == 0 {
		return nil
	}
	slices.SortFunc(entries, func(a, b *entry) int { return cmp.Compare(a.ConsumerNo, b.ConsumerNo) })
	holds := make([]durable.Hold, len(entries))
	for i, e := range entries {
		holds[i] = e.Hold
	}
	kept, err := k.o.Store.KeepHolds(ctx, holds)
	if err != nil {
		for _, e := range entries {
			if rest := k.rest(e); rest > 0 {
				k.tellRedis(e.ConsumerNo, min(rest, inRedis))
			}
		}
		return err
	}
	var late []uint32 // ended while they were stored
	for i, e := range entries {
		if !kept[i] { // the consumer has changed since
			k.forget(e.ConsumerNo, e)
			continue
		}
		k.mu.Lock()
		e.stored = time.Now()
		if k.known[e.ConsumerNo] == nil {
			late = append(late, e.ConsumerNo)
		}
		k.mu.Unlock()
	}
	return k.o.Store.EndHolds(ctx, late)
}

// adopt makes these the known holds, with those that began here since and are not stored yet.
func (k *Keeper) adopt(holds []durable.Hold) {
	now, read := k.o.NowMs(), time.Now()
	known := make(map[uint32]*entry, len(holds))
	for _, h := range holds {
		known[h.ConsumerNo] = &entry{Hold: h, stored: read}
	}
	var ended []uint32
	k.mu.Lock()
	for no, old := range k.known {
		e := known[no]
		switch {
		case old.UntilMs <= now:
		case e != nil && e.UntilMs == old.UntilMs && !old.stored.IsZero():
			e.stored = old.stored
		case e != nil && e.UntilMs >= old.UntilMs:
		case old.stored.IsZero():
			known[no] = old
		default:
			ended = append(ended, no)
		}
	}
	k.known = known
	k.count.Store(int64(len(known)))
	k.mu.Unlock()
	k.loaded.Store(true)
	for _, no := range ended {
		k.ended(no)
	}
}
