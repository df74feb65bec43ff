package storetest

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// pause is the change of an active consumer.
func pause(k durable.Consumer) durable.StateChange {
	return durable.StateChange{ConsumerNo: k.No, From: []durable.ConsumerState{durable.StateActive},
		To: durable.StatePaused, Reason: "why"}
}

// failed records one failed attempt that counts, and returns whether it made the consumer dead.
func (f *fixture) failed(t *testing.T, k durable.Consumer, m *durable.Message, attempt int, atMs int64,
	after int) bool {
	t.Helper()
	rule := &durable.Tombstone{After: after, Window: time.Minute}
	require.NoError(t, f.Record(f.ctx, []durable.Outcome{{Kind: durable.OutcomeRetry, ConsumerNo: k.No, ID: m.ID,
		Attempts: attempt,
		AtMs:     atMs, NextMs: atMs, StatusCode: 500, Error: "status 500", Tombstone: rule}}))
	return rule.Tripped
}

// consumerState is the consumer as a broker learns it.
func (f *fixture) consumerState(t *testing.T, no uint32) durable.Consumer {
	t.Helper()
	c, err := f.Changes(f.ctx, 0)
	require.NoError(t, err)
	for _, k := range c.Consumers {
		if k.No == no {
			return k
		}
	}
	t.Fatal("no such consumer")
	return durable.Consumer{}
}

var stateTests = map[string]func(*testing.T, *fixture){
	"one of several brokers changes a state, and all learn it": func(t *testing.T, f *fixture) {
		_, ks := f.channel(t, "c", 1)
		k := f.consumerState(t, ks[0].No)
		require.Equal(t, ks[0], k)
		require.Equal(t, durable.StateActive, k.State)
		require.NotZero(t, k.StateMs)
		var changed atomic.Int32
		race(5, func(int) {
			got, won, err := f.SetConsumerState(f.ctx, pause(k))
			require.NoError(t, err)
			require.Equal(t, durable.StatePaused, got.State)
			if won {
				changed.Add(1)
			}
		})
		require.EqualValues(t, 1, changed.Load())
		after := f.consumerState(t, k.No)
		require.Equal(t, "why", after.StateReason)
		require.Greater(t, after.StateMs, k.StateMs)
		require.Greater(t, after.Version, k.Version)
		require.Equal(t, k.ChangedAt, after.ChangedAt, "a change of the state is no PUT")

		_, won, err := f.SetConsumerState(f.ctx, durable.StateChange{ConsumerNo: k.No,
			From:    []durable.ConsumerState{durable.StatePaused},
			SinceMs: k.StateMs, To: durable.StateGone})
		require.NoError(t, err)
		require.False(t, won, "the state is another one since")
		got, won, err := f.SetConsumerState(f.ctx, durable.StateChange{ConsumerNo: k.No,
			From:    []durable.ConsumerState{durable.StatePaused},
			SinceMs: after.StateMs, To: durable.StateGone, Reason: strings.Repeat("\u20ac", 300)})
		require.NoError(t, err)
		require.True(t, won)
		require.Equal(t, strings.Repeat("\u20ac", 170), got.StateReason, "cut between characters")
		require.Equal(t, got, f.consumerState(t, k.No))
		_, _, err = f.SetConsumerState(f.ctx, pause(durable.Consumer{No: 99}))
		require.ErrorIs(t, err, durable.ErrNotFound)

		put := consumerPut("c", k.ID)
		put.Name = ptr("renamed")
		kept, _, err := f.PutConsumer(f.ctx, put)
		require.NoError(t, err)
		require.Equal(t, durable.StateGone, kept.State, "a PUT changes no state")
		require.Equal(t, got.StateMs, f.consumerState(t, k.No).StateMs)
	},
	"a paused channel takes no message of any broker": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		other, _ := f.channel(t, "d", 1)
		f.insert(t, f.message(ch))
		paused, changed, err := f.SetChannelPaused(f.ctx, "c", true)
		require.NoError(t, err)
		require.True(t, changed)
		require.True(t, paused.Paused)
		require.Equal(t, 1, paused.Audience)
		_, changed, err = f.SetChannelPaused(f.ctx, "c", true)
		require.NoError(t, err)
		require.False(t, changed)
		for _, m := range []*durable.Message{f.message(ch), {Key: "key"}, {Priority: 7}} {
			whole := f.message(ch)
			whole.Key, whole.Priority = m.Key, m.Priority
			require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{whole})[0], durable.ErrStale)
			require.Empty(t, f.stored(t, []*durable.Message{whole}))
		}
		f.insert(t, f.message(other))
		kept, _, err := f.PutChannel(f.ctx, durable.Put{ID: "c", Name: ptr("renamed")})
		require.NoError(t, err)
		require.True(t, kept.Paused, "a PUT does not resume")
		_, changed, err = f.SetChannelPaused(f.ctx, "c", false)
		require.NoError(t, err)
		require.True(t, changed)
		f.insert(t, f.message(ch))
		_, _, err = f.SetChannelPaused(f.ctx, "none", true)
		require.ErrorIs(t, err, durable.ErrNotFound)
	},
	"failure N + 1 in the window makes a consumer dead, once": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 2)
		k, m := ks[0], f.message(ch)
		f.insert(t, m)
		now := m.ID.Millis() - 100_000
		require.False(t, f.failed(t, k, m, 1, now, 3))
		require.False(t, f.failed(t, k, m, 2, now, 3), "two in one millisecond are two")
		for range 3 {
			require.False(t, f.failed(t, k, m, 2, now, 3), "a repeated record is none")
		}
		require.False(t, f.failed(t, ks[1], m, 1, now, 3), "another consumer")
		require.False(t, f.failed(t, k, m, 3, now+30_000, 3))
		require.False(t, f.failed(t, k, m, 4, now+61_000, 3), "the first ones are outside of the window")
		require.NoError(t, f.Record(f.ctx, []durable.Outcome{{Kind: durable.OutcomeDelivered, ConsumerNo: k.No,
			ID: f.ids.Next(), Attempts: 1, AtMs: now}}))
		require.False(t, f.failed(t, k, m, 5, now+62_000, 3))
		require.Equal(t, durable.StateActive, f.consumerState(t, k.No).State)
		require.True(t, f.failed(t, k, m, 6, now+63_000, 3), "a success erases nothing")
		dead := f.consumerState(t, k.No)
		require.Equal(t, durable.StateDead, dead.State)
		require.Contains(t, dead.StateReason, "4 failures within 1m0s")
		require.Contains(t, dead.StateReason, m.ID.Job(k.Position).String())
		require.False(t, f.failed(t, k, m, 7, now+64_000, 3), "it is dead already")
		require.Equal(t, dead, f.consumerState(t, k.No))

		_, won, err := f.SetConsumerState(f.ctx, durable.StateChange{ConsumerNo: k.No,
			From: []durable.ConsumerState{durable.StateDead}, To: durable.StateActive, Forget: true})
		require.NoError(t, err)
		require.True(t, won)
		later := f.consumerState(t, k.No).StateMs + 1
		for n := range 3 {
			require.False(t, f.failed(t, k, m, 8+n, later+int64(n), 3), "a revival forgets the failures up to now")
		}
	},
	"racing brokers count every failure": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		batch := f.messages(ch, 8)
		f.insert(t, batch...)
		var tripped atomic.Int32
		race(8, func(i int) {
			if f.failed(t, ks[0], batch[i], 1, batch[0].ID.Millis()+int64(i), 7) {
				tripped.Add(1)
			}
		})
		require.EqualValues(t, 1, tripped.Load())
		require.Equal(t, durable.StateDead, f.consumerState(t, ks[0].No).State)
	},
	"one broker at a time may probe": func(t *testing.T, f *fixture) {
		_, ks := f.channel(t, "c", 1)
		now, err := f.NowMs(f.ctx)
		require.NoError(t, err)
		until := now + time.Hour.Milliseconds()
		taken, err := f.TakeProbe(f.ctx, ks[0].No, until)
		require.NoError(t, err)
		require.False(t, taken, "it is not revived")
		probing := durable.StateChange{ConsumerNo: ks[0].No, From: []durable.ConsumerState{durable.StateActive},
			To: durable.StateProbing}
		_, _, err = f.SetConsumerState(f.ctx, probing)
		require.NoError(t, err)
		var won atomic.Int32
		race(5, func(i int) {
			taken, err := f.TakeProbe(f.ctx, ks[0].No, until+int64(i))
			require.NoError(t, err)
			if taken {
				won.Add(1)
			}
		})
		require.EqualValues(t, 1, won.Load())
		require.NoError(t, f.ReturnProbe(f.ctx, ks[0].No, 1), "another one's stays")
		taken, err = f.TakeProbe(f.ctx, ks[0].No, now-1)
		require.NoError(t, err)
		require.False(t, taken)
		for i := range 5 {
			require.NoError(t, f.ReturnProbe(f.ctx, ks[0].No, until+int64(i)))
		}
		taken, err = f.TakeProbe(f.ctx, ks[0].No, now-1)
		require.NoError(t, err)
		require.True(t, taken)
		taken, err = f.TakeProbe(f.ctx, ks[0].No, until)
		require.NoError(t, err)
		require.True(t, taken, "its time is over: the broker died")
	},
	"a secret is made once": func(t *testing.T, f *fixture) {
		secrets := make([]string, 5)
		race(5, func(i int) {
			b, err := f.Secret(f.ctx, "links")
			require.NoError(t, err)
			secrets[i] = string(b)
		})
		require.Len(t, secrets[0], 32)
		for _, s := range secrets {
			require.Equal(t, secrets[0], s)
		}
		other, err := f.Secret(f.ctx, "others")
		require.NoError(t, err)
		require.NotEqual(t, secrets[0], string(other))
	},
	"the backlog counts what is not over": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		k := ks[0]
		b, err := f.Backlog(f.ctx, k, 100)
		require.NoError(t, err)
		require.Zero(t, b)
		batch := f.messages(ch, 6)
		f.insert(t, batch...)
		out := func(kind durable.OutcomeKind, i int) {
			require.NoError(t, f.Record(f.ctx, []durable.Outcome{{Kind: kind, ConsumerNo: k.No, ID: batch[i].ID, Attempts: 1,
				AtMs: 1, Tracked: true}}))
		}
		out(durable.OutcomeDelivered, 0)
		out(durable.OutcomeDead, 1)
		out(durable.OutcomeRetry, 2)
		want := durable.Backlog{Open: 4, Dead: 1, Oldest: batch[2].ID}
		b, err = f.Backlog(f.ctx, k, 100)
		require.NoError(t, err)
		require.Equal(t, want, b)
		f.mark(t, map[uint32]ident.ID{k.No: batch[3].ID})
		out(durable.OutcomeDelivered, 3)
		b, err = f.Backlog(f.ctx, k, 100)
		require.NoError(t, err)
		require.Equal(t, durable.Backlog{Open: 3, Dead: 1, Oldest: batch[2].ID}, b)
		b, err = f.Backlog(f.ctx, k, 1)
		require.NoError(t, err)
		require.Equal(t, 2, b.Open, "one open job, and one message above the watermark")
		require.True(t, b.More, "another one was not read")
		out(durable.OutcomeDelivered, 4)
		b, err = f.Backlog(f.ctx, k, 1)
		require.NoError(t, err)
		require.Equal(t, 1, b.Open, "the one that was read is delivered")
		require.True(t, b.More)
		b, err = f.Backlog(f.ctx, k, 2)
		require.NoError(t, err)
		require.Equal(t, durable.Backlog{Open: 2, Dead: 1, Oldest: batch[2].ID}, b)
	},
}
