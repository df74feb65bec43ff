package pull

import (
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/feature/tracing"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/redisq"
)

// received records that a worker got the jobs of a claim.
func (p *Puller) received(c *claimed) {
	for i := range c.jobs {
		j := &c.jobs[i]
		p.traces.Receive(tracing.Attempt{Consumer: c.of, Message: j.msg, No: j.lease.Attempt, RedrivenMs: j.redrivenMs,
			Begun: c.begun})
	}
}

// traceClaim records that a worker got the job of the move.
func (m *move) traceClaim(lease redisq.Lease, begun time.Time) {
	msg, _ := m.p.verifier.Cache.Get(m.id)
	m.p.traces.Claimed(tracing.Attempt{Consumer: m.k, Message: msg, No: lease.Attempt, Begun: begun}, m.id)
}

// settled records what the entries of a batch update report.
func (u *updating) settled(rc *fasthttp.RequestCtx, begun time.Time) {
	for i, e := range u.updates {
		if u.ids[i] == (ident.ID{}) || e.NextState != "DELIVERED" && e.NextState != "DEAD" && e.NextState != "QUEUED" {
			continue // it names no job, or reports nothing
		}
		k := u.k
		if u.of != nil {
			k = u.of[i]
		}
		failed := u.errs[i] == nil && (e.NextState == "DEAD" || e.Failed)
		span := u.p.traces.Settle(k, u.ids[i], rc.Request.Header.Peek(tracing.ParentHeader), failed, begun)
		if span == nil {
			continue
		}
		span.Settled(e.NextState)
		kind := ""
		if u.errs[i] != nil {
			kind = problem.FromChange(u.errs[i]).Code
		} else if failed {
			kind = "reported_failed"
		}
		span.End(kind)
	}
}
