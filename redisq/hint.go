package redisq

import (
	"context"
	"encoding/binary"
)

// maxHint is the largest number of consumers in one published hint.
const maxHint = 1024

// LostHint, set in a consumer's number, makes a hint say that Redis has lost the
// state of the consumer. No consumer has such a number.
const LostHint uint32 = 1 << 31

// Notify tells the subscribed brokers, this one included, that these consumers
// have new jobs. It is a hint: it may get lost, and nothing may depend on it.
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

// Subscribe calls f with the consumers of each hint until ctx ends, and returns
// nil then. It reconnects by itself; hints meanwhile are lost. f must not block
// for long: hints that come faster than it takes them are dropped.
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

// parseHint reads the payload of a hint; what is not one gives nothing.
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
