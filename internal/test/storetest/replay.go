package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

var replayTests = map[string]func(*testing.T, *fixture){
	"a replay is kept as it was created": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		k := ks[0]
		want := durable.Replay{ChannelNo: ch.No, ConsumerNo: k.No, After: ident.Before(1000), Through: ident.Before(9000),
			Of:     durable.ReplayAll,
			Filter: "headers['x-ä'] == '\\'' && payload.n > 1.5", Rate: "10/1s", RemovedMs: 7, Matched: 8, Bytes: 9,
			Estimated: true}
		made, err := f.CreateReplay(f.ctx, want)
		require.NoError(t, err)
		want.No, want.Settled, want.CreatedMs, want.StateMs, want.Version = made.No, want.After, made.CreatedMs, made.StateMs,
			made.Version
		require.Equal(t, want, made)
		got, err := f.Replay(f.ctx, made.No)
		require.NoError(t, err)
		require.Equal(t, made, got)
		running, err := f.CreateReplay(f.ctx, want)
		require.ErrorIs(t, err, durable.ErrReplayRunning)
		require.Equal(t, made, running)
		changes, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		require.Equal(t, []durable.Replay{made}, changes.Replays)

		_, err = f.SetReplayState(f.ctx, made.No, durable.ReplayCancelled)
		require.NoError(t, err)
		_, err = f.SetReplayState(f.ctx, made.No, durable.ReplayRunning)
		require.ErrorIs(t, err, durable.ErrReplayEnded)
		next, err := f.CreateReplay(f.ctx, want)
		require.NoError(t, err)
		require.Greater(t, next.No, made.No)
		all, err := f.Replays(f.ctx, k, 1<<32-1, 10)
		require.NoError(t, err)
		require.Len(t, all, 2)
		require.Equal(t, next.No, all[0].No, "the newest first")
	},
	"the progress of a replay is counted once": func(t *testing.T, f *fixture) {
		r, in := f.replay(t, 6)
		f.record(t, delivered(r.No, in[0].ID, 1, 5), dead(r.No, in[1].ID, 6, 5), retry(r.No, in[2].ID, 1, 5))
		moved, err := f.AdvanceReplay(f.ctx, r.No, r.Settled, in[2].ID, 3, 30)
		require.NoError(t, err)
		require.True(t, moved)
		moved, err = f.AdvanceReplay(f.ctx, r.No, r.Settled, in[2].ID, 3, 30)
		require.NoError(t, err)
		require.False(t, moved, "another broker was faster")
		f.record(t, delivered(r.No, in[4].ID, 1, 5))
		n, err := f.ReplayCounts(f.ctx, &r)
		require.NoError(t, err)
		require.Equal(t, durable.ReplayCounts{Replayed: 4, Delivered: 2, Dead: 1}, n)
		list, err := f.DeadJobs(f.ctx, r.No, ident.ID{}, 10)
		require.NoError(t, err)
		require.Equal(t, []ident.ID{in[1].ID}, deadIDs(list))
		list, err = f.DeadJobs(f.ctx, r.ConsumerNo, ident.ID{}, 10)
		require.NoError(t, err)
		require.Empty(t, list, "the jobs of the consumer are as they were")

		f.record(t, delivered(r.No, in[2].ID, 2, 6))
		moved, err = f.AdvanceReplay(f.ctx, r.No, in[2].ID, r.Through, 1, 10)
		require.NoError(t, err)
		require.True(t, moved)
		done, err := f.SetReplayState(f.ctx, r.No, durable.ReplayDone)
		require.NoError(t, err)
		require.Equal(t, [5]int64{4, 40, 3, 1, 4}, [5]int64{done.Jobs, done.JobBytes, done.Delivered, done.Dead,
			done.Matched})
		moved, err = f.AdvanceReplay(f.ctx, r.No, done.Settled, ident.Max(), 1, 1)
		require.NoError(t, err)
		require.False(t, moved, "it has ended")
	},
	"a replay that is done counts what another broker offered": func(t *testing.T, f *fixture) {
		r, in := f.replay(t, 3)
		moved, err := f.AdvanceReplay(f.ctx, r.No, r.Settled, r.Through, 1, 10) // it found one job
		require.NoError(t, err)
		require.True(t, moved)
		f.record(t, delivered(r.No, in[0].ID, 1, 5), delivered(r.No, in[1].ID, 1, 5), dead(r.No, in[2].ID, 6, 5))
		done, err := f.SetReplayState(f.ctx, r.No, durable.ReplayDone)
		require.NoError(t, err)
		require.Equal(t, [3]int64{2, 1, 3}, [3]int64{done.Delivered, done.Dead, done.Matched})
	},
	"a replay that is done counts what a purge removed meanwhile": func(t *testing.T, f *fixture) {
		r, in := f.replay(t, 3)
		ks, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		f.record(t, delivered(r.No, in[0].ID, 1, 5), delivered(r.No, in[1].ID, 1, 5))
		_, err = f.AdvanceReplay(f.ctx, r.No, r.Settled, in[1].ID, 2, 20)
		require.NoError(t, err)
		got, err := f.Purge(f.ctx, durable.Purge{ChannelNo: r.ChannelNo, Consumers: consumers(ks.Consumers),
			Through: in[1].ID, Limit: 100})
		require.NoError(t, err)
		require.Equal(t, 2, got.Removed)
		f.record(t, delivered(r.No, in[2].ID, 1, 5))
		_, err = f.AdvanceReplay(f.ctx, r.No, in[1].ID, r.Through, 1, 10)
		require.NoError(t, err)
		done, err := f.SetReplayState(f.ctx, r.No, durable.ReplayDone)
		require.NoError(t, err)
		require.Equal(t, [3]int64{3, 0, 3}, [3]int64{done.Delivered, done.Dead, done.Matched})
	},
	"a purge keeps the messages that a replay has before it": func(t *testing.T, f *fixture) {
		r, in := f.replay(t, 4)
		ks, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		_, err = f.AdvanceReplay(f.ctx, r.No, r.Settled, in[1].ID, 0, 0)
		require.NoError(t, err)
		f.record(t, delivered(r.No, in[0].ID, 1, 5), dead(r.No, in[1].ID, 1, 5))
		p := durable.Purge{ChannelNo: r.ChannelNo, Consumers: consumers(ks.Consumers), Through: in[3].ID, Limit: 100}
		got, err := f.Purge(f.ctx, p)
		require.NoError(t, err)
		require.Equal(t, durable.Purged{Last: in[3].ID, Removed: 2, Kept: 2}, got)
		list, err := f.DeadJobs(f.ctx, r.No, ident.ID{}, 10)
		require.NoError(t, err)
		require.Empty(t, list, "the outcomes of the replay go with the messages")
		_, err = f.SetReplayState(f.ctx, r.No, durable.ReplayCancelled)
		require.NoError(t, err)
		got, err = f.Purge(f.ctx, p)
		require.NoError(t, err)
		require.Equal(t, durable.Purged{Last: in[3].ID, Removed: 2}, got)
	},
}

// replay returns a replay of n messages, which are delivered.
func (f *fixture) replay(t *testing.T, n int) (durable.Replay, []*durable.Message) {
	t.Helper()
	ch, ks := f.channel(t, "c", 1)
	in := f.messages(ch, n)
	f.insert(t, in...)
	for _, m := range in {
		f.record(t, delivered(ks[0].No, m.ID, 1, 4))
	}
	r, err := f.CreateReplay(f.ctx, durable.Replay{ChannelNo: ch.No, ConsumerNo: ks[0].No,
		After: ident.Before(in[0].ID.Millis()), Through: in[n-1].ID})
	require.NoError(t, err)
	return r, in
}
