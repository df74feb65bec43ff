package pull

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/failpoint"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/internal/intake"
	"github.com/penstock-broker/penstock/internal/problem"
	"github.com/penstock-broker/penstock/redisq"
)

// LeaseHeader carries the lease token: to the one request that claimed a job,
// and back from clients that want a stale worker to be refused.
const LeaseHeader = "X-Broker-Lease"

var (
	errTransition = problem.New(400, "invalid_transition", "The job cannot move from its state to NextState.")
	errTimeout    = problem.New(400, "invalid_timeout",
		"IncrementalTimeout goes only with NextState INFLIGHT of a job that is not in flight, as whole seconds from 0 to "+strconv.Itoa(MaxIncrementalTimeout)+".")
	errLeaseOver = problem.New(409, "lease_lost", "The job was claimed, but its lease was over before this could be said.")
	errLeaseLost = problem.New(409, "lease_lost", "The lease in "+LeaseHeader+" is no longer the job's lease.")
	errForeign   = problem.New(401, "job_of_other_consumer", "The job belongs to another consumer.")
)

// MoveJob is POST /channel/{channel}/consumer/{consumer}/job/{job}: the state
// machine of pull jobs. A 202 to DELIVERED or DEAD is on disk.
func (p *Puller) MoveJob(rc *fasthttp.RequestCtx, body intake.Limit) {
	ch, k, held, err := p.open(rc, body)
	defer body.Drop(rc, held)
	state := "refused"
	if err == nil {
		state, err = p.moveJob(rc, ch, k)
	}
	if err != nil {
		problem.Write(rc, err)
	} else {
		rc.SetStatusCode(fasthttp.StatusAccepted)
	}
	p.metrics.Transitions.WithLabelValues(state, strconv.Itoa(rc.Response.StatusCode())).Inc()
}

func (p *Puller) moveJob(rc *fasthttp.RequestCtx, ch *catalogue.Channel, k *durable.Consumer) (state string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), intake.AnswerWithin)
	defer cancel()
	state = "refused"
	jobID, _ := rc.UserValue("job").(string)
	job, err := ident.Parse(jobID)
	if err != nil {
		return state, errJobNotFound
	}
	id, pos, ok := job.Split()
	if !ok {
		return state, errJobNotFound
	}
	if pos != k.Position {
		return state, p.foreign(ctx, ch, id, pos)
	}
	t, err := parseTransition(rc.Request.Body())
	if err != nil {
		return state, err
	}
	m := move{p: p, ch: ch, k: k, id: id, t: t, token: string(rc.Request.Header.Peek(LeaseHeader))}
	switch t.next {
	case "INFLIGHT":
		lease, err := m.take(ctx)
		if err == nil && lease.Token != "" {
			rc.Response.Header.Set(LeaseHeader, lease.Token)
		}
		return t.next, err
	case "QUEUED":
		return t.next, m.queued(ctx)
	default:
		return t.next, m.finish(ctx)
	}
}

// A move is one transition under way.
type move struct {
	p     *Puller
	ch    *catalogue.Channel
	k     *durable.Consumer
	id    ident.ID
	t     transition
	token string // presented by the client, may be empty
}

// take is inFlight, but for a process that was paused meanwhile: another worker may
// have got the job by now, and be through with it.
func (m *move) take(ctx context.Context) (redisq.Lease, error) {
	over := time.Now().Add(m.p.visible + m.t.extra)
	lease, err := m.inFlight(ctx, 0)
	if err == nil && lease.Token != "" && !time.Now().Before(over) {
		return redisq.Lease{}, errLeaseOver
	}
	return lease, err
}

// inFlight claims the job. The lease has a token only for the one caller that
// claimed it: same-state requests get 202 as well, but no token.
func (m *move) inFlight(ctx context.Context, round int) (redisq.Lease, error) {
	p := m.p
	lease, before, err := m.claim(ctx, redisq.Job{ID: m.id}, false)
	if err != nil {
		return lease, err
	}
	switch {
	case lease.Token != "":
		failpoint.At(failpoint.AfterPullHold)
		return m.claimed(ctx, lease)
	case before.State == redisq.Leased:
		over, err := m.forgetOver(ctx, before)
		if err != nil {
			return lease, err
		}
		if over && round < 3 {
			return m.inFlight(ctx, round+1)
		}
		if m.t.extra != 0 {
			return lease, errTimeout
		}
		return lease, nil
	}
	// Redis does not know the job: the store decides.
	msg, err := m.message(ctx)
	if err != nil {
		return lease, err
	}
	s, err := p.verifier.State(ctx, m.k, m.id)
	if err != nil {
		return lease, err
	}
	attempts := s.Attempts
	switch s.Status {
	case durable.Delivered:
		return lease, errTransition
	case durable.Dead:
		open, err := p.store.Revive(ctx, m.k.No, m.id, p.nowMs())
		if errors.Is(err, durable.ErrNotFound) && round < 3 { // another worker revived it first
			return m.inFlight(ctx, round+1)
		}
		if err != nil {
			return lease, err
		}
		attempts = open.Attempts
	}
	job := redisq.Job{ID: m.id, Priority: msg.Priority, Attempts: attempts}
	lease, before, err = m.claim(ctx, job, true)
	if err != nil {
		return lease, err
	}
	switch {
	case lease.Token != "": // another worker may have leased and ended it since the store was asked
		return m.claimed(ctx, lease)
	case before.State == redisq.Leased && m.t.extra != 0:
		return lease, errTimeout
	}
	return lease, nil
}

// message returns the message of the job without its payload; errJobNotFound if the consumer
// has no such job.
func (m *move) message(ctx context.Context) (*durable.Message, error) {
	msg, err := m.p.head(ctx, m.ch, m.id)
	if err == nil && !m.k.Concerns(msg.Head()) {
		err = errJobNotFound
	}
	return msg, err
}

// claim asks Redis for the job. insert: also when Redis does not know it.
func (m *move) claim(ctx context.Context, job redisq.Job, insert bool) (redisq.Lease, redisq.Standing, error) {
	grant, err := m.p.claims.Ask(ctx, m.k.No, redisq.Wish{Job: job, Lease: m.p.visible + m.t.extra, Insert: insert})
	return grant.Lease, grant.Before, err
}

// forgetOver looks whether a job that Redis holds as leased is over: its ack was
// lost. Then that very lease, and no later one, is ended, so that the job can be
// claimed like any other whose state in Redis is uncertain.
func (m *move) forgetOver(ctx context.Context, held redisq.Standing) (over bool, err error) {
	c := verify.Candidate{ID: m.id}
	if err = m.p.verifier.One(ctx, m.k, &c); err != nil || !c.Verdict.Ends() {
		return false, err
	}
	_, err = m.p.queue.Nack(ctx, m.k.No, []redisq.Lease{{ID: m.id, Token: held.Token}}, []time.Duration{0})
	return true, err
}

// claimed checks a fresh lease against the store where Redis may be behind it.
func (m *move) claimed(ctx context.Context, lease redisq.Lease) (redisq.Lease, error) {
	p := m.p
	p.touched(m.k.No)
	c := verify.OfLease(&lease)
	if p.verifier.Fresh(&c, p.queue.Generation()) {
		return lease, nil
	}
	if err := p.verifier.One(ctx, m.k, &c); err != nil {
		return redisq.Lease{}, err // the lease ends by itself
	}
	if c.Verdict.Ends() {
		if _, err := p.queue.Ack(ctx, m.k.No, []ident.ID{m.id}); err != nil {
			return redisq.Lease{}, err
		}
		return m.inFlight(ctx, 1) // Redis knows nothing of it now: the store decides
	}
	return lease, nil
}

// finish moves an in-flight job to DELIVERED or DEAD.
func (m *move) finish(ctx context.Context) error {
	standing, err := m.p.probes.Ask(ctx, m.k.No, m.id)
	if err != nil {
		return err
	}
	out, accept, err := m.outcome(ctx, standing)
	if err != nil || !accept {
		return err
	}
	if err := m.p.outcomes.Store(ctx, out); err != nil {
		return err
	}
	m.p.verifier.Cache.Done(m.id)
	return nil
}

// outcome judges a request for DELIVERED or DEAD of a job that stands at q in
// Redis. accept says that the outcome is to be stored; without it a nil error
// means that the job is in that state already.
func (m *move) outcome(ctx context.Context, q redisq.Standing) (out durable.Outcome, accept bool, err error) {
	if q.State != redisq.Leased {
		if accept, err = m.finishUnleased(ctx, q); !accept {
			return out, false, err
		}
	} else if m.token != "" && m.token != q.Token {
		return out, false, errLeaseLost
	}
	out = durable.Outcome{
		Kind: durable.OutcomeDelivered, ConsumerNo: m.k.No, ID: m.id, Priority: q.Priority,
		Attempts: max(q.Attempts, 1), AtMs: m.p.nowMs(),
		Tracked: q.Attempts != 1 || q.Flags != 0,
	}
	if m.t.next == "DEAD" {
		out.Kind, out.Error = durable.OutcomeDead, "declared dead by the consumer"
		m.p.metrics.Dead.Inc()
	}
	return out, true, nil
}

// fanoutSettled is the age from which a job that Redis does not know was lost by
// it, rather than not yet offered to it.
const fanoutSettled = 2 * time.Second

// finishUnleased judges DELIVERED or DEAD for a job that Redis does not hold as
// leased: the same state again is fine, everything else is refused. One case is
// accepted: Redis lost the state of the consumer, so the job may well be in
// flight, and its report is believed. accept says to go on.
func (m *move) finishUnleased(ctx context.Context, q redisq.Standing) (accept bool, err error) {
	p := m.p
	s, err := p.verifier.State(ctx, m.k, m.id)
	if err != nil {
		return false, err
	}
	switch s.Status {
	case durable.Delivered:
		if m.t.next != "DELIVERED" {
			return false, errTransition
		}
		return false, nil
	case durable.Dead:
		if m.t.next != "DEAD" {
			return false, errTransition
		}
		return false, nil
	}
	if q.Flags&redisq.FlagRecovered != 0 {
		return true, nil
	}
	if q.State != redisq.Missing || time.Duration(p.nowMs()-m.id.Millis())*time.Millisecond < fanoutSettled {
		return false, m.unleased()
	}
	if _, err := m.message(ctx); err != nil {
		return false, err
	}
	stats, err := p.queue.Stats(ctx, m.k.No)
	if err != nil {
		return false, err
	}
	if stats.SpilledPriority >= 0 { // it waits outside the window: no worker can have claimed it
		return false, m.unleased()
	}
	return true, nil
}

// unleased is the refusal of a job that is queued: to a worker that shows a
// lease it is told that the lease is lost.
func (m *move) unleased() error {
	if m.token != "" {
		return errLeaseLost
	}
	return errTransition
}

// queued answers a request for the state QUEUED: allowed only as the same state.
func (m *move) queued(ctx context.Context) error {
	p := m.p
	standing, err := p.probes.Ask(ctx, m.k.No, m.id)
	if err != nil {
		return err
	}
	if standing.State == redisq.Leased {
		return errTransition
	}
	s, err := p.verifier.State(ctx, m.k, m.id)
	if err != nil {
		return err
	}
	if s.Status == durable.Delivered || s.Status == durable.Dead {
		return errTransition
	}
	if standing.State == redisq.Missing {
		_, err = m.message(ctx)
	}
	return err
}
