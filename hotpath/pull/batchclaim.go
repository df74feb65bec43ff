package pull

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/feature/presence"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/jsontext"
	"github.com/penstock-broker/penstock/internal/tool/request"
	"github.com/penstock-broker/penstock/internal/tool/share"
	"github.com/penstock-broker/penstock/redisq"
)

// Bounds of a batch claim.
const (
	defaultClaimed = 100
	maxClaimed     = 500
	maxClaimWait   = 20 * time.Second
	// mostVain bounds the claims in a row of one request that get nothing, although there are jobs: all
	// that they get are not to be done, or are just on their way to Redis.
	mostVain = 10
	// fanoutPause is the wait for jobs on their way to Redis.
	fanoutPause = 5 * time.Millisecond
	// goneCheck is the interval at which a waiting claim checks that its client is connected.
	goneCheck = time.Second
	// crowded is Retry-After, seconds, where a consumer has its share of the claims that may wait.
	crowded = 5
)

// ClaimJobs is POST /channel/{channel}/consumer/{consumer}/claim: it leases up to limit due jobs at
// once. If there is none, it waits for the first one.
func (p *Puller) ClaimJobs(rc *fasthttp.RequestCtx, body intake.Limit) {
	st, held, err := p.open(rc, body)
	defer body.Drop(rc, held)
	var q claimRequest
	if err == nil {
		from := p.contact(rc, st.Consumer.No, presence.Claim)
		if q, err = parseClaim(rc.QueryArgs(), rc.Request.Body()); err == nil {
			q.worker, q.tasks = from.Holder(), acceptedTasks(&rc.Request.Header)
			from.Takes(q.tasks)
			if q.wait > 0 {
				defer from.Wait()()
			}
			err = p.claimJobs(rc, &st, q)
		}
	}
	if err != nil {
		problem.Write(rc, problem.FromChange(err))
	}
}

func (p *Puller) claimJobs(rc *fasthttp.RequestCtx, st *catalogue.Standing, q claimRequest) error {
	got, gone, err := p.seek(rc, st, q)
	if err != nil || gone {
		return err
	}
	return p.answerClaim(rc, got)
}

// seek claims until there are jobs or the wait is over. Each claim goes by what the consumer is
// then: a claim that has waited is refused where a new one would be. gone: the client left.
func (p *Puller) seek(rc *fasthttp.RequestCtx, st *catalogue.Standing, q claimRequest) (got claimed, gone bool,
	err error) {
	end, vain := time.Now().Add(q.wait), 0
	var t *ticket
	defer func() { t.leave() }()
	for {
		if err := still(st); err != nil {
			return got, false, err
		}
		k := st.Consumer
		if left := time.Until(end); t == nil && left > 0 && q.tasks == nil && p.waiters.long(k.No) {
			if t = p.waiters.join(k.No, st); t != nil {
				if !p.await(rc, t, st, left) {
					return got, true, nil
				}
				continue
			}
		}
		if got, err = p.claimNow(request.Of(rc), k, q); err != nil {
			return got, false, err
		}
		left := time.Until(end)
		ends := left <= 0 || p.drains()
		// One that may wait is woken when the jobs that are on their way have come.
		if got.vain() && vain < mostVain && (ends || len(got.claim.Leases) > 0) {
			if vain++; len(got.claim.Leases) == 0 {
				time.Sleep(fanoutPause)
			}
			continue
		}
		if len(got.jobs) > 0 && !q.bare {
			got.left = p.remaining(request.Of(rc), k, got) // before the look at the clock: it may ask the stores
		}
		if !time.Now().Before(got.deadline) {
			// This process was paused. Other workers may have claimed and finished the jobs.
			got.jobs = nil
		}
		if len(got.jobs) > 0 && (still(st) != nil || st.Consumer != k) {
			p.giveBack(got.of.No, leasesOf(got.jobs)) // the consumer changed since the claim began
			continue
		}
		over := len(got.jobs) > 0 || ends
		if !over && t == nil {
			if t = p.waiters.join(k.No, st); t != nil {
				continue // look once more: work that came in between caused no wake-up
			}
			over = true
			rc.Response.Header.Set("Retry-After", strconv.Itoa(crowded))
		}
		t.looked(got.claim.NextDue, q.tasks != nil && len(got.jobs) == 0)
		if over {
			return got, false, nil
		}
		if !p.await(rc, t, st, left) {
			return got, true, nil
		}
	}
}

// claimNow claims once, by what the consumer is now.
func (p *Puller) claimNow(ctx context.Context, k *durable.Consumer, q claimRequest) (claimed, error) {
	q.timeout = cmp.Or(q.timeout, p.visibility(k))
	behind, deadline := p.behind(k), time.Now().Add(q.timeout)
	got, err := p.claimAny(ctx, k, q)
	got.behind, got.begun, got.deadline = behind, deadline.Add(-q.timeout), deadline
	return got, err
}

// A claimed is what a claim of a consumer got.
type claimed struct {
	k, of    *durable.Consumer // of: the generation of k whose jobs they are
	own      redisq.Claim      // what a claim of k itself left
	claim    redisq.Claim      // the same of the generation
	jobs     []claimedJob
	begun    time.Time // before the claim
	deadline time.Time
	left     remainder // beside jobs
	behind   bool      // jobs that were stored before the claim may have come into Redis after it
}

// vain reports whether the claim got no job, but the next one may: all that it got were over, too old,
// or not their keys' turn, and there are others behind them; or there are some on their way to Redis.
func (c *claimed) vain() bool {
	return len(c.jobs) == 0 && (c.behind || len(c.claim.Leases) > 0 && c.claim.Ready > 0) &&
		c.claim.Limited == redisq.NoLimit
}

func (p *Puller) answerClaim(rc *fasthttp.RequestCtx, c claimed) error {
	k, jobs := c.k, c.jobs
	if c.claim.Ready > 0 {
		p.waiters.Wake(k.No)
	}
	if len(jobs) > 0 && intake.Gone(rc.Conn()) {
		p.giveBack(c.of.No, leasesOf(jobs))
		return nil // the client is gone
	}
	if len(jobs) == 0 && c.claim.Limited != redisq.NoLimit {
		rc.Response.Header.Set("Retry-After", strconv.Itoa(retryAfter(c.claim.NextDue)))
	}
	if len(jobs) == 0 && p.held(k.No) {
		rc.Response.Header.Set("Retry-After", strconv.Itoa(errHeld.RetryAfter))
	}
	size, kept := sizeOf(jobs)
	held, err := answer.Open(p.answers, share.Consumer(k.No), size+kept)
	if err != nil {
		p.giveBack(c.of.No, leasesOf(jobs))
		return err
	}
	left := c.left
	if len(jobs) == 0 {
		left = p.remaining(request.Of(rc), k, c)
	}
	if left.due != unknown {
		rc.Response.Header.Set(backlogHeader, strconv.Itoa(left.due))
	}
	if len(jobs) == 0 {
		left.why.tell(rc)
	} else {
		p.kept(&c)
	}
	writeJSON(rc, held, size, func(t *answer.Text) { appendClaimed(t, c.of, jobs, c.deadline, left.why) })
	return nil
}

// kept notes that a client gets the jobs of a claim.
func (p *Puller) kept(c *claimed) {
	p.book.addJobs(c.of.No, c.jobs, p.nowMs(), c.deadline)
	if p.traces != nil {
		p.received(c)
	}
}

// drains reports whether the broker is stopping.
func (p *Puller) drains() bool {
	select {
	case <-p.stopping:
		return true
	default:
		return false
	}
}

// await waits until a job may be due, the wait ends or the consumer is not what it was, and reports
// whether the client is still connected.
func (p *Puller) await(rc *fasthttp.RequestCtx, t *ticket, st *catalogue.Standing, left time.Duration) bool {
	end := time.Now().Add(left)
	timer := time.NewTimer(t.rest(end))
	defer timer.Stop()
	for {
		select {
		case <-t.wake:
			return !intake.Gone(rc.Conn())
		case <-p.stopping:
			return true
		case <-t.changed:
			if still(st) != nil {
				return true // the next look refuses
			}
		case <-t.lead: // its rest is another one now
		case <-timer.C:
			if intake.Gone(rc.Conn()) {
				return false
			}
		}
		if t.due(end) {
			return true
		}
		timer.Reset(t.rest(end))
	}
}

// A claimedJob is a lease with its message.
type claimedJob struct {
	lease    redisq.Lease
	msg      *durable.Message
	producer string // as in queuedJob
	size     int    // as JSON, bytes
	counts   jobCounts

	redrivenMs int64 // as in durable.JobState
}

func (p *Puller) claimOnce(ctx context.Context, k *durable.Consumer, q claimRequest) (redisq.Claim, []claimedJob,
	error) {
	if p.held(k.No) {
		if p.deleted(k.No) {
			return redisq.Claim{}, nil, catalogue.ErrUnknownConsumer
		}
		return redisq.Claim{}, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, intake.AnswerWithin)
	defer cancel()
	n := p.fits.Of(k.No, q.limit)
	c, err := p.lease(ctx, k, q, n)
	// Read after the claim: the claim can be the call that detects another Redis.
	incarnation := p.queue.Incarnation()
	if err != nil {
		return c, nil, err
	}
	if c.Limited == redisq.RateLimit {
		p.metrics.Book.Limited(k.No)
	}
	// Jobs are spilled, and the window is nearly empty or granted fewer leases than requested.
	if c.Spilled && (c.Ready < q.limit || len(c.Leases) < n) {
		p.refill(k.No)
	}
	if len(c.Leases) == 0 {
		return c, nil, nil
	}
	failpoint.At(failpoint.AfterPullClaim)
	p.touched(k.No)
	if p.held(k.No) { // since the claim began
		p.giveBack(k.No, c.Leases)
		return redisq.Claim{}, nil, nil
	}
	jobs, surplus, err := p.check(ctx, k, c.Leases, incarnation)
	if err != nil {
		if _, e := p.queue.Release(ctx, k.No, c.Leases); e != nil {
			return c, nil, e // the leases expire
		}
		return c, nil, err
	}
	if len(surplus) > 0 && p.giveBack(k.No, surplus) {
		c.Ready += len(surplus)
	}
	return c, jobs, nil
}

// check pairs leases with their messages and acknowledges the jobs that are over. It returns as
// surplus the leases that do not fit into one answer.
func (p *Puller) check(ctx context.Context, k *durable.Consumer, leases []redisq.Lease,
	incarnation uint64) (jobs []claimedJob, surplus []redisq.Lease, err error) {
	cs := verify.Leased(leases)
	sizes, err := p.look(ctx, k, cs, incarnation)
	if err != nil {
		return nil, nil, err
	}
	jobs = make([]claimedJob, 0, len(sizes))
	for i, size := range sizes {
		if c, lease := &cs[i], leases[i]; c.Verdict == verify.Deliver {
			lease.Attempt = c.Attempt(lease)
			jobs = append(jobs, claimedJob{lease, c.Message, p.producerOf(c.Message), size,
				countsOf(&c.State, lease.Attempt-1), c.State.RedrivenMs})
		}
	}
	_, err = p.settler().Settle(ctx, k, cs[:len(sizes)], leases, func(r outcome.Entry) error {
		p.outcomes.Add(r)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return jobs, leases[len(sizes):], nil
}

func (p *Puller) settler() verify.Settler {
	return verify.Settler{Verifier: p.verifier, Queue: p.queue, Order: p.order, Metrics: p.metrics}
}

// giveBack releases leases that no client received, and wakes the claims that wait for jobs.
func (p *Puller) giveBack(consumer uint32, leases []redisq.Lease) (ok bool) {
	if p.settler().GiveBack(consumer, leases) != nil {
		return false
	}
	p.returned(consumer)
	return true
}

// sizeOf returns the approximate length of the jobs as JSON, without the payloads that are kept
// apart from it, and the bytes of those.
func sizeOf(jobs []claimedJob) (size, kept int) {
	for _, j := range jobs {
		n := apart(j.msg)
		size += j.size - n.shown
		kept += n.kept
	}
	return size, kept
}

func leasesOf(jobs []claimedJob) []redisq.Lease {
	leases := make([]redisq.Lease, len(jobs))
	for i, j := range jobs {
		leases[i] = j.lease
	}
	return leases
}

func appendClaimed(t *answer.Text, k *durable.Consumer, jobs []claimedJob, deadline time.Time, of why) {
	b := append(t.B, `{"Result":[`...)
	until := deadline.UTC().Format(time.RFC3339Nano)
	for i, j := range jobs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"ID":"`...)
		b = j.msg.ID.Job(k.Position).AppendText(b)
		b = append(b, `","Lease":`...)
		b = jsontext.Append(b, leaseText(k, j.lease.Token))
		b = append(b, `,"Attempt":`...)
		b = strconv.AppendInt(b, int64(j.lease.Attempt), 10)
		b = j.counts.appendJSON(b)
		b = append(b, `,"Deadline":"`...)
		b = append(b, until...)
		b = append(b, `","Priority":`...)
		b = strconv.AppendInt(b, int64(j.msg.Priority), 10)
		b = appendReplay(b, k.Replay)
		t.B = append(b, `,"Message":`...)
		appendMessage(t, j.msg, j.producer)
		b = append(t.B, '}')
	}
	b = append(b, ']')
	if len(jobs) == 0 {
		b = of.appendJSON(b)
	}
	t.B = append(b, "}\n"...)
}
