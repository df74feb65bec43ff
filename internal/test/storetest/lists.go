package storetest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/cause"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

func rowIDs(rows []durable.JobRow) []ident.ID {
	out := make([]ident.ID, len(rows))
	for i := range rows {
		out[i] = rows[i].ID
	}
	return out
}

// picked returns some of the IDs, by their indexes.
func picked(ids []ident.ID, at ...int) (out []ident.ID) {
	for _, i := range at {
		out = append(out, ids[i])
	}
	return out
}

var listTests = map[string]func(*testing.T, *fixture){
	"jobs are listed with their states in both directions": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 2)
		in := f.messages(ch, 5)
		in[1].Key, in[1].Priority = "key", 7
		f.insert(t, in...)
		id, k := ids(in), &ks[0]
		f.record(t, delivered(k.No, id[0], 1, 1000), retry(k.No, id[1], 2, 2000), dead(k.No, id[2], 6, 3000),
			retry(ks[1].No, id[4], 1, 1000))
		all := durable.IDRange{To: ident.Max()}
		rows, err := f.JobRows(f.ctx, k, all, 10)
		require.NoError(t, err)
		require.Equal(t, id, rowIDs(rows))
		var states []durable.JobStatus
		for _, r := range rows {
			states = append(states, r.State.Status)
			require.True(t, r.Found)
		}
		require.Equal(t, []durable.JobStatus{durable.Delivered, durable.Open, durable.Dead, durable.Waiting, durable.Waiting},
			states)
		want := *in[1]
		want.Payload, want.Headers = nil, nil
		require.Equal(t, want, rows[1].Message)
		require.Equal(t, durable.JobState{Status: durable.Open, Attempts: 2, ChangedMs: 2000, NextMs: 7000, StatusCode: 503,
			Error: "unavailable"}, rows[1].State)
		rows, err = f.JobRows(f.ctx, k, durable.IDRange{From: id[1], To: id[3], Back: true}, 2)
		require.NoError(t, err)
		require.Equal(t, picked(id, 3, 2), rowIDs(rows))
		rows, err = f.JobRowsOf(f.ctx, k, []ident.ID{id[3], f.ids.Next(), id[0]})
		require.NoError(t, err)
		require.Equal(t, picked(id, 0, 3), rowIDs(rows))
		rows, err = f.JobRows(f.ctx, &durable.Consumer{ChannelNo: ch.No}, all, 10)
		require.NoError(t, err)
		require.Len(t, rows, 5, "without a consumer each message is there")
		rows, err = f.JobRows(f.ctx, &durable.Consumer{ChannelNo: ch.No + 1}, all, 10)
		require.NoError(t, err)
		require.Empty(t, rows)
	},
	"payloads are searched for bytes, and case counts": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		in := f.messages(ch, 5)
		for i, text := range []string{"an order", "An Order", "\x00\xffan order\x00", "", "50% of _rder"} {
			in[i].Payload = []byte(text)
		}
		f.insert(t, in...)
		for text, want := range map[string][]int{"an order": {2, 0}, "\xff": {2}, "%": {4}, "_rder": {4},
			"": {4, 3, 2, 1, 0}} {
			rows, err := f.SearchRows(f.ctx, &ks[0], durable.IDRange{To: ident.Max(), Back: true}, []byte(text), 10)
			require.NoError(t, err)
			require.Len(t, rows, 5)
			rows = slices.DeleteFunc(rows, func(r durable.JobRow) bool { return !r.Found })
			require.Equal(t, picked(ids(in), want...), rowIDs(rows), "%q", text)
		}
		rows, err := f.SearchRows(f.ctx, &ks[0], durable.IDRange{From: in[1].ID, To: in[2].ID}, []byte("an"), 10)
		require.NoError(t, err)
		require.Equal(t, []bool{false, true}, []bool{rows[0].Found, rows[1].Found})
	},
	"open jobs are listed in both directions": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		in := f.messages(ch, 6)
		f.insert(t, in...)
		id, k := ids(in), &ks[0]
		for _, i := range []int{0, 2, 3, 5} {
			f.record(t, retry(k.No, id[i], 1, 1000))
		}
		f.record(t, delivered(k.No, id[3], 2, 2000)) // untracked: its row stays
		rows, err := f.OpenRows(f.ctx, k, durable.IDRange{To: id[4]}, 10)
		require.NoError(t, err)
		require.Equal(t, picked(id, 0, 2, 3), rowIDs(rows))
		require.Equal(t, durable.Delivered, rows[2].State.Status)
		rows, err = f.OpenRows(f.ctx, k, durable.IDRange{From: id[1], To: ident.Max(), Back: true}, 2)
		require.NoError(t, err)
		require.Equal(t, picked(id, 5, 3), rowIDs(rows))
		oldest, err := f.OldestOpen(f.ctx)
		require.NoError(t, err)
		require.Equal(t, map[uint32]ident.ID{k.No: id[0]}, oldest)
	},
	"the settled watermark of one consumer is read": func(t *testing.T, f *fixture) {
		_, ks := f.channel(t, "c", 1)
		got, err := f.Settled(f.ctx, ks[0].No)
		require.NoError(t, err)
		require.Zero(t, got)
		to := f.ids.Next()
		_, err = f.SaveWatermarks(f.ctx, durable.Clock{}, []durable.Settled{{ConsumerNo: ks[0].No, Through: to}})
		require.NoError(t, err)
		got, err = f.Settled(f.ctx, ks[0].No)
		require.NoError(t, err)
		require.Equal(t, to, got)
	},
	"jobs that are due later are due now": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 120)
		for i := range id {
			f.record(t, retry(k, id[i], 1, int64(1000+i)))
		}
		require.NoError(t, f.Hasten(f.ctx, k, id[:100], 6050))
		require.NoError(t, f.Hasten(f.ctx, k, id[:100], 6060), "it may be repeated")
		require.NoError(t, f.Hasten(f.ctx, k, nil, 1))
		require.NoError(t, f.Hasten(f.ctx, k+1, id, 1), "another consumer's jobs")
		open, err := f.OpenJobs(f.ctx, k, ident.ID{}, 200)
		require.NoError(t, err)
		for i, j := range open {
			want := int64(6000 + i)
			if i < 100 {
				want = min(want, 6050)
			}
			require.Equal(t, want, j.NextMs, i)
			require.Equal(t, 1, j.Attempts)
		}
	},
	"dead letters are listed from the newest, and counted for all consumers": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 2)
		in := f.messages(ch, 5)
		f.insert(t, in...)
		id, k := ids(in), ks[0].No
		for _, i := range []int{0, 1, 3} {
			f.record(t, dead(k, id[i], 6, 1000))
		}
		f.record(t, dead(ks[1].No, id[4], 6, 1000))
		got, err := f.DeadJobsBack(f.ctx, k, ident.Max(), 2)
		require.NoError(t, err)
		require.Equal(t, picked(id, 3, 1), deadIDs(got))
		got, err = f.DeadJobsBack(f.ctx, k, id[1], 9)
		require.NoError(t, err)
		require.Equal(t, picked(id, 1, 0), deadIDs(got))
		n, err := f.DeadOfAll(f.ctx)
		require.NoError(t, err)
		require.Equal(t, map[uint32]int{k: 3, ks[1].No: 1}, n)
	},
	"a job that is purged is a dead letter, or forgotten": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 3)
		purged := func(i int, forget bool) durable.Outcome {
			return durable.Outcome{Kind: durable.OutcomeDead, Reason: durable.QueuePurged, ConsumerNo: k, ID: id[i], AtMs: 5000,
				Tracked: true, Error: "purged", Forget: forget}
		}
		f.record(t, retry(k, id[1], 2, 1000))
		f.record(t, purged(0, false), purged(1, true))
		f.record(t, purged(0, false), purged(1, true))
		require.Equal(t, durable.JobState{Status: durable.Dead, ChangedMs: 5000, Error: "purged",
			Reason: durable.QueuePurged, Fingerprint: cause.Of("purged", 0, "purged")}, f.state(t, k, id[0]))
		require.EqualValues(t, 1, f.requireGroups(t, k)[cause.Of("purged", 0, "purged")].Jobs,
			"a forgotten one is in no group")
		require.True(t, f.state(t, k, id[1]).Discarded)
		require.Equal(t, "purged", f.state(t, k, id[1]).Reason.String())
		listed, err := f.DeadJobs(f.ctx, k, ident.ID{}, 10)
		require.NoError(t, err)
		require.Equal(t, id[:1], deadIDs(listed))
		open, err := f.OpenJobs(f.ctx, k, ident.ID{}, 10)
		require.NoError(t, err)
		require.Empty(t, open)
		n, err := f.DeadOfAll(f.ctx)
		require.NoError(t, err)
		require.Equal(t, map[uint32]int{k: 1}, n)
		moved, err := f.Redrive(f.ctx, k, id[:1], 6000)
		require.NoError(t, err)
		require.Len(t, moved, 1, "a redrive by request brings one back")
		attempts, err := f.Attempts(f.ctx, k, id[0], 10)
		require.NoError(t, err)
		require.Empty(t, attempts, "it was no attempt")
	},
}
