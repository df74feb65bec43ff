package push

import (
	"time"

	"github.com/penstock-broker/penstock/hotpath/outcome"
)

// leaseEnded wakes the lanes from which the concurrency of the consumer keeps jobs back. Redis counts
// the leases of a consumer and of its replay together. leaseEnded is called after Redis has ended a
// lease: a claim before that would find the concurrency still used up.
func (d *Dispatcher) leaseEnded(l *lane) {
	if !l.exact.Load() {
		return
	}
	for _, one := range [...]*lane{l, l.link.behind.Load(), l.link.live} {
		if one == nil {
			continue
		}
		if one.ended.Add(1); one.full.Load() {
			d.Wake(one.no)
		}
	}
}

// urgency reports whether a job waits for the end of a lease of the lane.
func (l *lane) urgency() outcome.Urgency {
	if l.full.Load() {
		return outcome.Awaited
	}
	return outcome.Deferrable
}

// missed reports whether a lease ended while a claim was under way that found the concurrency used up.
// Its end woke no lane, unless the lane was known to be full before. ended is the count from before
// the claim.
func (l *lane) missed(ended int64) bool { return l.full.Load() && l.ended.Load() != ended }

// An unsent is the sink of a job that ended without a request.
type unsent struct {
	d    *Dispatcher
	lane *lane
}

func (unsent) Ended(bool)             {}
func (unsent) Retrying(time.Duration) {}

// Done tells the lane that Redis has ended the lease.
func (u unsent) Done(error) { u.d.leaseEnded(u.lane) }
