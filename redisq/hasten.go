package redisq

import (
	"context"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// Hasten makes delayed jobs ready now, and returns how many became ready and which of the jobs Redis does
// not know. Jobs that are ready, leased or parked stay as they are. It may be repeated.
func (q *Queue) Hasten(ctx context.Context, consumer uint32, ids []ident.ID) (ready int, unknown []ident.ID,
	err error) {
	var calls []*call
	for from := 0; from < len(ids); from += MaxBatch {
		part := ids[from:min(from+MaxBatch, len(ids))]
		calls = append(calls, &call{consumer: consumer, script: hastenScript, args: idArgs(part)})
	}
	q.runAll(ctx, calls)
	at := 0
	for _, c := range calls {
		r := reader{items: c.reply, err: c.err}
		for r.left() > 0 {
			switch r.int() {
			case 0:
				unknown = append(unknown, ids[at])
			case 1:
				ready++
			}
			at++
		}
		if r.err != nil {
			return ready, nil, r.err
		}
	}
	return ready, unknown, nil
}
