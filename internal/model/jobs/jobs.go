// Package jobs combines the state of a job in the store with its state in the queue. It
// also contains the changes that operators and the fail-safe request: present, re-trigger
// and redrive. The hot path does not use this package.
package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// The four states of a job, as the API spells them. A job that waits for its retry is
// QUEUED with attempts, and one whose retry is under way INFLIGHT with attempts.
const (
	Queued    = "QUEUED"
	InFlight  = "INFLIGHT"
	Delivered = "DELIVERED"
	Dead      = "DEAD"
	// Filtered is shown for a message that the filter of the consumer left out. It is no job.
	Filtered = "FILTERED"
)

// ErrNotDead refuses to redrive a job that is not a dead letter.
var ErrNotDead = errors.New("jobs: job is not dead")

// A Store is the part of durable.Store used here.
type Store interface {
	JobStates(ctx context.Context, consumerNo uint32, ids []ident.ID) (map[ident.ID]durable.JobState, error)
	DeadJobs(ctx context.Context, consumerNo uint32, from ident.ID, limit int) ([]durable.DeadJob, error)
	Redrive(ctx context.Context, consumerNo uint32, ids []ident.ID, nowMs int64) ([]durable.OpenJob, error)
	Backlog(ctx context.Context, k durable.Consumer, limit int) (durable.Backlog, error)
	RedriveAgain(ctx context.Context, consumerNo uint32, ids []ident.ID, nowMs int64) ([]durable.OpenJob, error)
	OpenJobs(ctx context.Context, consumerNo uint32, from ident.ID, limit int) ([]durable.OpenJob, error)
	Hasten(ctx context.Context, consumerNo uint32, ids []ident.ID, nowMs int64) error
	Record(ctx context.Context, outcomes []durable.Outcome) error
	ListMessages(ctx context.Context, channelNo uint32, from ident.ID, limit int) ([]durable.Message, error)
	Settled(ctx context.Context, consumerNo uint32) (ident.ID, error)
}

// A Queue is the part of redisq.Queue used here.
type Queue interface {
	Probe(ctx context.Context, consumer uint32, ids []ident.ID) ([]redisq.Standing, error)
	Stats(ctx context.Context, consumer uint32) (redisq.Stats, error)
	Enqueue(ctx context.Context, consumer uint32, batch []redisq.Job, src redisq.Source) (redisq.Enqueued, error)
	Recover(ctx context.Context, consumer uint32, epoch string, batch []redisq.Job) (redisq.Enqueued, error)
	ClaimOne(ctx context.Context, consumer uint32, job redisq.Job, lease time.Duration, insert bool) (redisq.Lease,
		redisq.Standing, error)
	ClaimEach(ctx context.Context, consumer uint32, wishes []redisq.Wish) ([]redisq.Grant, error)
	Release(ctx context.Context, consumer uint32, leases []redisq.Lease) ([]bool, error)
	Hasten(ctx context.Context, consumer uint32, ids []ident.ID) (ready int, unknown []ident.ID, err error)
	Ack(ctx context.Context, consumer uint32, ids []ident.ID) (int, error)
	AckLeases(ctx context.Context, consumer uint32, leases []redisq.Lease) ([]bool, error)
}

// A Service answers questions about jobs and moves them on request.
type Service struct {
	Store Store
	Queue Queue
	// NowMs is the clock of the store, in Unix ms. Due times are measured by it.
	NowMs func() int64
	// Wake is called when a consumer gets new jobs. It must not block.
	Wake func(consumer uint32)
	// Dirty is called when the store has open jobs that the queue did not take. The
	// reconciler must offer them. Dirty must not block.
	Dirty func(consumer uint32)
	// Touched is called when a consumer has leases that the reaper must watch, Died when a purge has
	// ended jobs. Neither may block; nil: nobody is told.
	Touched func(consumer uint32)
	Died    func(reason durable.Reason, jobs int)
}

// A Job is the combined state of one job.
type Job struct {
	ID         ident.ID // of the message
	Status     string
	Attempts   int
	ChangedAt  time.Time // the message's time while the job has no outcome
	NextAt     time.Time // of a job waiting for a retry; zero otherwise
	StatusCode int
	Error      string
	Reason     durable.Reason // of a dead job
	// LeasesLost and GivenBack are as in durable.JobState. Worker has the job, or ended it.
	LeasesLost, GivenBack int
	Worker                string
	Standing              redisq.Standing
}

// States returns the jobs of these messages for one consumer, in that order. For a job
// that is over the store decides. While Redis does not answer, States returns QUEUED for
// the jobs that are not over.
func (d *Service) States(ctx context.Context, consumer uint32, ids []ident.ID) ([]Job, error) {
	// The queue is read first. A job that ends between the two reads is then found over in
	// the store. In the other order it would be missing in both, and look queued.
	standings, err := d.Queue.Probe(ctx, consumer, ids)
	if err != nil {
		standings = make([]redisq.Standing, len(ids))
	}
	stored, err := d.Store.JobStates(ctx, consumer, ids)
	if err != nil {
		return nil, err
	}
	out := make([]Job, len(ids))
	for i, id := range ids {
		out[i] = combine(id, stored[id], standings[i])
	}
	return out, nil
}

// StatesOf is States for a consumer that may be deleted. Such a consumer has nothing in the queue.
func (d *Service) StatesOf(ctx context.Context, k *durable.Consumer, ids []ident.ID) ([]Job, error) {
	if !k.Deleted() {
		return d.States(ctx, k.No, ids)
	}
	stored, err := d.Store.JobStates(ctx, k.No, ids)
	if err != nil {
		return nil, err
	}
	out := make([]Job, len(ids))
	for i, id := range ids {
		out[i] = combine(id, k.Derive(stored[id]), redisq.Standing{State: redisq.Missing})
	}
	return out, nil
}

// State returns one job exactly: it returns an error when the queue does not answer.
func (d *Service) State(ctx context.Context, consumer uint32, id ident.ID) (Job, error) {
	// The order of the reads is that of States, for the same reason.
	standings, err := d.Queue.Probe(ctx, consumer, []ident.ID{id})
	if err != nil {
		return Job{}, err
	}
	stored, err := d.Store.JobStates(ctx, consumer, []ident.ID{id})
	if err != nil {
		return Job{}, err
	}
	return combine(id, stored[id], standings[0]), nil
}

func combine(id ident.ID, s durable.JobState, q redisq.Standing) Job {
	j := Job{ID: id, Status: Queued, Attempts: max(s.Attempts, q.Attempts), ChangedAt: id.Time(),
		StatusCode: s.StatusCode, Error: s.Error, Standing: q,
		LeasesLost: s.LeasesLost, GivenBack: s.GivenBack, Worker: s.Worker}
	if s.Status != durable.Waiting {
		j.ChangedAt = time.UnixMilli(s.ChangedMs).UTC()
	}
	switch {
	case s.Status == durable.Delivered:
		j.Status, j.Attempts = Delivered, s.Attempts
	case s.Status == durable.Dead:
		j.Status, j.Attempts, j.Reason = Dead, s.Attempts, s.Reason
	case q.State == redisq.Leased:
		j.Status, j.Worker = InFlight, q.Worker
	case q.State == redisq.Delayed:
		j.NextAt = q.At
	case q.State == redisq.Missing && s.Status == durable.Open:
		j.NextAt = time.UnixMilli(s.NextMs).UTC()
	}
	return j
}

// Presented counts what Present found.
type Presented struct {
	Over    int // delivered or dead
	Known   int // already in the queue
	Added   int // missing in the queue, and added
	Spilled int // missing in the queue, which has no room
	// Upto is the number of leading heads that are over or in the queue. The head after
	// them is spilled.
	Upto int
	// Outside is set when the queue assumes that jobs are outside its window, these or
	// others.
	Outside bool
}

// Present puts those of the messages into the consumer's queue that are not over for the
// consumer and not in the queue yet. It is idempotent and safe for concurrent use.
func (d *Service) Present(ctx context.Context, consumer uint32, heads []durable.Head) (Presented, error) {
	return d.present(ctx, consumer, heads, func(batch []redisq.Job) (redisq.Enqueued, error) {
		return d.Queue.Enqueue(ctx, consumer, batch, redisq.Repeated)
	})
}

// Recover is Present for the reconciler. The jobs go into the Redis state of that epoch;
// with another epoch Recover changes nothing and returns redisq.ErrLost.
func (d *Service) Recover(ctx context.Context, consumer uint32, epoch string, heads []durable.Head) (Presented, error) {
	return d.present(ctx, consumer, heads, func(batch []redisq.Job) (redisq.Enqueued, error) {
		return d.Queue.Recover(ctx, consumer, epoch, batch)
	})
}

func (d *Service) present(ctx context.Context, consumer uint32, heads []durable.Head,
	put func([]redisq.Job) (redisq.Enqueued, error)) (Presented, error) {
	p := Presented{Upto: len(heads)}
	if len(heads) == 0 {
		return p, nil
	}
	ids := make([]ident.ID, len(heads))
	for i, h := range heads {
		ids[i] = h.ID
	}
	stored, err := d.Store.JobStates(ctx, consumer, ids)
	if err != nil {
		return Presented{}, err
	}
	now := d.NowMs()
	batch := make([]redisq.Job, 0, len(heads))
	index := make([]int, 0, len(heads))
	for i, h := range heads {
		s := stored[h.ID]
		if s.Status.Over() {
			p.Over++
			continue
		}
		job := redisq.Job{ID: h.ID, Priority: h.Priority, Attempts: s.Attempts}
		if s.Status == durable.Open {
			job.Delay = time.Duration(max(s.NextMs-now, 0)) * time.Millisecond
		}
		batch = append(batch, job)
		index = append(index, i)
	}
	if len(batch) == 0 {
		return p, nil
	}
	e, err := put(batch)
	if err != nil {
		return Presented{}, fmt.Errorf("jobs: present: %w", err)
	}
	p.Known, p.Added, p.Spilled, p.Outside = e.Known, e.Added, e.Spilled, e.SpilledPriority >= 0
	if e.FirstSpilled >= 0 {
		p.Upto = index[e.FirstSpilled]
	}
	if e.Added > 0 {
		d.Wake(consumer)
	}
	return p, nil
}

// RetriggerMessage repeats the dispatch of a message: it adds the job of each consumer that the
// message concerns and whose job is open and missing in the queue.
func (d *Service) RetriggerMessage(ctx context.Context, ch *catalogue.Channel, h durable.Head) error {
	for _, k := range ch.Concerned(h) {
		if _, err := d.Present(ctx, k.No, []durable.Head{h}); err != nil {
			return err
		}
	}
	return nil
}

// retriggerLease is the lease with which RetriggerJob makes a delayed job due. RetriggerJob
// releases it at once.
const retriggerLease = 5 * time.Second

// RetriggerJob makes one job due now. It redrives a dead job, ends the delay of a job that
// waits for its retry, and adds a job that the queue lost. It does not change a job that
// is in flight or delivered. With onlyDead it returns ErrNotDead for a job that is not
// dead.
func (d *Service) RetriggerJob(ctx context.Context, consumer uint32, h durable.Head, onlyDead bool) (Job, error) {
	j, err := d.State(ctx, consumer, h.ID)
	if err != nil {
		return Job{}, err
	}
	switch {
	case j.Status == Dead:
		moved, err := d.redrive(ctx, consumer, []ident.ID{h.ID}, d.Store.Redrive)
		if err != nil {
			return Job{}, err
		}
		if len(moved) == 0 && onlyDead { // another request has redriven it
			return Job{}, ErrNotDead
		}
	case onlyDead:
		return Job{}, ErrNotDead
	case j.Standing.State == redisq.Delayed:
		lease, _, err := d.Queue.ClaimOne(ctx, consumer, redisq.Job{ID: h.ID}, retriggerLease, false)
		if err != nil {
			return Job{}, err
		}
		if lease.Token != "" {
			if _, err := d.Queue.Release(ctx, consumer, []redisq.Lease{lease}); err != nil {
				return Job{}, err
			}
			d.Wake(consumer)
		}
	case j.Status == Queued && j.Standing.State == redisq.Missing:
		// The job has no Delay: it is due now and not at the time of its retry.
		lost := redisq.Job{ID: h.ID, Priority: h.Priority, Attempts: j.Attempts}
		if _, err := d.Queue.Enqueue(ctx, consumer, []redisq.Job{lost}, redisq.Repeated); err != nil {
			return Job{}, err
		}
		d.Wake(consumer)
	}
	return d.State(ctx, consumer, h.ID)
}
