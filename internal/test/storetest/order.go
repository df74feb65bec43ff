package storetest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// keyed gives a message an ordering key.
func keyed(m *durable.Message, key string) *durable.Message {
	m.Headers = durable.OrderingLine(key, m.Metadata())
	return m
}

// chain returns the messages of a key from the last one to the first.
func (f *fixture) chain(t *testing.T, ch durable.Channel, last ident.ID) (out []ident.ID) {
	t.Helper()
	for id := last; !id.IsZero(); {
		out = append(out, id)
		links, err := f.Links(f.ctx, ch.No, []ident.ID{id})
		require.NoError(t, err)
		require.Contains(t, links, id)
		id = links[id].Prev
		require.LessOrEqual(t, len(out), 10_000)
	}
	return out
}

var orderTests = map[string]func(*testing.T, *fixture){
	"messages of a key form a chain": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 2)
		plain, a0, b0, a1, a2 := f.message(ch), keyed(f.message(ch), "a"), keyed(f.message(ch), "b"), keyed(f.message(ch),
			"a"), keyed(f.message(ch), "a")
		f.insert(t, a0)
		f.insert(t, plain, b0, a1, a2)
		links, err := f.Links(f.ctx, ch.No, ids([]*durable.Message{plain, a0, b0, a1, a2}))
		require.NoError(t, err)
		require.Equal(t, map[ident.ID]durable.Link{
			a0.ID: {Audience: -1}, b0.ID: {Audience: -1}, a1.ID: {Prev: a0.ID, Audience: 2}, a2.ID: {Prev: a1.ID, Audience: 2},
		}, links)
		next, err := f.Successors(f.ctx, ch.No, []ident.ID{a0.ID, b0.ID, plain.ID})
		require.NoError(t, err)
		require.Equal(t, []durable.Head{a1.Head()}, next)
		require.Equal(t, "a", string(a2.OrderingKey()))
	},
	"inserting a message again leaves the chain alone": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		m := keyed(f.message(ch), "a")
		m.Key = "same"
		f.insert(t, m)
		require.NoError(t, f.Insert(f.ctx, f.node, []*durable.Message{m})[0])
		repeat := keyed(f.message(ch), "a")
		repeat.Key, repeat.Payload = "same", m.Payload
		require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{repeat})[0], durable.ErrDuplicate)
		other := keyed(f.message(ch), "b")
		other.Key = "same"
		require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{other})[0], durable.ErrConflict)
		last := keyed(f.message(ch), "a")
		f.insert(t, last)
		require.Equal(t, []ident.ID{last.ID, m.ID}, f.chain(t, ch, last.ID))
	},
	"concurrent inserts of a key form one chain in the order of their commits": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		const workers, each = 8, 12
		var mu sync.Mutex
		begun, ended := map[ident.ID]int{}, map[ident.ID]int{} // moments
		moment := 0
		race(workers, func(w int) {
			for i := range each {
				m, other := keyed(f.message(ch), "a"), keyed(f.message(ch), fmt.Sprint(w, i))
				mu.Lock()
				moment++
				at := moment
				mu.Unlock()
				f.insert(t, m, other)
				mu.Lock()
				moment++
				begun[m.ID], ended[m.ID] = at, moment
				mu.Unlock()
			}
		})
		last := keyed(f.message(ch), "a")
		f.insert(t, last)
		chain := f.chain(t, ch, last.ID)
		require.Len(t, chain, workers*each+1)
		for i, later := range chain[1:] { // from the last one to the first
			for _, earlier := range chain[i+2:] {
				require.LessOrEqual(t, begun[earlier], ended[later], "an insert that ended before another began is before it")
			}
		}
	},
	"a purge removes the chain of its messages": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		a0, a1, b0 := keyed(f.message(ch), "a"), keyed(f.message(ch), "a"), keyed(f.message(ch), "b")
		f.insert(t, a0, a1, b0)
		f.end(t, ks[0], durable.OutcomeDelivered, a0, b0)
		got, err := f.Purge(f.ctx, durable.Purge{ChannelNo: ch.No, Consumers: consumers(ks), Through: b0.ID, Limit: 100})
		require.NoError(t, err)
		require.Equal(t, 2, got.Removed)
		links, err := f.Links(f.ctx, ch.No, []ident.ID{a0.ID, a1.ID, b0.ID})
		require.NoError(t, err)
		require.Equal(t, map[ident.ID]durable.Link{a1.ID: {Prev: a0.ID, Audience: -1}}, links)
		a2, b1 := keyed(f.message(ch), "a"), keyed(f.message(ch), "b")
		f.insert(t, a2, b1)
		links, err = f.Links(f.ctx, ch.No, []ident.ID{a2.ID, b1.ID})
		require.NoError(t, err)
		require.Equal(t, a1.ID, links[a2.ID].Prev)
		require.Zero(t, links[b1.ID].Prev, "the row of the key went with its last message")
	},
}
