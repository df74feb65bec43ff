package presence

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/tool/share"
	"github.com/penstock-broker/penstock/redisq"
)

const (
	// writeEvery is the least time between two writes of the contacts of a consumer. beatEvery is that
	// of a consumer of which claims wait and nothing else happens.
	writeEvery = time.Second
	beatEvery  = 5 * time.Second
	// atOnce bounds the consumers of one turn, and beatsAtOnce those of which only claims wait.
	atOnce, beatsAtOnce = 1000, 50
	// writeWithin bounds one turn.
	writeWithin = 2 * time.Second
	// stale is the age of a broker's last contact from which its field is removed, if another one has
	// later ones.
	stale = 2 * time.Minute
)

// A Queue is the part of redisq.Queue that keeps what the brokers know of workers.
type Queue interface {
	KeepPresence(ctx context.Context, broker string, of []redisq.Presence) error
	Presences(ctx context.Context, consumer uint32) (map[string]string, error)
	DropPresence(ctx context.Context, consumer uint32, brokers []string) error
	Leases(ctx context.Context, consumer uint32, most int) ([]redisq.Lease, []time.Time, error)
}

// A Keeper knows the contacts of all pull consumers. It is safe for concurrent use. A nil Keeper keeps
// nothing.
type Keeper struct {
	queue Queue
	nowMs func() int64
	log   *slog.Logger
	name  string // of this process among the fields of a consumer

	// Claimed, if not nil, is told when workers of a consumer last claimed, Unix ms: while they do, each time
	// that their contacts are written, and with last when Run ends.
	Claimed func(consumer uint32, ms int64, last bool)

	mu    sync.RWMutex
	seats map[uint32]*seat
}

// New returns a keeper. nowMs is the clock of the store, which all brokers share. Nothing is written
// before Run.
func New(queue Queue, nowMs func() int64, log *slog.Logger) *Keeper {
	var name [6]byte
	_, _ = rand.Read(name[:]) // never fails
	return &Keeper{queue: queue, nowMs: nowMs, log: log, name: hex.EncodeToString(name[:]), seats: map[uint32]*seat{}}
}

// A Contact is one contact of a consumer. The zero value is one that is not kept.
type Contact struct {
	keeper *Keeper
	seat   *seat
	worker *present
}

// Contact notes a contact of a consumer. header is the value of Header, which may be anything.
func (k *Keeper) Contact(consumer uint32, kind Kind, header []byte, from net.Addr) Contact {
	if k == nil {
		return Contact{}
	}
	s := k.seat(consumer)
	return Contact{k, s, s.contact(k.nowMs(), kind, header, func() string {
		if ip := share.AddressOf(from); ip.IsValid() {
			return ip.String()
		}
		return ""
	})}
}

// Holder is the worker as a lease has it, empty where it did not say who it is.
func (c Contact) Holder() string {
	if c.worker == nil {
		return ""
	}
	return c.worker.Holder()
}

// Takes says which tasks the worker of a claim takes, nil for all, where it has not said so in Header.
func (c Contact) Takes(tasks []string) {
	if c.worker != nil {
		c.seat.takes(c.worker, tasks)
	}
}

// Wait says that the claim begins to wait. The returned function says that it no longer does.
func (c Contact) Wait() (end func()) {
	if c.seat == nil {
		return func() {}
	}
	c.seat.wait(c.keeper.nowMs(), c.worker, 1)
	return func() { c.seat.wait(c.keeper.nowMs(), c.worker, -1) }
}

// seat returns the seat of a consumer.
func (k *Keeper) seat(consumer uint32) *seat {
	k.mu.RLock()
	s := k.seats[consumer]
	k.mu.RUnlock()
	if s != nil {
		return s
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if s = k.seats[consumer]; s == nil {
		s = &seat{}
		k.seats[consumer] = s
	}
	return s
}

// Learn forgets a consumer that was deleted.
func (k *Keeper) Learn(c *durable.Consumer) {
	if !c.Deleted() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.seats, c.No)
}

// Local returns what this broker knows of a consumer without asking Redis.
func (k *Keeper) Local(consumer uint32) Presence {
	now := k.nowMs()
	return merge(now, k.own(consumer, now))
}

// own is the view of this broker, none where it has not heard of the consumer.
func (k *Keeper) own(consumer uint32, now int64) []view {
	k.mu.RLock()
	s := k.seats[consumer]
	k.mu.RUnlock()
	if s == nil {
		return nil
	}
	return []view{s.view(now)}
}

// Of returns what the brokers know of a consumer: one command of Redis. With an error it is what this
// broker knows.
func (k *Keeper) Of(ctx context.Context, consumer uint32) (Presence, error) {
	now := k.nowMs()
	views := k.own(consumer, now)
	others, err := k.others(ctx, consumer, now)
	return merge(now, append(views, others...)), err
}

// LastContact returns the last claim, the last claim, list or move, and the last renewal of a lease; zero:
// none is known. workers is the number of those that live.
func (k *Keeper) LastContact(ctx context.Context, consumer uint32) (claim, contact, renewal time.Time, workers int,
	err error) {
	p, err := k.Of(ctx, consumer)
	contact = p.Claimed
	for _, at := range []time.Time{p.Listed, p.Moved} {
		if at.After(contact) {
			contact = at
		}
	}
	return p.Claimed, contact, p.Renewed, len(p.Workers), err
}

// mostLeases bounds the leases of a consumer that InFlight looks at.
const mostLeases = 10_000

// InFlight returns how many leases of a consumer and of its replay each worker has, by name. of are the
// numbers of both.
func (k *Keeper) InFlight(ctx context.Context, of ...uint32) (map[string]int, error) {
	n := map[string]int{}
	for _, consumer := range of {
		leases, _, err := k.queue.Leases(ctx, consumer, mostLeases)
		if err != nil {
			return nil, err
		}
		for i := range leases {
			if name, _ := Held(leases[i].Worker); name != "" {
				n[name]++
			}
		}
	}
	return n, nil
}

// others returns the views of the other brokers. The fields of those that are gone are removed.
func (k *Keeper) others(ctx context.Context, consumer uint32, now int64) ([]view, error) {
	fields, err := k.queue.Presences(ctx, consumer)
	if err != nil {
		return nil, err
	}
	var views []view
	var at [kinds]int64
	known := make(map[string]view, len(fields))
	for name, text := range fields {
		v := decode(text)
		known[name] = v
		if name != k.name {
			views = append(views, v)
		}
		for kind, ms := range v.At {
			at[kind] = max(at[kind], ms)
		}
	}
	var gone []string
	for name, v := range known {
		last := false // it has the last contact of some kind
		for kind, ms := range v.At {
			last = last || ms > 0 && ms == at[kind]
		}
		if name != k.name && !last && now-v.newest() > stale.Milliseconds() {
			gone = append(gone, name)
		}
	}
	if len(gone) > 0 {
		err = k.queue.DropPresence(ctx, consumer, gone)
	}
	return views, err
}

// Run writes contacts to Redis until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			k.tell(k.all(), k.nowMs(), true)
			return
		case <-tick.C:
		}
		err := k.write(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			k.log.Debug("contacts of workers are not shared with the other brokers; trying again", "error", err)
		}
		failing = err != nil
	}
}

// A turn is a seat that is written.
type turn struct {
	consumer uint32
	seat     *seat
	ago      int64
	urgent   bool
}

// write makes one turn: the consumers whose last write is longest ago come first.
func (k *Keeper) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	now := k.nowMs()
	turns := k.turns(now)
	if len(turns) == 0 {
		return nil
	}
	of := make([]redisq.Presence, len(turns))
	var first []uint32
	for i, t := range turns {
		if t.seat.begin(now) {
			first = append(first, t.consumer)
		}
		v := t.seat.view(now)
		of[i] = redisq.Presence{Consumer: t.consumer, View: v.encode()}
	}
	if err := k.queue.KeepPresence(ctx, k.name, of); err != nil {
		for _, t := range turns {
			t.seat.again()
		}
		return err
	}
	k.tell(turns, now, false)
	for _, consumer := range first { // a broker that starts removes what those before it left
		if _, err := k.others(ctx, consumer, now); err != nil {
			return err
		}
	}
	return nil
}

// tell tells when workers last claimed.
func (k *Keeper) tell(turns []turn, now int64, last bool) {
	if k.Claimed == nil {
		return
	}
	for _, t := range turns {
		if v := t.seat.view(now); v.At[Claim] > 0 {
			k.Claimed(t.consumer, v.At[Claim], last)
		}
	}
}

// all returns a turn for each seat.
func (k *Keeper) all() (turns []turn) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for consumer, s := range k.seats {
		turns = append(turns, turn{consumer: consumer, seat: s})
	}
	return turns
}

// turns returns what is to be written now.
func (k *Keeper) turns(now int64) []turn {
	k.mu.RLock()
	defer k.mu.RUnlock()
	var turns, beats []turn
	for consumer, s := range k.seats {
		switch ago, urgent, due := s.due(now); {
		case due && urgent:
			turns = append(turns, turn{consumer, s, ago, true})
		case due:
			beats = append(beats, turn{consumer, s, ago, false})
		}
	}
	longest := func(a, b turn) int { return cmp.Compare(b.ago, a.ago) }
	slices.SortFunc(turns, longest)
	slices.SortFunc(beats, longest)
	return append(turns[:min(len(turns), atOnce)], beats[:min(len(beats), beatsAtOnce)]...)
}
