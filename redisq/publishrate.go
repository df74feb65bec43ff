package redisq

import (
	"context"
	"fmt"
	"time"
)

// A PublishRate bounds the messages that producers publish, at all brokers together: at most N in any
// window of the length Per.
type PublishRate struct {
	Name string // of what it bounds, as "c7": a channel with its number
	N    int
	Per  time.Duration
}

// A Places is what TakePlaces has taken.
type Places struct {
	N    int           // places, in each of the rates
	Wait time.Duration // until a place is free, where N is less than was wanted
	By   int           // index of the rate that has that place last; -1: N is what was wanted
}

// publishKey is the key of a rate. All share one hash tag, so that one script takes a place in a rate of
// the producer, one of the channel and one of the group, or in none of them.
func publishKey(prefix, name string) string { return prefix + "{rates}:" + name }

// TakePlaces takes up to n places for messages in all rates, which are one to three. It is one exchange. After
// an error places may have been taken. A Redis that has lost its data has counted no messages.
func (q *Queue) TakePlaces(ctx context.Context, n int, rates []PublishRate) (Places, error) {
	keys, args := make([]string, len(rates)), make([]any, 0, 1+2*len(rates))
	args = append(args, n)
	for i, r := range rates {
		keys[i] = publishKey(q.prefix, r.Name)
		args = append(args, r.N, r.Per.Milliseconds())
	}
	v, err := q.runKeys(ctx, publishRateScript, keys, args...)
	if err != nil {
		return Places{}, err
	}
	reply, _ := v.([]any)
	if len(reply) == 3 {
		taken, ok := reply[0].(int64)
		wait, text := reply[1].(string)
		by, number := reply[2].(int64)
		if ok && text && number && taken >= 0 && taken <= int64(n) && by <= int64(len(rates)) {
			return Places{N: int(taken), Wait: msOf(wait), By: int(by) - 1}, nil
		}
	}
	return Places{}, failedTo(publishRateScript.name, fmt.Errorf("unexpected reply %T", v))
}
