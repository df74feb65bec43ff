//go:build unix

package chaos

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

const (
	// recordedWithin is how long the outcome may take into the store after the consumer's success,
	// without any fault. Commits of 1.5 s were measured on two cores that seven processes share.
	recordedWithin = 3 * time.Second
	// transit is how long after the end of a fault a request that met it may still arrive. The
	// request waits in the buffers of a cut link, and then for the consumer on a busy machine.
	transit = 500 * time.Millisecond
	// lateBy is how close to the broker's time-out an answer may come and still be too late for the
	// broker.
	lateBy = 500 * time.Millisecond
)

// duplicates checks every delivery after one that the consumer has accepted. The reason of each
// copy must be a fault during the last accepted delivery before it, so one fault explains one copy.
// A copy that the consumer did not accept may be retried.
func (c *checker) duplicates() {
	for k, arrivals := range c.deliveries {
		if c.e.Sent[k.seq] == nil {
			continue // reported as a phantom
		}
		var taken *Arrival // the last so far
		retry := false
		for _, a := range arrivals {
			if taken != nil {
				c.duplicate(k, taken, a, retry)
			}
			retry = taken != nil && !a.OK
			if a.OK {
				taken = a
			}
		}
	}
	v := c.v
	v.Bound = c.bound()
	if v.DuplicatesByFaults > v.Bound {
		v.broken("unexplained duplicates", "%d duplicates exceed the %d deliveries under way at faults",
			v.DuplicatesByFaults, v.Bound)
	}
}

// duplicate classifies the delivery a of a job that was accepted before. retry is set if the copy
// before it was not accepted.
func (c *checker) duplicate(k jobKey, taken, a *Arrival, retry bool) {
	v := c.v
	v.Duplicates++
	if a.Attempt == taken.Attempt {
		v.SameAttempt++
	}
	reason, byFault := c.explain(taken)
	if reason == "" && c.delayed(a, taken) {
		reason = "delayed on its way to the worker"
	}
	switch {
	case retry:
		v.Explained["retry of a copy that was not taken"]++
	case reason == "":
		v.broken("unexplained duplicates", "message %d (job %s) for %s: asked for at %s, taken at %s as attempt %d from "+
			"%s, answered at %s, and came again at %s as attempt %d from %s; the brokers: %s",
			k.seq, a.Job, c.name(k.consumer), taken.Asked.Format(clock), taken.At.Format(clock), taken.Attempt, taken.Broker,
			taken.OKAt.Format(clock), a.At.Format(clock), a.Attempt, a.Broker, c.seen(taken))
	default:
		v.Explained[reason]++
		v.explained = append(v.explained, fmt.Sprintf("%s: message %d (job %s) for %s: taken at %s as attempt %d from %s, "+
			"came again at %s as attempt %d from %s",
			reason, k.seq, a.Job, c.name(k.consumer), taken.At.Format(clock), taken.Attempt, taken.Broker, a.At.Format(
				clock), a.Attempt, a.Broker))
		if byFault {
			v.DuplicatesByFaults++
		}
	}
}

// delayed tells whether the copy was given out before the one that was taken, as
// its number shows, and a fault of its own broker kept it from the pull worker until
// now. Its lease was over by then: the worker's report on it is refused. A push is not
// excused: a broker that slept looks at the clock before it writes.
func (c *checker) delayed(a, taken *Arrival) bool {
	return a.Attempt < taken.Attempt && c.e.Plan.Consumers[a.Consumer].Does.pull() && slices.ContainsFunc(c.e.Faults,
		func(f Fault) bool {
			return f.Delays && c.concerns(&f, a) && f.Start.Before(taken.At) && !f.End.Add(transit).Before(a.At)
		})
}

// explain returns the reason why an accepted delivery may have been repeated, empty without one.
func (c *checker) explain(taken *Arrival) (reason string, byFault bool) {
	until := c.recordedBy(taken)
	for i := range c.e.Faults {
		if f := &c.e.Faults[i]; c.hits(f, taken, until) {
			return f.Kind, true
		}
	}
	limit := deliveryTimeout
	if c.e.Plan.Consumers[taken.Consumer].Does.pull() {
		limit = pullVisible
	}
	if taken.OKAt.Sub(taken.Asked) >= limit-lateBy {
		return "answered too late", false
	}
	if job, err := ident.Parse(taken.Job); err == nil {
		message, _, _ := job.Split()
		for _, f := range c.e.Jobs[taken.Consumer].Failed[failure{message, taken.Attempt}] {
			if f.Took >= limit-lateBy {
				return "timed out at the broker", false
			}
		}
	}
	return "", false
}

// seen tells what the store has of a delivery that the consumer accepted, and which faults were near.
func (c *checker) seen(taken *Arrival) string {
	var b strings.Builder
	if job, err := ident.Parse(taken.Job); err == nil {
		message, _, _ := job.Split()
		o := c.e.Jobs[taken.Consumer]
		if end, ok := o.Ended[message]; ok {
			fmt.Fprintf(&b, "delivered by attempt %d at %s", end.Attempt, end.At.Format(clock))
		}
		for _, f := range o.Failed[failure{message, taken.Attempt}] {
			fmt.Fprintf(&b, ", that attempt failed after %v: %s", f.Took, f.Error)
		}
	}
	for i := range c.e.Faults {
		if f := &c.e.Faults[i]; f.Start.Sub(taken.OKAt).Abs() < 10*time.Second {
			fmt.Fprintf(&b, ", %s from %s to %s", f.Kind, f.Start.Format(clock), f.End.Format(clock))
		}
	}
	return b.String()
}

// recordedBy returns the latest time at which the outcome of a delivery was in the store.
func (c *checker) recordedBy(a *Arrival) time.Time {
	until := a.OKAt.Add(recordedWithin)
	for changed := true; changed; { // such faults may follow each other
		changed = false
		for i := range c.e.Faults {
			f := &c.e.Faults[i]
			if end := f.End.Add(recordedWithin); f.Unstored && c.concerns(f, a) && !f.Start.After(until) && end.After(until) &&
				!f.End.Before(a.OKAt) {
				until, changed = end, true
			}
		}
	}
	return until
}

// hits reports whether a fault that may repeat deliveries affected this one.
func (c *checker) hits(f *Fault, a *Arrival, until time.Time) bool {
	return f.Repeats && c.concerns(f, a) && !f.Start.After(until) && !f.End.Add(transit).Before(a.Asked)
}

// concerns reports whether a fault affected this delivery's broker and consumer.
func (c *checker) concerns(f *Fault, a *Arrival) bool {
	if f.Broker != unspecified && a.Broker != fmt.Sprintf("broker-%d", f.Broker) {
		return false
	}
	k := c.e.Plan.Consumers[a.Consumer]
	return f.Channel == unspecified || f.Channel == k.Channel && !k.Does.pull()
}

// bound counts the deliveries under way at each fault that may repeat them.
func (c *checker) bound() (n int) {
	taken := make([]*Arrival, 0, len(c.e.Arrivals))
	longest, asking := time.Duration(0), time.Duration(0)
	for i := range c.e.Arrivals { // ordered by time of arrival
		a := &c.e.Arrivals[i]
		if a.OK {
			taken = append(taken, a)
			longest, asking = max(longest, c.recordedBy(a).Sub(a.At)), max(asking, a.At.Sub(a.Asked))
		}
	}
	for i := range c.e.Faults {
		f := &c.e.Faults[i]
		if !f.Repeats {
			continue
		}
		from := f.Start.Add(-longest)
		at := sort.Search(len(taken), func(i int) bool { return !taken[i].At.Before(from) })
		for ; at < len(taken) && !taken[at].At.After(f.End.Add(transit+asking)); at++ {
			if c.hits(f, taken[at], c.recordedBy(taken[at])) {
				n++
			}
		}
	}
	return n
}
