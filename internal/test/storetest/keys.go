package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// keyTests insert messages with keys that messages have already.
var keyTests = map[string]func(*testing.T, *fixture){
	"a duplicate gets the ID of the stored message and does not affect its neighbours": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		first := f.message(ch)
		first.Key = "order-1"
		f.insert(t, first)
		batch := f.messages(ch, 500)
		batch[250] = f.again(first)
		batch[3].Key, batch[400].Key = "order-2", "order-3"
		for i, err := range f.insertFresh(t, batch) {
			if i == 250 {
				requireDuplicate(t, err, first.ID)
			} else {
				require.NoError(t, err)
			}
		}
		got := f.stored(t, batch)
		require.Len(t, got, 499)
		require.NotContains(t, got, batch[250].ID)
		id, err := f.MessageByKey(f.ctx, ch.No, "order-3")
		require.NoError(t, err)
		require.Equal(t, batch[400].ID, id)
		found, err := f.MessagesByKeys(f.ctx, ch.No, []string{"order-1", "order-3", "order-9"})
		require.NoError(t, err)
		require.Equal(t, map[string]ident.ID{"order-1": first.ID, "order-3": batch[400].ID}, found)
		found, err = f.MessagesByKeys(f.ctx, ch.No+1, []string{"order-1"})
		require.NoError(t, err)
		require.Empty(t, found)
	},
	"a key of another message is a conflict and does not affect its neighbours": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		first := f.message(ch)
		first.Key, first.Headers = "order-1", []byte("X-A:1\nX-B:2\n")
		empty := f.message(ch)
		empty.Key, empty.Payload, empty.Headers = "empty", nil, nil
		f.insert(t, first, empty)
		for _, want := range []error{durable.ErrDuplicate, durable.ErrConflict} {
			batch := f.messages(ch, 5) // without a key
			for _, change := range changes(want) {
				m := f.again(first)
				change(m)
				batch = append(batch, m)
				require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{m})[0], want, "alone")
			}
			for i, err := range f.insertFresh(t, batch) { // equal messages get the ID of the first, others conflict
				if i < 5 {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, want, "entry %d", i)
				}
			}
			require.Len(t, f.stored(t, batch), 5)
		}
		requireDuplicate(t, f.Insert(f.ctx, f.node, []*durable.Message{f.again(empty)})[0], empty.ID)
		filled := f.again(empty)
		filled.Payload = []byte("x")
		require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{filled})[0], durable.ErrConflict)
		emptied := f.again(first)
		emptied.Payload = nil
		require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{emptied})[0], durable.ErrConflict)
	},
	"each repeat of a key in a batch is compared with the stored message": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		first := f.message(ch)
		first.Key = "k"
		f.insert(t, first)
		other := func() *durable.Message {
			m := f.again(first)
			m.Payload = []byte("anothe") // as long as the other payloads
			return m
		}
		for _, batch := range [][]*durable.Message{{other(), f.again(first), other(), f.again(first)},
			{f.again(first), other(), f.again(first), other()}} {
			for i, err := range f.insertFresh(t, batch) {
				if string(batch[i].Payload) == string(first.Payload) {
					requireDuplicate(t, err, first.ID)
				} else {
					require.ErrorIs(t, err, durable.ErrConflict)
				}
			}
		}
		// When no message of a key is stored, the first of the batch is.
		fresh := []*durable.Message{other(), f.again(first), other()}
		for _, m := range fresh {
			m.Key = "fresh"
		}
		errs := f.Insert(f.ctx, f.node, fresh)
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], durable.ErrConflict)
		requireDuplicate(t, errs[2], fresh[0].ID)
		// Many messages of one key, each with its own payload.
		var many []*durable.Message
		for i := range 600 {
			m := f.again(first)
			m.Payload = fmt.Appendf(nil, "%d", i)
			many = append(many, m)
		}
		many = append(many, f.again(first))
		errs = f.Insert(f.ctx, f.node, many)
		for _, err := range errs[:600] {
			require.ErrorIs(t, err, durable.ErrConflict)
		}
		requireDuplicate(t, errs[600], first.ID)
		heads, err := f.Heads(f.ctx, ch.No, ident.ID{}, ident.Max(), 100)
		require.NoError(t, err)
		require.Len(t, heads, 2)
	},
	"a key of a channel says nothing about another channel's": func(t *testing.T, f *fixture) {
		a, _ := f.channel(t, "a", 1)
		b, _ := f.channel(t, "b", 1)
		first := f.message(a)
		first.Key = "k"
		f.insert(t, first)
		there, here := f.message(b), f.again(first)
		there.Key, here.Payload = "k", []byte("other")
		errs := f.Insert(f.ctx, f.node, []*durable.Message{here, there})
		require.ErrorIs(t, errs[0], durable.ErrConflict)
		require.NoError(t, errs[1])
	},
	"the first message of a key in a batch is stored": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		batch := f.messages(ch, 6)
		batch[3].Payload = batch[1].Payload
		batch[1].Key, batch[3].Key, batch[5].Key = "k", "k", "K"
		batch[1].ID, batch[3].ID = batch[3].ID, batch[1].ID // the order of the batch counts, not of the IDs
		errs := f.insertFresh(t, batch)
		requireDuplicate(t, errs[3], batch[1].ID)
		for i, err := range errs {
			if i != 3 {
				require.NoError(t, err)
			}
		}
		require.Len(t, f.stored(t, batch), 5)

		again := []*durable.Message{f.again(batch[1]), f.again(batch[1])}
		for _, err := range f.Insert(f.ctx, f.node, again) {
			requireDuplicate(t, err, batch[1].ID)
		}
		free := f.messages(ch, 2) // the first is rejected, so its key is free for the second
		free[0].Key, free[1].Key, free[0].Priority = "free", "free", 5000
		errs = f.Insert(f.ctx, f.node, free)
		require.ErrorIs(t, errs[0], durable.ErrRejected)
		require.NoError(t, errs[1])
	},
	"a key is taken in its channel only, and is bytes": func(t *testing.T, f *fixture) {
		a, _ := f.channel(t, "a", 1)
		b, _ := f.channel(t, "b", 1)
		var batch []*durable.Message
		for _, key := range []string{"abc", "ABC", "abc ", "a_c", "a%c", "'", `\`, "\x00", "\xff", strings.Repeat("y", 255)} {
			for _, ch := range []durable.Channel{a, b} {
				m := f.message(ch)
				m.Key = key
				batch = append(batch, m)
			}
		}
		f.insert(t, batch...)
		for _, m := range batch {
			id, err := f.MessageByKey(f.ctx, m.ChannelNo, m.Key)
			require.NoError(t, err)
			require.Equal(t, m.ID, id)
		}
		_, err := f.MessageByKey(f.ctx, a.No, "abC")
		require.ErrorIs(t, err, durable.ErrNotFound)
	},
	"one of several racing producers with one key succeeds, the others get its ID": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		const rivals, keys = 6, 20
		batches := make([][]*durable.Message, rivals)
		results := make([][]error, rivals)
		for r := range batches {
			batches[r] = f.messages(ch, keys)
			for k, m := range batches[r] {
				m.Key = fmt.Sprint("key", k)
			}
			if r%2 == 1 {
				slices.Reverse(batches[r])
			}
		}
		race(rivals, func(r int) { results[r] = f.Insert(f.ctx, f.node, batches[r]) })
		winners := map[string]ident.ID{}
		for r := range batches {
			for i, m := range batches[r] {
				if results[r][i] == nil {
					require.NotContains(t, winners, m.Key)
					winners[m.Key] = m.ID
				}
			}
		}
		require.Len(t, winners, keys)
		for r := range batches {
			for i, m := range batches[r] {
				if results[r][i] != nil {
					requireDuplicate(t, results[r][i], winners[m.Key])
					require.Empty(t, f.stored(t, []*durable.Message{m}))
				}
			}
		}
	},
	"one of several racing messages with one key is stored, and equal ones are duplicates": func(t *testing.T,
		f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		const rivals, contents, keys = 10, 3, 8
		batches, results := make([][]*durable.Message, rivals), make([][]error, rivals)
		for r := range batches {
			batches[r] = f.messages(ch, keys)
			for k, m := range batches[r] {
				m.Key, m.ProducerNo, m.Payload = fmt.Sprint("key", k), uint32(r%contents), []byte("same size")
			}
			if r%2 == 1 {
				slices.Reverse(batches[r])
			}
		}
		race(rivals, func(r int) { results[r] = f.Insert(f.ctx, f.node, batches[r]) })
		winners := map[string]*durable.Message{}
		for r := range batches {
			for i, m := range batches[r] {
				if results[r][i] == nil {
					require.NotContains(t, winners, m.Key)
					winners[m.Key] = m
				}
			}
		}
		require.Len(t, winners, keys)
		for r := range batches {
			for i, m := range batches[r] {
				switch winner := winners[m.Key]; {
				case winner == m:
				case winner.ProducerNo == m.ProducerNo:
					requireDuplicate(t, results[r][i], winner.ID)
				default:
					require.ErrorIs(t, results[r][i], durable.ErrConflict)
				}
			}
		}
	},
	"a repeat during the removal of its message is a duplicate or stored anew": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 0) // without consumers a message is over at once
		for range 30 {
			first := f.message(ch)
			first.Key = "k"
			f.insert(t, first)
			repeats := []*durable.Message{f.again(first), f.again(first), f.again(first)}
			results := make([]error, len(repeats))
			var purged error
			race(len(repeats)+1, func(i int) {
				if i == len(repeats) {
					_, purged = f.Purge(f.ctx, durable.Purge{ChannelNo: ch.No, Through: first.ID, Limit: 10})
					return
				}
				results[i] = f.Insert(f.ctx, f.node, repeats[i:i+1])[0]
			})
			require.NoError(t, purged)
			stored := map[ident.ID]bool{first.ID: true}
			for i, err := range results {
				if err == nil {
					stored[repeats[i].ID] = true
				}
			}
			require.LessOrEqual(t, len(stored), 2)
			for _, err := range results {
				if err != nil && !errors.Is(err, durable.ErrStale) { // stale: its ID became too old on a slow machine
					var dup *durable.DuplicateError
					require.ErrorAs(t, err, &dup)
					require.True(t, stored[dup.ID])
				}
			}
			_, err := f.Purge(f.ctx, durable.Purge{ChannelNo: ch.No, Through: ident.Max(), Limit: 10})
			require.NoError(t, err)
		}
	},
	"a repeated batch succeeds, even when its IDs are old by then": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		batch := f.messages(ch, 5)
		batch[1].Key, batch[2].Priority = "k", 9
		f.insert(t, batch...)
		f.insert(t, batch...)
		plain := f.messages(ch, 2)
		f.insert(t, plain...)
		mixed := append(f.messages(ch, 1), plain...)
		f.insert(t, mixed...)
		require.Len(t, f.stored(t, append(mixed, batch...)), 8)

		time.Sleep(time.Until(batch[4].ID.Time().Add(durable.MaxIDAge + 300*time.Millisecond)))
		f.insert(t, batch...)
		heads, err := f.Heads(f.ctx, ch.No, ident.ID{}, ident.Max(), 100)
		require.NoError(t, err)
		require.Len(t, heads, 8, "no message is stored twice")
	},
}

// changes returns edits of a message: for ErrDuplicate those that leave it the same message, for
// any other error those that make it another one.
func changes(want error) []func(m *durable.Message) {
	if want == durable.ErrDuplicate {
		return []func(m *durable.Message){
			func(*durable.Message) {},
			func(m *durable.Message) { m.Headers = []byte("X-B:2\nX-A:1\n") },
			func(m *durable.Message) { m.Headers = []byte("x-a:1\nX-B:2\n") },
			func(m *durable.Message) {
				m.Headers = append([]byte("Traceparent:00-1\ntracestate:a=1\n"), m.Headers...)
			},
			func(m *durable.Message) { m.Payload = slices.Clone(m.Payload) },
		}
	}
	return []func(m *durable.Message){
		func(m *durable.Message) { m.ProducerNo++ },
		func(m *durable.Message) { m.Payload = []byte("payloae") },
		func(m *durable.Message) { m.Payload = []byte("payload ") },
		func(m *durable.Message) { m.Payload = nil },
		func(m *durable.Message) { m.Priority = 1 },
		func(m *durable.Message) { m.ContentType += ";" },
		func(m *durable.Message) { m.Headers = []byte("X-A:1\n") },
		func(m *durable.Message) { m.Headers = []byte("X-A:2\nX-B:1\n") },
		func(m *durable.Message) { m.Headers = []byte("X-A:1\nX-B:2 \n") },
		func(m *durable.Message) { m.Headers = nil },
	}
}

// again returns a repeat of a message, with another ID.
func (f *fixture) again(m *durable.Message) *durable.Message {
	repeat := *m
	repeat.ID = f.ids.Next()
	return &repeat
}

func requireDuplicate(t *testing.T, err error, original ident.ID) {
	t.Helper()
	require.ErrorIs(t, err, durable.ErrDuplicate)
	var dup *durable.DuplicateError
	require.ErrorAs(t, err, &dup)
	require.Equal(t, original, dup.ID)
}
