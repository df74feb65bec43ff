package reaper

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/auditlog"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/test/tables"
	"github.com/penstock-broker/penstock/redisq"
)

// A rig is a reaper on the embedded stores, without a data plane: only the reaper puts
// jobs into Redis. Its clock is ahead, so that messages are past the horizon at once.
type rig struct {
	*Reaper
	t         *testing.T
	store     *durable.Store
	server    *miniredis.Miniredis
	queue     *redisq.Queue
	catalogue *catalogue.Catalogue
	node      durable.NodeLease
	ids       *ident.Generator
	channel   durable.Channel
	consumer  durable.Consumer
	audience  int
	owned     bool
	mu        sync.Mutex
	woken     int
	folder    string // of the store
}

func (r *rig) Owns(uint32) bool { return r.owned }
func (r *rig) NowMs() int64     { return time.Now().Add(time.Minute).UnixMilli() }
func (r *rig) PastMs() int64    { return r.NowMs() }
func (r *rig) FloorMs() int64   { return r.NowMs() }

func (r *rig) Clock() durable.Clock {
	now, err := r.store.CheckHistory(r.t.Context(), durable.Clock{})
	require.NoError(r.t, err)
	return now
}

func newRig(t *testing.T, window int, change func(*Options)) *rig {
	t.Helper()
	ctx := t.Context()
	log := slog.New(slog.DiscardHandler)
	r := &rig{t: t, owned: true, audience: 1, server: miniredis.RunT(t)}
	var err error
	r.folder = t.TempDir()
	tables.SQLite(t, r.folder)
	r.store, err = durable.OpenSQLite(ctx, r.folder, durable.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.store.Close()) })
	r.node, err = r.store.LeaseNode(ctx, "test", time.Hour)
	require.NoError(t, err)
	r.ids = ident.NewGenerator(r.node.No, func() int64 { return time.Now().UnixMilli() })
	client := redis.NewClient(&redis.Options{Addr: r.server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	r.queue = redisq.New(client, redisq.Options{Window: window, Logger: log})
	r.channel, _, err = r.store.PutChannel(ctx, durable.Put{ID: "c", NewToken: "t"})
	require.NoError(t, err)
	pull := durable.Pull
	r.consumer, _, err = r.store.PutConsumer(ctx, durable.ConsumerPut{Put: durable.Put{ID: "k", NewToken: "t"},
		ChannelID: "c", Type: &pull})
	require.NoError(t, err)
	r.catalogue = catalogue.New(r.store, log)
	require.NoError(t, r.catalogue.Refresh(ctx))
	wake := func(uint32) { r.mu.Lock(); r.woken++; r.mu.Unlock() }
	worklist := NewWorklist()
	o := Options{
		Store: r.store, Queue: r.queue, Catalogue: r.catalogue, Cluster: r,
		Jobs:          &jobs.Service{Store: r.store, Queue: r.queue, NowMs: r.NowMs, Wake: wake, Dirty: worklist.Dirty},
		Worklist:      worklist,
		RationalDelay: time.Second, Policies: policy.NewBook(policy.Policy{MaxRetries: 1}), Wake: wake,
		Registry: prometheus.NewRegistry(), Log: log,
	}
	if change != nil {
		change(&o)
	}
	r.Reaper = New(o)
	r.queue.OnLost(r.Lost)
	return r
}

// publish commits messages without an offer to Redis, as if their broker died.
func (r *rig) publish(priorities ...int) []ident.ID {
	r.t.Helper()
	ids := make([]ident.ID, len(priorities))
	batch := make([]*durable.Message, len(priorities))
	for i, p := range priorities {
		ids[i] = r.ids.Next()
		batch[i] = &durable.Message{ID: ids[i], ChannelNo: r.channel.No, Audience: r.audience,
			Shape: r.catalogue.Channel("c").Shape, Priority: p, Payload: []byte("x")}
	}
	for _, err := range r.store.Insert(r.t.Context(), r.node, batch) {
		require.NoError(r.t, err)
	}
	return ids
}

// round reconciles, and once more after lossGrace when it met a loss.
func (r *rig) round() bool {
	r.t.Helper()
	for {
		clear(r.resting)
		spilled, err := r.reconcile(r.t.Context())
		require.NoError(r.t, err)
		if len(r.resting) == 0 {
			return spilled
		}
	}
}

// claim leases up to n jobs, shortly.
func (r *rig) claim(n int, lease time.Duration) []redisq.Lease {
	r.t.Helper()
	c, err := r.queue.Claim(r.t.Context(), r.consumer.No, n, lease, redisq.Limits{})
	require.NoError(r.t, err)
	return c.Leases
}

func (r *rig) deliver(ids ...ident.ID) {
	r.t.Helper()
	out := make([]durable.Outcome, len(ids))
	for i, id := range ids {
		out[i] = durable.Outcome{Kind: durable.OutcomeDelivered, ConsumerNo: r.consumer.No, ID: id, Attempts: 1, AtMs: 1,
			Tracked: true}
	}
	require.NoError(r.t, r.store.Record(r.t.Context(), out))
	_, err := r.queue.Ack(r.t.Context(), r.consumer.No, ids)
	require.NoError(r.t, err)
}

func idsOf(leases []redisq.Lease) []ident.ID {
	out := make([]ident.ID, len(leases))
	for i, l := range leases {
		out[i] = l.ID
	}
	return out
}

func TestMessagesThatNobodyFannedOutAreFoundAndFlagged(t *testing.T) {
	r := newRig(t, 100, nil)
	want := r.publish(0, 0, 5)
	r.round()
	leases := r.claim(10, time.Minute)
	require.Equal(t, []ident.ID{want[2], want[0], want[1]}, idsOf(leases), "priority first, then age")
	for _, l := range leases {
		require.NotZero(t, l.Flags&redisq.FlagVerify, "the store is asked before they are sent")
	}
	require.Positive(t, r.woken)
	more := r.publish(0)
	r.round()
	require.Equal(t, more, idsOf(r.claim(10, time.Minute)), "and nothing that is in flight is offered again")
}

func TestWhatIsOverIsNotOffered(t *testing.T) {
	r := newRig(t, 100, nil)
	ids := r.publish(0, 0, 0)
	r.deliver(ids[0])
	require.NoError(t, r.store.Record(t.Context(), []durable.Outcome{{Kind: durable.OutcomeDead, ConsumerNo: r.consumer.No,
		ID: ids[1], Attempts: 1, AtMs: 1}}))
	r.round()
	require.Equal(t, ids[2:], idsOf(r.claim(10, time.Minute)))
}

func TestAfterALossEverythingOpenComesBackMostUrgentFirst(t *testing.T) {
	r := newRig(t, 100, nil)
	ids := r.publish(0, 7, 0, 9)
	r.round()
	r.deliver(ids[0])
	r.server.FlushAll()
	_, err := r.queue.Stats(t.Context(), r.consumer.No) // any call notices
	require.NoError(t, err)
	r.round()
	leases := r.claim(10, time.Minute)
	require.Equal(t, []ident.ID{ids[3], ids[1], ids[2]}, idsOf(leases))
	require.NotZero(t, leases[0].Flags&redisq.FlagRecovered)
}

func TestABacklogLargerThanTheWindowIsDrainedInOrder(t *testing.T) {
	r := newRig(t, 10, nil)
	var want []ident.ID
	low := r.publish(make([]int, 60)...)
	high := r.publish(3, 3, 3, 3, 3)
	want = append(append(want, high...), low...)
	var got []ident.ID
	for len(got) < len(want) {
		r.round()
		leases := r.claim(4, time.Minute)
		r.deliver(idsOf(leases)...)
		got = append(got, idsOf(leases)...)
		stats, err := r.queue.Stats(t.Context(), r.consumer.No)
		require.NoError(t, err)
		require.LessOrEqual(t, stats.Ready, 20, "never more than two windows")
	}
	require.Equal(t, want, got)
	require.False(t, r.round(), "nothing is outside the window any more")
	stats, err := r.queue.Stats(t.Context(), r.consumer.No)
	require.NoError(t, err)
	require.Equal(t, -1, stats.SpilledPriority)
}

// A job that was too new for the scan that filled the window, and that Redis does not
// count as spilled, does not wait until consumers have made room.
func TestMoreUrgentWorkGetsIntoAWindowThatIsFull(t *testing.T) {
	r := newRig(t, 4, nil)
	r.publish(1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	require.True(t, r.round(), "not all of it has room")
	urgent := r.publish(5)[0]
	require.True(t, r.round())
	leases := r.claim(2, time.Minute)
	require.Len(t, leases, 2)
	require.Equal(t, urgent, leases[0].ID)
	require.Equal(t, 1, leases[1].Priority)
}

func TestJobsThatWaitForARetryComeBackWithTheirAttempts(t *testing.T) {
	r := newRig(t, 100, nil)
	ids := r.publish(0, 4)
	at := time.Now().UnixMilli()
	require.NoError(t, r.store.Record(t.Context(), []durable.Outcome{
		{Kind: durable.OutcomeRetry, ConsumerNo: r.consumer.No, ID: ids[0], Attempts: 3, AtMs: at, NextMs: at - 1000},
		{Kind: durable.OutcomeRetry, ConsumerNo: r.consumer.No, ID: ids[1], Priority: 4, Attempts: 1, AtMs: at, NextMs: at +
			time.Hour.Milliseconds()},
	}))
	r.round()
	leases := r.claim(10, time.Minute)
	require.Len(t, leases, 1, "the other one is not due")
	require.Equal(t, ids[0], leases[0].ID)
	require.Equal(t, 4, leases[0].Attempt)
	standings, err := r.queue.Probe(t.Context(), r.consumer.No, ids[1:])
	require.NoError(t, err)
	require.Equal(t, redisq.Delayed, standings[0].State)
	require.Equal(t, 4, standings[0].Priority)
}

// A job that failed does not hold the settled watermark back. After a loss, only its
// open_jobs row brings it back: no scan reads messages below the watermark.
func TestAJobBelowTheSettledWatermarkComesBackAfterALoss(t *testing.T) {
	r := newRig(t, 100, nil)
	ids := r.publish(0, 4, 0)
	r.round()
	r.deliver(ids[0])
	at := time.Now().UnixMilli()
	require.NoError(t, r.store.Record(t.Context(), []durable.Outcome{
		{Kind: durable.OutcomeRetry, ConsumerNo: r.consumer.No, ID: ids[1], Priority: 4, Attempts: 1, AtMs: at, NextMs: at +
			time.Hour.Milliseconds()},
		{Kind: durable.OutcomeRetry, ConsumerNo: r.consumer.No, ID: ids[2], Attempts: 2, AtMs: at, NextMs: at},
	}))
	require.NoError(t, r.advanceWatermarks(t.Context()))
	watermarks, err := r.store.Watermarks(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, watermarks[r.consumer.No].Compare(ids[2]), 0, "both jobs have a row")

	r.server.FlushAll()
	_, err = r.queue.Stats(t.Context(), r.consumer.No) // any call notices
	require.NoError(t, err)
	r.round()
	require.Equal(t, redisq.Missing, r.state(r.consumer.No, ids[0]), "it is over")
	require.Equal(t, redisq.Delayed, r.state(r.consumer.No, ids[1]), "its due time has come back as well")
	leases := r.claim(10, time.Minute)
	require.Equal(t, ids[2:], idsOf(leases))
	require.Equal(t, 3, leases[0].Attempt)
}

func TestEndedLeasesGoBackAndTheLastOneBuries(t *testing.T) {
	r := newRig(t, 100, nil) // two attempts
	ids := r.publish(0)
	r.round()
	for attempt := 1; attempt <= 2; attempt++ {
		leases := r.claim(1, time.Millisecond)
		require.Len(t, leases, 1)
		require.Equal(t, attempt, leases[0].Attempt)
		time.Sleep(5 * time.Millisecond)
		require.NoError(t, r.reclaim(t.Context(), r.consumer.No))
	}
	require.Empty(t, r.claim(1, time.Minute))
	dead, err := r.store.DeadJobs(t.Context(), r.consumer.No, ident.ID{}, 10)
	require.NoError(t, err)
	require.Len(t, dead, 1)
	require.Equal(t, ids[0], dead[0].ID)
	require.Equal(t, 2, dead[0].Attempts)
	require.Contains(t, dead[0].Error, "leases ended")
}

func TestALastLeaseThatEndsAfterItsSuccessWasStoredBuriesNothing(t *testing.T) {
	r := newRig(t, 100, nil)
	ids := r.publish(0)
	r.round()
	r.claim(1, time.Millisecond)
	time.Sleep(5 * time.Millisecond)
	require.NoError(t, r.reclaim(t.Context(), r.consumer.No))
	r.claim(1, time.Millisecond)
	require.NoError(t, r.store.Record(t.Context(), []durable.Outcome{{Kind: durable.OutcomeDelivered,
		ConsumerNo: r.consumer.No, ID: ids[0], Attempts: 2, AtMs: 1}}))
	time.Sleep(5 * time.Millisecond)
	require.NoError(t, r.reclaim(t.Context(), r.consumer.No))
	dead, err := r.store.DeadJobs(t.Context(), r.consumer.No, ident.ID{}, 10)
	require.NoError(t, err)
	require.Empty(t, dead)
	stats, err := r.queue.Stats(t.Context(), r.consumer.No)
	require.NoError(t, err)
	require.Zero(t, stats.Leased)
}

// A worker said DEAD, and the acknowledgement in Redis was lost.
func TestALastLeaseThatEndsAfterItsDeathWasStoredKeepsTheFirstReason(t *testing.T) {
	r := newRig(t, 100, nil)
	ids := r.publish(0)
	r.round()
	r.claim(1, time.Millisecond)
	time.Sleep(5 * time.Millisecond)
	require.NoError(t, r.reclaim(t.Context(), r.consumer.No))
	r.claim(1, time.Millisecond)
	require.NoError(t, r.store.Record(t.Context(), []durable.Outcome{{Kind: durable.OutcomeDead, ConsumerNo: r.consumer.No,
		ID: ids[0], Attempts: 2, AtMs: 1, Reason: durable.ByConsumer}}))
	before := testutil.ToFloat64(r.exhausted)
	time.Sleep(5 * time.Millisecond)
	require.NoError(t, r.reclaim(t.Context(), r.consumer.No))
	dead, err := r.store.DeadJobs(t.Context(), r.consumer.No, ident.ID{}, 10)
	require.NoError(t, err)
	require.Len(t, dead, 1)
	require.Equal(t, durable.ByConsumer, dead[0].Reason)
	require.Equal(t, before, testutil.ToFloat64(r.exhausted), "it died once")
	stats, err := r.queue.Stats(t.Context(), r.consumer.No)
	require.NoError(t, err)
	require.Zero(t, stats.Leased)
}

func TestTheSettledWatermarkStopsAtTheFirstOpenJobAndIsWhereARestartBegins(t *testing.T) {
	r := newRig(t, 100, nil)
	ids := r.publish(0, 0, 0, 0)
	r.round()
	r.deliver(ids[0], ids[1], ids[3])
	require.NoError(t, r.advanceWatermarks(t.Context()))
	marks, err := r.store.Watermarks(t.Context())
	require.NoError(t, err)
	require.Equal(t, ids[1], marks[r.consumer.No])
	r.deliver(ids[2])
	require.NoError(t, r.advanceWatermarks(t.Context()))
	marks, err = r.store.Watermarks(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, marks[r.consumer.No].Compare(ids[3]), 0)

	next := New(r.Options2())
	require.True(t, next.loadWatermarks(t.Context()))
	require.Equal(t, marks[r.consumer.No], next.scanStates[r.consumer.No].checked)
}

// The watermarks advance soon after a start, and not only when their period has passed. A broker that
// lives shorter still takes what the brokers before it left behind.
func TestTheWatermarksAdvanceSoonAfterAStart(t *testing.T) {
	r := newRig(t, 100, nil)
	ids := r.publish(0, 0)
	r.round()
	r.deliver(ids...)
	r.Cluster = &stoppedClock{r.NowMs()} // the time of the bubble is far behind
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var loop sync.WaitGroup
		loop.Go(func() { r.watermarkLoop(ctx) })
		time.Sleep(2 * time.Second) // of the bubble
		cancel()
		loop.Wait()
	})
	marks, err := r.store.Watermarks(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, marks[r.consumer.No].Compare(ids[1]), 0, "what is settled at the start")
}

// Options2 are the rig's options for a second reaper.
func (r *rig) Options2() Options {
	o := r.Options
	o.Registry, o.Worklist = prometheus.NewRegistry(), NewWorklist()
	return o
}

// A levelReader remembers from where on messages were read by priority.
type levelReader struct {
	Store
	after  []ident.ID
	passed int // stretches that were found delivered
}

func (s *levelReader) LevelDelivered(ctx context.Context, k durable.Consumer, priority int, after, through ident.ID,
	limit int) (ident.ID, bool, error) {
	last, all, err := s.Store.LevelDelivered(ctx, k, priority, after, through, limit)
	if all {
		s.passed++
	}
	return last, all, err
}

func (s *levelReader) LevelHeads(ctx context.Context, channelNo uint32, priority int, after, through ident.ID,
	limit int) ([]durable.Head, error) {
	s.after = append(s.after, after)
	return s.Store.LevelHeads(ctx, channelNo, priority, after, through, limit)
}

// A broker that takes a consumer over scans from the settled watermark that the other
// broker stored, and not from the watermark that it read at its own start.
func TestAConsumerIsTakenOverWhereTheOtherBrokerHadSettledIt(t *testing.T) {
	r := newRig(t, 100, nil)
	o := r.Options2()
	store := &levelReader{Store: o.Store}
	o.Store = store
	heir := New(o)
	require.True(t, heir.loadWatermarks(t.Context())) // before the first message
	ids := r.publish(0, 0)
	r.round()
	r.deliver(ids...)
	require.NoError(t, r.advanceWatermarks(t.Context()))
	r.publish(0)

	heir.PeersChanged()
	_, err := heir.reconcile(t.Context())
	require.NoError(t, err)
	require.Len(t, store.after, 1)
	require.GreaterOrEqual(t, store.after[0].Compare(ids[1]), 0, "the scan begins at the settled watermark")
	require.Len(t, r.claim(2, time.Minute), 1, "the scan finds the open job")
}

func TestConsumersOfAnotherBrokerAreLeftToIt(t *testing.T) {
	r := newRig(t, 100, nil)
	r.owned = false
	r.publish(0)
	r.round()
	require.Empty(t, r.claim(1, time.Minute))
	r.owned = true
	r.round()
	require.Len(t, r.claim(1, time.Minute), 1, "and taken over in full")
}

func TestWithAURLTheReconcilerAsksTheReTriggerEndpoint(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, req.Method+" "+req.URL.Path+" "+req.Header.Get("X-Broker-Admin-Token"))
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(server.Close)
	r := newRig(t, 100, func(o *Options) { o.Retrigger = NewRetrigger(server.URL+"/", "admin", auditlog.Printer{}) })
	t.Cleanup(r.Retrigger.Close)
	r.publish(0)
	r.round() // the first scan of a consumer loads by priority, in process
	ids := r.publish(0, 0)
	r.round()
	r.deliver(ids[0])
	more := r.publish(0)
	r.round()
	mu.Lock()
	defer mu.Unlock()
	require.Contains(t, asked, "POST /channel/c/message/"+more[0].String()+"/re-trigger admin")
}

func TestRunStopsWithItsContext(t *testing.T) {
	r := newRig(t, 100, nil)
	ids := r.publish(0, 0)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	require.Eventually(t, func() bool {
		standings, err := r.queue.Probe(t.Context(), r.consumer.No, ids)
		return err == nil && standings[0].State == redisq.Ready && standings[1].State == redisq.Ready
	}, 20*time.Second, 10*time.Millisecond)
	r.PeersChanged()
	r.RedisChanged()
	cancel()
	require.NoError(t, <-done)
}

// The scan passes a drained level by counts, in strides. It still finds an open job in the
// middle of the level, and the jobs behind it.
func TestADrainedLevelIsPassedWithoutLosingWhatIsOpen(t *testing.T) {
	for _, priority := range []int{0, 9} {
		store := &levelReader{}
		r := newRig(t, 100, func(o *Options) { store.Store, o.Store = o.Store, store })
		var ids []ident.ID
		for range 45 { // in small batches: an ID that waits for a second is refused
			ids = append(ids, r.publish(slices.Repeat([]int{priority}, 100)...)...)
		}
		open := []int{2500, 4200, 4499}
		var over []durable.Outcome
		for i, id := range ids {
			if !slices.Contains(open, i) {
				over = append(over, durable.Outcome{ConsumerNo: r.consumer.No, ID: id, Attempts: 1, AtMs: 1})
			}
		}
		require.NoError(t, r.store.Record(t.Context(), over))
		low := r.publish(0, 0)
		r.round()
		for i, id := range ids {
			want := redisq.Missing
			if slices.Contains(open, i) {
				want = redisq.Ready
			}
			require.Equal(t, want, r.state(r.consumer.No, id), "%d", i)
		}
		for _, id := range low {
			require.Equal(t, redisq.Ready, r.state(r.consumer.No, id))
		}
		require.Positive(t, store.passed)
	}
}
