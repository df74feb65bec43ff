package storetest

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// receiptAt returns a receipt of a time.
func receiptAt(ms int64, no byte) (id durable.ReceiptID) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(ms))
	copy(id[:6], b[2:])
	id[19] = no
	return id
}

var ackTests = map[string]func(*testing.T, *fixture){
	"a message of a journal is stored once, whatever its ID": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		m := f.message(ch)
		m.Key = durable.ReceiptKey(receiptAt(1, 1))
		f.insert(t, m)
		require.Equal(t, m.ID.String(), m.PublicID())
		require.Equal(t, m.ID.String(), m.PathID())
		again, other := f.again(m), f.again(m)
		other.Key = durable.ReceiptKey(receiptAt(1, 2))
		errs := f.Insert(f.ctx, f.node, []*durable.Message{again, other})
		requireDuplicate(t, errs[0], m.ID)
		require.NoError(t, errs[1])
	},
	"a receipt is known until it is old": func(t *testing.T, f *fixture) {
		now := time.Now().UnixMilli()
		kept := durable.ReceiptsKept.Milliseconds()
		var all []durable.Receipt
		var ids []durable.ReceiptID
		for i := range 10 {
			all = append(all, durable.Receipt{ID: receiptAt(now-kept-5+int64(i), byte(i)), ChannelNo: uint32(i),
				Message: fmt.Sprint("m", i)})
			ids = append(ids, all[i].ID)
		}
		all[9].Message, all[9].Reason = "", "message_id_conflict"
		require.NoError(t, f.StoreReceipts(f.ctx, durable.Clock{}, all))
		changed := all[3]
		changed.Message = "another"
		require.NoError(t, f.StoreReceipts(f.ctx, durable.Clock{}, []durable.Receipt{changed}), "a repeat changes nothing")
		got, err := f.Receipts(f.ctx, append(ids, receiptAt(5, 5)))
		require.NoError(t, err)
		require.Len(t, got, 10)
		for _, r := range all {
			require.Equal(t, r, got[r.ID])
		}
		for _, want := range []int{3, 2, 0} {
			n, err := f.ForgetReceipts(f.ctx, now, 3)
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
		got, err = f.Receipts(f.ctx, ids)
		require.NoError(t, err)
		require.Len(t, got, 5)
		require.Contains(t, got, ids[5])
	},
	"a store without a second server stores nothing that demands one": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		batch := f.messages(ch, 4)
		batch[1].Replicated, batch[3].Replicated = true, true
		errs := f.insertFresh(t, batch)
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], durable.ErrNotReplicated)
		require.NoError(t, errs[2])
		require.ErrorIs(t, errs[3], durable.ErrNotReplicated)
		require.Len(t, f.stored(t, batch), 2)
	},
	"what is found stored proves no second server": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		m := f.message(ch)
		m.Key = "key"
		f.insert(t, m)
		again, twice := f.again(m), f.again(m)
		again.Replicated, twice.Replicated = true, true
		errs := f.Insert(f.ctx, f.node, []*durable.Message{f.again(m), again, twice})
		requireDuplicate(t, errs[0], m.ID)
		require.ErrorIs(t, errs[1], durable.ErrNotReplicated)
		require.ErrorIs(t, errs[2], durable.ErrNotReplicated)
		require.ErrorIs(t, f.Replicates(f.ctx), durable.ErrNotReplicated)
		require.ErrorIs(t, f.ConfirmReceipt(f.ctx, receiptAt(1, 1)), durable.ErrNotReplicated)
		require.ErrorIs(t, f.ConfirmBulk(f.ctx, f.ids.Next()), durable.ErrNotReplicated)
	},
	"a schedule that demands a second server is not stored without one": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		plans := []*durable.Scheduled{{Message: *f.message(ch), DueMs: 1}, {Message: *f.message(ch), DueMs: 2}}
		plans[0].Replicated = true
		errs := f.Schedule(f.ctx, f.node, plans)
		require.ErrorIs(t, errs[0], durable.ErrNotReplicated)
		require.NoError(t, errs[1])
		_, err := f.ScheduledByID(f.ctx, plans[0].ID)
		require.ErrorIs(t, err, durable.ErrNotFound)
		found := *plans[1]
		found.Replicated = true
		require.ErrorIs(t, f.Schedule(f.ctx, f.node, []*durable.Scheduled{&found})[0], durable.ErrNotReplicated)
	},
}
