package reaper

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// deleteConsumer deletes the consumer of the rig, and lets the catalogue know.
func (r *rig) deleteConsumer() {
	r.t.Helper()
	_, err := r.store.DeleteConsumer(r.t.Context(), "c", durable.Put{ID: "k"})
	require.NoError(r.t, err)
	require.NoError(r.t, r.catalogue.Refresh(r.t.Context()))
}

func (r *rig) keys() (n int) {
	for _, key := range r.queue.Keys(r.consumer.No) {
		if r.server.Exists(key) {
			n++
		}
	}
	return n
}

func TestNothingIsDoneForADeletedConsumerAndItsKeysGo(t *testing.T) {
	r := newRig(t, 100, nil)
	r.publish(0, 0, 3)
	r.round()
	r.claim(1, time.Millisecond)
	r.Touch(r.consumer.No)
	require.NotZero(t, r.keys())
	r.deleteConsumer()

	require.NoError(t, r.forgetDue(t.Context()))
	require.Zero(t, r.keys())
	r.publish(0)
	require.False(t, r.round())
	time.Sleep(10 * time.Millisecond) // the lease is over
	require.NoError(t, r.reclaim(t.Context(), r.consumer.No))
	require.NoError(t, r.advanceWatermarks(t.Context()))
	require.NoError(t, (&sweeper{Reaper: r.Reaper, swept: map[uint32]*swept{}}).round(t.Context()))
	r.Lost(r.consumer.No)
	require.Zero(t, r.keys())
	require.Empty(t, r.scanStates)
	require.Empty(t, r.watch)
	require.Empty(t, r.resting)
	dead, err := r.store.DeadJobs(t.Context(), r.consumer.No, ident.ID{}, 10)
	require.NoError(t, err)
	require.Empty(t, dead, "no row is written for an open job")
}

// A store that was restored from a backup may give the number of a consumer that was lost to a new one.
func TestKeysOfANumberThatIsUsedAgainStay(t *testing.T) {
	r := newRig(t, 100, nil)
	r.publish(0)
	r.round()
	lost := r.consumer
	lost.State = durable.StateDeleted
	r.learn(&lost)
	r.learn(&r.consumer)
	require.NoError(t, r.forgetDue(t.Context()))
	require.NotZero(t, r.keys())
}

func TestKeysOfADeletedConsumerAreRemovedAgain(t *testing.T) {
	r := newRig(t, 100, nil) // its clock is a minute ahead
	r.publish(0)
	r.round()
	r.deleteConsumer()
	deleted := r.catalogue.ConsumerByNo(r.consumer.No).StateMs
	due := func(age time.Duration) int { return len(r.dueToForget(deleted + age.Milliseconds())) }
	require.Zero(t, due(2*time.Second), "not every broker has noticed")
	require.Equal(t, 1, due(3*time.Second))
	require.NoError(t, r.forgetDue(t.Context()))
	require.Zero(t, due(69*time.Minute))
	require.Equal(t, 1, due(70*time.Minute), "what an attempt that was in flight has made")
	r.departed.at[r.consumer.No] = deleted + (3 * time.Second).Milliseconds()
	require.Equal(t, 1, due(time.Minute))

	restarted := newRig(t, 100, func(o *Options) { o.Catalogue, o.Store = r.catalogue, r.store })
	require.Len(t, restarted.dueToForget(deleted+time.Hour.Milliseconds()), 1,
		"a process that starts does not know what was done")
}

func TestMessagesOfADeletedChannelGoAtOnce(t *testing.T) {
	for _, retention := range []time.Duration{0, time.Hour} {
		r, p := newRetention(t, retention)
		ids := r.publish(0, 5, 0)
		require.NoError(t, p.round(t.Context()))
		require.Equal(t, 3, r.left(ids))
		r.deleteConsumer()
		require.NoError(t, p.round(t.Context()))
		require.Equal(t, 3, r.left(ids), "they are kept like any message")
		_, err := r.store.DeleteChannel(t.Context(), durable.Put{ID: "c"})
		require.NoError(t, err)
		require.NoError(t, r.catalogue.Refresh(t.Context()))
		p.began = time.Time{}
		require.NoError(t, p.round(t.Context()))
		require.Zero(t, r.left(ids))

		// Rows of attempts that were in flight follow when all of them have ended.
		late := durable.Outcome{Kind: durable.OutcomeDelivered, ConsumerNo: r.consumer.No, ID: ids[0], Attempts: 1,
			AtMs: r.NowMs()}
		require.NoError(t, r.store.Record(t.Context(), []durable.Outcome{late}))
		require.NoError(t, p.round(t.Context()))
		ch := r.catalogue.ChannelByNo(r.channel.No)
		require.False(t, p.emptied[ch.No])
		ch.Consumers[0].StateMs -= (2 * time.Hour).Milliseconds()
		require.NoError(t, p.round(t.Context()))
		require.True(t, p.emptied[ch.No])
		states, err := r.store.JobStates(t.Context(), r.consumer.No, ids)
		require.NoError(t, err)
		require.Empty(t, states)
	}
}
