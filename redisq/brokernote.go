package redisq

import (
	"context"
	"time"
)

// What each broker says of itself is in one hash with a field for each, package fleet has its text. No script reads it.

// brokerNotesKept is how long the hash stays after the last write.
const brokerNotesKept = 2 * time.Minute

// brokerNotesKey is the hash, in a slot of its own.
func brokerNotesKey(prefix string) string { return prefix + "brokers" }

// KeepBrokerNote stores what a broker says of itself, in place of what it said before.
func (q *Queue) KeepBrokerNote(ctx context.Context, broker, note string) error {
	key := brokerNotesKey(q.prefix)
	pipe := q.client.Pipeline()
	pipe.HSet(ctx, key, broker, note)
	pipe.PExpire(ctx, key, brokerNotesKept)
	if _, err := pipe.Exec(ctx); err != nil {
		return failedTo("keep the note of a broker", err)
	}
	return nil
}

// BrokerNotes returns what the brokers say, by broker.
func (q *Queue) BrokerNotes(ctx context.Context) (map[string]string, error) {
	notes, err := q.client.HGetAll(ctx, brokerNotesKey(q.prefix)).Result()
	if err != nil {
		return nil, failedTo("notes of brokers", err)
	}
	return notes, nil
}

// DropBrokerNotes removes what brokers said.
func (q *Queue) DropBrokerNotes(ctx context.Context, brokers []string) error {
	if err := q.client.HDel(ctx, brokerNotesKey(q.prefix), brokers...).Err(); err != nil {
		return failedTo("drop notes of brokers", err)
	}
	return nil
}
