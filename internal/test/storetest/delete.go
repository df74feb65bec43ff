package storetest

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

var deleteTests = map[string]func(*testing.T, *fixture){
	"a deleted consumer keeps its position and gives its ID away": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 2)
		old, m := ks[0], f.message(ch)
		f.insert(t, m)
		f.mark(t, map[uint32]ident.ID{old.No: m.ID, ks[1].No: m.ID})
		f.failed(t, old, m, 1, m.ID.Millis(), 5)
		before, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)

		gone, err := f.DeleteConsumer(f.ctx, "c", durable.Put{ID: old.ID})
		require.NoError(t, err)
		require.True(t, gone.Deleted())
		require.True(t, gone.Held())
		require.Equal(t, old.Position, gone.Position)
		require.Empty(t, gone.Token+gone.Policy, "secrets go")
		require.True(t, gone.Concerns(m.Head()))
		require.False(t, gone.Concerns(durable.Head{ID: gone.Until.Next(), Audience: 9}))
		require.False(t, ks[1].Deleted())
		c, err := f.Changes(f.ctx, before.Version)
		require.NoError(t, err)
		require.Equal(t, []durable.Consumer{gone}, c.Consumers)
		require.Equal(t, gone, f.consumerState(t, old.No))
		marks, err := f.Watermarks(f.ctx)
		require.NoError(t, err)
		require.Equal(t, map[uint32]ident.ID{ks[1].No: m.ID}, marks)

		_, err = f.DeleteConsumer(f.ctx, "c", durable.Put{ID: old.ID})
		require.ErrorIs(t, err, durable.ErrNotFound)
		_, err = f.DeleteConsumer(f.ctx, "none", durable.Put{ID: old.ID})
		require.ErrorIs(t, err, durable.ErrNotFound)
		_, _, err = f.SetConsumerState(f.ctx, pause(gone))
		require.ErrorIs(t, err, durable.ErrNotFound)
		require.False(t, f.failed(t, old, m, 2, m.ID.Millis(), 0), "a deleted consumer does not become dead")

		for range 3 { // the same ID again and again
			next, created, err := f.PutConsumer(f.ctx, consumerPut("c", old.ID))
			require.NoError(t, err)
			require.True(t, created)
			require.Greater(t, next.No, ks[1].No)
			ch.Audience++
			ch.Shape++ // the deletion before
			require.Equal(t, ch.Audience-1, next.Position)
			require.False(t, next.Concerns(m.Head()), "it gets nothing from before")
			f.insert(t, f.message(ch))
			_, err = f.DeleteConsumer(f.ctx, "c", durable.Put{ID: old.ID})
			require.NoError(t, err)
		}
	},
	"open jobs of a deleted consumer are dead, and late outcomes count": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		in := f.messages(ch, 4)
		f.insert(t, in...)
		f.end(t, ks[0], durable.OutcomeRetry, in[1])
		f.end(t, ks[0], durable.OutcomeDead, in[2])
		gone, err := f.DeleteConsumer(f.ctx, "c", durable.Put{ID: ks[0].ID})
		require.NoError(t, err)
		require.LessOrEqual(t, in[3].ID.Compare(gone.Until), 0)
		f.end(t, ks[0], durable.OutcomeDelivered, in[3]) // it was in flight
		states, err := f.JobStates(f.ctx, gone.No, ids(in))
		require.NoError(t, err)
		for i, want := range []durable.JobState{
			{Status: durable.Dead, Reason: durable.ConsumerDeleted}, {Status: durable.Dead, Reason: durable.ConsumerDeleted},
			{Status: durable.Dead, Reason: states[in[2].ID].Reason}, {Status: durable.Delivered},
		} {
			j := gone.Derive(states[in[i].ID])
			require.Equal(t, want.Status, j.Status, i)
			require.Equal(t, want.Reason, j.Reason, i)
			if j.Reason == durable.ConsumerDeleted {
				require.Equal(t, gone.StateMs, j.ChangedMs)
			}
		}
		require.Equal(t, durable.Waiting, ks[0].Derive(durable.JobState{}).Status)
	},
	"jobs of deleted consumers keep no message": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 2)
		in := f.messages(ch, 4)
		f.insert(t, in...)
		f.end(t, ks[0], durable.OutcomeDead, in[0])
		f.end(t, ks[0], durable.OutcomeRetry, in[1])
		f.end(t, ks[1], durable.OutcomeDelivered, in[:3]...)
		p := durable.Purge{ChannelNo: ch.No, Consumers: consumers(ks), Through: ident.Max(), Limit: 10}
		got, err := f.Purge(f.ctx, p)
		require.NoError(t, err)
		require.Zero(t, got.Removed)
		ks[0], err = f.DeleteConsumer(f.ctx, "c", durable.Put{ID: ks[0].ID})
		require.NoError(t, err)
		p.Consumers = consumers(ks)
		got, err = f.Purge(f.ctx, p)
		require.NoError(t, err)
		require.Equal(t, durable.Purged{Last: ident.Max(), Removed: 3, Kept: 1}, got)
		f.requireOnly(t, ch, ks, in, in[3:])
	},
	"a purge by a copy that takes more for deleted than the store removes nothing": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 2)
		in := f.messages(ch, 2)
		f.insert(t, in...)
		f.end(t, ks[0], durable.OutcomeDelivered, in...)
		p := durable.Purge{ChannelNo: ch.No, Through: ident.Max(), Limit: 10}
		copied, unknown := ks[1], ks[1]
		copied.State, unknown.No = durable.StateDeleted, ks[1].No+100
		for what, refused := range map[string]durable.Purge{
			"a consumer":                      {Consumers: []*durable.Consumer{&ks[0], &copied}},
			"a consumer that the store lacks": {Consumers: []*durable.Consumer{&ks[0], &unknown}},
			"the channel":                     {Consumers: consumers(ks), Deleted: true},
			"a channel that the store lacks":  {ChannelNo: ch.No + 100},
		} {
			refused.ChannelNo, refused.Through, refused.Limit = max(p.ChannelNo, refused.ChannelNo), p.Through, p.Limit
			_, err := f.Purge(f.ctx, refused)
			require.ErrorIs(t, err, durable.ErrStale, what)
		}
		f.requireOnly(t, ch, ks, in, in)
		var err error
		ks[1], err = f.DeleteConsumer(f.ctx, "c", durable.Put{ID: ks[1].ID})
		require.NoError(t, err)
		p.Consumers = consumers(ks)
		got, err := f.Purge(f.ctx, p)
		require.NoError(t, err)
		require.Equal(t, 2, got.Removed)
	},
	"a channel without consumers can be deleted, and takes no message of any broker": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		m := f.message(ch)
		m.Key = "key"
		f.insert(t, m)
		_, err := f.DeleteChannel(f.ctx, durable.Put{ID: "c"})
		require.ErrorIs(t, err, durable.ErrHasConsumers)
		f.insert(t, f.message(ch))
		_, err = f.DeleteConsumer(f.ctx, "c", durable.Put{ID: ks[0].ID})
		require.NoError(t, err)
		gone, err := f.DeleteChannel(f.ctx, durable.Put{ID: "c"})
		require.NoError(t, err)
		require.True(t, gone.Deleted)
		for _, key := range []string{"", "other"} {
			late := f.message(ch)
			late.Key = key
			require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{late})[0], durable.ErrStale)
			require.Empty(t, f.stored(t, []*durable.Message{late}))
		}
		_, err = f.DeleteChannel(f.ctx, durable.Put{ID: "c"})
		require.ErrorIs(t, err, durable.ErrNotFound)
		_, _, err = f.SetChannelPaused(f.ctx, "c", false)
		require.ErrorIs(t, err, durable.ErrNotFound)
		_, _, err = f.PutConsumer(f.ctx, consumerPut("c", "k"))
		require.ErrorIs(t, err, durable.ErrNotFound)

		again, _ := f.channel(t, "c", 1)
		require.NotEqual(t, ch.No, again.No)
		require.False(t, again.Deleted || again.Paused)
		same := f.message(again)
		same.Key = "key"
		f.insert(t, same)
		c, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		require.Len(t, c.Channels, 2)
		require.True(t, c.Channels[0].Deleted && c.Channels[0].Paused)
		require.Equal(t, gone, c.Channels[0])
	},
	"after the deletion of a producer only brokers that know of it insert": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 0)
		old, _, err := f.PutProducer(f.ctx, durable.Put{ID: "p", NewToken: "t", PublishSecret: ptr("secret")})
		require.NoError(t, err)
		known, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		f.node.Known = known.Version
		f.insert(t, f.message(ch))
		gone, err := f.DeleteProducer(f.ctx, durable.Put{ID: "p"})
		require.NoError(t, err)
		require.True(t, gone.Deleted)
		require.Empty(t, gone.PublishSecret)
		late := f.message(ch)
		require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{late})[0], durable.ErrStale)
		require.Empty(t, f.stored(t, []*durable.Message{late}))
		renewed, err := f.RenewNode(f.ctx, f.node, time.Minute)
		require.NoError(t, err)
		require.ErrorIs(t, f.Insert(f.ctx, renewed, []*durable.Message{f.message(ch)})[0], durable.ErrStale,
			"a renewal is no knowledge")
		fresh, err := f.LeaseNode(f.ctx, "another number", time.Minute)
		require.NoError(t, err)
		require.NotEqual(t, f.node.No, fresh.No)
		fresh.Known = known.Version
		require.ErrorIs(t, f.Insert(f.ctx, fresh, []*durable.Message{f.message(ch)})[0], durable.ErrStale,
			"nor is a new number")
		f.node.Known = gone.Version
		f.insert(t, f.message(ch))

		_, err = f.DeleteProducer(f.ctx, durable.Put{ID: "p"})
		require.ErrorIs(t, err, durable.ErrNotFound)
		again, created, err := f.PutProducer(f.ctx, durable.Put{ID: "p", NewToken: "t"})
		require.NoError(t, err)
		require.True(t, created)
		require.NotEqual(t, old.No, again.No)
		c, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		require.Equal(t, []durable.Producer{gone, again}, c.Producers)
	},
	"one of several deletions wins, and none of a revision that has passed": func(t *testing.T, f *fixture) {
		_, ks := f.channel(t, "c", 1)
		p, _, err := f.PutProducer(f.ctx, durable.Put{ID: "p", NewToken: "t"})
		require.NoError(t, err)
		stale := ks[0].ChangedAt.Add(-time.Second)
		_, err = f.DeleteConsumer(f.ctx, "c", durable.Put{ID: ks[0].ID, Revision: stale})
		require.ErrorIs(t, err, durable.ErrPrecondition)
		_, err = f.DeleteChannel(f.ctx, durable.Put{ID: "c", UnmodifiedSince: stale.Add(-time.Minute)})
		require.ErrorIs(t, err, durable.ErrPrecondition)
		_, err = f.DeleteProducer(f.ctx, durable.Put{ID: "p", Exists: ptr(false)})
		require.ErrorIs(t, err, durable.ErrPrecondition)
		for _, remove := range []func() error{
			func() error {
				_, err := f.DeleteConsumer(f.ctx, "c", durable.Put{ID: ks[0].ID, Revision: ks[0].ChangedAt})
				return err
			},
			func() error { _, err := f.DeleteChannel(f.ctx, durable.Put{ID: "c"}); return err },
			func() error {
				_, err := f.DeleteProducer(f.ctx, durable.Put{ID: "p", Revision: p.ChangedAt})
				return err
			},
		} {
			var won atomic.Int32
			race(5, func(int) {
				err := remove()
				if err == nil {
					won.Add(1)
				} else if !errors.Is(err, durable.ErrNotFound) {
					require.NoError(t, err)
				}
			})
			require.EqualValues(t, 1, won.Load())
		}
	},
	"dead letters that were disposed of are not counted": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		in := f.messages(ch, 3)
		f.insert(t, in...)
		f.end(t, ks[0], durable.OutcomeDead, in...)
		heads := f.deadHeads(t, ks[0].No)
		require.NoError(t, f.Dispose(f.ctx, ks[0].No, heads[:2], durable.Discarded))
		b, err := f.Backlog(f.ctx, ks[0], 100)
		require.NoError(t, err)
		require.Equal(t, 1, b.Dead)
	},
}
