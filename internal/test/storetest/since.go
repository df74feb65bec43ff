package storetest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// requireOwed compares what the store says about a consumer with the messages that it owes and
// those that the filter left out. Nothing is delivered.
func (f *fixture) requireOwed(t *testing.T, k durable.Consumer, owed, left []*durable.Message) {
	t.Helper()
	want := durable.Books{Accepted: int64(len(owed) + len(left)), Open: int64(len(owed)), Filtered: int64(len(left))}
	books, err := f.Books(f.ctx, k, ident.ID{}, ident.Max())
	require.NoError(t, err)
	require.Equal(t, want, books)
	tally, _, err := f.AllDelivered(f.ctx, k, ident.ID{}, ident.Max())
	require.NoError(t, err)
	require.Equal(t, durable.Tally{Owed: want.Open, Filtered: want.Filtered}, tally)
	backlog, err := f.Backlog(f.ctx, k, 1000)
	require.NoError(t, err)
	require.Equal(t, len(owed), backlog.Open)
	for level := range 3 {
		has := slices.ContainsFunc(owed, func(m *durable.Message) bool { return m.Priority == level })
		_, over, err := f.LevelDelivered(f.ctx, k, level, ident.ID{}, ident.Max(), 1000)
		require.NoError(t, err)
		require.Equal(t, !has, over, "priority %d", level)
	}
	heads, err := f.Heads(f.ctx, k.ChannelNo, ident.ID{}, ident.Max(), 1000)
	require.NoError(t, err)
	for level := range 3 {
		of, err := f.LevelHeads(f.ctx, k.ChannelNo, level, ident.ID{}, ident.Max(), 1000)
		require.NoError(t, err)
		heads = append(heads, of...) // of the table of priorities, too
	}
	for _, h := range heads {
		same := func(m *durable.Message) bool { return m.ID == h.ID }
		require.Equal(t, slices.ContainsFunc(owed, same), k.Concerns(h))
		require.Equal(t, slices.ContainsFunc(left, same), k.LeftOut(h))
	}
}

var sinceTests = map[string]func(*testing.T, *fixture){
	"a consumer of the past has the messages after its time": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		past := f.messages(ch, 30)
		for i, m := range past {
			m.Priority = i % 3
			if i%5 == 0 {
				m.Addressed = positions(0)
			}
			if i%7 == 0 {
				m.LeftOut = positions(0)
			}
		}
		f.insert(t, past...)
		p := consumerPut("c", "late")
		p.Since, p.Policy = &past[9].ID, func(string) (string, error) { return `{"v":"1"}`, nil }
		late, created, err := f.PutConsumer(f.ctx, p)
		require.NoError(t, err)
		require.True(t, created)
		require.Equal(t, past[9].ID, late.Since)
		require.Equal(t, `{"v":"1"}`, late.SincePolicy)
		plain, _, err := f.PutConsumer(f.ctx, consumerPut("c", "plain"))
		require.NoError(t, err)
		ch.Audience = 3
		present := f.messages(ch, 3)
		f.insert(t, present...)

		var owed []*durable.Message
		for _, m := range past[10:] {
			if m.Addressed == "" {
				owed = append(owed, m)
			}
		}
		owed = append(owed, present...)
		f.requireOwed(t, late, owed, nil)
		f.requireOwed(t, plain, present, nil)

		var left []*durable.Message
		left, owed = owed[:6:6], owed[6:]
		for range 2 { // once more changes nothing
			require.NoError(t, f.LeaveOut(f.ctx, late, append(ids(left), ident.Max())))
			f.requireOwed(t, late, owed, left)
		}
		for _, m := range past {
			stored := f.stored(t, []*durable.Message{m})[m.ID]
			require.Equal(t, m.LeftOut.Has(0), stored.LeftOut.Has(0), "the filters of others stay")
			require.Equal(t, ks[0].Concerns(m.Head()), ks[0].Concerns(stored.Head()))
		}
		c, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		require.Equal(t, late, c.Consumers[1])
	},
	"the time of a consumer is fixed": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		m := f.message(ch)
		p := consumerPut("c", "late")
		p.Since = &m.ID
		late, _, err := f.PutConsumer(f.ctx, p)
		require.NoError(t, err)
		again, created, err := f.PutConsumer(f.ctx, p)
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, late, again)
		p.Policy = func(string) (string, error) { return `{"v":"1"}`, nil }
		changed, _, err := f.PutConsumer(f.ctx, p)
		require.NoError(t, err)
		require.Equal(t, late.Since, changed.Since)
		require.Empty(t, changed.SincePolicy, "that of the creation")
		other := m.ID.Next()
		for _, id := range []string{"late", "k0"} {
			p = consumerPut("c", id)
			p.Since = &other
			_, _, err = f.PutConsumer(f.ctx, p)
			require.ErrorIs(t, err, durable.ErrSince)
		}
	},
	"messages of the past stay until a consumer of the past has them": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		past := f.messages(ch, 4)
		f.insert(t, past...)
		f.end(t, ks[0], durable.OutcomeDelivered, past...)
		p := consumerPut("c", "late")
		p.Since = &past[1].ID
		late, _, err := f.PutConsumer(f.ctx, p)
		require.NoError(t, err)
		purge := durable.Purge{ChannelNo: ch.No, Consumers: consumers(ks), Through: ident.Max(), Limit: 10}
		_, err = f.Purge(f.ctx, purge)
		require.ErrorIs(t, err, durable.ErrStale, "a caller that does not know the consumer")
		purge.Consumers = consumers(append(ks, late))
		got, err := f.Purge(f.ctx, purge)
		require.NoError(t, err)
		require.Equal(t, durable.Purged{Last: ident.Max(), Removed: 2, Kept: 2}, got)
		f.end(t, late, durable.OutcomeDelivered, past[2])
		require.NoError(t, f.LeaveOut(f.ctx, late, ids(past[3:])))
		got, err = f.Purge(f.ctx, purge)
		require.NoError(t, err)
		require.Equal(t, durable.Purged{Last: ident.Max(), Removed: 2}, got)
	},
	"a chain goes on behind a message that the consumer of the past lacks": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		in := f.messages(ch, 4)
		for _, m := range in {
			m.Headers = durable.OrderingLine("k", nil)
		}
		in[1].Addressed = positions(0)
		f.insert(t, in...)
		p := consumerPut("c", "late")
		p.Since = &in[0].ID
		late, _, err := f.PutConsumer(f.ctx, p)
		require.NoError(t, err)
		require.NoError(t, f.LeaveOut(f.ctx, late, ids(in[2:3])))
		links, err := f.Links(f.ctx, ch.No, ids(in))
		require.NoError(t, err)
		passes := map[ident.ID]bool{}
		for id, l := range links {
			passes[id] = l.Passes(&late)
		}
		require.Equal(t, map[ident.ID]bool{in[0].ID: false, in[1].ID: false, in[2].ID: true, in[3].ID: true}, passes)
		require.False(t, late.Concerns(durable.Link{Prev: in[3].ID, Audience: -1}.Before()),
			"a message that is gone concerns nobody")
	},
}
