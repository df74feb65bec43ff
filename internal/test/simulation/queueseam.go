package simulation

import (
	"context"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/queuemodel"
	"github.com/penstock-broker/penstock/redisq"
)

// A queueSeam is Redis as one life reaches it: redisq.Queue with its window.
type queueSeam struct {
	*link
	window int
	// beforeAck makes jobs ready that wait for those that are acknowledged, see redisq.Queue.BeforeAck.
	beforeAck func(ctx context.Context, consumer uint32, ids []ident.ID) error
}

func newQueueSeam(l *life, r *server) *queueSeam {
	return &queueSeam{link: newLink(l, r), window: l.w.plan.window}
}

func (q *queueSeam) Window() int { return q.window }

func (q *queueSeam) Enqueue(ctx context.Context, consumer uint32, jobs []redisq.Job,
	src redisq.Source) (redisq.Enqueued, error) {
	return q.offer(ctx, redisq.Batch{Consumer: consumer, Jobs: jobs}, src)
}

// offer is Enqueue of jobs that may be leased at once.
func (q *queueSeam) offer(ctx context.Context, b redisq.Batch, src redisq.Source) (redisq.Enqueued, error) {
	result := redisq.Enqueued{SpilledPriority: -1, FirstSpilled: -1}
	if len(b.Jobs) == 0 {
		return result, nil
	}
	var out redisq.Enqueued
	script := q.enqueue(b, src, &out)
	op := [...]string{"Enqueue fresh", "Enqueue repeated"}[src] // what is recovered goes by Recover
	epoch, err := q.sent(ctx, op, b.Consumer, script)
	if err == nil { // else the script may still run, and write to it
		result = out
	}
	result.Epoch = epoch
	return result, err
}

// enqueue is the script.
func (q *queueSeam) enqueue(b redisq.Batch, src redisq.Source, out *redisq.Enqueued) func(k *queuemodel.Consumer,
	now int64) {
	asked := time.Now()
	return func(k *queuemodel.Consumer, now int64) {
		offered := b
		if q.r.flaw == offerIsForgotten {
			offered.Jobs = slices.DeleteFunc(slices.Clone(b.Jobs), func(j redisq.Job) bool { return q.r.flaw.strikes(j.ID) })
		}
		result := k.Offer(now, q.window, offered, src)
		q.l.w.checker.enqueued(q.l, b.Consumer, b.Jobs, src)
		for _, l := range result.Leases {
			q.l.w.checker.inTurn(b.Consumer, l)
			q.l.w.checker.granted(q.l, b.Consumer, l, asked, b.Lease)
		}
		*out = result
	}
}

func (q *queueSeam) Recover(ctx context.Context, consumer uint32, epoch string, jobs []redisq.Job) (redisq.Enqueued,
	error) {
	return q.pinned(ctx, "Recover", consumer, epoch, jobs, redisq.Recovered)
}

// pinned is an Enqueue that is sent once: another epoch than that one ends it.
func (q *queueSeam) pinned(ctx context.Context, op string, consumer uint32, epoch string, jobs []redisq.Job,
	src redisq.Source) (redisq.Enqueued, error) {
	none := redisq.Enqueued{SpilledPriority: -1, FirstSpilled: -1}
	if len(jobs) == 0 {
		return none, nil
	}
	var out redisq.Enqueued
	script, lost := q.enqueue(redisq.Batch{Consumer: consumer, Jobs: jobs}, src, &out), false
	w := q.l.w
	err := q.l.do(ctx, call{op: op, consumer: consumer, rates: w.plan.queue, away: w.queueAway.now,
		effect: func() {
			q.connect()
			current, done := q.once(consumer, epoch, script)
			if lost = !done; lost {
				q.adopt(consumer, epoch, current)
			}
		},
		overdue: func() { q.once(consumer, epoch, script) }})
	if err == nil && lost {
		err = redisq.ErrLost
	}
	if err != nil {
		return none, err
	}
	return out, nil
}

func (q *queueSeam) EnqueueMany(ctx context.Context, batches []redisq.Batch) ([]redisq.Enqueued, []error) {
	out, errs := make([]redisq.Enqueued, len(batches)), make([]error, len(batches))
	for i, b := range batches {
		out[i], errs[i] = q.offer(ctx, b, redisq.Fresh)
	}
	return out, errs
}

func (q *queueSeam) EnqueueAgain(ctx context.Context, batches []redisq.Batch) []error {
	errs := make([]error, len(batches))
	for i, b := range batches {
		if errs[i] = redisq.ErrLost; b.Epoch != "" {
			_, errs[i] = q.pinned(ctx, "EnqueueAgain", b.Consumer, b.Epoch, b.Jobs, redisq.Repeated)
		}
	}
	return errs
}

// Notify reaches the brokers that live, or none.
func (q *queueSeam) Notify(ctx context.Context, consumers []uint32) error {
	nos := slices.Clone(consumers)
	return q.run(ctx, "Notify", 0, func(*queuemodel.Consumer, int64) { q.l.w.notify(nos) })
}

func (q *queueSeam) Claim(ctx context.Context, consumer uint32, n int, lease time.Duration,
	limits redisq.Limits) (redisq.Claim, error) {
	var out redisq.Claim
	asked := time.Now()
	if q.r.flaw == ratesAreIgnored {
		limits = redisq.Limits{}
	}
	parent := q.l.w.store.parent(consumer)
	err := q.run(ctx, "Claim", consumer, func(k *queuemodel.Consumer, now int64) {
		if q.behind(parent) {
			out = k.Claim(now, q.window, 0, lease, limits)
			out.NextDue = replayBehind
			return
		}
		c := k.Claim(now, q.window, min(max(n, 0), redisq.MaxBatch), lease, limits)
		for _, l := range c.Leases {
			q.l.w.checker.granted(q.l, consumer, l, asked, lease)
		}
		for _, l := range c.Leases {
			q.l.w.checker.inTurn(consumer, l)
		}
		out = c
	})
	if err != nil {
		return redisq.Claim{}, err
	}
	return out, nil
}

func (q *queueSeam) ClaimEach(ctx context.Context, consumer uint32, wishes []redisq.Wish) ([]redisq.Grant, error) {
	var out []redisq.Grant
	asked := time.Now()
	wanted := slices.Clone(wishes)
	err := q.run(ctx, "ClaimEach", consumer, func(k *queuemodel.Consumer, now int64) {
		grants := k.ClaimEach(now, wanted)
		for i := range grants {
			if grants[i].Lease.Token != "" {
				q.l.w.checker.granted(q.l, consumer, grants[i].Lease, asked, wanted[i].Lease)
			}
		}
		out = grants
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// ClaimOne is ClaimEach of one job.
func (q *queueSeam) ClaimOne(ctx context.Context, consumer uint32, job redisq.Job, lease time.Duration,
	insert bool) (redisq.Lease, redisq.Standing, error) {
	grants, err := q.ClaimEach(ctx, consumer, []redisq.Wish{{Job: job, Lease: lease, Insert: insert}})
	if err != nil {
		return redisq.Lease{}, redisq.Standing{}, err
	}
	return grants[0].Lease, grants[0].Before, nil
}

func (q *queueSeam) Extend(ctx context.Context, consumer uint32, leases []redisq.Lease, lease time.Duration) ([]bool,
	error) {
	out := make([]bool, len(leases))
	asked := q.l.w.now()
	err := q.run(ctx, "Extend", consumer, func(k *queuemodel.Consumer, now int64) {
		copy(out, k.Extend(now, leases, lease))
	})
	if err != nil || q.l.w.now()-asked > longCall {
		q.l.w.checker.disturb(q.l.no, asked, q.l.w.now())
	}
	if err != nil {
		return make([]bool, len(leases)), err
	}
	return slices.Clone(out), nil
}

func (q *queueSeam) RestoreLeases(ctx context.Context, consumer uint32, leases []redisq.Lease,
	lease time.Duration) ([]bool, error) {
	out := make([]bool, len(leases))
	if q.r.flaw == leasesAreNotHeld {
		return slices.Repeat([]bool{true}, len(leases)), nil
	}
	err := q.run(ctx, "RestoreLeases", consumer, func(k *queuemodel.Consumer, now int64) {
		copy(out, k.RestoreLeases(now, leases, lease))
		q.l.w.checker.restored(q.l, consumer, leases, out, lease)
	})
	if err != nil {
		return make([]bool, len(leases)), err
	}
	return slices.Clone(out), nil
}

func (q *queueSeam) Nack(ctx context.Context, consumer uint32, leases []redisq.Lease, delays []time.Duration) ([]bool,
	error) {
	var out []bool
	err := q.run(ctx, "Nack", consumer, func(k *queuemodel.Consumer, now int64) {
		result := k.Nack(now, leases, delays)
		q.l.w.checker.ended(q.l, "nacked", consumer, leases, result)
		out = result
	})
	if err != nil {
		return make([]bool, len(leases)), err
	}
	return out, nil
}

func (q *queueSeam) GiveBack(ctx context.Context, consumer uint32, leases []redisq.Lease,
	delays []time.Duration) ([]bool, error) {
	var out []bool
	err := q.run(ctx, "GiveBack", consumer, func(k *queuemodel.Consumer, now int64) {
		result := k.GiveBack(now, leases, delays)
		q.l.w.checker.ended(q.l, "nacked", consumer, leases, result)
		out = result
	})
	if err != nil {
		return make([]bool, len(leases)), err
	}
	return out, nil
}

func (q *queueSeam) Regrant(ctx context.Context, consumer uint32, l redisq.Lease, limits redisq.Limits) (redisq.Lease,
	time.Duration, error) {
	if q.r.flaw == ratesAreIgnored {
		return l, 0, nil
	}
	out, wait, asked := l, time.Duration(0), q.l.w.now()
	err := q.run(ctx, "Regrant", consumer, func(k *queuemodel.Consumer, now int64) {
		out, wait = k.Regrant(now, l, limits)
	})
	q.l.w.checker.counted(q.l, asked, limits)
	if err != nil { // the script may still run, and write to them
		return l, 0, err
	}
	return out, wait, nil
}

func (q *queueSeam) Hold(ctx context.Context, consumer uint32, wait time.Duration) error {
	return q.run(ctx, "Hold", consumer, func(k *queuemodel.Consumer, now int64) { k.Hold(now, wait) })
}

func (q *queueSeam) Release(ctx context.Context, consumer uint32, leases []redisq.Lease) ([]bool, error) {
	var out []bool
	err := q.run(ctx, "Release", consumer, func(k *queuemodel.Consumer, _ int64) {
		result := k.Release(leases)
		q.l.w.checker.ended(q.l, "released", consumer, leases, result)
		out = result
	})
	if err != nil {
		return make([]bool, len(leases)), err
	}
	return out, nil
}

func (q *queueSeam) Ack(ctx context.Context, consumer uint32, ids []ident.ID) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	if err := q.beforeAck(ctx, consumer, ids); err != nil {
		return 0, err
	}
	removed := 0
	nos := slices.Clone(ids)
	err := q.run(ctx, "Ack", consumer, func(k *queuemodel.Consumer, _ int64) {
		n := k.Ack(nos)
		q.l.w.checker.acked(q.l, consumer, nos)
		removed = n
	})
	if err != nil {
		return 0, err
	}
	return removed, nil
}

func (q *queueSeam) AckLeases(ctx context.Context, consumer uint32, leases []redisq.Lease) ([]bool, error) {
	none := make([]bool, len(leases))
	if len(leases) == 0 {
		return none, nil
	}
	ids := make([]ident.ID, len(leases))
	for i, l := range leases {
		ids[i] = l.ID
	}
	if err := q.beforeAck(ctx, consumer, ids); err != nil {
		return none, err
	}
	var out []bool
	err := q.run(ctx, "AckLeases", consumer, func(k *queuemodel.Consumer, _ int64) {
		out = k.AckLeases(leases)
		var gone []ident.ID
		for i, held := range out {
			if held {
				gone = append(gone, ids[i])
			}
		}
		q.l.w.checker.acked(q.l, consumer, gone)
	})
	if err != nil {
		return none, err
	}
	return out, nil
}

func (q *queueSeam) AckLeasesMany(ctx context.Context, ended []redisq.Ended) []error {
	errs := make([]error, len(ended))
	for i, h := range ended {
		_, errs[i] = q.AckLeases(ctx, h.Consumer, h.Leases)
	}
	return errs
}

func (q *queueSeam) AckMany(ctx context.Context, done []redisq.Done) ([]int, []error) {
	out, errs := make([]int, len(done)), make([]error, len(done))
	for i, d := range done {
		out[i], errs[i] = q.Ack(ctx, d.Consumer, d.IDs)
	}
	return out, errs
}

func (q *queueSeam) Reclaim(ctx context.Context, consumer uint32, limit, maxAttempts int) (redisq.Expired, error) {
	var out redisq.Expired
	dropped := false
	err := q.run(ctx, "Reclaim", consumer, func(k *queuemodel.Consumer, now int64) {
		if dropped = q.r.flaw != clockIsTrusted && k.WentBack(now); dropped {
			delete(q.r.mixed, consumer)
			q.l.w.checker.disturb(0, q.l.w.now(), q.l.w.now())
			q.l.note("dropped", consumer, ident.ID{}, "the clock went back")
			return
		}
		x := k.Reclaim(now, limit, maxAttempts)
		q.l.w.checker.reclaimed(q.l, consumer, x)
		out = x
	})
	if err == nil && dropped { // it meets the new state at once
		_, err = q.Stats(ctx, consumer)
	}
	if err != nil {
		return redisq.Expired{}, err
	}
	return out, nil
}

func (q *queueSeam) Probe(ctx context.Context, consumer uint32, ids []ident.ID) ([]redisq.Standing, error) {
	var out []redisq.Standing
	nos := slices.Clone(ids)
	err := q.run(ctx, "Probe", consumer, func(k *queuemodel.Consumer, _ int64) {
		found := make([]redisq.Standing, len(nos))
		for i, id := range nos {
			found[i] = k.Standing(id)
		}
		out = found
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (q *queueSeam) Peek(ctx context.Context, consumer uint32, after *redisq.Cursor, limit int) ([]redisq.Waiting,
	error) {
	var out []redisq.Waiting
	err := q.run(ctx, "Peek", consumer, func(k *queuemodel.Consumer, now int64) {
		out = k.Peek(now, q.window, after, limit)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (q *queueSeam) Stats(ctx context.Context, consumer uint32) (redisq.Stats, error) {
	var out redisq.Stats
	err := q.run(ctx, "Stats", consumer, func(k *queuemodel.Consumer, now int64) {
		out = k.Stats(now)
		out.Epoch = k.Epoch
	})
	if err != nil {
		return redisq.Stats{SpilledPriority: -1}, err
	}
	return out, nil
}

// Complete is part of reaper.Queue.
func (q *queueSeam) Complete(ctx context.Context, consumer uint32, epoch string) error {
	lost := false
	err := q.run(ctx, "Complete", consumer, func(k *queuemodel.Consumer, _ int64) {
		if lost = k.Epoch != epoch; !lost {
			k.Complete()
		}
	})
	if err == nil && lost {
		err = redisq.ErrLost
	}
	return err
}

func (q *queueSeam) ReplaceSpilled(ctx context.Context, consumer uint32, priority int, spills int64) (bool, error) {
	var out bool
	err := q.run(ctx, "ReplaceSpilled", consumer, func(k *queuemodel.Consumer, _ int64) {
		out = k.ReplaceSpilled(priority, spills)
	})
	if err != nil {
		return false, err
	}
	return out, nil
}
