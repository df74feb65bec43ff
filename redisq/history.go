package redisq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// historyField is the field of the hash with both numbers: the documented rights of a Redis user allow
// no SET.
const historyField = "seen"

// RememberHistory stores two numbers that name a state of the durable store, for brokers that start
// when no other one is left that knows it. It is lost with Redis, and so are the jobs of that state.
func (q *Queue) RememberHistory(ctx context.Context, history, beat int64) error {
	value := strconv.FormatInt(history, 10) + " " + strconv.FormatInt(beat, 10)
	if err := q.client.HSet(ctx, historyKey(q.prefix), historyField, value).Err(); err != nil {
		return failedTo("remember the history", err)
	}
	return nil
}

// RememberedHistory returns what RememberHistory stored last, zeros if there is nothing.
func (q *Queue) RememberedHistory(ctx context.Context) (history, beat int64, err error) {
	value, err := q.client.HGet(ctx, historyKey(q.prefix), historyField).Result()
	if errors.Is(err, redis.Nil) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, failedTo("recall the history", err)
	}
	name, count, _ := strings.Cut(value, " ")
	history, err = strconv.ParseInt(name, 10, 64)
	if err == nil {
		beat, err = strconv.ParseInt(count, 10, 64)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("redisq: the remembered history: %w", err)
	}
	return history, beat, nil
}
