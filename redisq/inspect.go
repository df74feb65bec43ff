package redisq

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// Peek lists up to limit (at most MaxBatch) ready jobs in the order in which Claim leases
// them, from the start or after the cursor, whose job may be gone. Like Claim, it
// promotes due jobs first and leaves out jobs that must wait for the refill.
func (q *Queue) Peek(ctx context.Context, consumer uint32, after *Cursor, limit int) ([]Waiting, error) {
	score, id := any(""), ""
	if after != nil {
		score, id = after.Score, string(after.ID[:])
	}
	reply, err := q.run(ctx, consumer, peekScript, min(max(limit, 1), MaxBatch), score, id, q.window)
	if err != nil {
		return nil, err
	}
	r := reader{items: reply}
	var out []Waiting
	for r.left() > 0 {
		w := Waiting{ID: r.id(), Score: r.int()}
		m := r.meta()
		w.Priority, w.Attempts, w.Flags = priorityOf(w.Score), m.attempts, m.flags
		out = append(out, w)
	}
	return out, r.err
}

// Probe returns the state of each job, in the order of ids.
func (q *Queue) Probe(ctx context.Context, consumer uint32, ids []ident.ID) ([]Standing, error) {
	var calls []*call
	for from := 0; from < len(ids); from += MaxBatch {
		part := ids[from:min(from+MaxBatch, len(ids))]
		calls = append(calls, &call{consumer: consumer, script: probeScript, args: idArgs(part)})
	}
	q.runAll(ctx, calls)
	out := make([]Standing, 0, len(ids))
	for _, c := range calls {
		r := reader{items: c.reply, err: c.err}
		for r.left() > 0 {
			out = append(out, r.standing())
		}
		if r.err != nil {
			return nil, r.err
		}
	}
	return out, nil
}

// Leased returns the messages of up to most jobs that are leased now, in the order in which their
// leases end.
func (q *Queue) Leased(ctx context.Context, consumer uint32, most int) ([]ident.ID, error) {
	if most <= 0 {
		return nil, nil
	}
	members, err := q.client.ZRange(ctx, q.keys(consumer)[2], 0, int64(most)-1).Result()
	if err != nil {
		return nil, failedTo("leased", err)
	}
	out := make([]ident.ID, 0, len(members))
	for _, m := range members {
		if len(m) == ident.Size {
			out = append(out, ident.ID([]byte(m)))
		}
	}
	return out, nil
}

// Leases returns up to most current leases of a consumer with their ends, in the order of these.
func (q *Queue) Leases(ctx context.Context, consumer uint32, most int) ([]Lease, []time.Time, error) {
	ids, err := q.Leased(ctx, consumer, most)
	if err != nil || len(ids) == 0 {
		return nil, nil, err
	}
	standings, err := q.Probe(ctx, consumer, ids)
	if err != nil {
		return nil, nil, err
	}
	var leases []Lease
	var ends []time.Time
	for i, s := range standings {
		if s.State == Leased { // it may have ended since
			leases = append(leases, Lease{ID: ids[i], Priority: s.Priority, Attempt: s.Attempts, Flags: s.Flags, Token: s.Token,
				Worker: s.Worker})
			ends = append(ends, s.At)
		}
	}
	return leases, ends, nil
}

// Stats returns the sizes of a consumer's sets.
func (q *Queue) Stats(ctx context.Context, consumer uint32) (Stats, error) {
	out, errs := q.StatsMany(ctx, []uint32{consumer})
	return out[0], errs[0]
}

// StatsMany is Stats for many consumers in few round trips.
func (q *Queue) StatsMany(ctx context.Context, consumers []uint32) ([]Stats, []error) {
	out, errs := make([]Stats, len(consumers)), make([]error, len(consumers))
	calls := make([]*call, len(consumers))
	for i, consumer := range consumers {
		calls[i] = &call{consumer: consumer, script: statsScript}
	}
	q.runAll(ctx, calls)
	for i, c := range calls {
		r := reader{items: c.reply, err: c.err}
		ready, delayed, leased := r.int(), r.int(), r.int()
		priority, spills := r.int(), r.int()
		oldest, next := time.Duration(0), time.Duration(0)
		if r.err == nil {
			oldest, next = r.millis(), r.millis()
		}
		whole := r.int() == 1 && priority < 0
		if errs[i] = r.err; r.err != nil {
			out[i].SpilledPriority = -1
			continue
		}
		out[i] = Stats{
			Ready: int(ready), Delayed: int(delayed), Leased: int(leased),
			SpilledPriority: int(priority), Whole: whole, Spills: spills, Oldest: oldest, NextDue: next, Epoch: c.known,
		}
	}
	return out, errs
}
