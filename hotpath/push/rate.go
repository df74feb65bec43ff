package push

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/limit"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/redisq"
)

// A Balancer slows adaptive consumers down: a balance.Balancer.
type Balancer interface {
	// Pace returns the present rate of the consumer, the zero value where it has no bound.
	Pace(consumer uint32) redisq.Rate
	// Count counts the end of an attempt.
	Count(consumer uint32, url string, strained bool)
}

// limits returns the limits of the consumer's leases.
func (d *Dispatcher) limits(k *durable.Consumer) redisq.Limits {
	p := d.policy(k)
	var pace redisq.Rate
	if p.Adaptive && d.balancer != nil {
		pace = d.balancer.Pace(k.Account())
	}
	limits := limit.Of(p, pace)
	if k.Replay != nil {
		return limit.OfReplay(limits, k.Replay.Rate)
	}
	return limits
}

// Repaced tells the lane of a consumer that its pace has changed, or that its hold has ended early.
func (d *Dispatcher) Repaced(consumer uint32) {
	l := d.lane(consumer)
	if l == nil {
		return
	}
	l.until.Store(nil)
	d.Wake(consumer)
	if r := l.link.behind.Load(); r != nil {
		r.until.Store(nil)
		d.Wake(r.no)
	}
}

// strain acts on what an answer says about the consumer: it holds a consumer that asked for it, and
// counts the attempts of an adaptive one.
func (d *Dispatcher) strain(v *delivery, seen *durable.Consumer, p *policy.Policy, verdict policy.Verdict, status int) {
	if p.Adaptive && d.balancer != nil {
		d.balancer.Count(v.consumer.Account(), v.consumer.CallbackURL, verdict.Strains)
	}
	if verdict.Hold > 0 {
		d.hold(v, seen, verdict.Hold, fmt.Sprintf("answer %d with Retry-After to job %s", status, v.job()))
	}
}

// hold keeps the jobs of the consumer back on all brokers. An answer to a request from before a change
// of the consumer, or from before a pause or resume, holds nobody.
func (d *Dispatcher) hold(v *delivery, seen *durable.Consumer, wait time.Duration, by string) {
	if d.holds == nil {
		return
	}
	now := d.catalogue.ConsumerByNo(v.consumer.Account())
	if now == nil || v.lane.consumer.Load().StateMs != seen.StateMs || now.CallbackURL != seen.CallbackURL ||
		now.Type != seen.Type ||
		now.Protocol != seen.Protocol || now.Token != seen.Token || now.Policy != seen.Policy {
		return
	}
	d.holds.Begin(now, wait, by)
}

// rest returns the time until the hold of the consumer ends.
func (d *Dispatcher) rest(k *durable.Consumer) time.Duration {
	if d.holds == nil {
		return 0
	}
	return d.holds.Rest(k.Account())
}

// limited records which limit kept a job of the claim back.
func (l *lane) limited(c *redisq.Claim, book *metrics.Book) {
	l.full.Store(c.Limited == redisq.ConcurrencyLimit)
	if c.Limited == redisq.RateLimit {
		book.Limited(l.no)
		until := time.Now().Add(c.NextDue)
		l.until.Store(&until)
	} else if l.until.Load() != nil {
		l.until.Store(nil)
	}
}

// pause returns the time until the rate allows a lease, 0 or less if it may do so now.
func (l *lane) pause() time.Duration {
	if until := l.until.Load(); until != nil {
		return time.Until(*until)
	}
	return 0
}

// inTime counts the request at the present time if it is sent so long after its claim that the
// rate of the consumer could be exceeded, or if it is a second one of the attempt. A part of the
// slack is left for the way to the consumer. An error means that the request must not be sent.
func (v *delivery) inTime(ctx context.Context, deadline time.Time, second bool) error {
	limits := v.d.limits(v.consumer)
	if !limits.Rated() || !second && time.Since(v.at) <= limits.Slack/4 {
		return nil
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	lease := v.lease
	if lease.Granted = v.granted; second {
		lease.Granted = ""
	}
	for try := 1; ; try++ {
		asked := time.Now()
		counted, wait, err := v.d.queue.Regrant(ctx, v.lane.no, lease, limits)
		lease = counted
		v.granted = lease.Granted
		if err == nil && wait > 0 {
			err = errRate
		}
		if err == nil && !second && time.Until(deadline) < v.d.policy(v.consumer).Timeout/2 {
			err = errLate
		}
		if err != nil || time.Since(asked) <= limits.Slack/2 || try == lateGrants {
			return err
		}
	}
}

// lateGrants is how often a request is counted anew because the answer came late. The last count
// stands: a broker that is always late must send something, too.
const lateGrants = 3

// The errors of requests that are not sent. Where Redis took most of the attempt's time to count one, the
// consumer would have too little left to answer, and would get the message again after it had taken it.
var (
	errRate = errors.New("the rate of the consumer allows no request now")
	errLate = errors.New("too little is left of the time of the attempt")
)
