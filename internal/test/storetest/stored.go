package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

var storedTests = map[string]func(*testing.T, *fixture){
	"what producers store is counted once, page by page, and removed with its messages": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		in := f.messages(ch, 7)
		want := map[uint32]durable.StoredSum{}
		for i, m := range in {
			m.ProducerNo, m.Payload, m.Headers = uint32(1+i%2), make([]byte, 10*i), []byte("a:b\n")
		}
		f.insert(t, in...)
		add := func(sign int64, all ...*durable.Message) {
			for _, m := range all {
				s := want[m.ProducerNo]
				want[m.ProducerNo] = durable.StoredSum{Messages: s.Messages + sign, Bytes: s.Bytes + sign*m.Kept()}
			}
		}
		now := func() durable.Stored {
			got, err := f.Stored(f.ctx)
			require.NoError(t, err)
			return got
		}
		count := func(through ident.ID, limit int, more bool) {
			t.Helper()
			got, err := f.CountStored(f.ctx, ch.No, through, limit)
			require.NoError(t, err)
			require.Equal(t, more, got)
		}
		require.Empty(t, now().Sums)
		count(in[5].ID, 4, true)
		add(1, in[:4]...)
		require.Equal(t, want, now().Sums)
		require.Equal(t, in[3].ID, now().Marks[ch.No])
		count(in[5].ID, 4, false)
		count(in[5].ID, 4, false)
		count(in[2].ID, 4, false)
		add(1, in[4:6]...)
		require.Equal(t, want, now().Sums)
		require.Equal(t, in[5].ID, now().Marks[ch.No])

		f.end(t, ks[0], durable.OutcomeDelivered, in[0], in[2], in[3], in[6])
		_, err := f.Purge(f.ctx, durable.Purge{ChannelNo: ch.No, Consumers: consumers(ks), Through: in[6].ID, Limit: 100})
		require.NoError(t, err)
		add(-1, in[0], in[2], in[3]) // the last one was not counted yet
		require.Equal(t, want, now().Sums)
		count(in[6].ID, 4, false)
		require.Equal(t, want, now().Sums)
	},
	"schedules and bodies of bulks are stored by their producers": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		far := time.Now().Add(time.Hour).UnixMilli()
		a, b, c := f.plan(ch, "a", far), f.plan(ch, "b", far), f.plan(ch, "c", far)
		b.ProducerNo = 9
		f.schedule(t, a, b, c)
		sums := func(before ident.ID, of []uint32) (counts, bytes map[uint32]int64) {
			counts, err := f.ScheduledCounts(f.ctx, before, of)
			require.NoError(t, err)
			bytes, err = f.ScheduledBytes(f.ctx, before, of)
			require.NoError(t, err)
			return counts, bytes
		}
		counts, bytes := sums(c.ID, nil)
		require.Equal(t, map[uint32]int64{a.ProducerNo: 1, 9: 1}, counts)
		require.Equal(t, map[uint32]int64{a.ProducerNo: a.Kept(), 9: b.Kept()}, bytes)
		counts, bytes = sums(c.ID, []uint32{8, 9})
		require.Equal(t, map[uint32]int64{9: 1}, counts, "of some producers")
		require.Equal(t, map[uint32]int64{9: b.Kept()}, bytes)
		counts, bytes = sums(c.ID, []uint32{})
		require.Empty(t, counts)
		require.Empty(t, bytes)
		f.insert(t, f.occurrence(a))
		require.NoError(t, f.CancelScheduled(f.ctx, b.ID))
		counts, bytes = sums(c.ID, nil)
		require.Empty(t, counts, "what is sent does not wait")
		require.Equal(t, map[uint32]int64{a.ProducerNo: a.Kept()}, bytes, "and is kept")

		bulk := f.newBulk(t, ch, "0123456789")
		now, err := f.Stored(f.ctx)
		require.NoError(t, err)
		require.Equal(t, map[uint32]int64{bulk.ProducerNo: 10}, now.Bulks)
		_, err = f.CancelBulk(f.ctx, bulk.ID)
		require.NoError(t, err)
		now, err = f.Stored(f.ctx)
		require.NoError(t, err)
		require.Empty(t, now.Bulks)
	},
}
