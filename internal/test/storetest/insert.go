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
		payloads := [][]byte{nil, {}, {0}, []byte("'"), []byte(`\`), []byte(`\'`), []byte(`'\`), []byte("\x00'\\\x1a\n\r\""),
			{0xff, 0xfe}, []byte("\xbf\x27\xbf\x5c"), []byte("%_?"), all, bytes.Repeat(all, 40), random, []byte("日本語🙂")}
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

// Insert is that of the store, on a machine of any speed: messages whose IDs were young, and became too
// old during the call, are inserted again with new IDs.
func (f *fixture) Insert(ctx context.Context, lease durable.NodeLease, batch []*durable.Message) []error {
	young := make([]bool, len(batch))
	for i, m := range batch {
		age := time.Since(m.ID.Time())
		young[i] = age >= 0 && age < durable.MaxIDAge
	}
	errs := f.Store.Insert(ctx, lease, batch)
	for range 20 {
		var again []*durable.Message
		var places []int
		for i, m := range batch {
			if young[i] && errors.Is(errs[i], durable.ErrStale) && time.Since(m.ID.Time()) >= durable.MaxIDAge {
				m.ID = f.ids.Next()
				again, places = append(again, m), append(places, i)
			}
		}
		if len(again) == 0 {
			break
		}
		for j, err := range f.Store.Insert(ctx, lease, again) {
			errs[places[j]] = err
		}
	}
	return errs
}

// insertFresh inserts as a broker does, and returns an error for each message: a stale one gets a new ID and is
// tried again. Messages are stale here when a slow machine takes longer than MaxIDAge for the batch.
func (f *fixture) insertFresh(t *testing.T, batch []*durable.Message) []error {
	t.Helper()
	errs := f.Insert(f.ctx, f.node, batch)
	for range 20 {
		var again []*durable.Message
		var places []int
		for i, err := range errs {
			if errors.Is(err, durable.ErrStale) {
				require.Empty(t, f.stored(t, batch[i:i+1]), "stale messages are not stored")
				batch[i].ID = f.ids.Next()
				again, places = append(again, batch[i]), append(places, i)
			}
		}
		if len(again) == 0 {
			return errs
		}
		for n, err := range f.Insert(f.ctx, f.node, again) {
			errs[places[n]] = err
		}
	}
	require.Fail(t, "still stale")
	return errs
}

// insertUntilFresh inserts messages that must be accepted, as insertFresh does.
func (f *fixture) insertUntilFresh(t *testing.T, batch []*durable.Message) {
	t.Helper()
	for i, err := range f.insertFresh(t, batch) {
		require.NoError(t, err, "message %d", i)
	}
}
