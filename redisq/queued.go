package redisq

import (
	"context"
	"strconv"

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

// OldestReady returns since when the oldest ready job of each consumer is ready, Unix ms by the clock of its
// message or of Redis, 0 where none is ready. It takes few round trips: it looks at the first job of each
// priority, of first attempts and of retries, at most of the first maxLevels of these.
func (q *Queue) OldestReady(ctx context.Context, consumers []uint32) ([]int64, error) {
	out := make([]int64, len(consumers))
	for from := 0; from < len(consumers); from += maxHeads {
		to := min(from+maxHeads, len(consumers))
		if err := q.oldestReady(ctx, consumers[from:to], out[from:to]); err != nil {
			return nil, failedTo("oldest", err)
		}
	}
	return out, nil
}

// maxHeads is the number of consumers of one pipeline of OldestReady.
const maxHeads = 2000

// maxLevels bounds the round trips of OldestReady.
const maxLevels = 16

func (q *Queue) oldestReady(ctx context.Context, consumers []uint32, out []int64) error {
	type level struct {
		i    int   // of the consumer
		from int64 // the lowest score
		head *redis.ZSliceCmd
	}
	levels := make([]level, len(consumers))
	for i := range levels {
		levels[i].i = i
	}
	for range maxLevels {
		_, err := q.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range levels {
				l := &levels[i]
				l.head = p.ZRangeByScoreWithScores(ctx, q.keys(consumers[l.i])[0],
					&redis.ZRangeBy{Min: strconv.FormatInt(l.from, 10), Max: "+inf", Count: 1})
			}
			return nil
		})
		if err != nil {
			return err
		}
		left := levels[:0]
		for _, l := range levels {
			first := l.head.Val()
			if len(first) == 0 {
				continue
			}
			score := int64(first[0].Score)
			if at := readyMillisOf(score); out[l.i] == 0 || at < out[l.i] {
				out[l.i] = at
			}
			left = append(left, level{i: l.i, from: (score>>readyBits + 1) << readyBits})
		}
		if levels = left; len(levels) == 0 {
			return nil
		}
	}
	return nil
}
