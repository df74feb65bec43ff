package redisq

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/internal/ident"
)

// Done is jobs of one consumer that are over.
type Done struct {
	Consumer uint32
	IDs      []ident.ID
}

// Ack forgets jobs whose outcome the store has, in whatever state they are, and
// returns how many Redis knew. It needs no lease and may be repeated.
func (q *Queue) Ack(ctx context.Context, consumer uint32, ids []ident.ID) (removed int, err error) {
	calls := ackCalls(consumer, ids)
	q.runAll(ctx, calls)
	return acked(calls)
}

// AckMany is Ack for many consumers in few round trips. The results and errors
// stand at the place of their Done.
func (q *Queue) AckMany(ctx context.Context, done []Done) ([]int, []error) {
	out, errs := make([]int, len(done)), make([]error, len(done))
	parts := make([][]*call, len(done))
	var all []*call
	for i, d := range done {
		parts[i] = ackCalls(d.Consumer, d.IDs)
		all = append(all, parts[i]...)
	}
	q.runAll(ctx, all)
	for i := range done {
		out[i], errs[i] = acked(parts[i])
	}
	return out, errs
}

func ackCalls(consumer uint32, ids []ident.ID) []*call {
	var calls []*call
	for len(ids) > 0 {
		n := min(len(ids), MaxBatch)
		calls = append(calls, &call{consumer: consumer, script: ackScript, args: idArgs(ids[:n])})
		ids = ids[n:]
	}
	return calls
}

func acked(calls []*call) (removed int, err error) {
	for _, c := range calls {
		if c.err != nil {
			return removed, c.err
		}
		r := reader{items: c.reply}
		removed += int(r.int())
		if r.err != nil {
			return removed, r.err
		}
	}
	return removed, nil
}

// Extend lets leases end after lease from now, which may be sooner than before.
// The result says for each whether the lease was still the caller's; where it is
// false the caller must stop working on the job.
func (q *Queue) Extend(ctx context.Context, consumer uint32, leases []Lease, lease time.Duration) ([]bool, error) {
	if lease <= 0 {
		return nil, fmt.Errorf("redisq: extend: a lease of %s", lease)
	}
	return q.fenced(ctx, consumer, extendScript, leases, []any{millis(lease)}, func(args []any, i int) []any {
		return append(args, string(leases[i].ID[:]), leases[i].Token)
	})
}

// RestoreLeases gives the caller leases back that Redis has lost together with everything
// else, for lease from now: the same ones, with their tokens and attempts, so that
// a copy that is sent later counts on. Leases that Redis still has stay as they
// are. The result says for each whether it is the caller's; where it is false
// somebody else has the job, or it waits and that attempt is counted as over. It
// may be repeated. The lease of a job that was acked meanwhile comes back, too:
// it ends, and who claims the job then is told by the store that it is over.
func (q *Queue) RestoreLeases(ctx context.Context, consumer uint32, leases []Lease, lease time.Duration) ([]bool, error) {
	if lease <= 0 {
		return nil, fmt.Errorf("redisq: restore leases: a lease of %s", lease)
	}
	return q.fenced(ctx, consumer, restoreLeasesScript, leases, []any{millis(lease)}, func(args []any, i int) []any {
		l := leases[i]
		return append(args, string(l.ID[:]), l.Token, l.Priority, l.Attempt)
	})
}

// Nack gives jobs back for a later attempt after their delay, which has one
// element per lease; 0 and below: ready at once. The attempt stays charged. The
// result says for each whether the lease was still the caller's.
func (q *Queue) Nack(ctx context.Context, consumer uint32, leases []Lease, delays []time.Duration) ([]bool, error) {
	if len(delays) != len(leases) {
		return nil, fmt.Errorf("redisq: nack: %d delays for %d leases", len(delays), len(leases))
	}
	return q.fenced(ctx, consumer, nackScript, leases, nil, func(args []any, i int) []any {
		return append(args, string(leases[i].ID[:]), leases[i].Token, millis(delays[i]))
	})
}

// Release undoes a claim: the jobs were not sent, so no attempt is charged and
// they are ready at their old place. The result says for each whether the lease
// was still the caller's.
func (q *Queue) Release(ctx context.Context, consumer uint32, leases []Lease) ([]bool, error) {
	return q.fenced(ctx, consumer, releaseScript, leases, nil, func(args []any, i int) []any {
		return append(args, string(leases[i].ID[:]), leases[i].Token)
	})
}

// fenced runs a script that wants tokens, in batches, and returns its answer per
// lease. On an error the answers of the batches that succeeded are there, the
// others are false.
func (q *Queue) fenced(ctx context.Context, consumer uint32, s *script, leases []Lease, head []any,
	item func(args []any, i int) []any,
) ([]bool, error) {
	var calls []*call
	for from := 0; from < len(leases); from += MaxBatch {
		args := append([]any(nil), head...)
		for i := from; i < min(from+MaxBatch, len(leases)); i++ {
			args = item(args, i)
		}
		calls = append(calls, &call{consumer: consumer, script: s, args: args})
	}
	q.runAll(ctx, calls)
	out := make([]bool, len(leases))
	var err error
	for k, c := range calls {
		r := reader{items: c.reply, err: c.err}
		for i := k * MaxBatch; i < min((k+1)*MaxBatch, len(leases)) && r.err == nil; i++ {
			out[i] = r.int() == 1
		}
		if err == nil {
			err = r.err
		}
	}
	return out, err
}

func idArgs(ids []ident.ID) []any {
	args := make([]any, len(ids))
	for i := range ids {
		args[i] = string(ids[i][:])
	}
	return args
}
