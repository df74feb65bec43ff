package storetest

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

var sqsKeyTests = map[string]func(*testing.T, *fixture){
	"an access key is of one channel and ends with it": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 0)
		f.channel(t, "other", 0)
		before, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		a, err := f.CreateSQSKey(f.ctx, "c", durable.SQSKey{ID: "A", Secret: "s-a"})
		require.NoError(t, err)
		require.Equal(t, ch.No, a.ChannelNo)
		require.Positive(t, a.CreatedMs)
		changed, err := f.Changes(f.ctx, before.Version)
		require.NoError(t, err)
		require.Len(t, changed.Channels, 1, "the brokers look their keys up again")
		require.Equal(t, ch.ChangedAt, changed.Channels[0].ChangedAt, "the channel itself has not changed")
		got, err := f.SQSKey(f.ctx, "A")
		require.NoError(t, err)
		require.Equal(t, a, got)
		_, err = f.SQSKey(f.ctx, "a")
		require.ErrorIs(t, err, durable.ErrNotFound)
		_, err = f.CreateSQSKey(f.ctx, "none", durable.SQSKey{ID: "N", Secret: "s"})
		require.ErrorIs(t, err, durable.ErrNotFound)

		for _, id := range []string{"B", "C", "D"} {
			_, err = f.CreateSQSKey(f.ctx, "c", durable.SQSKey{ID: id, Secret: "s"})
			require.NoError(t, err)
		}
		require.ErrorIs(t, f.EndSQSKeys(f.ctx, "other", "B"), durable.ErrNotFound)
		require.ErrorIs(t, f.EndSQSKeys(f.ctx, "none", ""), durable.ErrNotFound)
		require.NoError(t, f.EndSQSKeys(f.ctx, "c", "B"))
		require.ErrorIs(t, f.EndSQSKeys(f.ctx, "c", "B"), durable.ErrNotFound)
		_, err = f.SQSKey(f.ctx, "B")
		require.ErrorIs(t, err, durable.ErrNotFound)
		require.NoError(t, f.EndSQSKeys(f.ctx, "other", ""))
		_, err = f.SQSKey(f.ctx, "C")
		require.NoError(t, err)
		require.NoError(t, f.EndSQSKeys(f.ctx, "c", ""))
		_, err = f.SQSKey(f.ctx, "C")
		require.ErrorIs(t, err, durable.ErrNotFound)

		_, err = f.CreateSQSKey(f.ctx, "c", durable.SQSKey{ID: "E", Secret: "s"})
		require.NoError(t, err)
		_, err = f.DeleteChannel(f.ctx, durable.Put{ID: "c"})
		require.NoError(t, err)
		_, err = f.SQSKey(f.ctx, "E")
		require.ErrorIs(t, err, durable.ErrNotFound)
	},
	"a channel has so many access keys and no more, and lists them": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 0)
		other, _ := f.channel(t, "other", 0)
		var want []durable.SQSKey
		for i := range durable.MaxSQSKeys {
			k, err := f.CreateSQSKey(f.ctx, "c", durable.SQSKey{ID: "K" + strconv.Itoa(100+i), Secret: "s"})
			require.NoError(t, err)
			want = append(want, k)
		}
		_, err := f.CreateSQSKey(f.ctx, "c", durable.SQSKey{ID: "M", Secret: "s"})
		require.ErrorIs(t, err, durable.ErrTooManySQSKeys)
		_, err = f.SQSKey(f.ctx, "M")
		require.ErrorIs(t, err, durable.ErrNotFound)
		_, err = f.CreateSQSKey(f.ctx, "other", durable.SQSKey{ID: "M", Secret: "s"})
		require.NoError(t, err, "the bound is that of a channel")

		all, err := f.SQSKeys(f.ctx, ch.No, "", 100)
		require.NoError(t, err)
		require.Equal(t, want, all)
		page, err := f.SQSKeys(f.ctx, ch.No, "K103", 2)
		require.NoError(t, err)
		require.Equal(t, want[3:5], page)
		all, err = f.SQSKeys(f.ctx, other.No, "", 100)
		require.NoError(t, err)
		require.Len(t, all, 1)

		require.NoError(t, f.EndSQSKeys(f.ctx, "c", "K100"))
		_, err = f.CreateSQSKey(f.ctx, "c", durable.SQSKey{ID: "N", Secret: "s"})
		require.NoError(t, err, "an ended key makes room")
	},
}
