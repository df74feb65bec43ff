package jobs

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/tables"
	"github.com/penstock-broker/penstock/redisq"
)

// A rig is a service on the embedded stores with one pull consumer.
type rig struct {
	*Service
	t        *testing.T
	store    *durable.Store
	queue    *redisq.Queue
	server   *miniredis.Miniredis
	node     durable.NodeLease
	ids      *ident.Generator
	channel  durable.Channel
	consumer durable.Consumer
	woken    int
	dirty    int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	ctx, log := t.Context(), slog.New(slog.DiscardHandler)
	r := &rig{t: t, server: miniredis.RunT(t)}
	dir := t.TempDir()
	tables.SQLite(t, dir)
	var err error
	r.store, err = durable.OpenSQLite(ctx, dir, durable.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.store.Close()) })
	r.node, err = r.store.LeaseNode(ctx, "test", time.Hour)
	require.NoError(t, err)
	r.ids = ident.NewGenerator(r.node.No, func() int64 { return time.Now().UnixMilli() })
	client := redis.NewClient(&redis.Options{Addr: r.server.Addr(), MaxRetries: -1, ReadTimeout: time.Minute})
	t.Cleanup(func() { _ = client.Close() })
	r.queue = redisq.New(client, redisq.Options{Window: 100, Logger: log})
	r.channel, _, err = r.store.PutChannel(ctx, durable.Put{ID: "c", NewToken: "t"})
	require.NoError(t, err)
	pull := durable.Pull
	r.consumer, _, err = r.store.PutConsumer(ctx, durable.ConsumerPut{Put: durable.Put{ID: "k", NewToken: "t"},
		ChannelID: "c", Type: &pull})
	require.NoError(t, err)
	r.Service = &Service{Store: r.store, Queue: r.queue, NowMs: func() int64 { return time.Now().UnixMilli() },
		Wake: func(uint32) { r.woken++ }, Dirty: func(uint32) { r.dirty++ }}
	return r
}

// publish stores messages, a part at a time: an ID that becomes a second old is refused.
func (r *rig) publish(n int) (heads []durable.Head) {
	r.t.Helper()
	for len(heads) < n {
		var batch []*durable.Message
		for range min(100, n-len(heads)) {
			batch = append(batch, &durable.Message{ID: r.ids.Next(), ChannelNo: r.channel.No, Audience: 1})
		}
		for i, err := range r.store.Insert(r.t.Context(), r.node, batch) {
			if errors.Is(err, durable.ErrStale) {
				continue // the test was not given its processor in time
			}
			require.NoError(r.t, err)
			heads = append(heads, durable.Head{ID: batch[i].ID, Audience: 1})
		}
	}
	return heads
}

func (r *rig) record(kind durable.OutcomeKind, h durable.Head, attempts int, next time.Duration) {
	r.t.Helper()
	now := time.Now().UnixMilli()
	require.NoError(r.t, r.store.Record(r.t.Context(), []durable.Outcome{{Kind: kind, ConsumerNo: r.consumer.No, ID: h.ID,
		Attempts: attempts, AtMs: now, NextMs: now + next.Milliseconds(), Tracked: true, Error: "no"}}))
}

func (r *rig) status(h durable.Head) string {
	r.t.Helper()
	j, err := r.State(r.t.Context(), r.consumer.No, h.ID)
	require.NoError(r.t, err)
	return j.Status
}

func (r *rig) claim() []redisq.Lease {
	r.t.Helper()
	c, err := r.queue.Claim(r.t.Context(), r.consumer.No, 100, time.Minute, redisq.Limits{})
	require.NoError(r.t, err)
	return c.Leases
}

// recover puts what is missing of the messages' jobs back, as the reconciler does.
func (r *rig) recover(heads []durable.Head) (Presented, error) {
	r.t.Helper()
	stats, err := r.queue.Stats(r.t.Context(), r.consumer.No)
	require.NoError(r.t, err)
	return r.Recover(r.t.Context(), r.consumer.No, stats.Epoch, heads)
}

func TestStateIsWhatStoreAndQueueKnowTogether(t *testing.T) {
	r := newRig(t)
	h := r.publish(4)
	require.Equal(t, Queued, r.status(h[0]), "unknown to both is queued")
	p, err := r.Present(t.Context(), r.consumer.No, h[:3])
	require.NoError(t, err)
	require.Equal(t, Presented{Added: 3, Upto: 3}, p)
	require.Equal(t, Queued, r.status(h[0]))
	require.Len(t, r.claim(), 3)
	require.Equal(t, InFlight, r.status(h[0]))
	r.record(durable.OutcomeDelivered, h[0], 1, 0)
	r.record(durable.OutcomeDead, h[1], 6, 0)
	require.Equal(t, Delivered, r.status(h[0]), "the store's word is final although Redis was not told")
	require.Equal(t, Dead, r.status(h[1]))
	r.record(durable.OutcomeDelivered, h[1], 6, 0)
	require.Equal(t, Delivered, r.status(h[1]), "a late success wins over death")

	p, err = r.recover(h)
	require.NoError(t, err)
	require.Equal(t, Presented{Over: 2, Known: 1, Added: 1, Upto: 4}, p)

	r.server.Close()
	jobs, err := r.States(t.Context(), r.consumer.No, []ident.ID{h[0].ID, h[2].ID})
	require.NoError(t, err, "a list can be shown without Redis")
	require.Equal(t, []string{Delivered, Queued}, []string{jobs[0].Status, jobs[1].Status})
	_, err = r.State(t.Context(), r.consumer.No, h[2].ID)
	require.Error(t, err, "a decision cannot be made without it")
}

func TestPresentStopsAtTheFirstWithoutRoom(t *testing.T) {
	r := newRig(t)
	h := r.publish(150)
	r.record(durable.OutcomeDelivered, h[0], 1, 0)
	p, err := r.recover(h)
	require.NoError(t, err)
	require.Equal(t, 101, p.Upto, "one is over, a hundred fit")
	require.Equal(t, 100, p.Added)
	require.Equal(t, 49, p.Spilled)
}

func TestARedrivenJobHasAFreshSetOfAttemptsAlsoWhenRedisStillHoldsTheOldOne(t *testing.T) {
	r := newRig(t)
	h := r.publish(1)
	_, err := r.Present(t.Context(), r.consumer.No, h)
	require.NoError(t, err)
	require.Len(t, r.claim(), 1) // and its ack is lost
	r.record(durable.OutcomeDead, h[0], 6, 0)
	j, err := r.RetriggerJob(t.Context(), r.consumer.No, h[0], true)
	require.NoError(t, err)
	require.Equal(t, Queued, j.Status)
	leases := r.claim()
	require.Len(t, leases, 1)
	require.Equal(t, 1, leases[0].Attempt)
	_, err = r.RetriggerJob(t.Context(), r.consumer.No, h[0], true)
	require.ErrorIs(t, err, ErrNotDead)
}

// From the moment in which the store has opened a dead letter again, the reconciler may offer the
// job and a broker be delivering it. The request that opened it may not take it back.
func TestARedrivenJobThatIsInFlightAlreadyIsNotOfferedAgain(t *testing.T) {
	r := newRig(t)
	h := r.publish(1)
	r.record(durable.OutcomeDead, h[0], 6, 0)
	store := &offering{Store: r.store, opened: func() {
		_, err := r.recover(h)
		require.NoError(t, err)
		require.Len(t, r.claim(), 1)
	}}
	r.Service.Store = store
	n, err := r.RedriveAll(t.Context(), r.consumer.No)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, InFlight, r.status(h[0]))
	require.Empty(t, r.claim())
}

// An offering is a store in whose wake something happens as soon as a dead letter is open.
type offering struct {
	Store
	opened func()
}

func (o *offering) Redrive(ctx context.Context, consumer uint32, ids []ident.ID, nowMs int64) ([]durable.OpenJob,
	error) {
	moved, err := o.Store.Redrive(ctx, consumer, ids, nowMs)
	o.opened()
	return moved, err
}

func TestRetriggerMakesAWaitingRetryDueNowAndBringsBackALostJob(t *testing.T) {
	r := newRig(t)
	h := r.publish(3)
	ctx := t.Context()
	r.record(durable.OutcomeRetry, h[0], 2, time.Hour)
	_, err := r.Present(ctx, r.consumer.No, h[:1])
	require.NoError(t, err)
	require.Empty(t, r.claim(), "it waits for its retry")
	_, err = r.RetriggerJob(ctx, r.consumer.No, h[0], false)
	require.NoError(t, err)
	leases := r.claim()
	require.Len(t, leases, 1)
	require.Equal(t, 3, leases[0].Attempt, "being pulled forward is no attempt")

	r.record(durable.OutcomeRetry, h[1], 1, time.Hour)
	_, err = r.RetriggerJob(ctx, r.consumer.No, h[1], false) // Redis never heard of it
	require.NoError(t, err)
	require.Len(t, r.claim(), 1)

	r.record(durable.OutcomeDelivered, h[2], 1, 0)
	j, err := r.RetriggerJob(ctx, r.consumer.No, h[2], false)
	require.NoError(t, err)
	require.Equal(t, Delivered, j.Status, "what is over is left alone")
	require.Empty(t, r.claim())
}

func TestRetriggerOfAMessageReachesItsAudienceOnceHoweverOften(t *testing.T) {
	r := newRig(t)
	h := r.publish(1)
	late, _, err := r.store.PutConsumer(t.Context(), durable.ConsumerPut{Put: durable.Put{ID: "late", NewToken: "t"},
		ChannelID: "c", Type: new(durable.Pull)})
	require.NoError(t, err)
	cat := catalogue.New(r.store, slog.New(slog.DiscardHandler))
	require.NoError(t, cat.Refresh(t.Context()))
	for range 3 {
		require.NoError(t, r.RetriggerMessage(t.Context(), cat.Channel("c"), h[0]))
	}
	require.Len(t, r.claim(), 1)
	stats, err := r.queue.Stats(t.Context(), late.No)
	require.NoError(t, err)
	require.Zero(t, stats.Ready, "who came later is not in the audience")
}

func TestRedriveAllMovesEveryDeadLetterAndSurvivesWithoutRedis(t *testing.T) {
	r := newRig(t)
	h := r.publish(3)
	for _, one := range h {
		r.record(durable.OutcomeDead, one, 6, 0)
	}
	r.server.SetError("LOADING")
	n, err := r.RedriveAll(context.Background(), r.consumer.No)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Positive(t, r.dirty, "the reconciler is told to bring them")
	r.server.SetError("")
	dead, err := r.store.DeadJobs(t.Context(), r.consumer.No, ident.ID{}, 10)
	require.NoError(t, err)
	require.Empty(t, dead)
	n, err = r.RedriveAll(t.Context(), r.consumer.No)
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestAStoreThatIsAwayIsAnError(t *testing.T) {
	r := newRig(t)
	h := r.publish(1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.States(ctx, r.consumer.No, []ident.ID{h[0].ID})
	require.Error(t, err)
	_, err = r.Present(ctx, r.consumer.No, h)
	require.True(t, errors.Is(err, context.Canceled), err)
}
