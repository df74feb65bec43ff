package push

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/redisq"
)

// Every broker decides by its copy of the catalogue whether a consumer is held: its lanes claim
// and reserve nothing for it, and a claimed job is given back instead of being sent. Redis knows
// nothing of it, so a loss of Redis changes nothing.

const (
	// stateTimeout bounds a change of the state of a consumer after an answer.
	stateTimeout = 5 * time.Second
	// probePause is the wait for the probe of another broker.
	probePause = time.Second
)

// held reports whether the jobs of the consumer are held. It sends the probe of a revived one.
func (d *Dispatcher) held(ctx context.Context, l *lane, k *durable.Consumer) bool {
	if !k.Held() {
		return false
	}
	l.leftMore(true, true) // new jobs do not overtake those that wait
	if k.State == durable.StateProbing {
		d.claimProbe(ctx, l, k)
	}
	return true
}

// giveBack ends a delivery that was not sent. Its attempt is not charged.
func (v *delivery) giveBack() {
	v.end.Store(givenBack)
	v.d.inFlight.remove(v)
	lease := v.lease
	lease.Granted = v.granted
	v.d.release(v.lane, []redisq.Lease{lease})
	v.d.returnProbe(v)
}

// gone holds the consumer after an answer 410, and then gives the job back: the job waits, and
// its attempt is not charged, but its request counts for the rate. Of several such answers the
// first one changes the state. An answer to a request from before a resume changes nothing.
func (d *Dispatcher) gone(v *delivery, seen *durable.Consumer) {
	d.metrics.Attempts.WithLabelValues("gone").Inc()
	if v.lane.consumer.Load().StateMs == seen.StateMs {
		ctx, cancel := context.WithTimeout(context.Background(), stateTimeout)
		err := guard.Do("change of a consumer to gone", func() error { return d.states.Gone(ctx, d.account(seen), v.job()) })
		cancel()
		if err != nil {
			d.log.Warn("a consumer answered 410 and could not be held; its job is sent again",
				v.about("error", err)...)
		}
	}
	v.granted = ""
	v.giveBack()
	d.WakeAfter(v.lane.no, storePause) // after a failure above
}

// account returns the consumer that a generation counts for, in the state in which the generation
// was seen.
func (d *Dispatcher) account(seen *durable.Consumer) *durable.Consumer {
	if seen.Replay == nil {
		return seen
	}
	k := *seen
	k.No, k.Replay = seen.Account(), nil
	return &k
}

// claimProbe sends one job to a revived consumer, unless another broker is sending one.
func (d *Dispatcher) claimProbe(ctx context.Context, l *lane, k *durable.Consumer) {
	if l.room() <= 0 || l.probe.Load() != 0 || d.outcomes.Room() < claimMax || d.reserve(l, 1) == 0 {
		return
	}
	at, suspected := time.Now(), l.suspected.Load()
	var c redisq.Claim
	err := guard.Do("claim of a probe", func() (err error) {
		c, err = d.queue.Claim(ctx, l.no, 1, d.lease(k), d.limits(k))
		return err
	})
	incarnation := d.queue.Incarnation()
	if err != nil || len(c.Leases) == 0 {
		d.unreserve(l, 1)
		if c.Spilled {
			d.refill(l.no)
		}
		if wait := c.NextDue; ctx.Err() == nil && (err != nil || wait > 0) {
			l.setTimer(max(wait, storePause), func() { d.Wake(l.no) })
		}
		return
	}
	until, taken := d.nowMs()+d.lease(k).Milliseconds(), false
	err = guard.Do("right to probe", func() (err error) {
		taken, err = d.states.TakeProbe(ctx, l.no, until)
		return err
	})
	if err != nil || !taken {
		d.unreserve(l, 1)
		d.release(l, c.Leases)
		if ctx.Err() == nil {
			l.setTimer(probePause, func() { d.Wake(l.no) })
		}
		return
	}
	l.probe.Store(until)
	d.verify(ctx, l, k, claimed{d.start(l, k, c.Leases, at, incarnation), at, suspected})
	d.suspectSince(l, suspected)
	if l.takeProbe() != 0 { // the job was over: no delivery took the probe
		d.giveProbe(l, until)
		d.Wake(l.no)
	}
}

// returnProbe gives the right of an unsent probe back.
func (d *Dispatcher) returnProbe(v *delivery) {
	if v.probe != 0 {
		d.giveProbe(v.lane, v.probe)
		d.WakeAfter(v.lane.no, storePause)
	}
}

func (d *Dispatcher) giveProbe(l *lane, until int64) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := guard.Do("return of a probe", func() error { return d.states.ReturnProbe(ctx, l.no, until) })
	if err != nil {
		d.log.Debug("an unsent probe could not be given back; its time will end", "consumer", l.no, "error", err)
	}
}

// probed evaluates the probe: after a success the consumer is active, after a failure dead again.
// The state changes before the outcome is stored. A crash in between repeats the attempt.
func (d *Dispatcher) probed(v *delivery, seen *durable.Consumer, out *durable.Outcome) {
	ctx, cancel := context.WithTimeout(context.Background(), stateTimeout)
	defer cancel()
	err := guard.Do("end of a probe", func() error {
		return d.states.Probed(ctx, seen, out.Kind == durable.OutcomeDelivered, "the probe after the revival failed, job "+
			v.job()+": "+out.Error)
	})
	if err != nil {
		d.log.Warn("the end of a probe could not be stored; another one follows", v.about("error", err)...)
	}
}
