// Package cluster makes a process one of the brokers of a store. A Node holds the leased number
// that makes message IDs unique. It follows the store's clock, and keeps the list of live brokers
// and the choice of the broker that looks after a consumer.
package cluster

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// TTL is the time for which a node number stays leased without renewal, by the store's clock. After
// it the other brokers take over the consumers of this broker. RenewEvery is the period of the
// renewals.
const (
	TTL        = 4 * time.Second
	RenewEvery = time.Second
)

// peerLate is the age of a broker's last renewal from which the other brokers look after its
// consumers as well. A repair that runs twice does no harm, so this takeover does not wait for the
// end of the lease, which fences numbers.
const peerLate = 2 * RenewEvery

// NoFailSafe ends the name of a broker whose fail-safe is off. Other brokers leave no consumers to
// a broker with this name.
const NoFailSafe = " (no fail-safe)"

// A Store is the part of durable.Store that leases node numbers.
type Store interface {
	LeaseNode(ctx context.Context, name string, ttl time.Duration) (durable.NodeLease, error)
	RenewNode(ctx context.Context, lease durable.NodeLease, ttl time.Duration) (durable.NodeLease, error)
	ReleaseNode(ctx context.Context, lease durable.NodeLease) error
	Nodes(ctx context.Context) ([]durable.Node, error)
}

// A Node is this process among the brokers of one store. It holds the leased number that makes
// message IDs unique, follows the store's clock, and lists the other live brokers. The insert
// itself checks the lease, so a process that was paused past the end of its lease cannot store
// messages under the number.
type Node struct {
	store Store
	name  string
	log   *slog.Logger
	ids   *ident.Generator

	clock atomic.Pointer[reading] // the store's clock at the last answer
	peers atomic.Pointer[[]durable.Node]
	// repairers are the live brokers among which Owns distributes the consumers.
	repairers atomic.Pointer[[]durable.Node]
	// PeersChanged is called from Run when the set of live brokers or the set of repairers changes.
	// It must be set before Run.
	PeersChanged func()
	// Restored is called from Renew when the store has another history than before, see
	// durable.CheckHistory, and ClockStepped with a time before the clock of its server went back.
	// Both must be set before Run and must not block.
	Restored     func()
	ClockStepped func(beforeMs int64)

	// lease is read without waiting: a renewal that hangs in the store must not delay callers that
	// have a deadline.
	lease    atomic.Pointer[durable.NodeLease]
	renewing chan struct{}         // capacity 1: full while the lease is renewed or released
	refused  atomic.Pointer[error] // why the last renewal failed
}

// A reading is one value of the store's clock and the bounds of the time at which it was read.
type reading struct {
	ms           int64     // Unix time of the store
	at, answered time.Time // bounds of the time of the reading; only their monotonic parts count
}

// New leases a number from the store. It fails when the store does not answer.
func New(ctx context.Context, store Store, name string, log *slog.Logger) (*Node, error) {
	n := &Node{store: store, name: name, log: log, PeersChanged: func() {}, Restored: func() {

	}, ClockStepped: func(int64) {},
		renewing: make(chan struct{}, 1)}
	sent := time.Now()
	lease, err := store.LeaseNode(ctx, name, TTL)
	if err != nil {
		return nil, err
	}
	n.lease.Store(&lease)
	n.setClock(sent, lease)
	n.ids = ident.NewGenerator(lease.No, n.NowMs)
	// A first answer that was slow, as during a stall of the store, puts the clock ahead by what it took: scheduled
	// messages would be refused as past. A quick one bounds it before anybody asks.
	for tries := 0; time.Since(sent) > slowAnswer && tries < 3; tries++ {
		sent = time.Now()
		if err := n.Renew(ctx); err != nil {
			break // as after any renewal that fails: Run goes on
		}
	}
	n.readPeers(ctx)
	return n, nil
}

// slowAnswer is from when on the first answer of the store says too little about its clock.
const slowAnswer = 100 * time.Millisecond

// IDs returns the generator of message IDs.
func (n *Node) IDs() *ident.Generator { return n.ids }

// NowMs returns this process's estimate of the store's clock, in Unix ms. The wall clock of this
// machine does not enter the estimate, so the wall clock may be wrong, and may jump. An ID from the
// future would stay invisible to the reconciler until its time comes.
func (n *Node) NowMs() int64 {
	r := n.clock.Load()
	return r.ms + time.Since(r.at).Milliseconds()
}

// PastMs returns a time that the store's clock has certainly passed, however long its answer took.
// NowMs bounds the same clock from the other side. A bound that must stay behind the newest message
// that can still be inserted is computed from PastMs: a lease that waited five seconds for a lock
// makes NowMs five seconds too late.
func (n *Node) PastMs() int64 {
	r := n.clock.Load()
	return r.ms + time.Since(r.answered).Milliseconds()
}

// passedMs is a time that the store's clock has passed, if the server's did not go back. It leaves
// room for a clock that falls back to that of the server, and for a monotonic clock that is fast.
func (n *Node) passedMs() int64 {
	r := n.clock.Load()
	since := time.Since(r.answered).Milliseconds()
	return r.ms + since - since/16
}

// Clock returns the store's clock as of the last renewal.
func (n *Node) Clock() durable.Clock { return n.lease.Load().Clock }

// FloorMs returns a time that the store's clock never shows less than, whatever happens to the
// clock of its server: it is stored. No message older than durable.MaxIDAge before it appears.
func (n *Node) FloorMs() int64 { return n.lease.Load().Clock.FloorMs }

// AheadMs returns how far the store's clock is ahead of that of its server, which went back.
func (n *Node) AheadMs() int64 { return n.lease.Load().Clock.AheadMs }

// Lease returns the current lease. It fails when the node holds no lease.
func (n *Node) Lease() (durable.NodeLease, error) {
	lease := *n.lease.Load()
	if lease.Expires.IsZero() {
		return lease, problem.ErrUnavailable.Because(errors.New("hotpath: no node lease"))
	}
	return lease, nil
}

// exclusive waits for the sole right to change the lease, or until ctx ends. The caller must call
// done afterwards.
func (n *Node) exclusive(ctx context.Context) (done func(), err error) {
	select {
	case n.renewing <- struct{}{}:
		return func() { <-n.renewing }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Renew extends the lease. After a lost lease it leases another number.
func (n *Node) Renew(ctx context.Context) error {
	done, err := n.exclusive(ctx)
	if err != nil {
		return err
	}
	defer done()
	sent, old := time.Now(), *n.lease.Load()
	old.PassedMs = n.passedMs()
	lease, err := n.store.RenewNode(ctx, old, TTL)
	if errors.Is(err, durable.ErrStale) {
		sent = time.Now()
		if lease, err = n.store.LeaseNode(ctx, n.name, TTL); err == nil {
			n.log.Warn("node lease was lost; took another number", "was", old.No, "now", lease.No)
		}
	}
	if err != nil {
		return err
	}
	// The order matters: a reader that loads the lease and then makes IDs, as the committer does,
	// never combines IDs of a lost number with the lease of its successor.
	n.ids.SetNode(lease.No)
	n.lease.Store(&lease)
	n.setClock(sent, lease)
	n.compare(old.Clock, lease.Clock)
	return nil
}

// compare tells of what became of the store's clock and history.
func (n *Node) compare(old, now durable.Clock) {
	if now.History != old.History {
		n.log.Warn("the store went back to an earlier state, as after a restored backup or a failover that lost writes; " +
			"the broker begins all scans again")
		n.Restored()
	}
	if now.Steps > old.Steps {
		n.log.Warn("the clock of the store's server went back; the broker counts on from the time before, and scans again",
			"ahead_of_server", (time.Duration(now.AheadMs) * time.Millisecond).String())
		n.ClockStepped(now.FloorMs - now.AheadMs)
	}
}

// setClock derives the store's clock from the end of a lease that was requested at `sent`. The
// store answered between then and now. The earlier time is used because it makes IDs slightly too
// new instead of too old; the insert would refuse an ID that is too old.
func (n *Node) setClock(sent time.Time, lease durable.NodeLease) {
	r := reading{ms: lease.Expires.Add(-TTL).UnixMilli(), at: sent, answered: time.Now()}
	if old := n.clock.Load(); old != nil {
		r.at = old.latest(&r)
	}
	n.clock.Store(&r)
}

// latest returns the latest time at which the store may have had the clock of a new reading. The reading
// before bounds it, too: a slow answer alone would put NowMs ahead by what it took, and back with the next
// one. The bound leaves room for a monotonic clock that is slow. A clock that is behind the new reading says
// that the store's went forwards: the new reading stands alone.
func (r *reading) latest(next *reading) time.Time {
	since := next.answered.Sub(r.at)
	ahead := time.Duration(r.ms-next.ms)*time.Millisecond + since + since>>10 // of the new reading, at its end
	if ahead < 0 {
		return next.at
	}
	if at := next.answered.Add(-ahead); at.After(next.at) {
		return at
	}
	return next.at
}

// Run keeps the lease and the list of peers until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	tick := time.NewTicker(RenewEvery)
	defer tick.Stop()
	if c := n.lease.Load().Clock; c.AheadMs > 0 { // perhaps since before this process started
		n.compare(durable.Clock{History: c.History}, c)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		op, cancel := context.WithTimeout(ctx, RenewEvery)
		if err := n.Renew(op); err != nil && ctx.Err() == nil {
			n.refused.Store(&err)
			n.log.Warn("node lease cannot be renewed", "error", err)
		}
		n.readPeers(op)
		cancel()
	}
}

// unwritable is the time without a renewal from which the store counts as one that takes no writes.
const unwritable = 3 * RenewEvery

// Writable returns nil if the store has taken a renewal lately, the write that the broker makes each
// second; else why it did not take the last one.
func (n *Node) Writable() error {
	if time.Since(n.clock.Load().answered) < unwritable {
		return nil
	}
	if err := n.refused.Load(); err != nil {
		return *err
	}
	return errors.New("cluster: the node lease was not renewed in time")
}

// Release gives the number back, so that the other brokers see at once that this broker left.
func (n *Node) Release(ctx context.Context) error {
	done, err := n.exclusive(ctx)
	if err != nil {
		return err
	}
	defer done()
	return n.store.ReleaseNode(ctx, *n.lease.Load())
}

func (n *Node) readPeers(ctx context.Context) {
	all, err := n.store.Nodes(ctx)
	if err != nil {
		return
	}
	alive := make([]durable.Node, 0, len(all))
	repairers := make([]durable.Node, 0, len(all))
	punctual := time.UnixMilli(n.PastMs()).Add(TTL - peerLate) // renewed since peerLate ago
	for _, p := range all {
		if !p.Alive {
			continue
		}
		alive = append(alive, p)
		if p.Expires.After(punctual) && !strings.HasSuffix(p.Name, NoFailSafe) {
			repairers = append(repairers, p)
		}
	}
	oldPeers, oldRepairers := n.peers.Swap(&alive), n.repairers.Swap(&repairers)
	if oldPeers != nil && (!sameNodes(*oldPeers, alive) || !sameNodes(*oldRepairers, repairers)) {
		n.PeersChanged()
	}
}

func sameNodes(a, b []durable.Node) bool {
	if len(a) != len(b) {
		return false
	}
	seen := map[[16]byte]bool{}
	for _, n := range a {
		seen[n.Token] = true
	}
	for _, n := range b {
		if !seen[n.Token] {
			return false
		}
	}
	return true
}

// Peers returns the live brokers, this one included.
func (n *Node) Peers() []durable.Node {
	if p := n.peers.Load(); p != nil {
		return *p
	}
	return nil
}

// Alone reports whether no other live broker of the store is known.
func (n *Node) Alone() bool { return len(n.Peers()) <= 1 }

// Owns reports whether this broker looks after a consumer. The choice is a rendezvous hash over the
// punctual brokers with a fail-safe. Ownership only spreads work: two brokers that disagree for a
// moment do the work twice, which is harmless.
func (n *Node) Owns(consumer uint32) bool {
	own := n.lease.Load().Token
	mine := rendezvous(own, consumer)
	repairers := n.repairers.Load()
	if repairers == nil { // the list has not been read yet
		return true
	}
	for _, p := range *repairers {
		if p.Token != own && rendezvous(p.Token, consumer) > mine {
			return false
		}
	}
	return true
}

// rendezvous returns the weight of a node for a consumer: FNV-1a over both.
func rendezvous(token [16]byte, consumer uint32) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range token {
		h = (h ^ uint64(b)) * 1099511628211
	}
	for i := range 4 {
		h = (h ^ uint64(byte(consumer>>(8*i)))) * 1099511628211
	}
	return h
}
