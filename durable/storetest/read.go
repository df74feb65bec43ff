package storetest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/ident"
)

func isNotFound(err error) bool { return errors.Is(err, durable.ErrNotFound) }

var readTests = map[string]func(*testing.T, *fixture){
	"reading messages leaves out those that are not there": func(t *testing.T, f *fixture) {
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
