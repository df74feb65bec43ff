package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/ident"
)

var insertTests = map[string]func(*testing.T, *fixture){
	"an inserted message is read back byte for byte": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 2)
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		random := make([]byte, 100_000)
		for i := range random {
			random[i] = byte(rand.Uint32())
		}
		payloads := [][]byte{nil, {}, {0}, []byte("'"), []byte(`\`), []byte(`\'`), []byte(`'\`), []byte("\x00'\\\x1a\n\r\""), {0xff, 0xfe}, []byte("\xbf\x27\xbf\x5c"), []byte("%_?"), all, bytes.Repeat(all, 40), random, []byte("日本語🙂")}
		var batch []*durable.Message
		for i, p := range payloads {
			for _, keyed := range []bool{false, true} {
				m := f.message(ch)
				m.ProducerNo = uint32(i) + 1<<31
				m.Payload, m.Headers, m.ContentType = p, p[:min(len(p), 60_000)], string(p[:min(len(p), 255)])
				if keyed {
					m.Key, m.Priority = fmt.Sprint("k", i, string(p[:min(len(p), 200)])), i*73
				}
				batch = append(batch, m)
			}
		}
		f.insert(t, batch...)
		got := f.stored(t, batch)
		require.Len(t, got, len(batch))
		for _, m := range batch {
			g := got[m.ID]
			require.Equal(t, string(m.Payload), string(g.Payload))
			require.Equal(t, string(m.Headers), string(g.Headers))
			m, g := *m, g
			m.Payload, g.Payload, m.Headers, g.Headers = nil, nil, nil, nil
			require.Equal(t, m, g)
		}
	},
	"an empty batch is nothing": func(t *testing.T, f *fixture) {
		require.Empty(t, f.Insert(f.ctx, f.node, nil))
	},
	"a batch above every bound is stored whole, in several channels": func(t *testing.T, f *fixture) {
		a, _ := f.channel(t, "a", 1)
		b, _ := f.channel(t, "b", 3)
		batch := append(f.messages(a, 1500), f.messages(b, 1000)...)
		rand.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
		order := slices.Clone(batch)
		f.insert(t, batch...)
		require.Equal(t, order, batch, "the caller's slice is left alone")
		require.Len(t, f.stored(t, batch), 2500)

		big := f.messages(a, 5)
		for _, m := range big {
			m.Payload = bytes.Repeat([]byte{'\''}, f.MaxBatchBytes()/2+1)
		}
		big[4].Payload = bytes.Repeat([]byte{'x'}, f.MaxBatchBytes()+10)
		f.insertUntilFresh(t, big)
		for _, m := range big { // one by one: together they are large
			require.Len(t, f.stored(t, []*durable.Message{m}), 1)
		}
	},
	"a channel without consumers takes messages": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 0)
		m := f.message(ch)
		f.insert(t, m)
		require.Equal(t, 0, f.stored(t, []*durable.Message{m})[m.ID].Audience)
	},
	"a batch with too small an audience is stale and stores nothing": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		other, _ := f.channel(t, "d", 1)
		_, created, err := f.PutConsumer(f.ctx, consumerPut("c", "late"))
		require.NoError(t, err)
		require.True(t, created)
		for _, withKeys := range []bool{false, true} {
			batch := append(f.messages(other, 2), f.messages(ch, 2)...)
			if withKeys {
				batch[0].Key, batch[3].Key, batch[1].Priority = "a", "b", 7
			}
			requireStale(t, f, f.node, batch)
			for _, m := range batch[2:] {
				m.Audience = 2
			}
			for _, m := range batch { // refreshed, with new IDs
				m.ID = f.ids.Next()
			}
			f.insert(t, batch...)
			require.Len(t, f.stored(t, batch), 4)
		}
	},
	"a batch with two audiences for one channel is stale": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 2)
		batch := f.messages(ch, 3)
		batch[2].Audience = 1
		requireStale(t, f, f.node, batch)
	},
	"a lost, expired or forged lease is stale": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		expired, err := f.LeaseNode(f.ctx, "x", -time.Second)
		require.NoError(t, err)
		requireStale(t, f, expired, f.messages(ch, 2))
		renewed, err := f.RenewNode(f.ctx, expired, time.Hour)
		require.NoError(t, err)
		require.NoError(t, f.Insert(f.ctx, renewed, f.messages(ch, 1))[0])

		require.NoError(t, f.ReleaseNode(f.ctx, renewed))
		requireStale(t, f, renewed, f.messages(ch, 2))
		taken, err := f.LeaseNode(f.ctx, "y", time.Hour)
		require.NoError(t, err)
		require.Equal(t, renewed.No, taken.No)
		requireStale(t, f, renewed, f.messages(ch, 2))

		forged := taken
		forged.Token[3]++
		requireStale(t, f, forged, f.messages(ch, 2))
	},
	"a new ID is refused when it is old": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		now, err := f.NowMs(f.ctx)
		require.NoError(t, err)
		batch := f.messages(ch, 3)
		batch[2].ID = ident.AtMillis(now - durable.MaxIDAge.Milliseconds() - 500)
		requireStale(t, f, f.node, batch)
		batch = f.messages(ch, 3)
		now, err = f.NowMs(f.ctx)
		require.NoError(t, err)
		batch[2].ID = ident.AtMillis(now - durable.MaxIDAge.Milliseconds()/3)
		f.insert(t, batch...)
	},
	"an unknown channel is stale": func(t *testing.T, f *fixture) {
		requireStale(t, f, f.node, f.messages(durable.Channel{No: 4711}, 2))
	},
	"a duplicate gets the ID of the stored message and does not affect its neighbours": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		first := f.message(ch)
		first.Key = "order-1"
		f.insert(t, first)
		batch := f.messages(ch, 500)
		batch[250] = f.again(first)
		batch[3].Key, batch[400].Key = "order-2", "order-3"
		errs := f.Insert(f.ctx, f.node, batch)
		for i, err := range errs {
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
			for i, err := range f.Insert(f.ctx, f.node, batch) { // equal messages get the ID of the first, others conflict
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
		for _, batch := range [][]*durable.Message{{other(), f.again(first), other(), f.again(first)}, {f.again(first), other(), f.again(first), other()}} {
			for i, err := range f.Insert(f.ctx, f.node, batch) {
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
		errs := f.Insert(f.ctx, f.node, batch)
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
	"one of several racing messages with one key is stored, and equal ones are duplicates": func(t *testing.T, f *fixture) {
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
	"an ID that another message has is stale, not overwritten": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		batch := f.messages(ch, 3)
		f.insert(t, batch[1])
		clash := *batch[1]
		clash.Payload = []byte("different")
		errs := f.Insert(f.ctx, f.node, []*durable.Message{batch[0], &clash, batch[2]})
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], durable.ErrStale)
		require.NoError(t, errs[2])
		require.Equal(t, batch[1].Payload, f.stored(t, batch)[clash.ID].Payload)
	},
	"a message that can never be stored is rejected alone": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		batch := f.messages(ch, 6)
		batch[0].Priority = -1
		batch[1].Priority = 1024
		batch[2].Key = strings.Repeat("k", 256)
		batch[3].ContentType = strings.Repeat("k", 256)
		batch[4].Headers = make([]byte, 70_000)
		errs := f.Insert(f.ctx, f.node, batch)
		for i := range 5 {
			require.ErrorIs(t, errs[i], durable.ErrRejected)
		}
		require.NoError(t, errs[5])
		require.Len(t, f.stored(t, batch), 1)
	},
	"concurrent batches of several channels are all stored": func(t *testing.T, f *fixture) {
		a, _ := f.channel(t, "a", 1)
		b, _ := f.channel(t, "b", 1)
		const rounds = 10
		batches := make([][]*durable.Message, 4)
		race(len(batches), func(w int) {
			for range rounds {
				batch := append(f.messages(b, 20), f.messages(a, 20)...)
				for i, m := range batch {
					if i%10 == w {
						m.Key, m.Priority = m.ID.String(), 1+i%5
					}
				}
				f.insert(t, batch...)
				batches[w] = append(batches[w], batch...)
			}
		})
		require.Len(t, f.stored(t, slices.Concat(batches...)), len(batches)*rounds*40)
	},
	"each message inserted after a put of a consumer reaches it": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 0)
		done := make(chan struct{})
		var stored []*durable.Message
		go func() {
			defer close(done)
			audience := 0
			for range 200 {
				m := f.message(ch)
				m.Audience = audience
				switch err := f.Insert(f.ctx, f.node, []*durable.Message{m})[0]; {
				case err == nil:
					stored = append(stored, m)
				default:
					audience++ // stale: the channel has one more consumer
				}
			}
		}()
		after := map[int]int64{}
		for i := range 8 {
			_, created, err := f.PutConsumer(f.ctx, consumerPut("c", fmt.Sprint("k", i)))
			require.NoError(t, err)
			require.True(t, created)
			after[i+1] = f.ids.Next().Millis() + 1
		}
		<-done
		for _, m := range stored {
			for audience, ms := range after {
				if m.ID.Millis() > ms { // its insert began after the put had returned
					require.GreaterOrEqual(t, m.Audience, audience)
				}
			}
		}
	},
	"a call whose context has ended stores nothing": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		ctx, cancel := context.WithCancel(f.ctx)
		cancel()
		batch := f.messages(ch, 2)
		for _, err := range f.Insert(ctx, f.node, batch) {
			require.Error(t, err)
			require.NotErrorIs(t, err, durable.ErrOutcomeUnknown)
		}
		require.Empty(t, f.stored(t, batch))
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

// insertUntilFresh inserts as a broker does: a stale message gets a new ID. Messages are stale
// here when their large neighbours take longer than MaxIDAge.
func (f *fixture) insertUntilFresh(t *testing.T, batch []*durable.Message) {
	t.Helper()
	for range 20 {
		var again []*durable.Message
		for i, err := range f.Insert(f.ctx, f.node, batch) {
			if err == nil {
				continue
			}
			require.ErrorIs(t, err, durable.ErrStale, "message %d", i)
			require.Empty(t, f.stored(t, batch[i:i+1]), "stale messages are not stored")
			again = append(again, batch[i])
		}
		if batch = again; len(batch) == 0 {
			return
		}
		for _, m := range batch {
			m.ID = f.ids.Next()
		}
	}
	require.Fail(t, "still stale")
}

func requireStale(t *testing.T, f *fixture, node durable.NodeLease, batch []*durable.Message) {
	t.Helper()
	for _, err := range f.Insert(f.ctx, node, batch) {
		require.ErrorIs(t, err, durable.ErrStale)
	}
	require.Empty(t, f.stored(t, batch))
	for _, m := range batch {
		if m.Key != "" {
			_, err := f.MessageByKey(f.ctx, m.ChannelNo, m.Key)
			require.ErrorIs(t, err, durable.ErrNotFound)
		}
	}
}

func requireDuplicate(t *testing.T, err error, holder ident.ID) {
	t.Helper()
	require.ErrorIs(t, err, durable.ErrDuplicate)
	var dup *durable.DuplicateError
	require.ErrorAs(t, err, &dup)
	require.Equal(t, holder, dup.ID)
}
