package pull

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// maxGivenBack is how often a job may be given back for nothing. Each time after that is charged as
// an attempt, so a job that no worker wants ends as a dead letter.
const maxGivenBack = 100

// giveBack ends leases on request of the workers. What a worker says, the store has: the time at
// which the job is due, and the count. It is stored before Redis takes the job back. A crash in
// between leaves the lease, which ends later as a lost one; a Redis that is emptied, or an embedded
// broker that starts again, gets the job with its delay.
func (u *updating) giveBack(ctx context.Context, entries []int) {
	if len(entries) == 0 {
		return
	}
	standings, states, err := u.look(ctx, entries)
	if err != nil {
		u.fail(entries, err)
		return
	}
	answers := make(chan int, len(entries))
	waiting, given := map[int]*answerTo{}, map[int]*givenBack{}
	for n, i := range entries {
		q := standings[n]
		if q.State != redisq.Leased || q.Token != u.updates[i].Lease {
			u.errs[i] = errLeaseLost
			continue
		}
		g := &givenBack{answerTo: answerTo{i: i, answers: answers}, entry: u.returned(i, q, states[u.ids[i]])}
		g.entry.Urgency, g.entry.Sink = outcome.Urgent, g
		given[i], waiting[i] = g, &g.answerTo
		u.p.outcomes.Add(g.entry)
	}
	u.wait(ctx, answers, waiting, func(i int) { u.gave(ctx, given[i]) })
	u.p.returned(u.k.No)
	u.p.touched(u.k.No)
}

// look reads what Redis and the store know of the jobs of the entries. A job that was neither
// attempted nor flagged before its lease has nothing in the store.
func (u *updating) look(ctx context.Context, entries []int) ([]redisq.Standing, map[ident.ID]durable.JobState, error) {
	ids, standings, err := u.probe(ctx, entries)
	if err != nil {
		return nil, nil, err
	}
	var known []ident.ID
	for n, q := range standings {
		if q.Attempts != 1 || q.Flags != 0 {
			known = append(known, ids[n])
		}
	}
	if len(known) == 0 {
		return standings, nil, nil
	}
	states, err := u.p.verifier.Store.JobStates(ctx, u.k.No, known)
	return standings, states, err
}

// returned is the outcome of entry i, whose job has the standing q and the stored state s. Giving
// back is no attempt, unless the worker says that the attempt failed, or the job was given back too
// often.
func (u *updating) returned(i int, q redisq.Standing, s durable.JobState) outcome.Entry {
	e, p := &u.updates[i], u.p.policies.Of(u.k.Policy)
	attempt := max(q.Attempts, s.Attempts+1) // as the worker was told, see verify.Candidate.Attempt
	r := outcome.Entry{Lease: redisq.Lease{ID: u.ids[i], Token: e.Lease}, ExtendBy: u.p.extension(u.k, q),
		Delay: time.Duration(e.Delay) * time.Second}
	if e.Failed && e.Delay == 0 && !e.now {
		r.Delay = p.Delay(p.Counted(attempt, s.LeasesLost))
	}
	out := durable.Outcome{Kind: durable.OutcomeGivenBack, ConsumerNo: u.k.No, ID: u.ids[i], Priority: q.Priority,
		Attempts: attempt - 1,
		AtMs:     u.p.nowMs(), Tracked: true, Phase: durable.PhaseGivenBack, Worker: q.Worker}
	e.tell(&out, "given back by the worker")
	switch {
	case e.Failed:
		out.Phase = durable.PhaseAnswered
		e.tell(&out, "the worker reported a failure")
	case s.GivenBack >= maxGivenBack:
		e.tell(&out, fmt.Sprintf("given back by the worker, more than %d times so far", maxGivenBack))
	}
	if e.Failed || s.GivenBack >= maxGivenBack {
		out.Kind, out.Attempts = durable.OutcomeRetry, attempt
		if n := p.Counted(attempt, s.LeasesLost); n >= p.MaxAttempts() {
			out.Kind, out.Reason = durable.OutcomeDead, durable.AttemptsExhausted
			if e.Reason == "" {
				out.Error = fmt.Sprintf("attempt %d of %d: %s", n, p.MaxAttempts(), out.Error)
			}
			u.p.metrics.Died(out.Reason, 1)
		}
	}
	if out.Kind != durable.OutcomeDead {
		out.NextMs = out.AtMs + r.Delay.Milliseconds()
	}
	r.Outcome = out
	return r
}

// A givenBack is the sink of an entry that gives a job back.
type givenBack struct {
	answerTo
	entry outcome.Entry
	taken bool // by Redis, before it is Done
}

func (g *givenBack) Retrying(time.Duration) { g.taken = true }

// gave answers an entry whose outcome is stored. Where Redis has not taken the job back, Redis failed,
// or the lease was lost meanwhile, or the broker that gave it has taken the job back already, see
// takeBack: Redis is asked once more.
func (u *updating) gave(ctx context.Context, g *givenBack) {
	u.p.book.remove(u.k.No, u.ids[g.i], u.updates[g.i].Lease)
	if g.entry.Outcome.Kind == durable.OutcomeDead {
		u.p.verifier.Cache.Done(u.ids[g.i])
		return
	}
	if g.taken {
		return
	}
	call := u.p.queue.Nack
	if g.entry.Outcome.Kind == durable.OutcomeGivenBack {
		call = u.p.queue.GiveBack
	}
	moved, err := call(ctx, u.k.No, []redisq.Lease{g.entry.Lease}, []time.Duration{g.entry.Delay})
	if err == nil && !moved[0] {
		moved[0], err = u.waits(ctx, g)
	}
	u.answer([]int{g.i}, moved, err)
}

// waits reports whether the job of an entry waits as it should after the give-back.
func (u *updating) waits(ctx context.Context, g *givenBack) (bool, error) {
	_, standings, err := u.probe(ctx, []int{g.i})
	if err != nil {
		return false, err
	}
	q := standings[0]
	return (q.State == redisq.Ready || q.State == redisq.Delayed) && q.Attempts <= g.entry.Outcome.Attempts, nil
}
