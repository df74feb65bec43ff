package redisq

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// fullPause is the time after which a consumer whose concurrency is used up is asked again: a
// lease may have ended on another broker.
const fullPause = 100 * time.Millisecond

// Claim leases the first n ready jobs (at most MaxBatch) in queue order and charges each
// an attempt. n = 0 leases none and only promotes due jobs. If the reply is lost, the
// jobs become ready again when their leases end.
//
// Where the limits keep a ready job back, Limited says so and NextDue is the time until a rate
// allows the next lease, or fullPause where only the concurrency is used up.
func (q *Queue) Claim(ctx context.Context, consumer uint32, n int, lease time.Duration, limits Limits) (Claim, error) {
	if lease <= 0 {
		return Claim{}, fmt.Errorf("redisq: claim: a lease of %s", lease)
	}
	args := []any{min(max(n, 0), MaxBatch), millis(lease), q.window, max(limits.Slots, 0), max(limits.Retrying, 0)}
	if limits.Worker != "" {
		args = append(args, "worker|"+limits.Worker)
	}
	c := &call{consumer: consumer, script: claimScript, args: limits.with(args)}
	q.runAll(ctx, []*call{c})
	if c.err != nil {
		return Claim{}, c.err
	}
	r := reader{items: c.reply}
	out := Claim{Ready: int(r.int())}
	outside := r.int()
	out.Spilled, out.Whole, out.NextDue = outside >= 0, outside == -1, r.millis()
	fence, granted := r.int(), r.text()
	if out.Limited = Limit(r.int()); out.Limited == ConcurrencyLimit && (out.NextDue == 0 || out.NextDue > fullPause) {
		out.NextDue = fullPause
	}
	out.Retries = int(r.int())
	if r.left() > 0 {
		out.Leases = make([]Lease, 0, r.left()/2)
	}
	for ; r.left() > 0; fence++ {
		id, code := r.id(), int(r.int())
		out.Leases = append(out.Leases, Lease{ID: id, Priority: code % 1024, Flags: Flags(code / 1024 % 4),
			Attempt: code / 4096, Token: token(c.known, fence), Granted: granted, Worker: limits.Worker})
	}
	return out, r.err
}

// A Wish asks for the lease of one ready or delayed job by ID. With Insert, a job that
// Redis does not know is leased too, with the priority and attempts of Job, and flagged
// FlagVerify.
type Wish struct {
	Job    Job
	Lease  time.Duration
	Insert bool
	Limits Limits // of the consumer; those of the first wish of a call count
	Worker string // who gets the lease, as Lease has it
}

// A Grant is the answer to a Wish. Before is the state of the job before the call. The
// Lease is zero if Before is Leased, since another lease exists, or if Before is Missing
// and the wish has no Insert.
type Grant struct {
	Lease  Lease
	Before Standing
	// Limited says that a limit has refused the lease. Wait is then the time until a rate
	// allows it, 0 where that is unknown.
	Limited bool
	Wait    time.Duration
}

// ClaimEach leases the jobs of up to MaxBatch wishes, in their order, and charges each
// leased job an attempt.
func (q *Queue) ClaimEach(ctx context.Context, consumer uint32, wishes []Wish) ([]Grant, error) {
	if len(wishes) == 0 || len(wishes) > MaxBatch {
		return nil, fmt.Errorf("redisq: claim each of %d jobs", len(wishes))
	}
	args := make([]any, 0, 5*len(wishes))
	for i := range wishes {
		w := &wishes[i]
		if w.Lease <= 0 || w.Job.Priority < 0 || w.Job.Priority > MaxPriority || w.Job.Attempts < 0 {
			return nil, fmt.Errorf("redisq: claim job %s: a lease of %s, priority %d, %d attempts",
				w.Job.ID, w.Lease, w.Job.Priority, w.Job.Attempts)
		}
		flag := any(0)
		if w.Insert {
			flag = 1
		}
		if w.Worker != "" {
			flag = fmt.Sprint(flag, "|", w.Worker)
		}
		args = append(args, string(w.Job.ID[:]), w.Job.Priority, w.Job.Attempts, millis(w.Lease), flag)
	}
	c := &call{consumer: consumer, script: claimEachScript, args: wishes[0].Limits.with(args)}
	q.runAll(ctx, []*call{c})
	if c.err != nil {
		return nil, c.err
	}
	r := reader{items: c.reply}
	grants := make([]Grant, len(wishes))
	for i := range wishes {
		result := r.int()
		grants[i].Before = r.standing()
		fence := r.int()
		l := Lease{ID: wishes[i].Job.ID, Priority: int(r.int()), Attempt: int(r.int()), Flags: Flags(r.int()),
			Token: token(c.known, fence), Granted: r.text()}
		switch result {
		case 1:
			l.Worker = wishes[i].Worker
			grants[i].Lease = l
		case 2:
			grants[i].Limited, grants[i].Wait = true, time.Duration(fence)*time.Millisecond
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	return grants, nil
}

// ClaimOne is ClaimEach for one job.
func (q *Queue) ClaimOne(ctx context.Context, consumer uint32, job Job, lease time.Duration, insert bool) (Lease,
	Standing, error) {
	grants, err := q.ClaimEach(ctx, consumer, []Wish{{Job: job, Lease: lease, Insert: insert}})
	if err != nil {
		return Lease{}, Standing{}, err
	}
	return grants[0].Lease, grants[0].Before, nil
}

// token returns the lease token in the form that the scripts write.
func token(epoch string, fence int64) string { return epoch + "." + strconv.FormatInt(fence, 10) }

// lease reads ID, priority, attempt and flags.
func (r *reader) lease(epoch string, fence int64) Lease {
	return Lease{
		ID:       r.id(),
		Priority: int(r.int()),
		Attempt:  int(r.int()),
		Flags:    Flags(r.int()),
		Token:    token(epoch, fence),
	}
}
