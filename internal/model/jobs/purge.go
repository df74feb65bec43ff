package jobs

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

const (
	// purgePage is the number of jobs that one step of a purge ends.
	purgePage = redisq.MaxBatch
	// purgeLease is the time in which a step stores the ends of the jobs that it has leased.
	purgeLease = 30 * time.Second
)

// A Purge ends the queued jobs of a consumer, in bounded steps: those of messages up to Through that no
// worker and no delivery has. They are dead letters with the reason QueuePurged, which no policy redrives or
// forwards; with Forget they are not listed either.
//
// A step leases its jobs, so that nobody else begins one, reads their states again under the lease, stores
// their ends, and only then removes them from the queue. A crash before the ends are stored leaves leases
// that end by themselves: the jobs are queued again, with one attempt charged. A crash after it leaves
// leases of jobs that are over, which the next claim drops. Either way a repeated purge ends what is left,
// and nothing that was purged comes back by itself.
type Purge struct {
	Consumer *durable.Consumer
	Through  ident.ID
	Forget   bool

	from    ident.ID
	waiting bool // the rows of open jobs are done; from is a message behind the settled watermark
	done    bool
}

// Done reports whether there is no step left.
func (p *Purge) Done() bool { return p.done }

// Purge makes the next step and returns how many jobs it has ended. After an error the step may be made
// again.
func (d *Service) Purge(ctx context.Context, p *Purge) (ended int, err error) {
	if !p.waiting {
		return d.purgeOpen(ctx, p)
	}
	return d.purgeWaiting(ctx, p)
}

// purgeOpen ends jobs with a row in open_jobs.
func (d *Service) purgeOpen(ctx context.Context, p *Purge) (int, error) {
	rows, err := d.Store.OpenJobs(ctx, p.Consumer.No, p.from, purgePage)
	if err != nil {
		return 0, err
	}
	var heads []durable.Head
	for _, j := range rows {
		if j.ID.Compare(p.Through) <= 0 {
			heads = append(heads, durable.Head{ID: j.ID, Priority: j.Priority})
		}
	}
	n, err := d.purge(ctx, p, heads)
	if err != nil {
		return n, err
	}
	if len(rows) == purgePage && len(heads) == len(rows) {
		p.from = rows[len(rows)-1].ID.Next()
		return n, nil
	}
	// Each job up to the settled watermark has an outcome or had a row.
	settled, err := d.Store.Settled(ctx, p.Consumer.No)
	if err != nil {
		return n, err
	}
	p.waiting, p.from = true, settled.Next()
	return n, nil
}

// purgeWaiting ends jobs of messages behind the settled watermark.
func (d *Service) purgeWaiting(ctx context.Context, p *Purge) (int, error) {
	page, err := d.Store.ListMessages(ctx, p.Consumer.ChannelNo, p.from, purgePage)
	if err != nil {
		return 0, err
	}
	var heads []durable.Head
	last := len(page) < purgePage
	for i := range page {
		if last = last || page[i].ID.Compare(p.Through) > 0; page[i].ID.Compare(p.Through) > 0 {
			break
		}
		if h := page[i].Head(); p.Consumer.Concerns(h) {
			heads = append(heads, h)
		}
	}
	n, err := d.purge(ctx, p, heads)
	if err != nil {
		return n, err
	}
	if p.done = last; !last {
		p.from = page[len(page)-1].ID.Next()
	}
	return n, nil
}

// purge ends those of the jobs that are open and not in flight.
func (d *Service) purge(ctx context.Context, p *Purge, heads []durable.Head) (int, error) {
	leases, err := d.leaseOpen(ctx, p.Consumer.No, heads)
	if err != nil || len(leases) == 0 {
		return 0, err
	}
	ids := make([]ident.ID, len(leases))
	for i, l := range leases {
		ids[i] = l.ID
	}
	states, err := d.Store.JobStates(ctx, p.Consumer.No, ids)
	if err != nil {
		return 0, err // the leases end by themselves
	}
	var dead []durable.Outcome
	now := d.NowMs()
	for _, l := range leases {
		if s := states[l.ID]; !s.Status.Over() {
			dead = append(dead, durable.Outcome{Kind: durable.OutcomeDead, Reason: durable.QueuePurged, Forget: p.Forget,
				ConsumerNo: p.Consumer.No, ID: l.ID, Priority: l.Priority, Attempts: max(l.Attempt-1, s.Attempts), AtMs: now,
				Tracked: true, Error: "the job was purged from the queue"})
		}
	}
	if len(dead) > 0 {
		if err := d.Store.Record(ctx, dead); err != nil {
			return 0, err // it may be stored: whoever leases the jobs next asks the store
		}
		if d.Died != nil {
			d.Died(durable.QueuePurged, len(dead))
		}
	}
	_, err = d.Queue.AckLeases(ctx, p.Consumer.No, leases)
	return len(dead), err
}

// leaseOpen leases those of the jobs that are not over and that nobody has.
func (d *Service) leaseOpen(ctx context.Context, consumer uint32, heads []durable.Head) ([]redisq.Lease, error) {
	if len(heads) == 0 {
		return nil, nil
	}
	ids := make([]ident.ID, len(heads))
	for i, h := range heads {
		ids[i] = h.ID
	}
	states, err := d.Store.JobStates(ctx, consumer, ids)
	if err != nil {
		return nil, err
	}
	var wishes []redisq.Wish
	for _, h := range heads {
		if s := states[h.ID]; !s.Status.Over() {
			wishes = append(wishes, redisq.Wish{Job: redisq.Job{ID: h.ID, Priority: h.Priority, Attempts: s.Attempts},
				Lease: purgeLease, Insert: true})
		}
	}
	if len(wishes) == 0 {
		return nil, nil
	}
	grants, err := d.Queue.ClaimEach(ctx, consumer, wishes)
	if err != nil {
		return nil, err
	}
	var leases []redisq.Lease
	for _, g := range grants {
		if g.Lease.Token != "" {
			leases = append(leases, g.Lease)
		}
	}
	if d.Touched != nil && len(leases) > 0 {
		d.Touched(consumer)
	}
	return leases, nil
}
