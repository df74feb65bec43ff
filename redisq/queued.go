package redisq

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// Queued returns the messages of up to most ready jobs and up to most delayed jobs of a consumer, parked
// ones included, without an order. A job that moves meanwhile may be there twice, and is never missing.
func (q *Queue) Queued(ctx context.Context, consumer uint32, most int) ([]ident.ID, error) {
	if most <= 0 {
		return nil, nil
	}
	keys := q.keys(consumer)
	// Delayed jobs become ready, so they are read first.
	var delayed, ready *redis.StringSliceCmd
	_, err := q.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		delayed = p.ZRange(ctx, keys[1], 0, int64(most)-1)
		ready = p.ZRange(ctx, keys[0], 0, int64(most)-1)
		return nil
	})
	if err != nil {
		return nil, failedTo("queued", err)
	}
	out := make([]ident.ID, 0, len(delayed.Val())+len(ready.Val()))
	for _, set := range [][]string{delayed.Val(), ready.Val()} {
		for _, m := range set {
			if len(m) == ident.Size {
				out = append(out, ident.ID([]byte(m)))
			}
		}
	}
	return out, nil
}

// OldestReady returns since when the first ready job of each consumer is ready, Unix ms by the clock of its
// message or of Redis, 0 where none is ready. It takes few round trips.
func (q *Queue) OldestReady(ctx context.Context, consumers []uint32) ([]int64, error) {
	out := make([]int64, len(consumers))
	for from := 0; from < len(consumers); from += maxHeads {
		part := consumers[from:min(from+maxHeads, len(consumers))]
		heads := make([]*redis.ZSliceCmd, len(part))
		_, err := q.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, no := range part {
				heads[i] = p.ZRangeWithScores(ctx, q.keys(no)[0], 0, 0)
			}
			return nil
		})
		if err != nil {
			return nil, failedTo("oldest", err)
		}
		for i, head := range heads {
			if first := head.Val(); len(first) > 0 {
				out[from+i] = int64(first[0].Score) & (1<<readyBits - 1)
			}
		}
	}
	return out, nil
}

// maxHeads is the number of consumers of one pipeline of OldestReady.
const maxHeads = 2000
