package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// limitsLease is the lease of the node number of the stages.
const limitsLease = 10 * time.Minute

// durableLimits measures rows of messages and of outcomes, through the same
// statements and connections as the broker's.
func durableLimits(ctx context.Context, c *LimitsConfig, dir string, l *Limits) (err error) {
	name, store, others, err := openLimitsStore(ctx, c, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	lease, err := store.LeaseNode(ctx, "bench limits", limitsLease)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.ReleaseNode(context.WithoutCancel(ctx), lease)) }()
	producer, channel, consumer, err := limitsCatalogue(ctx, store)
	if err != nil {
		return err
	}
	serverMs, err := store.NowMs(ctx)
	if err != nil {
		return err
	}
	offset := serverMs - time.Now().UnixMilli()
	ids := ident.NewGenerator(lease.No, func() int64 { return time.Now().UnixMilli() + offset })
	payloads, err := NewPayloads(c.Payload)
	if err != nil {
		return err
	}
	body := payloads.Append(nil, Identity{})

	stage := Stage{Name: StageInsert, Workers: c.Writers, Unit: fmt.Sprintf("row of %s, %d per transaction", name, c.Rows)}
	err = l.measure(ctx, c, stage, others, func(ctx context.Context, _ int) (int, error) {
		batch := make([]*durable.Message, c.Rows)
		for i := range batch {
			batch[i] = &durable.Message{ID: ids.Next(), ChannelNo: channel.No, ProducerNo: producer.No,
				Audience: channel.Audience, Shape: channel.Shape,
				ContentType: "application/octet-stream", Payload: body}
		}
		return c.Rows, errors.Join(store.Insert(ctx, lease, batch)...)
	})
	if err != nil {
		return err
	}
	stage = Stage{Name: StageOutcome, Workers: c.Writers, Unit: fmt.Sprintf("row of %s, %d per transaction", name, c.Rows)}
	return l.measure(ctx, c, stage, others, func(ctx context.Context, _ int) (int, error) {
		batch := make([]durable.Outcome, c.Rows)
		for i := range batch {
			batch[i] = durable.Outcome{Kind: durable.OutcomeDelivered, ConsumerNo: consumer.No, ID: ids.Next(), Attempts: 1,
				AtMs: time.Now().UnixMilli(), StatusCode: 200}
		}
		return c.Rows, store.Record(ctx, batch)
	})
}

// openLimitsStore opens the store of the configuration and names its processes.
func openLimitsStore(ctx context.Context, c *LimitsConfig, dir string) (name string, store *durable.Store,
	processes []Process, err error) {
	if c.MySQL == "" {
		store, err = durable.OpenSQLite(ctx, dir, durable.Options{})
		return "SQLite", store, nil, err
	}
	store, err = durable.OpenMySQL(ctx, c.MySQL, durable.Options{})
	return "MySQL", store, storeProcesses(&Config{MySQL: c.MySQL}), err
}

// limitsCatalogue registers the producer, channel and consumer that the rows refer to. The channel
// of the messages has no consumer, so a broker on the same store has nothing to deliver.
func limitsCatalogue(ctx context.Context, store *durable.Store) (p durable.Producer, ch durable.Channel,
	k durable.Consumer, err error) {
	put := func(id string) durable.Put { return durable.Put{ID: id, NewToken: "bench-limits-token"} }
	if p, _, err = store.PutProducer(ctx, put("bench-limits")); err != nil {
		return p, ch, k, err
	}
	if ch, _, err = store.PutChannel(ctx, put("bench-limits")); err != nil {
		return p, ch, k, err
	}
	if _, _, err = store.PutChannel(ctx, put("bench-limits-outcomes")); err != nil {
		return p, ch, k, err
	}
	pull := durable.Pull
	k, _, err = store.PutConsumer(ctx, durable.ConsumerPut{Put: put("bench-limits"), ChannelID: "bench-limits-outcomes",
		Type: &pull})
	return p, ch, k, err
}

// fsyncLimit measures writes of 4 KiB that are on disk when they return.
func fsyncLimit(ctx context.Context, c *LimitsConfig, dir string, l *Limits) error {
	const block, blocks = 4096, 256
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return err
	}
	if _, err := f.Write(make([]byte, block*blocks)); err != nil {
		return errors.Join(err, f.Close())
	}
	data := make([]byte, block)
	n := int64(0)
	err = l.measure(ctx, c, Stage{Name: StageFsync, Workers: 1, Unit: "4 KiB written and flushed, temporary folder"}, nil,
		func(context.Context, int) (int, error) {
			data[0]++
			n++
			_, err := f.WriteAt(data, n%blocks*block)
			return 1, errors.Join(err, f.Sync())
		})
	return errors.Join(err, f.Close())
}

// redisLimits measures the life of a job in Redis, with the broker's scripts:
// enqueue, claim, ack.
func redisLimits(ctx context.Context, c *LimitsConfig, _ string, l *Limits) (err error) {
	address, name := c.Redis, "Redis"
	var others []Process
	if address == "" {
		m := miniredis.NewMiniRedis()
		if err := m.Start(); err != nil {
			return err
		}
		defer m.Close()
		address, name = "redis://"+m.Addr(), "embedded Redis"
	} else {
		others = storeProcesses(&Config{Redis: c.Redis})
	}
	client, runs, err := redisq.Connect(ctx, redisq.ConnectOptions{URL: address, PoolSize: 64})
	if err != nil {
		return err
	}
	q := redisq.New(client, redisq.Options{Prefix: fmt.Sprintf("bench%x:", rand.Uint64()), Runs: runs})
	const consumer = 1
	defer func() {
		// Deletes exactly the keys of this queue instead of a name pattern, one by one, since they
		// may be in a Cluster.
		for _, key := range q.Keys(consumer) {
			err = errors.Join(err, client.Del(context.WithoutCancel(ctx), key).Err())
		}
		err = errors.Join(err, client.Close())
	}()
	for _, s := range []struct {
		name           string
		batch, workers int
	}{{StageRedis1, 1, 16}, {StageRedis10, 10, 8}, {StageRedis, 100, 4}} {
		ids := ident.NewGenerator(0, func() int64 { return time.Now().UnixMilli() })
		stage := Stage{Name: s.name, Workers: s.workers, Unit: "job of " + name + ": enqueue, claim, ack"}
		err := l.measure(ctx, c, stage, others, func(ctx context.Context, _ int) (int, error) {
			return cycle(ctx, q, consumer, ids, s.batch)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// cycle takes a batch of jobs through the queue. Concurrent cycles may end each other's jobs.
func cycle(ctx context.Context, q *redisq.Queue, consumer uint32, ids *ident.Generator, batch int) (int, error) {
	jobs := make([]redisq.Job, batch)
	for i := range jobs {
		jobs[i].ID = ids.Next()
	}
	if _, err := q.Enqueue(ctx, consumer, jobs, redisq.Fresh); err != nil {
		return 0, err
	}
	claim, err := q.Claim(ctx, consumer, batch, time.Minute, redisq.Limits{})
	if err != nil {
		return 0, err
	}
	done := redisq.Done{Consumer: consumer}
	for _, lease := range claim.Leases {
		done.IDs = append(done.IDs, lease.ID)
	}
	_, errs := q.AckMany(ctx, []redisq.Done{done})
	return len(done.IDs), errors.Join(errs...)
}
