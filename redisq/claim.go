package redisq

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Claim leases up to n ready jobs (at most MaxBatch), best first, and charges
// each an attempt. n = 0 leases none and only lets due jobs in. When the answer
// is lost the jobs come back as their leases end.
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

// ClaimOne leases one job by ID, from ready or delayed, and charges an attempt.
// before is how the job stood: when it is Leased somebody else has it, and when it
// is Missing and insert is false Redis does not know it; the lease is zero in both
// cases. With insert an unknown job is leased all the same, with the priority and
// attempts of job, and flagged FlagVerify.
func (q *Queue) ClaimOne(ctx context.Context, consumer uint32, job Job, lease time.Duration, insert bool) (Lease, Standing, error) {
	if lease <= 0 || job.Priority < 0 || job.Priority > MaxPriority || job.Attempts < 0 {
		return Lease{}, Standing{}, fmt.Errorf("redisq: claim job %s: a lease of %s, priority %d, %d attempts",
			job.ID, lease, job.Priority, job.Attempts)
	}
	flag := 0
	if insert {
		flag = 1
	}
	c := &call{
		consumer: consumer,
		script:   claimOneScript,
		args:     []any{string(job.ID[:]), job.Priority, job.Attempts, millis(lease), flag},
	}
	q.runAll(ctx, []*call{c})
	if c.err != nil {
		return Lease{}, Standing{}, c.err
	}
	r := reader{items: c.reply}
	won := r.int() == 1
	before := r.standing()
	fence := r.int()
	l := Lease{ID: job.ID, Priority: int(r.int()), Attempt: int(r.int()), Flags: Flags(r.int()), Token: token(c.known, fence)}
	if r.err != nil || !won {
		return Lease{}, before, r.err
	}
	return l, before, nil
}

// token is the token that claim.lua, claim_one.lua and reclaim.lua wrote.
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
