package pull

import (
	"cmp"
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/redisq"
)

// limits returns the limits of the consumer's leases. Workers get jobs by priority and time alone:
// they have no slots here that retries could fill.
func (p *Puller) limits(k *durable.Consumer) redisq.Limits {
	l := p.limitsOf(k)
	l.RetryShare = 100
	return l
}

// visibility returns the length of a lease of a job of the consumer: its own timeout, or that of the
// installation.
func (p *Puller) visibility(k *durable.Consumer) time.Duration {
	if k.Policy == "" { // the usual case
		return p.visible
	}
	return cmp.Or(p.policies.Of(k.Policy).Lease, p.visible)
}

// leaseFor returns how long the lease lasts that an entry claims or renews.
func (p *Puller) leaseFor(k *durable.Consumer, e *update) time.Duration {
	usual := p.visibility(k)
	if e.Timeout > 0 {
		usual = time.Duration(e.Timeout) * time.Second
	}
	return usual + time.Duration(e.IncrementalTimeout)*time.Second
}

// extension returns by how much the lease of a job with the standing q is extended while a report waits
// for the store: as long as a new lease lasts, and until its end where that is later, because the store
// may not take the report in the end. Whole seconds let one call extend many leases.
func (p *Puller) extension(k *durable.Consumer, q redisq.Standing) time.Duration {
	usual := p.visibility(k)
	rest := min(time.Until(q.At), usual+MaxIncrementalTimeout*time.Second)
	return max(usual, rest.Truncate(time.Second)+time.Second)
}

// Refusals of a lease by the limits of the consumer.
var (
	errRate = problem.Problem{Status: 429, Code: "rate_limited", RetryAfter: 1,
		Detail: "The rate of the consumer allows no attempt now. Nothing was leased."}
	errConcurrency = problem.Problem{Status: 429, Code: "too_many_in_flight", RetryAfter: 1,
		Detail: "The consumer has as many jobs in flight as its concurrency allows. Nothing was leased."}
)

// retryAfter returns a time as seconds for Retry-After, rounded up.
func retryAfter(wait time.Duration) int { return int((max(wait, 1) + time.Second - 1) / time.Second) }

// claim claims the job in Redis. With insert it also claims a job that Redis does not have.
func (m *move) claim(ctx context.Context, job redisq.Job, insert bool) (redisq.Lease, redisq.Standing, error) {
	grant, err := m.p.claims.Ask(ctx, m.k.No, redisq.Wish{Job: job, Lease: m.p.leaseFor(m.k, &m.e), Insert: insert,
		Limits: m.p.limitsOf(m.k), Worker: m.worker})
	if err == nil && grant.Limited {
		refused := errConcurrency
		if grant.Wait > 0 {
			refused = errRate
			m.p.metrics.Book.Limited(m.k.No)
			refused.RetryAfter = retryAfter(grant.Wait)
		}
		return redisq.Lease{}, grant.Before, &refused
	}
	return grant.Lease, grant.Before, err
}
