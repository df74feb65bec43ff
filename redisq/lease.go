package redisq

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// Done lists jobs of one consumer that are over.
type Done struct {
	Consumer uint32
	IDs      []ident.ID
}

// Ack removes jobs whose outcome is stored, in any state, and returns how many of them
// were in Redis. It needs no lease and may be repeated.
func (q *Queue) Ack(ctx context.Context, consumer uint32, ids []ident.ID) (removed int, err error) {
	if q.beforeAck != nil && len(ids) > 0 {
		if err := q.beforeAck(ctx, consumer, ids); err != nil {
			return 0, err
		}
	}
	calls := ackCalls(consumer, ids)
	q.runAll(ctx, calls)
	return acked(calls)
}

// AckMany is Ack for many consumers in few round trips. Result i and error i belong to
// done[i].
func (q *Queue) AckMany(ctx context.Context, done []Done) ([]int, []error) {
	out, errs := make([]int, len(done)), make([]error, len(done))
	parts := make([][]*call, len(done))
	var all []*call
	for i, d := range done {
		if q.beforeAck != nil {
			if errs[i] = q.beforeAck(ctx, d.Consumer, d.IDs); errs[i] != nil {
				continue
			}
		}
		parts[i] = ackCalls(d.Consumer, d.IDs)
		all = append(all, parts[i]...)
	}
	q.runAll(ctx, all)
	for i := range done {
		if errs[i] == nil {
			out[i], errs[i] = acked(parts[i])
		}
	}
	return out, errs
}

// AckLeases removes jobs that are over and that the caller holds. Result i is false if lease i was
// lost: the job may have been redriven and be leased again, which Ack would not notice. The next
// claim of such a job asks the store.
func (q *Queue) AckLeases(ctx context.Context, consumer uint32, leases []Lease) ([]bool, error) {
	calls, err := q.ackLeasesCalls(ctx, consumer, leases)
	if err != nil {
		return make([]bool, len(leases)), err
	}
	q.runAll(ctx, calls)
	return fencedResults(calls, len(leases))
}

// Ended lists leases of one consumer whose jobs are over.
type Ended struct {
	Consumer uint32
	Leases   []Lease
}

// AckLeasesMany is AckLeases for many consumers in few round trips. Error i belongs to ended[i].
func (q *Queue) AckLeasesMany(ctx context.Context, ended []Ended) []error {
	errs := make([]error, len(ended))
	parts := make([][]*call, len(ended))
	var all []*call
	for i, h := range ended {
		parts[i], errs[i] = q.ackLeasesCalls(ctx, h.Consumer, h.Leases)
		all = append(all, parts[i]...)
	}
	q.runAll(ctx, all)
	for i, h := range ended {
		if errs[i] == nil {
			_, errs[i] = fencedResults(parts[i], len(h.Leases))
		}
	}
	return errs
}

func (q *Queue) ackLeasesCalls(ctx context.Context, consumer uint32, leases []Lease) ([]*call, error) {
	if q.beforeAck != nil && len(leases) > 0 {
		ids := make([]ident.ID, len(leases))
		for i, l := range leases {
			ids[i] = l.ID
		}
		if err := q.beforeAck(ctx, consumer, ids); err != nil {
			return nil, err
		}
	}
	return fencedCalls(consumer, ackLeasesScript, leases, nil, func(args []any, i int) []any {
		return append(args, string(leases[i].ID[:]), leases[i].Token)
	}), nil
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

// Extend sets the deadline of leases to lease from now, which may be earlier than before.
// Result i is false if lease i was lost; the caller must then stop working on the job.
func (q *Queue) Extend(ctx context.Context, consumer uint32, leases []Lease, lease time.Duration) ([]bool, error) {
	if lease <= 0 {
		return nil, fmt.Errorf("redisq: extend: a lease of %s", lease)
	}
	return q.fenced(ctx, consumer, extendScript, leases, []any{millis(lease)}, func(args []any, i int) []any {
		return append(args, string(leases[i].ID[:]), leases[i].Token)
	})
}

// RestoreLeases writes leases again that Redis has lost with its other state, to end after
// lease from now. A restored lease has its old token and attempt, so a later delivery
// counts on from that attempt. A lease that Redis still has stays unchanged. Result i is
// true if the caller has lease i. It is false if the job has another lease, or if it waits
// and Redis counts that attempt as ended.
//
// The call may be repeated. It also restores the lease of a job that was acknowledged in
// the meantime. Such a lease ends at its deadline, and the store tells the next claim that
// the job is over.
func (q *Queue) RestoreLeases(ctx context.Context, consumer uint32, leases []Lease, lease time.Duration) ([]bool,
	error) {
	if lease <= 0 {
		return nil, fmt.Errorf("redisq: restore leases: a lease of %s", lease)
	}
	return q.fenced(ctx, consumer, restoreLeasesScript, leases, []any{millis(lease)}, func(args []any, i int) []any {
		l := leases[i]
		attempt := any(l.Attempt)
		if l.Worker != "" {
			attempt = strconv.Itoa(l.Attempt) + "|" + l.Worker
		}
		return append(args, string(l.ID[:]), l.Token, l.Priority, attempt)
	})
}

// Nack ends leases and makes their jobs due after delays, one per lease; 0 or less means
// ready at once. The attempt stays charged. Result i is false if lease i was lost.
func (q *Queue) Nack(ctx context.Context, consumer uint32, leases []Lease, delays []time.Duration) ([]bool, error) {
	return q.nack(ctx, consumer, leases, delays, 1)
}

// GiveBack is Nack of jobs whose claim was no attempt: none is charged. The jobs are flagged
// FlagVerify.
func (q *Queue) GiveBack(ctx context.Context, consumer uint32, leases []Lease, delays []time.Duration) ([]bool, error) {
	return q.nack(ctx, consumer, leases, delays, 0)
}

func (q *Queue) nack(ctx context.Context, consumer uint32, leases []Lease, delays []time.Duration,
	charged int) ([]bool, error) {
	if len(delays) != len(leases) {
		return nil, fmt.Errorf("redisq: nack: %d delays for %d leases", len(delays), len(leases))
	}
	return q.fenced(ctx, consumer, nackScript, leases, []any{charged}, func(args []any, i int) []any {
		return append(args, string(leases[i].ID[:]), leases[i].Token, millis(delays[i]))
	})
}

// Release undoes a claim of jobs that were not sent: no attempt is charged, and the jobs
// are ready at their old place. Result i is false if lease i was lost.
func (q *Queue) Release(ctx context.Context, consumer uint32, leases []Lease) ([]bool, error) {
	return q.fenced(ctx, consumer, releaseScript, leases, nil, func(args []any, i int) []any {
		return append(args, string(leases[i].ID[:]), leases[i].Token, leases[i].Granted)
	})
}

// fenced runs a script that takes lease tokens, in batches, and returns one result per
// lease. After an error the results of failed batches are false.
func (q *Queue) fenced(ctx context.Context, consumer uint32, s *script, leases []Lease, head []any,
	item func(args []any, i int) []any,
) ([]bool, error) {
	calls := fencedCalls(consumer, s, leases, head, item)
	q.runAll(ctx, calls)
	return fencedResults(calls, len(leases))
}

func fencedCalls(consumer uint32, s *script, leases []Lease, head []any, item func(args []any, i int) []any) []*call {
	var calls []*call
	for from := 0; from < len(leases); from += MaxBatch {
		args := append([]any(nil), head...)
		for i := from; i < min(from+MaxBatch, len(leases)); i++ {
			args = item(args, i)
		}
		calls = append(calls, &call{consumer: consumer, script: s, args: args})
	}
	return calls
}

// fencedResults returns the results of the calls for n leases.
func fencedResults(calls []*call, n int) ([]bool, error) {
	out := make([]bool, n)
	var err error
	for k, c := range calls {
		r := reader{items: c.reply, err: c.err}
		for i := k * MaxBatch; i < min((k+1)*MaxBatch, n) && r.err == nil; i++ {
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
