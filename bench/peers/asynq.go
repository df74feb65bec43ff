package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// taskQueue is asynq on its own Redis. asynq is a library, so everything but Redis runs in this
// process. Publishers have one connection each; the consumer has a pool that is large enough for
// all its handlers.
type taskQueue struct {
	*group
	redis    asynq.RedisClientOpt
	handlers int
	version  string
}

const (
	// The default of a second would let the consumer sleep whenever it has
	// caught up.
	idleCheck = 10 * time.Millisecond
	// handlersWithin bounds the last handlers; after it their tasks return to the queue.
	handlersWithin = 5 * time.Second
	redisTimeout   = 10 * time.Second
)

func openAsynq(appendfsync string) func(context.Context, *site, *options) (server, error) {
	return func(ctx context.Context, s *site, o *options) (server, error) {
		g, err := newGroup(s)
		if err != nil {
			return nil, err
		}
		addr, version, err := startRedis(ctx, s, g, appendfsync)
		if err != nil {
			return nil, errors.Join(err, g.Close())
		}
		return &taskQueue{
			group: g, handlers: o.handlers,
			redis:   asynq.RedisClientOpt{Addr: addr, ReadTimeout: redisTimeout, WriteTimeout: redisTimeout},
			version: version + "; " + moduleVersion("github.com/hibiken/asynq"),
		}, nil
	}
}

// pool is the address with a bound of connections.
func (t *taskQueue) pool(size int) asynq.RedisClientOpt {
	o := t.redis
	o.PoolSize = size
	return o
}

// Version implements server.
func (t *taskQueue) Version() string { return t.version }

// Left implements server.
func (t *taskQueue) Left(context.Context) (int64, error) {
	i := asynq.NewInspector(t.pool(1))
	q, err := i.GetQueueInfo("default")
	if err = errors.Join(err, i.Close()); err != nil {
		return 0, err
	}
	return int64(q.Size), nil
}

// Publisher implements server. It connects now instead of at the first task.
func (t *taskQueue) Publisher(ctx context.Context) (publisher, error) {
	c := redis.NewClient(&redis.Options{Addr: t.redis.Addr, ReadTimeout: redisTimeout, WriteTimeout: redisTimeout, PoolSize: 1})
	if err := c.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &taskPublisher{asynq.NewClientFromRedisClient(c), c}, nil
}

type taskPublisher struct {
	client *asynq.Client
	redis  *redis.Client
}

// Publish implements publisher.
func (p *taskPublisher) Publish(ctx context.Context, body []byte) error {
	_, err := p.client.EnqueueContext(ctx, asynq.NewTask(queueName, body))
	return err
}

// Close implements publisher.
func (p *taskPublisher) Close() error { return p.redis.Close() }

// Consume implements server.
func (t *taskQueue) Consume(receive func([]byte)) (consumer, error) {
	// Connections besides those of the handlers: fetching, heartbeat, forwarding, recovery,
	// subscription.
	const housekeeping = 16
	srv := asynq.NewServer(t.pool(t.handlers+housekeeping), asynq.Config{
		Concurrency: t.handlers, TaskCheckInterval: idleCheck, ShutdownTimeout: handlersWithin, LogLevel: asynq.FatalLevel,
	})
	err := srv.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		if task.Type() != queueName {
			return fmt.Errorf("a task of type %q", task.Type())
		}
		receive(task.Payload())
		return nil
	}))
	if err != nil {
		return nil, err
	}
	return taskConsumer{srv}, nil
}

type taskConsumer struct{ server *asynq.Server }

// Close implements consumer. It stops fetching and waits for the tasks under way.
func (k taskConsumer) Close() error {
	k.server.Stop()
	k.server.Shutdown()
	return nil
}
