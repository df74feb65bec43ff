package alerts

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/sampler"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// steady is the longest time for which a consumer must not be late before the alarm ends: the oldest job is
// not seen while it is in flight, and waits again when the attempt fails.
const steady = time.Minute

// lateness looks at the objective of each consumer: maxAge.
func (w *watch) lateness(ctx context.Context, s *sampler.Sample, open map[uint32]int64) error {
	for no := range w.late {
		if _, ok := open[no]; !ok {
			delete(w.late, no)
		}
	}
	for no := range s.Of {
		k := w.o.Catalogue.ConsumerByNo(no)
		if _, ok := open[no]; ok || k == nil || k.Deleted() {
			continue
		}
		p, level := w.Policies.Of(k.Policy), s.Of[no]
		if !late(p, s, level) {
			continue
		}
		if err := w.raise(ctx, durable.ConsumerLate, no, lateReason(k, p, s.At, level)); err != nil {
			return err
		}
		w.late[no] = s.At.UnixMilli()
	}
	for no := range open {
		reason := w.intime(no, s)
		if reason == "" {
			continue
		}
		if err := w.close(ctx, durable.ConsumerLate, no, reason); err != nil {
			return err
		}
	}
	return nil
}

func late(p *policy.Policy, s *sampler.Sample, l sampler.Level) bool {
	return p.MaxAge > 0 && l.Known && l.Waiting > 0 && !l.Oldest.IsZero() && s.At.Sub(l.Oldest) > p.MaxAge
}

// lateReason says how late a consumer is. A consumer that is paused, gone or dead is late all the same.
func lateReason(k *durable.Consumer, p *policy.Policy, now time.Time, l sampler.Level) string {
	text := fmt.Sprintf("the oldest waiting job is %s old; the objective is %s; %s", age(now.Sub(l.Oldest)),
		policy.Short(p.MaxAge), waiting(l))
	if k.State != durable.StateActive {
		text += "; the consumer is " + k.State.String()
		if k.StateReason != "" {
			text += ": " + k.StateReason
		}
	}
	return text
}

func waiting(l sampler.Level) string {
	text := fmt.Sprintf("%d jobs wait", l.Waiting)
	if l.Waiting == 1 {
		text = "1 job waits"
	}
	if l.AtLeast {
		text = "at least " + text
	}
	return text
}

// intime says why a consumer is not late any more; "": it is, or that is not known. Where Redis has not
// answered, or the store may have older jobs than Redis knows, it is not known.
func (w *watch) intime(no uint32, s *sampler.Sample) string {
	k := w.o.Catalogue.ConsumerByNo(no)
	if k == nil || k.Deleted() {
		return "the consumer was deleted"
	}
	p := w.Policies.Of(k.Policy)
	if p.MaxAge == 0 {
		return "the consumer has no objective (maxAge) any more"
	}
	l, ok := s.Of[no]
	if !ok {
		return ""
	}
	now := s.At.UnixMilli()
	if _, seen := w.late[no]; !seen || late(p, s, l) || !l.Known || l.AtLeast {
		w.late[no] = now
		return ""
	}
	pause := min(p.MaxAge, steady)
	if l.Waiting == 0 && l.InFlight > 0 { // that may be the job which is late
		pause = max(pause, min(p.Timeout, steady))
	}
	if now-w.late[no] < pause.Milliseconds() {
		return ""
	}
	if l.Waiting == 0 || l.Oldest.IsZero() {
		return "no job waits; the objective is " + policy.Short(p.MaxAge)
	}
	return fmt.Sprintf("the oldest waiting job is %s old; the objective is %s", age(s.At.Sub(l.Oldest)),
		policy.Short(p.MaxAge))
}

// age is a time as people read it: whole seconds from ten seconds on, without parts that are zero.
func age(d time.Duration) string {
	unit := time.Second
	if d < 10*time.Second {
		unit = 100 * time.Millisecond
	}
	return policy.Short(d.Truncate(unit))
}
