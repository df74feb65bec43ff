package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// claimed is the most jobs of one claim, leaseFor the length of their leases.
const (
	claimed  = 100
	leaseFor = time.Minute
)

// A plainQueue is two sorted sets: what waits, and what is leased.
type plainQueue struct{ client redis.UniversalClient }

const waitingKey, leasedKey = "{floor}waiting", "{floor}leased"

var moveDue = redis.NewScript(`
local popped, moved, ids = redis.call('ZPOPMIN', KEYS[1], ARGV[1]), {}, {}
for i = 1, #popped, 2 do
  ids[#ids + 1] = popped[i]
  moved[i], moved[i + 1] = ARGV[2], popped[i]
end
if #ids > 0 then redis.call('ZADD', KEYS[2], unpack(moved)) end
return ids`)

func (q plainQueue) add(ctx context.Context, ids []ident.ID) error {
	members := make([]redis.Z, len(ids))
	for i, id := range ids {
		members[i] = redis.Z{Score: float64(id.Millis()), Member: string(id[:])}
	}
	return q.client.ZAdd(ctx, waitingKey, members...).Err()
}

func (q plainQueue) claim(ctx context.Context) ([]ident.ID, error) {
	members, err := moveDue.Run(ctx, q.client, []string{waitingKey, leasedKey}, claimed,
		time.Now().Add(leaseFor).UnixMilli()).StringSlice()
	ids := make([]ident.ID, len(members))
	for i, m := range members {
		ids[i] = ident.ID([]byte(m))
	}
	return ids, err
}

func (q plainQueue) remove(ctx context.Context, ids []ident.ID) error {
	members := make([]any, len(ids))
	for i, id := range ids {
		members[i] = string(id[:])
	}
	return q.client.ZRem(ctx, leasedKey, members...).Err()
}

// A leasedQueue is the queue of the broker.
type leasedQueue struct {
	queue *redisq.Queue
	floor *floor
}

func (q leasedQueue) add(ctx context.Context, ids []ident.ID) error {
	jobs := make([]redisq.Job, len(ids))
	for i, id := range ids {
		jobs[i].ID = id
	}
	_, err := q.queue.Enqueue(ctx, q.floor.consumer.Load().No, jobs, redisq.Fresh)
	return err
}

func (q leasedQueue) claim(ctx context.Context) ([]ident.ID, error) {
	k := q.floor.consumer.Load()
	if k == nil {
		return nil, nil
	}
	c, err := q.queue.Claim(ctx, k.No, claimed, leaseFor, redisq.Limits{})
	ids := make([]ident.ID, len(c.Leases))
	for i, lease := range c.Leases {
		ids[i] = lease.ID
	}
	return ids, err
}

func (q leasedQueue) remove(ctx context.Context, ids []ident.ID) error {
	_, err := q.queue.Ack(ctx, q.floor.consumer.Load().No, ids)
	return err
}
