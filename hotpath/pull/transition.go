package pull

import (
	"context"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/request"
	"github.com/penstock-broker/penstock/redisq"
)

// LeaseHeader carries the lease token. The broker sends it to the one request that claimed the job.
// A client sends it back to have stale workers refused.
const LeaseHeader = "X-Broker-Lease"

var (
	errTransition = problem.New(400, "invalid_transition", "The job cannot move from its state to NextState.")
	errTimeout    = problem.New(400, "invalid_timeout",
		"IncrementalTimeout goes only with NextState INFLIGHT of a job that is not in flight, as whole seconds from 0 to "+
			strconv.Itoa(MaxIncrementalTimeout)+".")
	errLeaseOver = problem.New(409, "lease_lost", "The job was claimed, but its lease was over before this could be said.")
	errLeaseLost = problem.New(409, "lease_lost", "The lease in "+LeaseHeader+" is no longer the job's lease.")
	errBlocked   = problem.New(409, "key_blocked", "An earlier message of the job's ordering key is not over.")
	errForeign   = problem.New(401, "job_of_other_consumer", "The job belongs to another consumer.")
)

// refused is the state of a request that was refused before its NextState was known.
const refused = "refused"

// MoveJob is POST /channel/{channel}/consumer/{consumer}/job/{job}: the state
// machine of pull jobs. A 202 to DELIVERED or DEAD is on disk.
func (p *Puller) MoveJob(rc *fasthttp.RequestCtx, body intake.Limit) {
	st, held, err := p.open(rc, body)
	defer body.Drop(rc, held)
	state := refused
	if err == nil {
		state, err = p.moveJob(rc, st.Channel, st.Consumer)
	}
	if err != nil {
		if state == "INFLIGHT" || state == refused { // perhaps a request for INFLIGHT
			rc.Response.Header.Set(ClaimedHeader, "false")
		}
		problem.Write(rc, problem.FromChange(err))
	} else {
		rc.SetStatusCode(fasthttp.StatusAccepted)
	}
	p.metrics.Transitions.WithLabelValues(state, strconv.Itoa(rc.Response.StatusCode())).Inc()
}

func (p *Puller) moveJob(rc *fasthttp.RequestCtx, ch *catalogue.Channel, k *durable.Consumer) (state string,
	err error) {
	ctx, cancel := context.WithTimeout(request.Of(rc), intake.AnswerWithin)
	defer cancel()
	state = refused
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
	e, err := parseTransition(rc.Request.Body())
	if err != nil {
		return state, err
	}
	state, e.ID = e.NextState, jobID
	if err = e.takeLease(rc); err != nil {
		return state, err
	}
	from := p.contact(rc, k.No, e.contact())
	if e.Lease != "" || state == "DELIVERED" || state == "DEAD" {
		return state, p.moveEntry(ctx, rc, ch, k, e)
	}
	m := move{p: p, ch: ch, id: id, e: e, worker: from.Holder()}
	if m.k, err = p.generation(ctx, k, id); err != nil {
		return state, err
	}
	if state == "QUEUED" {
		return state, m.queued(ctx)
	}
	begun := time.Now()
	deadline := begun.Add(p.leaseFor(m.k, &e))
	lease, err := m.take(ctx)
	if err == nil {
		answerInFlight(rc, m.k, lease, deadline)
		if lease.Token != "" {
			p.book.add(m.k.No, bookedLease{lease, p.nowMs(), deadline, m.state.GivenBack,
				m.state.RedrivenMs})
			if p.traces != nil {
				m.traceClaim(lease, begun)
			}
		}
	}
	return state, err
}

// A move is one transition under way.
type move struct {
	p      *Puller
	ch     *catalogue.Channel
	k      *durable.Consumer // the generation that the job is of
	id     ident.ID
	e      update // what is asked for
	worker string // who asks, as redisq.Lease has it

	state durable.JobState // as stored, where the claim has asked for it
}

// outcome decides on a request for DELIVERED or DEAD of a job with the standing q in Redis. accept
// reports that the caller must store the outcome. If accept is false and err is nil, the job is
// already in that state.
func (m *move) outcome(ctx context.Context, q redisq.Standing) (r outcome.Entry, accept bool, err error) {
	if q.State != redisq.Leased {
		if accept, err = m.finishUnleased(ctx, q); !accept {
			if err == nil {
				err = m.post(ctx)
			}
			return r, false, err
		}
	} else if m.e.Lease != "" && m.e.Lease != q.Token {
		return r, false, errLeaseLost
	} else {
		r.Lease, r.ExtendBy = redisq.Lease{ID: m.id, Token: q.Token}, m.p.extension(m.k, q)
	}
	out := durable.Outcome{
		Kind: durable.OutcomeDelivered, ConsumerNo: m.k.No, ID: m.id, Priority: q.Priority,
		Attempts: max(q.Attempts, 1), AtMs: m.p.nowMs(), Worker: q.Worker,
		Tracked: q.Attempts != 1 || q.Flags != 0,
	}
	if m.e.NextState != "DEAD" {
		out.Exchange = m.exchange(out.Attempts, out.AtMs)
	} else {
		out.Kind, out.Reason = durable.OutcomeDead, durable.ByConsumer
		m.e.tell(&out, "declared dead by the consumer")
		m.p.metrics.Died(out.Reason, 1)
	}
	r.Outcome = out
	return r, true, nil
}

// fanoutWithin is the age from which a job that Redis does not have counts as lost by Redis. A
// younger job may not have been offered yet.
const fanoutWithin = 2 * time.Second

// finishUnleased decides on DELIVERED or DEAD for a job that Redis does not hold as leased. A
// repeated request for the stored state succeeds. A job whose state Redis may have lost is
// accepted: the job may be in flight, and the report of the client is trusted. Every other request
// is refused.
func (m *move) finishUnleased(ctx context.Context, q redisq.Standing) (accept bool, err error) {
	p := m.p
	s, err := p.verifier.State(ctx, m.k, m.id)
	if err != nil {
		return false, err
	}
	switch s.Status {
	case durable.Delivered:
		if m.e.NextState != "DELIVERED" {
			return false, errTransition
		}
		return false, nil
	case durable.Dead:
		if m.e.NextState != "DEAD" {
			return false, errTransition
		}
		return false, nil
	}
	if q.Flags&redisq.FlagRecovered != 0 {
		return true, nil
	}
	if q.State != redisq.Missing || time.Duration(p.nowMs()-m.id.Millis())*time.Millisecond < fanoutWithin {
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

// unleased returns the refusal for a queued job. A client that sent a lease token gets
// errLeaseLost.
func (m *move) unleased() error {
	if m.e.Lease != "" {
		return errLeaseLost
	}
	return errTransition
}

// queued answers a request for the state QUEUED, which is allowed only if the job is in that state.
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
	if s.Status.Over() {
		return errTransition
	}
	if standing.State == redisq.Missing {
		_, err = m.message(ctx)
	}
	return err
}
