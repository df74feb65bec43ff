package pull

import (
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
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
		switch {
		case u.ids[i] == (ident.ID{}): // it names no job
		case e.NextState == "DELIVERED", e.NextState == "DEAD", e.NextState == "QUEUED":
			failed := e.NextState == "DEAD" || e.NextState == "QUEUED" && e.Failed
			k := u.k
			if u.of != nil {
				k = u.of[i]
			}
			u.p.traceSettled(rc, k, settling{u.ids[i], e.NextState, failed, begun}, u.errs[i])
		}
	}
}

// A settling is the report of a worker about a job.
type settling struct {
	id     ident.ID
	state  string
	failed bool // it says that an attempt failed
	begun  time.Time
}

// traceSettled records the report of a worker about a job. err is its answer; nil: it was taken.
func (p *Puller) traceSettled(rc *fasthttp.RequestCtx, k *durable.Consumer, s settling, err error) {
	failed := s.failed && err == nil
	span := p.traces.Settle(k, s.id, rc.Request.Header.Peek(tracing.ParentHeader), failed, s.begun)
	if span == nil {
		return
	}
	span.Settled(s.state)
	kind := ""
	if err != nil {
		kind = problem.FromChange(err).Code
	} else if failed {
		kind = "reported_failed"
	}
	span.End(kind)
}
