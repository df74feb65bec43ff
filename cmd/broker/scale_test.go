package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// redisInfo reads one number of INFO.
func redisInfo(t *testing.T, w *world, section, field string) int {
	t.Helper()
	o, err := redis.ParseURL(w.redis.URL())
	require.NoError(t, err)
	c := redis.NewClient(o)
	defer c.Close()
	info, err := c.InfoMap(t.Context(), section).Result()
	require.NoError(t, err)
	for _, fields := range info {
		if text, ok := fields[field]; ok {
			n, err := strconv.Atoi(text)
			require.NoError(t, err)
			return n
		}
	}
	t.Fatalf("INFO %s has no %s", section, field)
	return 0
}

func putAll(t *testing.T, store *durable.Store, channels, consumers int, kind durable.ConsumerType) {
	t.Helper()
	ctx := t.Context()
	token := func(s string) *string { return &s }
	_, _, err := store.PutProducer(ctx, durable.Put{ID: "p", Token: token("p-token")})
	require.NoError(t, err)
	var wg sync.WaitGroup
	errs := make(chan error, channels*(consumers+1))
	limit := make(chan struct{}, 8)
	for c := range channels {
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			channel := fmt.Sprintf("c%d", c)
			_, _, err := store.PutChannel(ctx, durable.Put{ID: channel, Token: token("c-token")})
			errs <- err
			for k := range consumers {
				callback := "http://127.0.0.1:9/"
				put := durable.ConsumerPut{Put: durable.Put{ID: fmt.Sprintf("k%d", k), Token: token(fmt.Sprintf("k%d-token", k))},
					ChannelID: channel, CallbackURL: &callback, Type: &kind}
				_, _, err := store.PutConsumer(ctx, put)
				for tries := 0; errors.Is(err, context.DeadlineExceeded) && tries < 10; tries++ { // a busy server
					_, _, err = store.PutConsumer(ctx, put)
				}
				errs <- err
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
}

// What is idle costs next to nothing, however much of it there is.
func TestScaleTenThousandIdleConsumersCostRedisLittleOnRealServers(t *testing.T) {
	parallel(t)
	w := realWorld(t)
	w.program = plainProgram(t)
	store, err := durable.OpenMySQL(t.Context(), w.env[0][len("BROKER_MYSQL_DSN="):], durable.Options{})
	require.NoError(t, err)
	defer store.Close()
	require.NoError(t, store.Migrate(t.Context()))
	putAll(t, store, 100, 100, durable.Push)
	p := w.start()
	commands := func() int { return redisInfo(t, w, "stats", "total_commands_processed") }
	rate := func(d time.Duration) float64 {
		before, start := commands(), time.Now()
		time.Sleep(d)
		return float64(commands()-before) / time.Since(start).Seconds()
	}
	// At its start a broker looks at each consumer: 400 000 commands, for which a slow machine takes minutes.
	atRest := rate(10 * time.Second)
	for tries := 0; atRest >= 200 && tries < 60; tries++ {
		atRest = rate(10 * time.Second)
	}
	require.Less(t, atRest, 200.0, "commands a second of a broker at rest, those inside scripts included")
	// They are idle, not asleep.
	sink := newSink(t, nil)
	at := p.put("/channel/c99/consumer/k99", "callbackUrl", sink.URL)
	require.Equal(t, 200, at.status)
	s := &stage{process: p, channel: "c99"}
	s.publish("awake")
	eventually(t, "a delivery", func() bool { return sink.count() == 1 })
}

// A backlog far beyond the window of the embedded queue: the list and claims
// stay right, and what is published on top is seen on top.
func TestScaleAHundredThousandQueuedJobsStayUsableEmbedded(t *testing.T) {
	parallel(t)
	w := embeddedWorld(t)
	w.program = plainProgram(t)
	const n = 100_000
	store, err := durable.OpenSQLite(t.Context(), w.env[0][len("BROKER_DATA_DIR="):], durable.Options{})
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()))
	putAll(t, store, 1, 1, durable.Pull)
	fill(t, store, n)
	require.NoError(t, store.Close())
	p := w.start("BROKER_RATIONAL_DELAY=500ms")
	s := &stage{process: p, channel: "c0"}
	eventually(t, "the window to be loaded", func() bool {
		return len(walkPages(s, "k0", 100, func([]apitype.QueuedJob) {})) >= 1500
	})
	next := 0
	take := func(j apitype.QueuedJob, want string) {
		require.Equal(t, want, j.Message.Payload)
		s.claim("k0", j.ID)
		require.Equal(t, 202, s.move("k0", j.ID, to("DELIVERED")).status)
	}
	for next < 200 {
		page := s.queued("k0", "limit=100")
		require.Len(t, page, 100)
		for _, j := range page {
			take(j, strconv.Itoa(next))
			next++
		}
	}
	s.publish("urgent", "X-Broker-Message-Priority", "1")
	eventually(t, "the urgent one on top", func() bool { return s.queued("k0", "limit=1")[0].Priority == 1 })
	take(s.queued("k0", "limit=1")[0], "urgent")
	s.publish("at the end")
	take(s.queued("k0", "limit=1")[0], strconv.Itoa(next))
	require.Equal(t, "QUEUED", s.message(s.publish("unknown to the queue")).Jobs[0].Status,
		"a job beyond the window is queued")
}

// fill stores n messages with their number as payload in channel c0.
func fill(t *testing.T, store *durable.Store, n int) {
	t.Helper()
	ctx := context.Background()
	changes, err := store.Changes(ctx, 0)
	require.NoError(t, err)
	lease, err := store.LeaseNode(ctx, "filler", time.Hour)
	require.NoError(t, err)
	ids := ident.NewGenerator(lease.No, func() int64 { return time.Now().UnixMilli() })
	for i := 0; i < n; {
		batch := make([]*durable.Message, 0, 1000)
		for ; len(batch) < cap(batch) && i < n; i++ {
			batch = append(batch, &durable.Message{ID: ids.Next(), ChannelNo: changes.Channels[0].No,
				ProducerNo: changes.Producers[0].No,
				Audience:   1, ContentType: "text/plain", Payload: []byte(strconv.Itoa(i))})
		}
		for _, err := range store.Insert(ctx, lease, batch) {
			require.NoError(t, err)
		}
	}
	require.NoError(t, store.ReleaseNode(ctx, lease))
}

// Redis holds order, not payloads.
func TestScaleAWaitingJobCostsRedisLessThan200BytesOnRealServers(t *testing.T) {
	parallel(t)
	w := realWorld(t)
	w.program = plainProgram(t)
	p := w.start()
	s := p.stage(t, "k")
	payload := strings.Repeat("x", 2000) // a list of 3000 is read again and again: no escapes in it
	s.publish(payload)
	s.awaitQueued("k", 1)
	before := redisInfo(t, w, "memory", "used_memory_dataset")
	const n = 3000
	next := make(chan int)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range next {
				for {
					r, err := p.try("POST", s.path("/broadcast"), payload, producerTokens...)
					if err == nil && r.status == 201 {
						break
					}
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	eventually(t, "all jobs", func() bool { return len(walkPages(s, "k", 100, func([]apitype.QueuedJob) {})) > n })
	perJob := float64(redisInfo(t, w, "memory", "used_memory_dataset")-before) / n
	require.Less(t, perJob, 200.0)
	t.Logf("%.0f bytes per waiting job", perJob)
}
