package redisq

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Claim leases the first n ready jobs (at most MaxBatch) in queue order and charges each
// an attempt. n = 0 leases none and only promotes due jobs. If the reply is lost, the
// jobs become ready again when their leases end.
func (q *Queue) Claim(ctx context.Context, consumer uint32, n int, lease time.Duration) (Claim, error) {
	if lease <= 0 {
		return Claim{}, fmt.Errorf("redisq: claim: a lease of %s", lease)
	}
	c := &call{
		consumer: consumer,
		script:   claimScript,
		args:     []any{min(max(n, 0), MaxBatch), millis(lease), q.window},
	}
	q.runAll(ctx, []*call{c})
	if c.err != nil {
		return Claim{}, c.err
	}
	r := reader{items: c.reply}
	out := Claim{Ready: int(r.int()), Spilled: r.int() >= 0, NextDue: r.millis()}
	fence := r.int()
	if r.left() > 0 {
		out.Leases = make([]Lease, 0, r.left()/2)
	}
	for ; r.left() > 0; fence++ {
		id, code := r.id(), int(r.int())
		out.Leases = append(out.Leases, Lease{ID: id, Priority: code % 1024, Flags: Flags(code / 1024 % 4), Attempt: code / 4096, Token: token(c.known, fence)})
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
}

// A Grant is the answer to a Wish. Before is the state of the job before the call. The
// Lease is zero if Before is Leased, since another lease exists, or if Before is Missing
// and the wish has no Insert.
type Grant struct {
	Lease  Lease
	Before Standing
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
		flag := 0
		if w.Insert {
			flag = 1
		}
		args = append(args, string(w.Job.ID[:]), w.Job.Priority, w.Job.Attempts, millis(w.Lease), flag)
	}
	c := &call{consumer: consumer, script: claimEachScript, args: args}
	q.runAll(ctx, []*call{c})
	if c.err != nil {
		return nil, c.err
	}
	r := reader{items: c.reply}
	grants := make([]Grant, len(wishes))
	for i := range wishes {
		won := r.int() == 1
		grants[i].Before = r.standing()
		fence := r.int()
		l := Lease{ID: wishes[i].Job.ID, Priority: int(r.int()), Attempt: int(r.int()), Flags: Flags(r.int()), Token: token(c.known, fence)}
		if won {
			grants[i].Lease = l
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	return grants, nil
}

// ClaimOne is ClaimEach for one job.
func (q *Queue) ClaimOne(ctx context.Context, consumer uint32, job Job, lease time.Duration, insert bool) (Lease, Standing, error) {
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
