package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

const day = 24 * time.Hour

// keyed returns a new message with an Idempotency-Key of the first producer.
func (f *fixture) keyed(ch durable.Channel, key, payload string) *durable.Message {
	m := f.message(ch)
	m.Key, m.Payload = durable.IdempotencyKey(1, key), []byte(payload)
	return m
}

// later returns a generator of IDs that are that much younger than those of f.
func (f *fixture) later(by time.Duration) *ident.Generator {
	at := f.ids.Next().Millis() + by.Milliseconds()
	return ident.NewGenerator(f.node.No, func() int64 { return at })
}

// event returns a message with an event of source s, in binary mode or as JSON.
func (f *fixture) event(ch durable.Channel, id, data string, structured bool) *durable.Message {
	m := f.message(ch)
	m.Key = durable.EventKey(0, "s", id)
	if structured {
		m.ContentType, m.Headers = "application/cloudevents+json", nil
		m.Payload = []byte(`{"specversion":"1.0","type":"t","source":"s","id":"` + id + `","data":` + data + `}`)
		return m
	}
	m.ContentType, m.Payload = "application/json", []byte(data)
	m.Headers = []byte("ce-id:" + id + "\nce-source:s\nce-specversion:1.0\nce-type:t\n")
	return m
}

var identityTests = map[string]func(*testing.T, *fixture){
	"an event repeats its message in every mode": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		for _, structured := range []bool{false, true} {
			id := fmt.Sprint(structured)
			first := f.event(ch, id, `{"a":1}`, structured)
			f.insert(t, first)
			require.Equal(t, first.ID.String(), first.PublicID())
			other := f.event(ch, id, `{"a":1}`, !structured)
			other.Priority = 9
			batch := []*durable.Message{other, f.event(ch, id, `{"a":1}`, structured), f.event(ch, id, `{"a":2}`, structured),
				f.event(ch, id, `{"a":2}`, !structured)}
			errs := f.insertFresh(t, batch)
			requireDuplicate(t, errs[0], first.ID)
			requireDuplicate(t, errs[1], first.ID)
			require.ErrorIs(t, errs[2], durable.ErrConflict)
			require.ErrorIs(t, errs[3], durable.ErrConflict)
			ofAnother := f.event(ch, id, `{"a":1}`, structured)
			ofAnother.ProducerNo++
			require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{ofAnother})[0], durable.ErrConflict)
		}
		batch := []*durable.Message{f.event(ch, "x", "1", true), f.event(ch, "x", "1", false), f.event(ch, "x", "2", false),
			f.event(ch, "y", "1", false)}
		errs := f.insertFresh(t, batch)
		require.NoError(t, errs[0])
		requireDuplicate(t, errs[1], batch[0].ID)
		require.ErrorIs(t, errs[2], durable.ErrConflict)
		require.NoError(t, errs[3])
	},
	"the key of an event may be that of a schedule": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		m := f.event(ch, "x", "1", true)
		later := &durable.Scheduled{Message: *m, DueMs: f.ids.Next().Millis() + time.Hour.Milliseconds()}
		require.NoError(t, f.Schedule(f.ctx, f.node, []*durable.Scheduled{later})[0])
		require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{f.event(ch, "x", "1", true)})[0], durable.ErrConflict)
		again := &durable.Scheduled{Message: *f.event(ch, "x", "1", false), DueMs: later.DueMs}
		requireDuplicate(t, f.Schedule(f.ctx, f.node, []*durable.Scheduled{again})[0], later.ID)
	},
	"an idempotency key repeats its message, whatever is not the payload": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		first := f.keyed(ch, "k", "one")
		f.insert(t, first)
		again := f.keyed(ch, "k", "one")
		again.Priority, again.ContentType, again.Headers = 9, "text/html", nil
		requireDuplicate(t, f.Insert(f.ctx, f.node, []*durable.Message{again})[0], first.ID)
		require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{f.keyed(ch, "k", "two")})[0], durable.ErrReused)
		require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{f.keyed(ch, "k", "")})[0], durable.ErrReused)

		other, _ := f.channel(t, "d", 1)
		named, ofAnother := f.message(ch), f.keyed(ch, "k", "two")
		named.Key, ofAnother.Key = "k", durable.IdempotencyKey(2, "k")
		batch := []*durable.Message{f.keyed(ch, "k", "two"), f.keyed(other, "k", "two"), named, ofAnother,
			f.keyed(ch, "k", "one")}
		errs := f.insertFresh(t, batch)
		require.ErrorIs(t, errs[0], durable.ErrReused)
		for _, err := range errs[1:4] {
			require.NoError(t, err)
		}
		requireDuplicate(t, errs[4], first.ID)
		require.Len(t, f.stored(t, append(batch, first)), 4)
	},
	"of a batch with one idempotency key the first is stored": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		batch := []*durable.Message{f.keyed(ch, "k", "one"), f.keyed(ch, "k", "two"), f.keyed(ch, "k", "one"), f.message(ch)}
		errs := f.insertFresh(t, batch)
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], durable.ErrReused)
		requireDuplicate(t, errs[2], batch[0].ID)
		require.NoError(t, errs[3])
		require.Len(t, f.stored(t, batch), 2)
	},
	"an insert with idempotency keys can be repeated": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		batch := append(f.messages(ch, 3), f.keyed(ch, "k", "one"), f.keyed(ch, "l", "two"))
		f.insert(t, batch...)
		f.insert(t, batch...)
		require.Len(t, f.stored(t, batch), 5)
	},
	"of racing messages with one idempotency key one is stored": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		batch := make([]*durable.Message, 12)
		errs := make([]error, len(batch))
		for i := range batch {
			batch[i] = f.keyed(ch, "k", fmt.Sprint(i%2))
		}
		race(len(batch), func(i int) { errs[i] = f.Insert(f.ctx, f.node, batch[i:i+1])[0] })
		stored := f.stored(t, batch)
		require.Len(t, stored, 1)
		for i, err := range errs {
			switch winner, won := stored[batch[i].ID]; {
			case won:
				require.NoError(t, err)
				for j := range batch {
					if j != i && j%2 == i%2 {
						requireDuplicate(t, errs[j], winner.ID)
					}
				}
			case err != nil && !errors.Is(err, durable.ErrDuplicate):
				require.ErrorIs(t, err, durable.ErrReused)
			}
		}
	},
	"an idempotency key that is too old is free again": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		first := f.keyed(ch, "k", "one")
		f.insert(t, first)
		next := f.later(day - time.Hour)
		early := f.keyed(ch, "k", "one")
		early.ID = next.Next()
		requireDuplicate(t, f.Insert(f.ctx, f.node, []*durable.Message{early})[0], first.ID)
		next = f.later(day + time.Hour)
		late, repeat := f.keyed(ch, "k", "two"), f.keyed(ch, "k", "two")
		late.ID, repeat.ID = next.Next(), next.Next()
		require.NoError(t, f.Insert(f.ctx, f.node, []*durable.Message{late})[0])
		requireDuplicate(t, f.Insert(f.ctx, f.node, []*durable.Message{repeat})[0], late.ID)
		require.Len(t, f.stored(t, []*durable.Message{first, late}), 2, "the message itself is as old as it may be")
	},
	"an idempotency key outlives its message": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		first := f.keyed(ch, "k", "one")
		f.insert(t, first)
		f.end(t, ks[0], durable.OutcomeDelivered, first)
		_, err := f.Purge(f.ctx, durable.Purge{ChannelNo: ch.No, Consumers: consumers(ks), Through: first.ID, Limit: 10})
		require.NoError(t, err)
		require.Empty(t, f.stored(t, []*durable.Message{first}))
		requireDuplicate(t, f.Insert(f.ctx, f.node, []*durable.Message{f.keyed(ch, "k", "one")})[0], first.ID)
		require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{f.keyed(ch, "k", "two")})[0], durable.ErrReused)
	},
	"idempotency keys are forgotten when they are too old, in pieces": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		var batch []*durable.Message
		for i := range 5 {
			batch = append(batch, f.keyed(ch, fmt.Sprint(i), "one"))
		}
		f.insert(t, batch...)
		now := batch[4].ID.Millis()
		young := f.keyed(ch, "young", "one")
		young.ID = f.later(time.Hour).Next()
		require.NoError(t, f.Insert(f.ctx, f.node, []*durable.Message{young})[0])
		forget := func(at int64) int {
			n, err := f.ForgetKeys(f.ctx, at, 3)
			require.NoError(t, err)
			return n
		}
		require.Zero(t, forget(now))
		over := now + day.Milliseconds() + 1
		require.Equal(t, []int{3, 2, 0}, []int{forget(over), forget(over), forget(over)})
		require.NoError(t, f.Insert(f.ctx, f.node, []*durable.Message{f.keyed(ch, "0", "two")})[0])
		require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{f.keyed(ch, "young", "two")})[0], durable.ErrReused)
	},
	"a message ID that belongs to its producer": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		of := func(producer uint32, payload string) *durable.Message {
			m := f.message(ch)
			m.ProducerNo, m.Key, m.Payload = producer, durable.ProducerKey(producer, "k"), []byte(payload)
			return m
		}
		one, two, plain := of(1, "one"), of(2, "two"), f.message(ch)
		plain.Key = "k"
		f.insert(t, one, two, plain)
		requireDuplicate(t, f.Insert(f.ctx, f.node, []*durable.Message{of(1, "one")})[0], one.ID)
		require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{of(2, "one")})[0], durable.ErrConflict)
		for want, m := range map[string]*durable.Message{"k": plain, one.ID.String(): one} {
			require.Equal(t, want, m.PathID())
			require.Equal(t, "k", m.PublicID())
		}
		held, err := f.MessageByKey(f.ctx, ch.No, durable.ProducerKey(2, "k"))
		require.NoError(t, err)
		require.Equal(t, two.ID, held)
		got := f.stored(t, []*durable.Message{one})[one.ID]
		require.Equal(t, "k", got.PublicID())
	},
}
