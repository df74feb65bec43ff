package storetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// historyRow is a row of a consumer, of a slot of ten seconds.
func historyRow(no uint32, atMs int64, writer uint32, delivered int64) durable.HistoryRow {
	return durable.HistoryRow{Scope: durable.HistoryOfConsumer, No: no, Step: 10, AtMs: atMs, Writer: writer,
		Accepted: 2 * delivered, Delivered: delivered, Failed: 1, Dead: 3, OldestMs: 1500, Acks: []byte{1, 0, 9}}
}

func (f *fixture) history(t *testing.T, no uint32, step int, fromMs, toMs int64) []durable.HistoryRow {
	t.Helper()
	rows, err := f.History(f.ctx, durable.HistoryOfConsumer, no, step, fromMs, toMs)
	require.NoError(t, err)
	return plainRows(rows)
}

// plainRows makes an empty histogram nil, on each server.
func plainRows(rows []durable.HistoryRow) []durable.HistoryRow {
	for i := range rows {
		if len(rows[i].Deliveries) == 0 {
			rows[i].Deliveries = nil
		}
	}
	return rows
}

var chronicleTests = map[string]func(*testing.T, *fixture){
	"a row of the history that is written again changes nothing": func(t *testing.T, f *fixture) {
		require.NoError(t, f.KeepHistory(f.ctx, nil))
		first, second := historyRow(7, 10_000, 1, 5), historyRow(7, 10_000, 2, 8)
		for range 3 {
			require.NoError(t, f.KeepHistory(f.ctx, []durable.HistoryRow{first, second}))
		}
		require.Equal(t, []durable.HistoryRow{first, second}, f.history(t, 7, 10, 0, 20_000))
		first.Delivered, first.OldestMs, first.Deliveries = 6, 2000, []byte{1, 2, 3}
		require.NoError(t, f.KeepHistory(f.ctx, []durable.HistoryRow{first}))
		require.Equal(t, []durable.HistoryRow{first, second}, f.history(t, 7, 10, 0, 20_000))
		race(6, func(i int) {
			rows := []durable.HistoryRow{historyRow(7, 10_000, uint32(3+i), 1), historyRow(8, 10_000, uint32(3+i), 1)}
			require.NoError(t, f.KeepHistory(f.ctx, rows))
			require.NoError(t, f.KeepHistory(f.ctx, rows))
		})
		require.Len(t, f.history(t, 7, 10, 0, 20_000), 8)
	},
	"a range of the history has the slots that begin in it": func(t *testing.T, f *fixture) {
		var rows []durable.HistoryRow
		for at := int64(0); at < 10; at++ {
			rows = append(rows, historyRow(7, 10_000*at, 1, at))
		}
		require.NoError(t, f.KeepHistory(f.ctx, rows))
		minute, other, whole := rows[3], rows[3], rows[3]
		minute.Step, other.No, whole.Scope, whole.No = 60, 8, durable.HistoryOfAll, 0
		require.NoError(t, f.KeepHistory(f.ctx, []durable.HistoryRow{whole, minute, other}))
		require.Equal(t, rows[2:5], f.history(t, 7, 10, 20_000, 50_000))
		require.Equal(t, rows[3:5], f.history(t, 7, 10, 20_001, 40_001))
		require.Equal(t, []durable.HistoryRow{minute}, f.history(t, 7, 60, 0, 100_000))
		require.Empty(t, f.history(t, 9, 10, 0, 100_000))
		got, err := f.History(f.ctx, durable.HistoryOfAll, 0, 10, 0, 100_000)
		require.NoError(t, err)
		require.Equal(t, []durable.HistoryRow{whole}, plainRows(got))
	},
	"old history is removed by slots": func(t *testing.T, f *fixture) {
		var rows []durable.HistoryRow
		for no := uint32(1); no <= 3; no++ {
			for at := int64(0); at < 6; at++ {
				rows = append(rows, historyRow(no, 10_000*at, no, at))
			}
		}
		minute := rows[0]
		minute.Step = 60
		require.NoError(t, f.KeepHistory(f.ctx, append(rows, minute)))
		forget := func(beforeMs int64, limit, want int) {
			t.Helper()
			slots, err := f.ForgetHistory(f.ctx, 10, beforeMs, limit)
			require.NoError(t, err)
			require.Equal(t, want, slots)
		}
		forget(0, 5, 0)
		forget(40_000, 0, 0)
		forget(40_000, 3, 3)
		for no := uint32(1); no <= 3; no++ {
			require.Len(t, f.history(t, no, 10, 0, 100_000), 3)
		}
		forget(40_000, 5, 1)
		forget(40_000, 5, 0)
		require.Len(t, f.history(t, 2, 10, 0, 100_000), 2)
		require.Len(t, f.history(t, 1, 60, 0, 100_000), 1, "another step stays")
		forget(1<<60, 10, 2)
		forget(1<<60, 10, 0)
	},
	"the rows of several writers become one after a while": func(t *testing.T, f *fixture) {
		var rows []durable.HistoryRow
		for at := int64(1); at <= 6; at++ {
			for writer := uint32(1); writer <= 3; writer++ {
				rows = append(rows, historyRow(7, 60_000*at, writer, int64(writer)))
			}
			rows = append(rows, historyRow(8, 60_000*at, 2, 5))
		}
		rows = append(rows, historyRow(7, 420_000, 9, 1))
		for i := range rows {
			rows[i].Step = 60
		}
		require.NoError(t, f.KeepHistory(f.ctx, rows))
		add := func(to, from *durable.HistoryRow) {
			require.Equal(t, to.No, from.No)
			to.Delivered += from.Delivered
			to.Acks = append(to.Acks, from.Acks...)
		}
		delivered := func(no uint32) (sum int64, n int) {
			for _, r := range f.history(t, no, 60, 0, 1_000_000) {
				sum, n = sum+r.Delivered, n+1
			}
			return sum, n
		}
		require.NoError(t, f.MergeHistory(f.ctx, 60, 60_000, 10, add))
		_, n := delivered(7)
		require.Equal(t, 19, n, "no slot begins before")
		require.NoError(t, f.MergeHistory(f.ctx, 60, 300_000, 2, add))
		_, n = delivered(7)
		require.Equal(t, 2+4*3+1, n)
		race(4, func(int) { require.NoError(t, f.MergeHistory(f.ctx, 60, 300_000, 10, add)) })
		sum, n := delivered(7)
		require.EqualValues(t, 6*6+1, sum)
		require.Equal(t, 4+2*3+1, n)
		got := f.history(t, 7, 60, 60_000, 120_000)
		require.Len(t, got, 1)
		require.Zero(t, got[0].Writer)
		require.Equal(t, []byte{1, 0, 9, 1, 0, 9, 1, 0, 9}, got[0].Acks)
		sum, n = delivered(8)
		require.EqualValues(t, 6*5, sum)
		require.Equal(t, 6, n)
		require.NoError(t, f.MergeHistory(f.ctx, 60, 1_000_000, 10, add))
		sum, n = delivered(7)
		require.EqualValues(t, 6*6+1, sum)
		require.Equal(t, 6+1, n)
	},
	"marks concern all, a channel or a consumer": func(t *testing.T, f *fixture) {
		mark := func(atMs int64, no, channel, consumer uint32) durable.HistoryMark {
			return durable.HistoryMark{AtMs: atMs, No: no, Kind: durable.MarkPolicy, ChannelNo: channel, ConsumerNo: consumer,
				Text: "t"}
		}
		start := durable.HistoryMark{AtMs: 10, No: 1, Kind: durable.MarkStart, Text: strings.Repeat("é", 600)}
		all := []durable.HistoryMark{mark(40, 5, 2, 9), mark(30, 4, 1, 8), mark(20, 3, 1, 0), mark(20, 2, 1, 7), start}
		for _, m := range all {
			require.NoError(t, f.KeepMark(f.ctx, m))
			require.NoError(t, f.KeepMark(f.ctx, m), "a repeat")
		}
		all[4].Text = strings.Repeat("é", 512)
		get := func(channel, consumer uint32, from, to int64, limit int) []durable.HistoryMark {
			t.Helper()
			got, err := f.Marks(f.ctx, channel, consumer, from, to, limit)
			require.NoError(t, err)
			return got
		}
		require.Equal(t, all, get(0, 0, 0, 100, 10))
		require.Equal(t, all[1:4], get(0, 0, 20, 40, 10))
		require.Equal(t, all[:2], get(0, 0, 0, 100, 2))
		require.Equal(t, all[1:], get(1, 0, 0, 100, 10))
		require.Equal(t, all[2:], get(1, 7, 0, 100, 10))
		require.NoError(t, f.ForgetMarks(f.ctx, 10, 10))
		require.Len(t, get(0, 0, 0, 100, 10), 5)
		require.NoError(t, f.ForgetMarks(f.ctx, 20, 10))
		require.Equal(t, all[:4], get(0, 0, 0, 100, 10))
		require.NoError(t, f.ForgetMarks(f.ctx, 0, 2))
		require.Equal(t, all[:2], get(0, 0, 0, 100, 10))
	},
	"a version is marked when it is seen for the first time": func(t *testing.T, f *fixture) {
		long := strings.Repeat("1.", 100)
		race(6, func(i int) {
			for _, version := range []string{"1.2", long} {
				require.NoError(t, f.KeepVersion(f.ctx, version, durable.HistoryMark{AtMs: int64(10 + i),
					No: uint32(i + len(version)), Kind: durable.MarkVersion, Text: "version"}))
			}
		})
		got, err := f.Marks(f.ctx, 0, 0, 0, 100, 10)
		require.NoError(t, err)
		require.Len(t, got, 2)
		require.NoError(t, f.ForgetMarks(f.ctx, 100, 10))
		require.NoError(t, f.KeepVersion(f.ctx, "1.2", durable.HistoryMark{AtMs: 200, No: 1, Kind: durable.MarkVersion}))
		got, err = f.Marks(f.ctx, 0, 0, 0, 1000, 10)
		require.NoError(t, err)
		require.Empty(t, got, "it was seen, though its mark is too old")
	},
}
