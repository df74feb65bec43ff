package pull

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/redisq"
)

// take calls inFlight and refuses the lease if its time is already over. That happens if this
// process was paused: another worker may have claimed and finished the job.
func (m *move) take(ctx context.Context) (redisq.Lease, error) {
	if m.e.Timeout > 0 { // it is of a renewal, which has a lease
		return redisq.Lease{}, errNeedLease
	}
	if m.p.held(m.k.No) {
		return redisq.Lease{}, m.inFlightHeld(ctx)
	}
	over := time.Now().Add(m.p.leaseFor(m.k, &m.e))
	lease, err := m.inFlight(ctx, 0)
	if err == nil && lease.Token != "" && !time.Now().Before(over) {
		return redisq.Lease{}, errLeaseOver
	}
	return lease, err
}

// inFlight claims the job. The lease has a token only for the one caller that claimed it. Other
// requests for the same state get 202 without a token.
func (m *move) inFlight(ctx context.Context, round int) (redisq.Lease, error) {
	p := m.p
	lease, before, err := m.claim(ctx, redisq.Job{ID: m.id}, false)
	if err != nil {
		return lease, err
	}
	if lease.Token != "" {
		failpoint.At(failpoint.AfterPullClaim)
		return m.claimed(ctx, lease)
	}
	delivered, token := p.recent.of(m.k.No, m.id)
	switch {
	case delivered: // Redis may still have the lease: the acknowledgement comes after the outcome
		return lease, errTransition
	case before.State != redisq.Leased:
		return m.putBack(ctx, round)
	case token != before.Token:
		over, err := m.forgetOver(ctx, before)
		if err != nil {
			return lease, err
		}
		if over && round < 3 {
			return m.inFlight(ctx, round+1)
		}
	}
	if m.e.IncrementalTimeout != 0 {
		return lease, errTimeout
	}
	return lease, nil
}

// putBack claims a job that Redis does not have, unless the store has its delivery. It takes a dead
// letter out of the DLQ.
func (m *move) putBack(ctx context.Context, round int) (lease redisq.Lease, err error) {
	p := m.p
	s, err := p.verifier.State(ctx, m.k, m.id)
	if err != nil {
		return lease, err
	}
	if s.Status == durable.Delivered {
		return lease, errTransition
	}
	msg, err := m.message(ctx)
	if err != nil {
		return lease, err
	}
	attempts := s.Attempts
	if s.Status == durable.Dead {
		open, err := p.store.Reopen(ctx, m.k.No, m.id, p.nowMs())
		if errors.Is(err, durable.ErrNotFound) && round < 3 { // another worker reopened it first
			return m.inFlight(ctx, round+1)
		}
		if err != nil {
			return lease, err
		}
		attempts = open.Attempts
	}
	job := redisq.Job{ID: m.id, Priority: msg.Priority, Attempts: attempts}
	lease, before, err := m.claim(ctx, job, true)
	if err != nil {
		return lease, err
	}
	switch {
	case lease.Token != "": // another worker may have leased and ended it since the store was asked
		return m.claimed(ctx, lease)
	case before.State == redisq.Leased && m.e.IncrementalTimeout != 0:
		return lease, errTimeout
	}
	return lease, nil
}

// message returns the message of the job without its payload. It returns errJobNotFound if the
// consumer has no such job.
func (m *move) message(ctx context.Context) (*durable.Message, error) {
	msg, err := m.p.head(ctx, m.ch, m.id)
	if err == nil && !m.k.Concerns(msg.Head()) {
		err = errJobNotFound
	}
	return msg, err
}

// forgetOver checks a job that Redis holds as leased against the store. If the job is over, its
// acknowledgement was lost. Then forgetOver ends that lease, and no later one, so that the job can
// be claimed and verified like any other.
func (m *move) forgetOver(ctx context.Context, standing redisq.Standing) (over bool, err error) {
	c := verify.Candidate{ID: m.id}
	if err = m.p.verifier.One(ctx, m.k, &c); err != nil || !c.Verdict.Ends() {
		return false, err
	}
	_, err = m.p.queue.Nack(ctx, m.k.No, []redisq.Lease{{ID: m.id, Token: standing.Token}}, []time.Duration{0})
	return true, err
}

// claimed verifies a fresh lease against the store unless the fresh rule applies.
func (m *move) claimed(ctx context.Context, lease redisq.Lease) (redisq.Lease, error) {
	p := m.p
	p.touched(m.k.No)
	c := verify.OfLease(&lease)
	if p.verifier.Fresh(m.k, &c, p.queue.Incarnation()) {
		p.recent.leased(m.k.No, m.id, lease.Token)
		return lease, nil
	}
	if err := p.verifier.One(ctx, m.k, &c); err != nil {
		return redisq.Lease{}, err // the lease expires
	}
	if c.Verdict == verify.Deliver {
		lease.Attempt, m.state = c.Attempt(lease), c.State
		p.recent.leased(m.k.No, m.id, lease.Token)
		return lease, nil
	}
	ended, err := p.settler().Settle(ctx, m.k, []verify.Candidate{c}, []redisq.Lease{lease},
		func(r outcome.Entry) error { return p.outcomes.Store(ctx, r) })
	switch {
	case err != nil:
		return redisq.Lease{}, err
	case ended > 0: // Redis no longer has the job: the store decides
		return m.inFlight(ctx, 1)
	case c.Verdict.SetAside():
		return redisq.Lease{}, errBlocked
	}
	return redisq.Lease{}, errTransition // it is DEAD: the next claim of it takes it out of the DLQ
}
