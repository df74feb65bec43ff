package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

var extentTests = map[string]func(*testing.T, *fixture){
	"the extent of the catalogue is that of its rows and follows each change": func(t *testing.T, f *fixture) {
		seen := map[durable.Extent]bool{}
		look := func() {
			t.Helper()
			got, err := f.Extent(f.ctx)
			require.NoError(t, err)
			all, err := f.Changes(f.ctx, 0)
			require.NoError(t, err)
			want := durable.Extent{Version: all.Version}
			for _, p := range all.Producers {
				want.Producers.Add(p.Version)
			}
			for _, ch := range all.Channels {
				want.Channels.Add(ch.Version)
			}
			for _, k := range all.Consumers {
				want.Consumers.Add(k.Version)
			}
			for _, g := range all.Groups {
				want.Groups.Add(g.Version)
			}
			require.Equal(t, want, got)
			got.Version = 0
			require.False(t, seen[got], "rows have changed")
			seen[got] = true
		}
		look()
		_, ks := f.channel(t, "c", 2)
		look()
		_, _, err := f.PutProducer(f.ctx, durable.Put{ID: "p", NewToken: "t"})
		require.NoError(t, err)
		look()
		_, _, err = f.PutConsumer(f.ctx, durable.ConsumerPut{Put: durable.Put{ID: "k0", Name: ptr("new")}, ChannelID: "c"})
		require.NoError(t, err)
		look()
		_, changed, err := f.SetConsumerState(f.ctx, durable.StateChange{ConsumerNo: ks[1].No,
			From: []durable.ConsumerState{durable.StateActive}, To: durable.StatePaused})
		require.NoError(t, err)
		require.True(t, changed)
		look()
		f.group(t, "g", 0)
		look()
		_, err = f.DeleteConsumer(f.ctx, "c", durable.Put{ID: "k1"})
		require.NoError(t, err)
		look()
	},
	"a version of the catalogue is a time, and they ascend": func(t *testing.T, f *fixture) {
		now, err := f.NowMs(f.ctx)
		require.NoError(t, err)
		before := int64(0)
		for _, id := range []string{"a", "b", "c"} {
			p, _, err := f.PutProducer(f.ctx, durable.Put{ID: id, NewToken: "t"})
			require.NoError(t, err)
			require.Greater(t, p.Version, before)
			require.GreaterOrEqual(t, p.Version, now)
			require.Less(t, p.Version, now+600_000)
			before = p.Version
		}
		rows, err := f.Extent(f.ctx)
		require.NoError(t, err)
		require.NoError(t, f.Touch(f.ctx, durable.Numbers{}))
		touched, err := f.Extent(f.ctx)
		require.NoError(t, err)
		require.Greater(t, touched.Version, rows.Version)
		rows.Version = touched.Version
		require.Equal(t, rows, touched, "no row has changed")
	},
	"numbers that a former history gave away are not given again": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		require.NoError(t, f.Touch(f.ctx, durable.Numbers{Producer: 70, Channel: ch.No + 40, Consumer: ks[0].No + 50}))
		require.NoError(t, f.Touch(f.ctx, durable.Numbers{Producer: 60, Channel: 1, Consumer: 1}))
		p, _, err := f.PutProducer(f.ctx, durable.Put{ID: "p", NewToken: "t"})
		require.NoError(t, err)
		require.EqualValues(t, 71, p.No)
		for i := range uint32(2) {
			next, more := f.channel(t, "d"+string('0'+rune(i)), 1)
			require.Equal(t, ch.No+41+i, next.No)
			require.Equal(t, ks[0].No+51+i, more[0].No)
		}
	},
}
