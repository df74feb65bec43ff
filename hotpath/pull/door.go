package pull

import (
	"context"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/presence"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/request"
	"github.com/penstock-broker/penstock/redisq"
)

// What other protocols than the routes of this package need of pull consumers: to receive jobs, and to say
// what became of them. Their requests are admitted elsewhere, and come with their standing.

// A Wish is what a request wants to receive.
type Wish struct {
	Limit int
	Wait  time.Duration // for the first job, at most that of a batch claim
	Lease time.Duration // 0: as the consumer has it
}

// A Received is the jobs that a request got, in their order. Its owner calls Keep or Return.
type Received struct {
	p   *Puller
	got claimed
	// Crowded: the consumer has its share of the claims that may wait, so this one did not. Gone: the client left.
	Crowded, Gone bool
}

// A ReceivedJob is a job with its message.
type ReceivedJob struct {
	ID, Lease string // as the routes show them
	// Receipts counts how often the job was handed out, this time included: attempts, and times that it was given back.
	Receipts int
	Attempt  int
	Message  *durable.Message
	Producer string // "": the broker made the message
	// Again: it may have been handed out before the first of Receipts: it was redriven, or is one of a replay.
	Again bool
}

// Receive leases jobs as a batch claim does, and waits for the first one.
func (p *Puller) Receive(rc *fasthttp.RequestCtx, st *catalogue.Standing, w Wish) (r Received, err error) {
	if err = p.pulls(rc, st); err != nil {
		return r, err
	}
	from := p.contact(rc, st.Consumer.No, presence.Claim)
	q := claimRequest{limit: w.Limit, wait: min(w.Wait, maxClaimWait), timeout: w.Lease, worker: from.Holder(), bare: true}
	if q.wait > 0 {
		defer from.Wait()()
	}
	r.p = p
	r.got, r.Gone, err = p.seek(rc, st, q)
	if err != nil {
		return r, err
	}
	r.Crowded = len(rc.Response.Header.Peek(fasthttp.HeaderRetryAfter)) > 0 && len(r.got.jobs) == 0
	if len(r.got.jobs) > 0 && intake.Gone(rc.Conn()) {
		r.Return()
		r.Gone, r.got.jobs = true, nil
	}
	return r, nil
}

// pulls returns nil while the request may act as its pull consumer, of which the copy may lag behind.
func (p *Puller) pulls(rc *fasthttp.RequestCtx, st *catalogue.Standing) error {
	err := still(st)
	if err == errNotPull {
		within, cancel := context.WithTimeout(request.Of(rc), intake.AnswerWithin)
		defer cancel()
		if err = p.catalogue.Refresh(within); err == nil {
			err = still(st)
		}
	}
	return err
}

// Jobs returns the jobs.
func (r *Received) Jobs() []ReceivedJob {
	jobs := make([]ReceivedJob, len(r.got.jobs))
	for i, j := range r.got.jobs {
		jobs[i] = ReceivedJob{ID: j.msg.ID.Job(r.got.of.Position).String(), Lease: leaseText(r.got.of, j.lease.Token),
			Receipts: j.lease.Attempt + j.counts.givenBack, Attempt: j.lease.Attempt, Message: j.msg, Producer: j.producer,
			Again: j.redrivenMs > 0 || r.got.of.Replay != nil}
	}
	return jobs
}

// Keep notes that the client gets the jobs. Call it when the answer is made.
func (r *Received) Keep() {
	if r.got.claim.Ready > 0 {
		r.p.waiters.Wake(r.got.k.No)
	}
	if len(r.got.jobs) > 0 {
		r.p.kept(&r.got)
	}
}

// Return gives the jobs back: no client got them.
func (r *Received) Return() {
	if len(r.got.jobs) > 0 {
		r.p.giveBack(r.got.of.No, leasesOf(r.got.jobs))
	}
}

// A Report is what a client says of a job that it has.
type Report struct {
	ID, Lease string
	Attempt   int           // of the lease
	Done      bool          // it is done with. Otherwise
	Keep      time.Duration // it wants the job for so long from now on; 0: the attempt is over, and the job due again
}

// Settle makes what a client reports so, and returns an error for each report that had no effect. A lease that
// was lost has the code lease_lost.
func (p *Puller) Settle(rc *fasthttp.RequestCtx, st *catalogue.Standing, reports []Report) []error {
	ctx, cancel := context.WithTimeout(request.Of(rc), intake.AnswerWithin)
	defer cancel()
	updates := make([]update, len(reports))
	for i, r := range reports {
		updates[i] = update{ID: r.ID, Lease: r.Lease, NextState: "INFLIGHT", Timeout: int64(r.Keep / time.Second)}
		switch {
		case r.Done:
			updates[i].NextState, updates[i].Timeout = "DELIVERED", 0
		case r.Keep == 0:
			updates[i].NextState, updates[i].Failed, updates[i].now = "QUEUED", true, true
			updates[i].Reason = "the worker ended the visibility timeout"
		}
	}
	for _, kind := range contactsOf(updates) {
		p.contact(rc, st.Consumer.No, kind)
	}
	begun := time.Now()
	u := p.update(ctx, st.Channel, st.Consumer, updates)
	for i, r := range reports {
		if r.Done && u.errs[i] == errLeaseLost {
			u.errs[i] = p.doneLate(ctx, st, r, u.ids[i])
		}
	}
	if p.traces != nil {
		u.settled(rc, begun)
	}
	return u.errs
}

// doneLate ends a job whose lease is over, if no other worker has got it since.
func (p *Puller) doneLate(ctx context.Context, st *catalogue.Standing, r Report, id ident.ID) error {
	if r.Attempt == 0 {
		return errLeaseLost
	}
	k, _, err := p.ofLease(st.Consumer, r.Lease)
	if err != nil || p.held(k.No) {
		return errLeaseLost
	}
	q, err := p.probes.Ask(ctx, k.No, id)
	if err != nil {
		return err
	}
	if q.State != redisq.Ready && q.State != redisq.Delayed || q.Attempts != r.Attempt {
		return errLeaseLost
	}
	m := move{p: p, ch: st.Channel, k: k, id: id}
	lease, _, err := m.claim(ctx, redisq.Job{ID: id}, false)
	if err != nil || lease.Token == "" {
		return errLeaseLost
	}
	if lease.Attempt != r.Attempt+1 { // another worker had it in between
		p.giveBack(k.No, []redisq.Lease{lease})
		return errLeaseLost
	}
	u := p.update(ctx, st.Channel, st.Consumer, []update{{ID: r.ID, Lease: leaseText(k, lease.Token),
		NextState: "DELIVERED"}})
	return u.errs[0]
}
