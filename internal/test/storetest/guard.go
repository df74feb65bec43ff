package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// guardTests insert messages of which the broker knows too little: they are stale.
var guardTests = map[string]func(*testing.T, *fixture){
	"a batch with too small an audience is stale and stores nothing": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		other, _ := f.channel(t, "d", 1)
		_, created, err := f.PutConsumer(f.ctx, consumerPut("c", "late"))
		require.NoError(t, err)
		require.True(t, created)
		for _, withKeys := range []bool{false, true} {
			batch := append(f.messages(other, 2), f.messages(ch, 2)...)
			if withKeys {
				batch[0].Key, batch[3].Key, batch[1].Priority = "a", "b", 7
			}
			requireStale(t, f, f.node, batch)
			for _, m := range batch[2:] {
				m.Audience = 2
			}
			for _, m := range batch { // refreshed, with new IDs
				m.ID = f.ids.Next()
			}
			f.insert(t, batch...)
			require.Len(t, f.stored(t, batch), 4)
		}
	},
	"a batch with two audiences for one channel is stale": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 2)
		batch := f.messages(ch, 3)
		batch[2].Audience = 1
		requireStale(t, f, f.node, batch)
	},
	"a lost, expired or forged lease is stale": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		expired, err := f.LeaseNode(f.ctx, "x", -time.Second)
		require.NoError(t, err)
		requireStale(t, f, expired, f.messages(ch, 2))
		renewed, err := f.RenewNode(f.ctx, expired, time.Hour)
		require.NoError(t, err)
		require.NoError(t, f.Insert(f.ctx, renewed, f.messages(ch, 1))[0])

		require.NoError(t, f.ReleaseNode(f.ctx, renewed))
		requireStale(t, f, renewed, f.messages(ch, 2))
		taken, err := f.LeaseNode(f.ctx, "y", time.Hour)
		require.NoError(t, err)
		require.Equal(t, renewed.No, taken.No)
		requireStale(t, f, renewed, f.messages(ch, 2))

		forged := taken
		forged.Token[3]++
		requireStale(t, f, forged, f.messages(ch, 2))
	},
	"a new ID is refused when it is old": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		now, err := f.NowMs(f.ctx)
		require.NoError(t, err)
		batch := f.messages(ch, 3)
		batch[2].ID = ident.AtMillis(now - durable.MaxIDAge.Milliseconds() - 500)
		requireStale(t, f, f.node, batch)
		batch = f.messages(ch, 3)
		now, err = f.NowMs(f.ctx)
		require.NoError(t, err)
		batch[2].ID = ident.AtMillis(now - durable.MaxIDAge.Milliseconds()/3)
		f.insert(t, batch...)
	},
	"an unknown channel is stale": func(t *testing.T, f *fixture) {
		requireStale(t, f, f.node, f.messages(durable.Channel{No: 4711}, 2))
	},
	"an ID that another message has is stale, not overwritten": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		batch := f.messages(ch, 3)
		f.insert(t, batch[1])
		clash := *batch[1]
		clash.Payload = []byte("different")
		errs := f.Insert(f.ctx, f.node, []*durable.Message{batch[0], &clash, batch[2]})
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], durable.ErrStale)
		require.NoError(t, errs[2])
		require.Equal(t, batch[1].Payload, f.stored(t, batch)[clash.ID].Payload)
	},
	"each message inserted after a put of a consumer reaches it": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 0)
		done := make(chan struct{})
		var stored []*durable.Message
		go func() {
			defer close(done)
			audience := 0
			for range 200 {
				m := f.message(ch)
				m.Audience = audience
				switch err := f.Insert(f.ctx, f.node, []*durable.Message{m})[0]; {
				case err == nil:
					stored = append(stored, m)
				default:
					audience++ // stale: the channel has one more consumer
				}
			}
		}()
		after := map[int]int64{}
		for i := range 8 {
			_, created, err := f.PutConsumer(f.ctx, consumerPut("c", fmt.Sprint("k", i)))
			require.NoError(t, err)
			require.True(t, created)
			after[i+1] = f.ids.Next().Millis() + 1
		}
		<-done
		for _, m := range stored {
			for audience, ms := range after {
				if m.ID.Millis() > ms { // its insert began after the put had returned
					require.GreaterOrEqual(t, m.Audience, audience)
				}
			}
		}
	},
}

func requireStale(t *testing.T, f *fixture, node durable.NodeLease, batch []*durable.Message) {
	t.Helper()
	for _, err := range f.Insert(f.ctx, node, batch) {
		require.ErrorIs(t, err, durable.ErrStale)
	}
	require.Empty(t, f.stored(t, batch))
	for _, m := range batch {
		if m.Key != "" {
			_, err := f.MessageByKey(f.ctx, m.ChannelNo, m.Key)
			require.ErrorIs(t, err, durable.ErrNotFound)
		}
	}
}
