package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

var expiryTests = map[string]func(*testing.T, *fixture){
	"a message keeps its time to live and is listed when that is over": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 2)
		mortal, keyed, plain := f.message(ch), f.message(ch), f.message(ch)
		mortal.TTLMs, mortal.Priority, keyed.TTLMs, keyed.Key = 5000, 3, 7000, "mine"
		f.insert(t, mortal, keyed, plain)
		heads, err := f.HeadsOf(f.ctx, ch.No, []ident.ID{plain.ID, keyed.ID, mortal.ID, ident.AtMillis(1)})
		require.NoError(t, err)
		require.Equal(t, []durable.Head{
			{ID: mortal.ID, Audience: 2, Priority: 3, TTLMs: 5000}, {ID: keyed.ID, Audience: 2, TTLMs: 7000},
			{ID: plain.ID, Audience: 2},
		}, heads)
		msgs, err := f.Messages(f.ctx, ch.No, []ident.ID{mortal.ID})
		require.NoError(t, err)
		require.EqualValues(t, 5000, msgs[0].TTLMs)
		k := &durable.Consumer{No: 77, ChannelNo: ch.No}
		j, err := f.Job(f.ctx, k, mortal.ID)
		require.NoError(t, err)
		require.Equal(t, durable.StoredJob{Stored: true, TTLMs: 5000}, j)
		f.record(t, dead(77, mortal.ID, 2, 2000))
		j, err = f.Job(f.ctx, k, mortal.ID)
		require.NoError(t, err)
		require.Equal(t, durable.Dead, j.Status)
		require.True(t, j.Stored)
		j, err = f.Job(f.ctx, k, ident.AtMillis(1))
		require.NoError(t, err)
		require.Zero(t, j)

		first := durable.Expiry{AtMs: mortal.ID.Millis() + 5000, ChannelNo: ch.No, ID: mortal.ID}
		second := durable.Expiry{AtMs: keyed.ID.Millis() + 7000, ChannelNo: ch.No, ID: keyed.ID}
		require.Equal(t, []durable.Expiry{first}, f.expiring(t, durable.Expiry{}, first.AtMs, 10))
		require.Equal(t, []durable.Expiry{first, second}, f.expiring(t, durable.Expiry{}, second.AtMs, 10))
		require.Equal(t, []durable.Expiry{second}, f.expiring(t, first, second.AtMs, 1))
		require.NoError(t, f.Expire(f.ctx, []durable.Expiry{first}, []durable.Expiry{second}, second.AtMs+1000))
		require.NoError(t, f.Expire(f.ctx, []durable.Expiry{first}, []durable.Expiry{second}, second.AtMs+1000), "again")
		require.Empty(t, f.expiring(t, durable.Expiry{}, second.AtMs, 10))
		second.AtMs += 1000
		require.Equal(t, []durable.Expiry{second}, f.expiring(t, durable.Expiry{}, second.AtMs, 10))
	},
	"a redriven job of such a message expires again": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		k := ks[0].No
		mortal, plain := f.message(ch), f.message(ch)
		mortal.TTLMs = 5000
		f.insert(t, mortal, plain)
		f.record(t, dead(k, mortal.ID, 1, 1000), dead(k, plain.ID, 1, 1000))
		at := mortal.ID.Millis() + time.Hour.Milliseconds()
		moved, err := f.Redrive(f.ctx, k, []ident.ID{mortal.ID, plain.ID}, at)
		require.NoError(t, err)
		require.Len(t, moved, 2)
		require.Equal(t, []durable.Expiry{{AtMs: at + 5000, ChannelNo: ch.No, ID: mortal.ID}},
			f.expiring(t, durable.Expiry{AtMs: at}, at+5000, 10))
		f.record(t, retry(k, mortal.ID, 1, at+100))
		require.Equal(t, at, f.state(t, k, mortal.ID).RedrivenMs, "a retry does not make it younger")
	},
	"a death that ends no attempt is not in the history, and happens once": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 1)
		f.record(t, retry(k, id[0], 1, 1000))
		o := durable.Expiration(k, id[0], 3, 1, 2000)
		f.record(t, o)
		require.Equal(t, durable.Expired, f.state(t, k, id[0]).Reason)
		attempts, err := f.Attempts(f.ctx, k, id[0], 10)
		require.NoError(t, err)
		require.Len(t, attempts, 1)
		_, err = f.Redrive(f.ctx, k, id[:1], 3000)
		require.NoError(t, err)
		f.record(t, o)
		require.Equal(t, durable.Open, f.state(t, k, id[0]).Status, "a late repetition ends no redriven job")
	},
	"automatic redrives are counted until one by request": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 1)
		for n := range 3 {
			at := int64(1000 * (n + 1))
			f.record(t, dead(k, id[0], 1, at))
			require.Equal(t, []durable.DeadHead{{ID: id[0], DiedMs: at, Reason: durable.AttemptsExhausted, Redrives: n}},
				f.deadHeads(t, k))
			moved, err := f.RedriveAgain(f.ctx, k, id[:1], at+1)
			require.NoError(t, err)
			require.Len(t, moved, 1)
		}
		f.record(t, dead(k, id[0], 1, 9000))
		_, err := f.Redrive(f.ctx, k, id[:1], 9001)
		require.NoError(t, err)
		f.record(t, dead(k, id[0], 1, 10_000))
		require.Zero(t, f.deadHeads(t, k)[0].Redrives)
	},
	"what is noted of a dead letter ends with that death": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 3)
		f.record(t, dead(k, id[0], 1, 1000), dead(k, id[1], 1, 1000), delivered(k, id[2], 1, 5000))
		heads := f.deadHeads(t, k)
		require.NoError(t, f.Dispose(f.ctx, k, heads[:1], durable.Discarded))
		require.NoError(t, f.Dispose(f.ctx, k, heads[1:], durable.Forwarded))
		require.NoError(t, f.Dispose(f.ctx, k, []durable.DeadHead{{ID: id[1], DiedMs: 999}}, durable.Kept), "another death")
		listed, err := f.DeadJobs(f.ctx, k, ident.ID{}, 10)
		require.NoError(t, err)
		require.Len(t, listed, 1)
		require.Equal(t, id[1], listed[0].ID)
		require.Equal(t, durable.Dead, f.state(t, k, id[0]).Status, "a discarded job is not delivered again")
		require.True(t, f.state(t, k, id[0]).Discarded)
		require.False(t, f.state(t, k, id[1]).Discarded)
		require.Equal(t, durable.Forwarded, f.deadHeads(t, k)[1].Disposal)
		_, err = f.Redrive(f.ctx, k, id[1:2], 2000)
		require.NoError(t, err)
		f.record(t, dead(k, id[1], 1, 3000))
		require.Equal(t, durable.Kept, f.deadHeads(t, k)[1].Disposal)
		at, err := f.LastDelivery(f.ctx, k)
		require.NoError(t, err)
		require.EqualValues(t, 5000, at)
		at, err = f.LastDelivery(f.ctx, k+1)
		require.NoError(t, err)
		require.Zero(t, at)
		page, next, err := f.DeadHeads(f.ctx, k, ident.ID{}, 1)
		require.NoError(t, err)
		require.Len(t, page, 1)
		page, next, err = f.DeadHeads(f.ctx, k, next, 2)
		require.NoError(t, err)
		require.Len(t, page, 1)
		require.Zero(t, next)
	},
	"a purge takes a discarded dead letter for over": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		in := f.messages(ch, 2)
		f.insert(t, in...)
		f.end(t, ks[0], durable.OutcomeDead, in...)
		require.NoError(t, f.Dispose(f.ctx, ks[0].No, f.deadHeads(t, ks[0].No)[:1], durable.Discarded))
		got, err := f.Purge(f.ctx, durable.Purge{ChannelNo: ch.No, Consumers: consumers(ks), Through: in[1].ID, Limit: 100})
		require.NoError(t, err)
		require.Equal(t, durable.Purged{Last: in[1].ID, Removed: 1, Kept: 1}, got)
		require.Len(t, f.deadHeads(t, ks[0].No), 1)
	},
}

func (f *fixture) deadHeads(t *testing.T, k uint32) []durable.DeadHead {
	t.Helper()
	heads, _, err := f.DeadHeads(f.ctx, k, ident.ID{}, 100)
	require.NoError(t, err)
	return heads
}

func (f *fixture) expiring(t *testing.T, after durable.Expiry, now int64, limit int) []durable.Expiry {
	t.Helper()
	rows, err := f.Expiring(f.ctx, after, now, limit)
	require.NoError(t, err)
	return rows
}
