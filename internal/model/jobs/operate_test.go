package jobs

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// delay makes delayed jobs of messages, in the store and in the queue.
func (r *rig) delay(heads []durable.Head, by time.Duration) {
	r.t.Helper()
	leases := map[ident.ID]redisq.Lease{}
	for _, l := range r.claim() {
		leases[l.ID] = l
	}
	for _, h := range heads {
		r.record(durable.OutcomeRetry, h, leases[h.ID].Attempt, by)
		_, err := r.queue.Nack(r.t.Context(), r.consumer.No, []redisq.Lease{leases[h.ID]}, []time.Duration{by})
		require.NoError(r.t, err)
	}
}

// present offers the messages.
func (r *rig) present(heads []durable.Head) {
	r.t.Helper()
	_, err := r.Present(r.t.Context(), r.consumer.No, heads)
	require.NoError(r.t, err)
}

func (r *rig) retryAll() int {
	r.t.Helper()
	n, err := r.RetryAll(r.t.Context(), r.consumer.No)
	require.NoError(r.t, err)
	return n
}

func TestRetryMakesDelayedJobsDueNowAndLeavesOthersAlone(t *testing.T) {
	r := newRig(t)
	h := r.publish(4)
	r.present(h[:3])
	r.delay(h[:2], time.Hour) // h[2] stays leased
	r.record(durable.OutcomeRetry, h[3], 1, time.Hour)
	require.Equal(t, 3, r.retryAll(), "two that Redis delays and one that it does not have")
	require.Zero(t, r.retryAll())
	require.Equal(t, InFlight, r.status(h[2]))
	var got []ident.ID
	for _, l := range r.claim() {
		got = append(got, l.ID)
		require.Equal(t, 2, l.Attempt, "attempts stay charged")
	}
	require.ElementsMatch(t, []ident.ID{h[0].ID, h[1].ID, h[3].ID}, got)
}

func TestAWipedQueueDoesNotBringTheDelaysBack(t *testing.T) {
	r := newRig(t)
	h := r.publish(2)
	r.present(h)
	r.delay(h, time.Hour)
	require.Equal(t, 2, r.retryAll())
	r.server.FlushAll()
	_, err := r.recover(h)
	require.NoError(t, err)
	require.Len(t, r.claim(), 2)
}

// deafQueue fails after the store was told.
type deafQueue struct{ Queue }

func (deafQueue) Hasten(context.Context, uint32, []ident.ID) (int, []ident.ID, error) {
	return 0, nil, errors.New("no Redis")
}

func TestARetryThatCrashedAfterTheStoreIsRepeatedWhole(t *testing.T) {
	r := newRig(t)
	h := r.publish(3)
	r.present(h)
	r.delay(h, time.Hour)
	whole := r.Queue
	r.Queue = deafQueue{whole}
	_, err := r.RetryAll(t.Context(), r.consumer.No)
	require.Error(t, err)
	require.Empty(t, r.claim(), "Redis still delays them")
	r.Queue = whole
	require.Equal(t, 3, r.retryAll(), "the store says that they are due, and the queue is asked all the same")
	require.Len(t, r.claim(), 3)
}

func TestRetryGoesThroughAllPagesAndBeyondTheWindow(t *testing.T) {
	r := newRig(t)
	h := r.publish(1100)
	var all []durable.Outcome
	now := time.Now().UnixMilli()
	for _, one := range h {
		all = append(all, durable.Outcome{Kind: durable.OutcomeRetry, ConsumerNo: r.consumer.No, ID: one.ID, Attempts: 1,
			AtMs: now, NextMs: now + time.Hour.Milliseconds()})
	}
	require.NoError(t, r.store.Record(t.Context(), all))
	require.Equal(t, len(h), r.retryAll())
	require.Positive(t, r.dirty, "the reconciler offers those outside of the window")
	open, err := r.store.OpenJobs(t.Context(), r.consumer.No, ident.ID{}, 2000)
	require.NoError(t, err)
	for _, j := range open {
		require.LessOrEqual(t, j.NextMs, time.Now().UnixMilli())
	}
}

// purgeAll makes all steps of a purge.
func (r *rig) purgeAll(p *Purge) (n int) {
	r.t.Helper()
	p.Consumer = &r.consumer
	if p.Through.IsZero() {
		p.Through = ident.Max()
	}
	for !p.Done() {
		ended, err := r.Purge(r.t.Context(), p)
		require.NoError(r.t, err)
		n += ended
	}
	return n
}

func TestAPurgeEndsWhatIsQueuedAndLeavesWhatIsInFlight(t *testing.T) {
	r := newRig(t)
	died := 0
	r.Died = func(reason durable.Reason, n int) {
		require.Equal(t, durable.QueuePurged, reason)
		died += n
	}
	h := r.publish(1300)
	r.present(h[:4])
	r.delay(h[:2], time.Hour) // h[2] and h[3] stay leased
	r.record(durable.OutcomeDelivered, h[4], 1, 0)
	r.record(durable.OutcomeDead, h[5], 1, 0)
	later := r.publish(1)[0]
	require.Equal(t, 1296, r.purgeAll(&Purge{Through: h[len(h)-1].ID}))
	require.Equal(t, 1296, died)
	require.Equal(t, []string{Dead, Dead, InFlight, InFlight, Delivered, Dead, Dead, Queued}, []string{r.status(h[0]),
		r.status(h[1]), r.status(h[2]), r.status(h[3]), r.status(h[4]), r.status(h[5]), r.status(h[1299]), r.status(later)})
	states, err := r.States(t.Context(), r.consumer.No, []ident.ID{h[0].ID, h[5].ID, h[1299].ID})
	require.NoError(t, err)
	require.Equal(t, []durable.Reason{durable.QueuePurged, durable.NoReason, durable.QueuePurged},
		[]durable.Reason{states[0].Reason, states[1].Reason, states[2].Reason})
	require.Equal(t, []int{1, 0}, []int{states[0].Attempts, states[2].Attempts})
	require.Empty(t, r.claim(), "nothing of it is left in the queue")
	r.present(h)
	require.Empty(t, r.claim(), "and nothing comes back")
	require.Zero(t, r.purgeAll(&Purge{Through: h[len(h)-1].ID}))
	moved, err := r.RedriveAll(t.Context(), r.consumer.No)
	require.NoError(t, err)
	require.Equal(t, 1297, moved, "a redrive by request brings them back")
}

func TestAForgottenJobIsNotListedAndNotRedriven(t *testing.T) {
	r := newRig(t)
	h := r.publish(3)
	r.present(h)
	require.Equal(t, 3, r.purgeAll(&Purge{Forget: true}))
	dead, err := r.store.DeadJobs(t.Context(), r.consumer.No, ident.ID{}, 10)
	require.NoError(t, err)
	require.Empty(t, dead)
	moved, err := r.RedriveAll(t.Context(), r.consumer.No)
	require.NoError(t, err)
	require.Zero(t, moved)
}

// A store that fails, before or after the ends are stored.
type brokenStore struct {
	Store
	after bool
}

func (s brokenStore) Record(ctx context.Context, outcomes []durable.Outcome) error {
	if s.after {
		if err := s.Store.Record(ctx, outcomes); err != nil {
			return err
		}
	}
	return errors.New("no answer")
}

func TestAPurgeThatBrokeOffLosesNothingAndIsRepeated(t *testing.T) {
	for _, after := range []bool{false, true} {
		r := newRig(t)
		h := r.publish(3)
		r.present(h)
		whole := r.Store
		r.Store = brokenStore{whole, after}
		p := &Purge{Consumer: &r.consumer, Through: ident.Max()}
		_, err := r.Purge(t.Context(), p)
		if err == nil {
			_, err = r.Purge(t.Context(), p)
		}
		require.Error(t, err)
		r.Store = whole
		require.Zero(t, r.purgeAll(&Purge{}), "the jobs are leased to the broken step")
		r.server.FlushAll() // its leases are over
		n, want := r.purgeAll(&Purge{}), 3
		if after {
			want = 0
		}
		require.Equal(t, want, n)
		for _, one := range h {
			require.Equal(t, Dead, r.status(one))
		}
	}
}

// list returns the messages of all pages of a list.
func (r *rig) list(of Listing) (ids []ident.ID, pages int) {
	r.t.Helper()
	l := &Lister{Store: r.store, Queue: r.queue, NowMs: r.NowMs}
	of.Consumer = &r.consumer
	for pages = 1; ; pages++ {
		page, next, err := l.List(r.t.Context(), of)
		require.NoError(r.t, err)
		require.LessOrEqual(r.t, len(page), of.Limit)
		for _, j := range page {
			ids = append(ids, j.Row.ID)
		}
		if of.From = next; next.IsZero() {
			return ids, pages
		}
	}
}

// complete tells Redis that it has all.
func (r *rig) complete() {
	r.t.Helper()
	stats, err := r.queue.Stats(r.t.Context(), r.consumer.No)
	require.NoError(r.t, err)
	require.NoError(r.t, r.queue.Complete(r.t.Context(), r.consumer.No, stats.Epoch))
}

func idsOf(heads []durable.Head, at ...int) []ident.ID {
	var out []ident.ID
	for _, i := range at {
		out = append(out, heads[i].ID)
	}
	return out
}

func TestJobsAreListedByTheirStatusWhoeverKnowsThem(t *testing.T) {
	for _, whole := range []bool{true, false} {
		r := newRig(t)
		h := r.publish(8)
		r.present(h[:5])
		r.delay(h[1:3], time.Hour) // 0, 3 and 4 are leased
		r.record(durable.OutcomeDelivered, h[5], 1, 0)
		r.record(durable.OutcomeDead, h[6], 1, 0)
		r.present(h[7:])
		if whole {
			r.complete()
		}
		for status, want := range map[string][]int{Queued: {1, 2, 7}, Delayed: {1, 2}, InFlight: {0, 3, 4},
			"": {0, 1, 2, 3, 4, 7}} {
			for _, limit := range []int{1, 2, 3, 10} {
				got, _ := r.list(Listing{Status: status, Limit: limit})
				require.Equal(t, idsOf(h, want...), got, "%s, %d a page, whole: %t", status, limit, whole)
				got, _ = r.list(Listing{Status: status, Limit: limit, Back: true})
				back := make([]int, len(want))
				for i := range want {
					back[len(want)-1-i] = want[i]
				}
				require.Equal(t, idsOf(h, back...), got, "%s, backwards, whole: %t", status, whole)
			}
			got, _ := r.list(Listing{Status: status, Limit: 5, From: h[7].ID})
			require.Len(t, got, map[string]int{Queued: 1, "": 1}[status])
		}
		_, settled := h[2], h[2].ID
		_, err := r.store.SaveWatermarks(t.Context(), durable.Clock{}, []durable.Settled{{ConsumerNo: r.consumer.No,
			Through: settled}})
		require.NoError(t, err)
		got, _ := r.list(Listing{Status: Queued, Limit: 2})
		require.Equal(t, idsOf(h, 1, 2, 7), got, "rows of open jobs up to the watermark, messages behind it")
		got, _ = r.list(Listing{Status: Queued, Limit: 1, Back: true})
		require.Equal(t, idsOf(h, 7, 2, 1), got)
	}
}

// A backlog above the window is listed from the store, and a page ends although more messages follow.
func TestALongBacklogIsListedWhole(t *testing.T) {
	r := newRig(t)
	h := r.publish(listScan + 150)
	r.present(h) // the window has 100
	for _, one := range h[:listScan+20] {
		r.record(durable.OutcomeDelivered, one, 1, 0)
	}
	got, pages := r.list(Listing{Status: Queued, Limit: 100})
	require.Len(t, got, 130)
	require.Equal(t, h[listScan+20].ID, got[0])
	require.Equal(t, 3, pages, "one looks at delivered ones only")
	got, _ = r.list(Listing{Status: Queued, Limit: 100, Back: true})
	require.Equal(t, h[len(h)-1].ID, got[0])
	require.Len(t, got, 130)
}

// A counter is a store whose methods, of which each is one statement, count their calls.
type counter struct {
	*durable.Store
	n *int
}

func (c counter) Settled(ctx context.Context, no uint32) (ident.ID, error) {
	*c.n++
	return c.Store.Settled(ctx, no)
}

func (c counter) JobRows(ctx context.Context, k *durable.Consumer, r durable.IDRange, limit int) ([]durable.JobRow,
	error) {
	*c.n++
	return c.Store.JobRows(ctx, k, r, limit)
}

func (c counter) OpenRows(ctx context.Context, k *durable.Consumer, r durable.IDRange, limit int) ([]durable.JobRow,
	error) {
	*c.n++
	return c.Store.OpenRows(ctx, k, r, limit)
}

func (c counter) JobRowsOf(ctx context.Context, k *durable.Consumer, ids []ident.ID) ([]durable.JobRow, error) {
	*c.n++
	return c.Store.JobRowsOf(ctx, k, ids)
}

func (c counter) OldestOpen(ctx context.Context) (map[uint32]ident.ID, error) {
	*c.n++
	return c.Store.OldestOpen(ctx)
}

func (c counter) DeadOfAll(ctx context.Context) (map[uint32]int, error) {
	*c.n++
	return c.Store.DeadOfAll(ctx)
}

// A list of jobs, and the counts of all consumers, take three statements at most, however much is stored.
// The version of the catalogue, which each request asks for, comes on top.
func TestListsTakeThreeStatementsAtMost(t *testing.T) {
	for _, whole := range []bool{true, false} {
		r := newRig(t)
		h := r.publish(1200)
		r.present(h[:50])
		r.delay(h[:20], time.Hour)
		if whole {
			r.complete()
		}
		n := 0
		l := &Lister{Store: counter{r.store, &n}, Queue: r.queue, NowMs: r.NowMs}
		for _, status := range []string{"", Queued, Delayed, InFlight} {
			for _, back := range []bool{false, true} {
				n = 0
				_, _, err := l.List(t.Context(), Listing{Consumer: &r.consumer, Status: status, Back: back, Limit: 100})
				require.NoError(t, err)
				require.LessOrEqual(t, n, 3, "%q, whole: %t", status, whole)
				require.Positive(t, n)
			}
		}
		n = 0
		o := &Overview{Store: counter{r.store, &n}, Queue: r.queue}
		counts, err := o.Counts(t.Context(), []uint32{r.consumer.No, r.consumer.No + 1})
		require.NoError(t, err)
		require.Equal(t, 2, n, "for all consumers")
		require.Equal(t, []int{20, 30, 0}, []int{counts[0].Queued, counts[0].InFlight, counts[1].Queued})
	}
}

// A job that others of a higher priority keep back is the oldest one all the same.
func TestTheOldestJobIsThatOfAnyPriority(t *testing.T) {
	r := newRig(t)
	h := r.publish(1)
	later := ident.AtMillis(h[0].ID.Millis() + 1000)
	for _, job := range []redisq.Job{{ID: h[0].ID, Priority: 0}, {ID: later, Priority: 9},
		{ID: later.Next(), Priority: 5}} {
		_, err := r.queue.Enqueue(t.Context(), r.consumer.No, []redisq.Job{job}, redisq.Fresh)
		require.NoError(t, err)
	}
	heads, err := r.queue.OldestReady(t.Context(), []uint32{r.consumer.No, r.consumer.No + 1})
	require.NoError(t, err)
	require.Equal(t, []int64{h[0].ID.Millis(), 0}, heads)
}

// An asked is a queue that notes about which consumers it was asked.
type asked struct {
	*redisq.Queue
	of []uint32
}

func (a *asked) StatsMany(ctx context.Context, consumers []uint32) ([]redisq.Stats, []error) {
	a.of = append(a.of, consumers...)
	return a.Queue.StatsMany(ctx, consumers)
}

// Redis is asked at regular times about the consumers that may have a job, and about no others.
func TestIdleConsumersCostRedisNothing(t *testing.T) {
	r := newRig(t)
	q := &asked{Queue: r.queue}
	o := &Overview{Store: r.store, Queue: q}
	count := func() Count {
		q.of = nil
		got, err := o.CountsOfAll(t.Context(), []*durable.Consumer{&r.consumer})
		require.NoError(t, err)
		return got[0]
	}
	require.Equal(t, Count{Known: true}, count(), "its channel has no message")
	require.Empty(t, q.of)
	h := r.publish(2)
	r.present(h)
	require.Equal(t, 2, count().Queued)
	require.Equal(t, []uint32{r.consumer.No}, q.of)

	settle := func(through ident.ID) {
		_, err := r.store.SaveWatermarks(t.Context(), durable.Clock{}, []durable.Settled{{ConsumerNo: r.consumer.No,
			Through: through}})
		require.NoError(t, err)
	}
	r.record(durable.OutcomeDelivered, h[0], 1, 0)
	r.record(durable.OutcomeRetry, h[1], 1, time.Hour)
	settle(h[1].ID)
	count()
	require.Equal(t, []uint32{r.consumer.No}, q.of, "a job has a row")
	r.record(durable.OutcomeDead, h[1], 2, 0)
	require.Equal(t, Count{Backlog: Backlog{Dead: 1}, Known: true}, count())
	require.Empty(t, q.of, "all is over")
	r.publish(1)
	count()
	require.Equal(t, []uint32{r.consumer.No}, q.of, "a new message")
}
