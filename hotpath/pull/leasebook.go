package pull

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// A worker was told until when it has a job. When Redis loses its state, the broker that gave the
// lease restores it, before the reconciler offers the job again. Leases of a broker that has ended
// since are not restored.

const (
	// bookLeases bounds the leases that a process remembers. One takes less than 200 bytes.
	bookLeases = 100_000
	// bookSweep is the interval at which leases that have ended are forgotten.
	bookSweep = 30 * time.Second
	// restoreTimeout bounds one restoration, restorePause the wait after one that failed.
	restoreTimeout = 2 * time.Second
	restorePause   = 200 * time.Millisecond
)

// A leaseBook has the leases that this process gave to workers and that have not ended, as far as it
// knows.
type leaseBook struct {
	mu     sync.Mutex
	leases map[uint32]map[ident.ID]bookedLease
	n      int
	lost   map[uint32]struct{} // consumers whose state Redis has lost
	signal chan struct{}       // capacity 1: lost is not empty
}

// A bookedLease is a lease that a worker has.
type bookedLease struct {
	lease   redisq.Lease
	sinceMs int64 // by the clock of the store
	until   time.Time
	// givenBack and redrivenMs are of the job as it was stored at the claim: the brokers' estimates of the clock
	// differ, so a time alone does not tell what came before the claim.
	givenBack  int
	redrivenMs int64
}

// ended reports whether the stored state of the job shows that the lease has ended: the job is over,
// the attempt is charged, or the job was given back or redriven since.
func (l *bookedLease) ended(s durable.JobState) bool {
	return s.Status.Over() || s.Attempts >= l.lease.Attempt || s.ChangedMs > l.sinceMs &&
		(s.GivenBack > l.givenBack || s.RedrivenMs > l.redrivenMs)
}

func newLeaseBook() *leaseBook {
	return &leaseBook{leases: map[uint32]map[ident.ID]bookedLease{}, lost: map[uint32]struct{}{},
		signal: make(chan struct{}, 1)}
}

// add remembers a lease, unless there are too many.
func (b *leaseBook) add(consumer uint32, l bookedLease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put(consumer, l)
}

// addJobs remembers the leases of a claim.
func (b *leaseBook) addJobs(consumer uint32, jobs []claimedJob, sinceMs int64, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range jobs {
		j := &jobs[i]
		b.put(consumer, bookedLease{j.lease, sinceMs, until, j.counts.givenBack, j.redrivenMs})
	}
}

// put is add with mu held.
func (b *leaseBook) put(consumer uint32, l bookedLease) {
	of := b.leases[consumer]
	if of == nil {
		of = map[ident.ID]bookedLease{}
		b.leases[consumer] = of
	}
	if _, known := of[l.lease.ID]; !known {
		if b.n >= bookLeases {
			return
		}
		b.n++
	}
	of[l.lease.ID] = l
}

// remove forgets the lease of a job with a token, and no later one; "": any lease of it.
func (b *leaseBook) remove(consumer uint32, id ident.ID, token string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if token == "" || b.leases[consumer][id].lease.Token == token {
		b.drop(consumer, id)
	}
}

// drop is remove with mu held.
func (b *leaseBook) drop(consumer uint32, id ident.ID) {
	of := b.leases[consumer]
	if _, known := of[id]; !known {
		return
	}
	b.n--
	if delete(of, id); len(of) == 0 {
		delete(b.leases, consumer)
	}
}

// extend moves the end of a lease.
func (b *leaseBook) extend(consumer uint32, id ident.ID, token string, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l, known := b.leases[consumer][id]; known && l.lease.Token == token {
		l.until = until
		b.leases[consumer][id] = l
	}
}

// sweep forgets the leases that have ended.
func (b *leaseBook) sweep(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for consumer, of := range b.leases {
		for id, l := range of {
			if !now.Before(l.until) {
				b.drop(consumer, id)
			}
		}
	}
}

// live returns the leases of a consumer that have not ended.
func (b *leaseBook) live(consumer uint32, now time.Time) []bookedLease {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []bookedLease
	for _, l := range b.leases[consumer] {
		if now.Before(l.until) {
			out = append(out, l)
		}
	}
	return out
}

// miss notes consumers whose leases may be lost: one of them, or all.
func (b *leaseBook) miss(consumer uint32, all bool) {
	b.mu.Lock()
	if all {
		for no := range b.leases {
			b.lost[no] = struct{}{}
		}
	} else if len(b.leases[consumer]) > 0 {
		b.lost[consumer] = struct{}{}
	}
	some := len(b.lost) > 0
	b.mu.Unlock()
	if !some {
		return
	}
	select {
	case b.signal <- struct{}{}:
	default:
	}
}

// missed takes a consumer whose leases may be lost.
func (b *leaseBook) missed() (consumer uint32, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for consumer := range b.lost {
		delete(b.lost, consumer)
		return consumer, true
	}
	return 0, false
}

// SuspectLoss reports that Redis may have lost leases of a consumer. It never blocks.
func (p *Puller) SuspectLoss(consumer uint32) { p.book.miss(consumer, false) }

// SuspectAll calls SuspectLoss for every consumer.
func (p *Puller) SuspectAll() { p.book.miss(0, true) }

// RestoreLost restores leases that Redis has lost, until ctx ends.
func (p *Puller) RestoreLost(ctx context.Context) {
	sweep := time.NewTicker(bookSweep)
	defer sweep.Stop()
	for {
		for no, ok := p.book.missed(); ok; no, ok = p.book.missed() {
			if err := p.restore(ctx, no); err != nil && ctx.Err() == nil {
				p.log.Debug("leases of workers that Redis may have lost cannot be restored; trying again", "consumer", no,
					"error", err)
				time.AfterFunc(restorePause, func() { p.SuspectLoss(no) })
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-p.book.signal:
		case now := <-sweep.C:
			p.book.sweep(now)
		}
	}
}

// restore writes the leases of a consumer into Redis where Redis no longer has them. That comes first,
// because the reconciler soon offers the jobs again. A job that has an outcome since its claim, such
// as one that was given back through another broker, then loses its lease again.
func (p *Puller) restore(ctx context.Context, no uint32) error {
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	ends := map[int64][]bookedLease{} // by the second after their ends
	for _, l := range p.book.live(no, time.Now()) {
		second := l.until.Unix() + 1
		ends[second] = append(ends[second], l)
	}
	var mine []bookedLease
	for second, of := range ends {
		leases := make([]redisq.Lease, len(of))
		for i := range of {
			leases[i] = of[i].lease
		}
		has, err := p.queue.RestoreLeases(ctx, no, leases, max(time.Until(time.Unix(second, 0)), time.Millisecond))
		if err != nil {
			return err
		}
		for i := range of {
			if has[i] {
				mine = append(mine, of[i])
			} else {
				p.book.remove(no, of[i].lease.ID, of[i].lease.Token)
			}
		}
	}
	p.touched(no)
	for len(mine) > 0 {
		n := min(len(mine), redisq.MaxBatch)
		if err := p.takeBack(ctx, no, mine[:n]); err != nil {
			return err
		}
		mine = mine[n:]
	}
	return nil
}

// takeBack ends the restored leases of jobs that have an outcome since their claims. A job that is not
// over waits until the time that the store has.
func (p *Puller) takeBack(ctx context.Context, no uint32, restored []bookedLease) error {
	ids := make([]ident.ID, len(restored))
	for i := range restored {
		ids[i] = restored[i].lease.ID
	}
	states, err := p.verifier.Store.JobStates(ctx, no, ids)
	if err != nil {
		return err
	}
	var over, charged, free []redisq.Lease
	var later, freeLater []time.Duration
	for i := range restored {
		l, s := &restored[i], states[restored[i].lease.ID]
		if !l.ended(s) {
			continue
		}
		p.book.remove(no, l.lease.ID, l.lease.Token)
		delay := time.Duration(max(s.NextMs-p.nowMs(), 0)) * time.Millisecond
		switch {
		case s.Status.Over():
			over = append(over, l.lease)
		case s.Attempts >= l.lease.Attempt:
			charged, later = append(charged, l.lease), append(later, delay)
		default:
			free, freeLater = append(free, l.lease), append(freeLater, delay)
		}
	}
	if len(over) > 0 {
		_, err = p.queue.AckLeases(ctx, no, over)
	}
	if len(charged) > 0 && err == nil {
		_, err = p.queue.Nack(ctx, no, charged, later)
	}
	if len(free) > 0 && err == nil {
		_, err = p.queue.GiveBack(ctx, no, free, freeLater)
	}
	return err
}
