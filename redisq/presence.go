package redisq

import (
	"context"
	"time"
)

// What brokers know of the workers of a consumer is in a hash of the consumer with a field for each
// broker, package presence has its text. No script reads it: it is no part of the state of jobs.

// presenceKept is how long the hash of a consumer stays after the last write.
const presenceKept = 7 * 24 * time.Hour

// presenceKey is the hash of a consumer, in its slot.
func presenceKey(prefix string, consumer uint32) string { return tagOf(prefix, consumer) + "w" }

// A Presence is what a broker knows of the workers of a consumer.
type Presence struct {
	Consumer uint32
	View     string
}

// KeepPresence stores what a broker knows of consumers, in place of what it knew before.
func (q *Queue) KeepPresence(ctx context.Context, broker string, of []Presence) error {
	pipe := q.client.Pipeline()
	for _, p := range of {
		key := presenceKey(q.prefix, p.Consumer)
		pipe.HSet(ctx, key, broker, p.View)
		pipe.PExpire(ctx, key, presenceKept)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return failedTo("keep presence", err)
	}
	return nil
}

// Presences returns what the brokers know of a consumer, by broker.
func (q *Queue) Presences(ctx context.Context, consumer uint32) (map[string]string, error) {
	views, err := q.client.HGetAll(ctx, presenceKey(q.prefix, consumer)).Result()
	if err != nil {
		return nil, failedTo("presences", err)
	}
	return views, nil
}

// DropPresence removes what brokers knew of a consumer.
func (q *Queue) DropPresence(ctx context.Context, consumer uint32, brokers []string) error {
	if err := q.client.HDel(ctx, presenceKey(q.prefix, consumer), brokers...).Err(); err != nil {
		return failedTo("drop presence", err)
	}
	return nil
}
