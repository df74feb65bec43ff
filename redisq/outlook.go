package redisq

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// An Outlook is what keeps the jobs of a consumer from being leased, of one moment. Times are of the
// clock of Redis, and zero where there is no such job.
type Outlook struct {
	Now                    time.Time
	Ready, Delayed, Leased int // a job whose delay is over is ready
	Spilled                bool
	Whole                  bool      // a scan of the store has ended since the state began
	OldestReady            time.Time // since when the oldest of the first 1000 ready jobs is ready
	FirstLeaseEnd          time.Time
	HeldUntil              time.Time
	Limited                Limit         // the limit that would refuse a lease now
	Wait                   time.Duration // until the rate would not

	// Of the first 1000 delayed jobs:
	Parked    int       // wait for an earlier job of their ordering key
	Blocked   ident.ID  // the one of Parked with the oldest message
	Attempted int       // wait, and have attempts
	FirstDue  time.Time // of those that are not parked

	Job Place // of the job that was asked for
}

// A Place is where a job is among those of its consumer.
type Place struct {
	Standing
	Since  time.Time // Ready: since when
	Parked bool      // Delayed: it waits for an earlier job of its ordering key
	Ahead  int       // Ready: jobs that come before it
	Above  int       // those of Ahead with a higher priority, in its lane
}

// Outlook returns what keeps the jobs of a consumer from being leased within its limits. job is zero, or
// the message of a job to look for. It changes nothing.
func (q *Queue) Outlook(ctx context.Context, consumer uint32, job ident.ID, limits Limits) (Outlook, error) {
	out, errs := q.Outlooks(ctx, []uint32{consumer}, job, []Limits{limits})
	return out[0], errs[0]
}

// Outlooks is Outlook for many consumers, each with its limits, in few round trips.
func (q *Queue) Outlooks(ctx context.Context, consumers []uint32, job ident.ID, limits []Limits) ([]Outlook, []error) {
	id := ""
	if !job.IsZero() {
		id = string(job[:])
	}
	out, errs := make([]Outlook, len(consumers)), make([]error, len(consumers))
	calls := make([]*call, len(consumers))
	for i, consumer := range consumers {
		calls[i] = &call{consumer: consumer, script: outlookScript, args: limits[i].with([]any{id})}
	}
	q.runAll(ctx, calls)
	for i, c := range calls {
		r := reader{items: c.reply, err: c.err}
		if out[i] = r.outlook(); r.err != nil {
			out[i], errs[i] = Outlook{}, r.err
		}
	}
	return out, errs
}

func (r *reader) outlook() Outlook {
	out := Outlook{Now: r.time(), Ready: int(r.int()), Delayed: int(r.int()), Leased: int(r.int())}
	out.Spilled, out.Whole = r.int() >= 0, r.int() == 1
	out.OldestReady, out.FirstLeaseEnd, out.HeldUntil = r.time(), r.time(), r.time()
	out.Limited, out.Wait = Limit(r.int()), r.millis()
	out.Parked = int(r.int())
	if out.Parked == 0 {
		r.text()
	} else {
		out.Blocked = r.id()
	}
	out.Attempted, out.FirstDue = int(r.int()), r.time()
	out.Job = r.place()
	return out
}

// time reads Unix ms; 0 is the zero time.
func (r *reader) time() time.Time {
	ms := r.int()
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// place reads state, score, meta and the numbers of jobs before.
func (r *reader) place() (p Place) {
	state, score, m := State(r.int()), r.score(), r.meta()
	p.State = state
	if state != Missing {
		p.Priority, p.Attempts, p.Flags = m.priority, m.attempts, m.flags
	}
	switch state {
	case Ready:
		p.Priority, p.Since = priorityOf(score), time.UnixMilli(readyMillisOf(score)).UTC()
	case Leased:
		p.Token, p.At = m.token, time.UnixMilli(score).UTC()
	case Delayed:
		p.Parked, p.At = m.ready != "", time.UnixMilli(score).UTC()
	}
	p.Ahead, p.Above = int(r.int()), int(r.int())
	return p
}
