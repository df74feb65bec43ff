package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

func noticed(o durable.Outcome, kinds durable.StatusKind) durable.Outcome {
	o.ProducerNo, o.Notices = 7, kinds
	return o
}

func (f *fixture) statusEvents(t *testing.T, producer uint32) []durable.StatusEvent {
	t.Helper()
	events, err := f.StatusEvents(f.ctx, producer, 1000)
	require.NoError(t, err)
	return events
}

var statusTests = map[string]func(*testing.T, *fixture){
	"an outcome is stored with its events, once": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 3)
		batch := []durable.Outcome{
			noticed(delivered(k, id[0], 300, 3000), durable.StatusDelivered),
			noticed(dead(k, id[1], 2, 2000), durable.StatusFailed|durable.StatusDead),
			noticed(retry(k, id[2], 1, 1000), durable.StatusFailed),
		}
		f.record(t, batch...)
		f.record(t, batch...)
		f.record(t, delivered(k, id[2], 2, 4000))
		got := f.statusEvents(t, 7)
		require.Len(t, got, 4)
		for i, want := range []struct {
			kind    durable.StatusKind
			id      ident.ID
			atMs    int64
			attempt int
			status  int
			reason  durable.Reason
		}{
			{durable.StatusFailed, id[2], 1000, 1, 503, 0},
			{durable.StatusFailed, id[1], 2000, 2, 503, durable.AttemptsExhausted},
			{durable.StatusDead, id[1], 2000, 2, 503, durable.AttemptsExhausted},
			{durable.StatusDelivered, id[0], 3000, 300, 200, 0},
		} {
			e := got[i]
			require.Equal(t, want.kind, e.Kind())
			require.Equal(t, want.id, e.ID())
			require.Equal(t, want.atMs, e.AtMs())
			require.Equal(t, k, e.ConsumerNo())
			require.Equal(t, want.attempt, e.Attempt)
			require.Equal(t, want.status, e.StatusCode)
			require.Equal(t, want.reason, e.Reason)
		}
		require.Empty(t, f.statusEvents(t, 8))
		require.Equal(t, durable.Delivered, f.state(t, k, id[0]).Status)
		next, err := f.NextStatusProducer(f.ctx, 0)
		require.NoError(t, err)
		require.EqualValues(t, 7, next)
		next, err = f.NextStatusProducer(f.ctx, 7)
		require.NoError(t, err)
		require.Zero(t, next)
	},
	"each event goes into one of several racing batches": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 300)
		var all []durable.Outcome
		for i := range id {
			all = append(all, noticed(delivered(k, id[i], 1, int64(1000+i)), durable.StatusDelivered))
		}
		f.record(t, all...)
		events := f.statusEvents(t, 7)
		require.Len(t, events, 300)
		batches := make([]durable.StatusBatch, 4)
		won := make([]bool, len(batches))
		for i := range batches {
			batches[i] = durable.StatusBatch{ID: f.ids.Next(), ProducerNo: 7, Body: []byte("body")}
		}
		race(len(batches), func(i int) {
			var err error
			if won[i], err = f.BatchStatus(f.ctx, batches[i], events); err != nil {
				t.Error(err)
			}
		})
		stored, err := f.StatusBatches(f.ctx, ident.ID{}, 10)
		require.NoError(t, err)
		require.Len(t, stored, 1)
		wins := 0
		for i := range won {
			if won[i] {
				wins++
				require.Equal(t, batches[i], stored[0])
			}
		}
		require.Equal(t, 1, wins)
		require.Empty(t, f.statusEvents(t, 7))
		stored, err = f.StatusBatches(f.ctx, stored[0].ID, 10)
		require.NoError(t, err)
		require.Empty(t, stored)
		for range 2 {
			for _, b := range batches {
				require.NoError(t, f.FinishStatus(f.ctx, b.ID))
			}
		}
		stored, err = f.StatusBatches(f.ctx, ident.ID{}, 10)
		require.NoError(t, err)
		require.Empty(t, stored)
	},
	"events without a body are dropped": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 1)
		f.record(t, noticed(delivered(k, id[0], 1, 1), durable.StatusDelivered))
		won, err := f.BatchStatus(f.ctx, durable.StatusBatch{ID: f.ids.Next(), ProducerNo: 7}, f.statusEvents(t, 7))
		require.NoError(t, err)
		require.True(t, won)
		require.Empty(t, f.statusEvents(t, 7))
		stored, err := f.StatusBatches(f.ctx, ident.ID{}, 10)
		require.NoError(t, err)
		require.Empty(t, stored)
	},
	"messages tell their producers": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		batch := f.messages(ch, 3)
		batch[1].Key, batch[1].ProducerNo = "mine", 5
		f.insert(t, batch...)
		got, err := f.Senders(f.ctx, ch.No, append(ids(batch), f.ids.Next()))
		require.NoError(t, err)
		require.Len(t, got, 3)
		require.EqualValues(t, 1, got[0].ProducerNo)
		require.EqualValues(t, 5, got[1].ProducerNo)
		require.Equal(t, "mine", got[1].PublicID())
		require.Equal(t, batch[2].ID.String(), got[2].PublicID())
		got, err = f.Senders(f.ctx, ch.No+1, ids(batch))
		require.NoError(t, err)
		require.Empty(t, got)
	},
}
