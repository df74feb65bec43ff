package simulation

import (
	"context"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/queuemodel"
	"github.com/penstock-broker/penstock/redisq"
)

func (q *queueSeam) Park(ctx context.Context, consumer uint32, leases []redisq.Lease, delays []time.Duration) ([]bool,
	error) {
	var out []bool
	err := q.run(ctx, "Park", consumer, func(k *queuemodel.Consumer, now int64) {
		result := k.Park(now, q.window, leases, delays)
		q.l.w.checker.ended(q.l, "parked", consumer, leases, result)
		out = result
	})
	if err != nil {
		return make([]bool, len(leases)), err
	}
	return out, nil
}

func (q *queueSeam) Hasten(ctx context.Context, consumer uint32, ids []ident.ID) (ready int, unknown []ident.ID,
	err error) {
	ids = slices.Clone(ids)
	if len(ids) == 0 {
		return 0, nil, nil
	}
	var n int
	var missing []ident.ID
	if err := q.run(ctx, "Hasten", consumer, func(k *queuemodel.Consumer, now int64) {
		n, missing = k.Hasten(now, ids)
	}); err != nil {
		return 0, nil, err // the script may still run
	}
	return n, missing, nil
}

func (q *queueSeam) Unpark(ctx context.Context, consumer uint32, jobs []redisq.Job) (int, error) {
	jobs = slices.Clone(jobs)
	ready := 0
	if err := q.run(ctx, "Unpark", consumer, func(k *queuemodel.Consumer, now int64) {
		ready = k.Unpark(now, jobs)
	}); err != nil {
		return 0, err // the script may still run
	}
	return ready, nil
}
