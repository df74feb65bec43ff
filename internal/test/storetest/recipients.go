package storetest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// positions returns a set, made with none of the code that reads it.
func positions(of ...int) durable.Positions {
	b := []byte{0}
	for _, p := range of {
		for len(b) <= p/8 {
			b = append(b, 0)
		}
		b[p/8] |= 1 << (7 - p%8)
	}
	return durable.Positions(b)
}

// A chosen is a message with the positions of its jobs, and of those that filters left out.
type chosen struct {
	*durable.Message
	jobs, left []int
}

// choose gives a message random recipients of n consumers.
func choose(r *rand.Rand, m *durable.Message, n int) chosen {
	c := chosen{Message: m}
	var meant []int
	for p := range n {
		if r.IntN(2) == 0 {
			meant = append(meant, p)
		}
	}
	switch r.IntN(4) {
	case 0: // for all
		meant = nil
		for p := range n {
			meant = append(meant, p)
		}
	default:
		m.Addressed = positions(meant...)
	}
	for _, p := range meant {
		if r.IntN(3) == 0 {
			c.left = append(c.left, p)
		} else {
			c.jobs = append(c.jobs, p)
		}
	}
	if len(c.left) > 0 {
		m.LeftOut = positions(c.left...)
	}
	m.Priority = r.IntN(3)
	return c
}

// requireRecipients compares what the store says about one consumer with the messages.
func (f *fixture) requireRecipients(t *testing.T, k durable.Consumer, all []chosen) {
	t.Helper()
	var want durable.Books
	perLevel := [3]int{}
	for _, m := range all {
		has := slices.Contains(m.jobs, k.Position)
		require.Equal(t, has, k.Concerns(m.Head()))
		require.Equal(t, slices.Contains(m.left, k.Position), k.LeftOut(m.Head()))
		require.Equal(t, len(m.jobs), m.Head().Jobs())
		if has {
			want.Accepted++
			want.Open++
			perLevel[m.Priority]++
		}
		if slices.Contains(m.left, k.Position) {
			want.Accepted++
			want.Filtered++
		}
	}
	tally, over, err := f.AllDelivered(f.ctx, k, ident.ID{}, ident.Max())
	require.NoError(t, err)
	require.Equal(t, durable.Tally{Owed: want.Open, Filtered: want.Filtered}, tally)
	require.Equal(t, want.Open == 0, over)
	books, err := f.Books(f.ctx, k, ident.ID{}, ident.Max())
	require.NoError(t, err)
	require.Equal(t, want, books)
	require.Zero(t, books.Difference())
	b, err := f.Backlog(f.ctx, k, 1000)
	require.NoError(t, err)
	require.EqualValues(t, want.Open, b.Open)
	for level, n := range perLevel {
		_, over, err := f.LevelDelivered(f.ctx, k, level, ident.ID{}, ident.Max(), 1000)
		require.NoError(t, err)
		require.Equal(t, n == 0, over, "priority %d", level)
	}
}

// requireHeads compares the recipients that each kind of read returns with the messages.
func (f *fixture) requireHeads(t *testing.T, ch durable.Channel, all []chosen) {
	t.Helper()
	want := map[ident.ID]durable.Head{}
	var which []ident.ID
	for _, m := range all {
		want[m.ID] = m.Head()
		which = append(which, m.ID)
	}
	check := func(got []durable.Head, err error) {
		t.Helper()
		require.NoError(t, err)
		for _, h := range got {
			require.Equal(t, want[h.ID], h)
		}
	}
	heads, err := f.Heads(f.ctx, ch.No, ident.ID{}, ident.Max(), 1000)
	require.Len(t, heads, len(all))
	check(heads, err)
	check(f.HeadsOf(f.ctx, ch.No, which))
	for level := range 3 {
		check(f.LevelHeads(f.ctx, ch.No, level, ident.ID{}, ident.Max(), 1000))
	}
	msgs, err := f.Messages(f.ctx, ch.No, which)
	require.NoError(t, err)
	list, err := f.ListMessages(f.ctx, ch.No, ident.ID{}, 1000)
	require.NoError(t, err)
	some, _, err := f.MessagesUpTo(f.ctx, ch.No, which, 1<<20)
	require.NoError(t, err)
	for _, m := range slices.Concat(msgs, list, some) {
		require.Equal(t, want[m.ID], m.Head())
	}
	require.Len(t, slices.Concat(msgs, list, some), 3*len(all))
}

var recipientTests = map[string]func(*testing.T, *fixture){
	"a message concerns those that it is addressed to, unless a filter left them out": func(t *testing.T, f *fixture) {
		const n = 19 // three bytes, the last one in part
		ch, ks := f.channel(t, "c", n)
		r := rand.New(rand.NewPCG(3, 4))
		var all []chosen
		batch := f.messages(ch, 40)
		for _, m := range batch {
			all = append(all, choose(r, m, n))
		}
		f.insert(t, batch...)
		f.requireHeads(t, ch, all)
		for _, k := range ks {
			f.requireRecipients(t, k, all)
		}
		// A consumer that comes later has none of them, whatever the bits beyond the audience.
		late, _, err := f.PutConsumer(f.ctx, consumerPut("c", "late"))
		require.NoError(t, err)
		f.requireRecipients(t, late, all)
		// Only jobs are owed, and the messages go when these are over.
		for _, k := range ks {
			for _, m := range all {
				if slices.Contains(m.jobs, k.Position) {
					require.NoError(t, f.Record(f.ctx, []durable.Outcome{{ConsumerNo: k.No, ID: m.ID, Attempts: 1, AtMs: 1}}))
				}
			}
			_, over, err := f.AllDelivered(f.ctx, k, ident.ID{}, ident.Max())
			require.NoError(t, err)
			require.True(t, over)
		}
		got, err := f.Purge(f.ctx, durable.Purge{ChannelNo: ch.No, Consumers: consumers(append(ks, late)),
			Through: ident.Max(), Limit: 100})
		require.NoError(t, err)
		require.Equal(t, durable.Purged{Last: ident.Max(), Removed: len(all)}, got)
	},
	"the books keep what filters left out": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 2)
		all := f.messages(ch, 30)
		for i, m := range all {
			if i%3 == 0 {
				m.LeftOut = positions(1)
			}
		}
		f.insert(t, all...)
		k := ks[1]
		for i, m := range all[:20] {
			if i%3 > 0 {
				require.NoError(t, f.Record(f.ctx, []durable.Outcome{{ConsumerNo: k.No, ID: m.ID, Attempts: 1, AtMs: 1}}))
			}
		}
		f.save(t, durable.Settled{ConsumerNo: k.No, Through: all[9].ID, Accepted: 10, Filtered: 4, Delivered: 6})
		f.save(t, durable.Settled{ConsumerNo: k.No, After: all[9].ID, Through: all[19].ID, Accepted: 10, Filtered: 3,
			Delivered: 7})
		for from := range all {
			for to := from; to < len(all); to += 7 {
				var want durable.Books
				for i := from + 1; i <= to; i++ {
					want.Accepted++
					switch {
					case i%3 == 0:
						want.Filtered++
					case i < 20:
						want.Delivered++
					default:
						want.Open++
					}
				}
				got, err := f.Books(f.ctx, k, all[from].ID, all[to].ID)
				require.NoError(t, err)
				require.Equal(t, want, got)
			}
		}
	},
	"a message of another shape is stale and stores nothing": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 2)
		f.insert(t, f.message(ch))
		stale := func(grown func()) {
			t.Helper()
			old := ch
			grown()
			for _, key := range []string{"", "key"} {
				m := f.message(old)
				m.Key = key
				require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{m})[0], durable.ErrStale)
				require.Empty(t, f.stored(t, []*durable.Message{m}))
			}
			c, err := f.Changes(f.ctx, 0)
			require.NoError(t, err)
			require.Greater(t, c.Channels[0].Shape, old.Shape)
			ch = c.Channels[0]
			f.insert(t, f.message(ch))
			mixed := f.messages(ch, 2)
			mixed[1].Shape = old.Shape
			for _, err := range f.Insert(f.ctx, f.node, mixed) {
				require.ErrorIs(t, err, durable.ErrStale)
			}
		}
		p := consumerPut("c", ks[0].ID)
		p.Policy = func(string) (string, error) { return `{"filter":"false"}`, nil }
		stale(func() {
			_, _, err := f.PutConsumer(f.ctx, p)
			require.NoError(t, err)
		})
		before := ch.Shape
		_, _, err := f.PutConsumer(f.ctx, p) // changes nothing
		require.NoError(t, err)
		f.insert(t, f.message(ch))
		require.Equal(t, before, ch.Shape)
		stale(func() {
			_, err := f.DeleteConsumer(f.ctx, "c", durable.Put{ID: ks[1].ID})
			require.NoError(t, err)
		})
	},
	"a schedule keeps whom it is addressed to": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 9)
		for _, addressed := range []durable.Positions{"", durable.NoPositions, positions(0, 8)} {
			s := f.plan(ch, "", f.ids.Next().Millis())
			s.Addressed = addressed
			f.schedule(t, s)
			got, err := f.ScheduledByID(f.ctx, s.ID)
			require.NoError(t, err)
			require.Equal(t, addressed, got.Addressed)
		}
	},
	"the links of a key say whom the message before concerns": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 2)
		in := f.messages(ch, 3)
		for _, m := range in {
			m.Headers = durable.OrderingLine("k", nil)
		}
		in[0].Addressed, in[1].LeftOut = positions(0), positions(1)
		f.insert(t, in...)
		links, err := f.Links(f.ctx, ch.No, ids(in))
		require.NoError(t, err)
		for i := 1; i < 3; i++ {
			l := links[in[i].ID]
			require.Equal(t, durable.Link{Prev: in[i-1].ID, Audience: 2, Addressed: in[i-1].Addressed, LeftOut: in[i-1].LeftOut},
				l)
			require.False(t, l.Passes(&ks[0]))
			require.True(t, l.Passes(&ks[1]))
		}
		next, err := f.Successors(f.ctx, ch.No, ids(in[:1]))
		require.NoError(t, err)
		require.Equal(t, []durable.Head{in[1].Head()}, next)
	},
}
