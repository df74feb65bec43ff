package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

var keepingTests = map[string]func(*testing.T, *fixture){
	"messages of a channel are counted once, in stretches": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		in := f.messages(ch, 7)
		var sizes []int64
		for i, m := range in {
			m.Payload, m.Headers = make([]byte, 10*i), []byte("a:b\n")
			sizes = append(sizes, m.Kept())
		}
		f.insert(t, in...)
		two := func(s durable.Stretch) bool { return s.Messages >= 2 }
		count := func(through ident.ID, limit int, more bool) {
			t.Helper()
			got, err := f.CountMessages(f.ctx, ch.No, through, limit, two)
			require.NoError(t, err)
			require.Equal(t, more, got)
		}
		stretches := func() []durable.Stretch {
			t.Helper()
			got, err := f.Stretches(f.ctx, ch.No)
			require.NoError(t, err)
			return got
		}
		count(ident.AtMillis(in[0].ID.Millis()-1000), 3, false)
		require.Empty(t, stretches(), "nothing was there")
		count(in[5].ID, 1, true)
		require.Equal(t, []durable.Stretch{{Through: in[0].ID, Messages: 1, Bytes: sizes[0]}}, stretches())
		count(in[5].ID, 3, true) // the first stretch is not full
		first := durable.Stretch{Through: in[3].ID, Messages: 4, Bytes: sizes[0] + sizes[1] + sizes[2] + sizes[3]}
		require.Equal(t, []durable.Stretch{first}, stretches())
		count(in[5].ID, 3, false)
		count(in[5].ID, 3, false)
		count(in[2].ID, 3, false)
		second := durable.Stretch{Through: in[5].ID, Messages: 2, Bytes: sizes[4] + sizes[5]}
		require.Equal(t, []durable.Stretch{first, second}, stretches())

		newest, err := f.NewestSizes(f.ctx, ch.No, in[3].ID, in[6].ID, 2)
		require.NoError(t, err)
		require.Equal(t, []durable.Stretch{{Through: in[6].ID, Messages: 1, Bytes: sizes[6]},
			{Through: in[5].ID, Messages: 1, Bytes: sizes[5]}}, newest)

		require.NoError(t, f.TrimStretches(f.ctx, ch.No, in[3].ID))
		require.Equal(t, []durable.Stretch{second}, stretches())
		count(in[6].ID, 3, false)
		require.Len(t, stretches(), 2, "what was removed is not counted again")
	},
	"a removal by a limit of the channel is noted with it": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		in := f.messages(ch, 4)
		f.insert(t, in...)
		f.end(t, ks[0], durable.OutcomeDelivered, in[0], in[1], in[3])
		noted := func() durable.Removal {
			t.Helper()
			got, err := f.Removal(f.ctx, ch.No)
			require.NoError(t, err)
			return got
		}
		purge := durable.Purge{ChannelNo: ch.No, Consumers: consumers(ks), Through: in[0].ID, Limit: 10, AtMs: 77}
		_, err := f.Purge(f.ctx, purge)
		require.NoError(t, err)
		require.Zero(t, noted(), "no limit has removed it")
		purge.By, purge.Through = durable.MessagesLimit, in[2].ID
		_, err = f.Purge(f.ctx, purge)
		require.NoError(t, err)
		want := durable.Removal{Through: in[1].ID, Messages: 1, By: durable.MessagesLimit, AtMs: 77}
		require.Equal(t, want, noted())
		_, err = f.Purge(f.ctx, purge)
		require.NoError(t, err)
		require.Equal(t, want, noted(), "one is open")
		purge.By, purge.Through, purge.AtMs = durable.BytesLimit, in[3].ID, 78
		_, err = f.Purge(f.ctx, purge)
		require.NoError(t, err)
		f.end(t, ks[0], durable.OutcomeDelivered, in[2])
		_, err = f.Purge(f.ctx, purge)
		require.NoError(t, err)
		want = durable.Removal{Through: in[3].ID, Messages: 3, By: durable.BytesLimit, AtMs: 78}
		require.Equal(t, want, noted(), "the position never goes back")
		require.Equal(t, in[3].ID.Millis()+1, want.EndMs())
	},
	"old attempts go from jobs that are over, and the channel notes it": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		k := ks[0].No
		in := f.messages(ch, 4)
		f.insert(t, in...)
		attempt := func(m *durable.Message, kind durable.OutcomeKind, n int, atMs int64) {
			t.Helper()
			f.record(t, durable.Outcome{Kind: kind, ConsumerNo: k, ID: m.ID, Attempts: n, AtMs: atMs, NextMs: atMs,
				Tracked: true, Error: "no"})
		}
		for i, m := range in {
			attempt(m, durable.OutcomeRetry, 1, 1000)
			attempt(m, durable.OutcomeRetry, 2, 2000+int64(i))
		}
		attempt(in[0], durable.OutcomeDelivered, 3, 3000)
		attempt(in[1], durable.OutcomeDead, 3, 9000)
		attempt(in[3], durable.OutcomeDelivered, 3, 3000) // in[2] is open
		left := func() (n []int) {
			t.Helper()
			for _, m := range in {
				got, err := f.Attempts(f.ctx, k, m.ID, 10)
				require.NoError(t, err)
				n = append(n, len(got))
			}
			return n
		}
		require.Equal(t, []int{2, 3, 2, 2}, left())
		noted := func() int64 {
			t.Helper()
			ms, err := f.AttemptsRemovedMs(f.ctx, ch.No)
			require.NoError(t, err)
			return ms
		}
		require.Zero(t, noted())
		page := durable.OldAttempts{ChannelNo: ch.No, ConsumerNo: k, Through: in[3].ID, BeforeMs: 1000, Limit: 3}
		sweep := func() (removed int64) {
			t.Helper()
			p := page
			for p.After != p.Through {
				last, n, err := f.RemoveOldAttempts(f.ctx, p)
				require.NoError(t, err)
				require.Positive(t, last.Compare(p.After), "each page goes on")
				p.After, removed = last, removed+n
			}
			return removed
		}
		require.Zero(t, sweep())
		require.Zero(t, noted(), "nothing was removed")
		page.BeforeMs = 1001
		require.EqualValues(t, 3, sweep())
		require.Equal(t, []int{1, 2, 2, 1}, left(), "those of an open job stay")
		require.EqualValues(t, 1001, noted())
		page.BeforeMs, page.Through = 8000, in[2].ID
		require.EqualValues(t, 2, sweep())
		require.Equal(t, []int{0, 1, 2, 1}, left())
		page.BeforeMs, page.Through = 5000, in[3].ID
		require.EqualValues(t, 1, sweep())
		require.EqualValues(t, 8000, noted(), "it never goes back")
		job := f.state(t, k, in[1].ID)
		require.Equal(t, []any{durable.Dead, 3, "no"}, []any{job.Status, job.Attempts, job.Error}, "the job is as it was")
		_, err := f.CountMessages(f.ctx, ch.No, in[3].ID, 10, func(durable.Stretch) bool { return false })
		require.NoError(t, err)
		got, err := f.Stretches(f.ctx, ch.No)
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.EqualValues(t, 4, got[0].Messages, "a note is no count")
	},
	"what is over is listed as a purge would remove it, and only what is listed goes": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		in := f.messages(ch, 5)
		f.insert(t, in...)
		f.end(t, ks[0], durable.OutcomeDelivered, in[0], in[1], in[3])
		f.end(t, ks[0], durable.OutcomeDead, in[4])
		purge := durable.Purge{ChannelNo: ch.No, Consumers: consumers(ks), Through: in[4].ID, Limit: 10}
		ids, page, err := f.Over(f.ctx, purge)
		require.NoError(t, err)
		require.Equal(t, []ident.ID{in[0].ID, in[1].ID, in[3].ID}, ids)
		require.Equal(t, durable.Purged{Last: in[4].ID, Removed: 3, Kept: 2}, page)
		require.Equal(t, 5, f.countStored(t, ch, in), "it changes nothing")

		purge.Only = []ident.ID{in[1].ID, in[2].ID, in[4].ID}
		got, err := f.Purge(f.ctx, purge)
		require.NoError(t, err)
		require.Equal(t, durable.Purged{Last: in[4].ID, Removed: 1, Kept: 4}, got, "listed and over")
		purge.Only = []ident.ID{}
		got, err = f.Purge(f.ctx, purge)
		require.NoError(t, err)
		require.Equal(t, durable.Purged{Last: in[4].ID, Kept: 4}, got)
		require.Equal(t, 4, f.countStored(t, ch, in))
	},
}

// countStored returns how many of the messages are stored.
func (f *fixture) countStored(t *testing.T, ch durable.Channel, in []*durable.Message) int {
	t.Helper()
	ids := make([]ident.ID, len(in))
	for i, m := range in {
		ids[i] = m.ID
	}
	got, err := f.Messages(f.ctx, ch.No, ids)
	require.NoError(t, err)
	return len(got)
}
