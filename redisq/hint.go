package redisq

import (
	"context"
	"encoding/binary"
)

// maxHint is the largest number of consumers in one published hint.
const maxHint = 1024

// LostHint is a bit that Notify callers set in a consumer's number to report that Redis
// has lost the state of the consumer. No consumer number has this bit.
const LostHint uint32 = 1 << 31

// Notify tells the subscribed brokers, this one included, that these consumers have new
// jobs. A hint may get lost, so correctness must not depend on it.
func (q *Queue) Notify(ctx context.Context, consumers []uint32) error {
	for len(consumers) > 0 {
		n := min(len(consumers), maxHint)
		payload := make([]byte, 0, 4*n)
		for _, c := range consumers[:n] {
			payload = binary.BigEndian.AppendUint32(payload, c)
		}
		if err := q.client.Publish(ctx, hintChannel(q.prefix), payload).Err(); err != nil {
			return failedTo("notify", err)
		}
		consumers = consumers[n:]
	}
	return nil
}

// Subscribe calls f with the consumers of each hint until ctx ends, then returns nil. It
// reconnects by itself; hints sent in between are lost. f must not block for long, since
// hints that arrive faster than f returns are dropped.
func (q *Queue) Subscribe(ctx context.Context, f func(consumers []uint32)) error {
	sub := q.client.Subscribe(ctx, hintChannel(q.prefix))
	defer func() { _ = sub.Close() }()
	hints := sub.Channel()
	for {
		select {
		case <-ctx.Done():
			return nil
		case m, ok := <-hints:
			if !ok {
				return nil
			}
			if consumers := parseHint(m.Payload); len(consumers) > 0 {
				f(consumers)
			}
		}
	}
}

// parseHint returns the consumers in the payload of a hint, or nil if it is malformed.
func parseHint(payload string) []uint32 {
	if len(payload)%4 != 0 || len(payload) > 4*maxHint {
		return nil
	}
	consumers := make([]uint32, 0, len(payload)/4)
	for b := []byte(payload); len(b) > 0; b = b[4:] {
		consumers = append(consumers, binary.BigEndian.Uint32(b))
	}
	return consumers
}
