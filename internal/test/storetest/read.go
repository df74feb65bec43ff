package storetest

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

func isNotFound(err error) bool { return errors.Is(err, durable.ErrNotFound) }

var readTests = map[string]func(*testing.T, *fixture){
	"missing messages are left out": func(t *testing.T, f *fixture) {
		a, _ := f.channel(t, "a", 1)
		b, _ := f.channel(t, "b", 1)
		in := f.messages(a, 1200)
		f.insert(t, in...)
		ask := append(ids(in), f.ids.Next(), ident.Max())
		got, err := f.Messages(f.ctx, a.No, ask)
		require.NoError(t, err)
		require.Len(t, got, 1200)
		got, err = f.Messages(f.ctx, b.No, ask)
		require.NoError(t, err)
		require.Empty(t, got, "another channel's messages are not there")
		got, err = f.Messages(f.ctx, a.No, nil)
		require.NoError(t, err)
		require.Empty(t, got)
	},
	"messages are read in the order of the IDs asked for, up to a number of bytes": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		in := f.messages(ch, 8)
		sizes := []int{10, 200_000, 0, 3_000_000, 50_000, 10, 70_000, 10}
		for i, m := range in {
			m.Payload = bytes.Repeat([]byte{byte(i), 0xff}, sizes[i]/2)
		}
		f.insert(t, in...)
		all := ids(in)
		reversed := slices.Clone(all)
		slices.Reverse(reversed)
		gone := f.ids.Next()
		same := func(got []durable.Message, want ...int) {
			t.Helper()
			require.Len(t, got, len(want))
			for i, n := range want {
				require.Equal(t, in[n].ID, got[i].ID)
				// a difference is too long to show
				require.True(t, bytes.Equal(in[n].Payload, got[i].Payload), "payload of message %d", n)
				got[i].Payload = in[n].Payload
				require.Equal(t, *in[n], got[i])
			}
		}
		for name, c := range map[string]struct {
			ask    []ident.ID
			budget int
			read   int
			want   []int
		}{
			"all of them":                 {all, 8 << 20, 8, []int{0, 1, 2, 3, 4, 5, 6, 7}},
			"the other way round":         {reversed, 8 << 20, 8, []int{7, 6, 5, 4, 3, 2, 1, 0}},
			"until one does not fit":      {all, 210_000, 3, []int{0, 1, 2}},
			"also from the end":           {reversed, 130_000, 4, []int{7, 6, 5, 4}},
			"the first whatever its size": {all[3:], 1000, 1, []int{3}},
			"the first without a budget":  {all[1:], 0, 1, []int{1}},
			"missing messages count":      {[]ident.ID{gone, all[3], gone, all[1]}, 1000, 3, []int{3}},
			"none":                        {nil, 1000, 0, nil},
			"one":                         {all[3:4], 0, 1, []int{3}},
			"one that is not there":       {[]ident.ID{gone}, 0, 1, nil},
			"two that are not there":      {[]ident.ID{gone, gone.Next()}, 0, 2, nil},
		} {
			got, read, err := f.MessagesUpTo(f.ctx, ch.No, c.ask, c.budget)
			require.NoError(t, err, name)
			require.Equal(t, c.read, read, name)
			same(got, c.want...)
		}
		_, read, err := f.MessagesUpTo(f.ctx, ch.No, slices.Repeat(all, 100), 1<<30)
		require.NoError(t, err)
		require.LessOrEqual(t, read, 500)
		require.Positive(t, read)
	},
	"a list of messages is ordered, begins with its first ID and has no payload": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		in := f.messages(ch, 10)
		in[4].Key, in[4].Priority = "k", 12
		f.insert(t, in...)
		page, err := f.ListMessages(f.ctx, ch.No, in[3].ID, 4)
		require.NoError(t, err)
		require.Len(t, page, 4)
		for i, m := range page {
			want := *in[3+i]
			want.Payload, want.Headers = nil, nil
			require.Equal(t, want, m)
		}
		page, err = f.ListMessages(f.ctx, ch.No, in[9].ID.Next(), 4)
		require.NoError(t, err)
		require.Empty(t, page)
	},
}
