//go:build unix

package chaos

import (
	"slices"
	"time"
)

// died reports whether the client of the post is one of those that die.
func (t *Try) died() bool {
	return slices.ContainsFunc(deaths, func(d death) bool { return d.kind == t.Client })
}

// deaths counts the clients that died, by kind. A campaign in which a kind did not
// happen has not tested it.
func (c *checker) deaths() {
	for _, d := range c.e.Deaths {
		c.v.Deaths[d.Kind]++
	}
	if c.e.Plan.Deaths == 0 {
		return
	}
	for _, kind := range deathKinds() {
		if c.v.Deaths[kind] == 0 {
			c.v.broken("client deaths missing", "no client died as %s", kind)
		}
	}
	if c.v.BatchLines == 0 {
		c.v.broken("client deaths missing", "no batch of a producer that lives was answered")
	}
}

// rowPrecision is that of the times in the store.
const rowPrecision = time.Millisecond

// unanswered checks the reports of pull workers without an answer, because the worker died or the
// answer was lost. If the store has that very delivery, the report counts as answered, and the
// death of the worker explains no later copy.
func (c *checker) unanswered() {
	for k, arrivals := range c.deliveries {
		if !c.e.Plan.Consumers[k.consumer].Does.pull() {
			continue
		}
		for _, a := range arrivals {
			if !a.OK && a.Promised {
				c.v.Unanswered++
			} else if !a.OK && !a.GaveBack {
				c.v.Abandoned++
			}
		}
		rows := c.rows[k.seq]
		if len(rows) != 1 {
			continue // reported as something else
		}
		end, ok := c.e.Jobs[k.consumer].Ended[rows[0].ID]
		if !ok {
			continue
		}
		var last *Arrival
		for _, a := range arrivals {
			if a.Attempt == end.Attempt && a.Promised && !a.At.After(end.At.Add(rowPrecision)) {
				last = a
			}
		}
		if last != nil && !last.OK {
			last.OK, last.OKAt = true, end.At
			c.v.Recorded++
		}
	}
}

// leases looks for jobs that a second pull worker got during the lease of the first. At the batch
// routes only the owner of a lease can end it. The single routes accept a report from any worker
// with the tokens.
func (c *checker) leases() {
	for k, arrivals := range c.deliveries {
		if c.e.Plan.Consumers[k.consumer].Does != batched {
			continue
		}
		for i, b := range arrivals {
			for _, a := range arrivals[:i] {
				if c.stillLeased(a, b) {
					c.v.broken("leases not kept", "message %d (job %s) for %s: claimed at %s as attempt %d from %s, neither ended "+
						"nor given back, and handed out again at %s as attempt %d from %s",
						k.seq, a.Job, c.name(k.consumer), a.At.Format(clock), a.Attempt, a.Broker, b.At.Format(
							clock), b.Attempt, b.Broker)
				}
			}
		}
	}
}

// leaseSlack is for the rounding of times by the broker and Redis.
const leaseSlack = 50 * time.Millisecond

// stillLeased reports whether the worker that got a still had the job when another worker got b, for any
// time of the claims between request and answer. A worker no longer has a job that it has ended or
// given back. A loss of Redis's memory also ends leases.
func (c *checker) stillLeased(a, b *Arrival) bool {
	if b.At.Sub(a.Asked) >= pullVisible-leaseSlack || a.OK || a.GaveBack || c.delayed(b, a) {
		return false
	}
	return !slices.ContainsFunc(c.e.Faults, func(f Fault) bool {
		return f.Repeats && f.Broker == unspecified && f.Channel == unspecified && !f.Start.After(b.At) &&
			!f.End.Add(transit).Before(a.Asked)
	})
}
