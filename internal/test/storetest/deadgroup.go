package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/cause"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// deadOf is a death with an error of its own.
func deadOf(k uint32, id ident.ID, atMs int64, status int, text string) durable.Outcome {
	o := dead(k, id, 6, atMs)
	o.StatusCode, o.Cause, o.Error = status, text, "attempt 6 of 6 failed: "+text
	return o
}

// groups returns the groups of a consumer by fingerprint.
func (f *fixture) groups(t *testing.T, k uint32) map[cause.Fingerprint]durable.DeadGroup {
	t.Helper()
	all, err := f.DeadGroups(f.ctx, k, 1000)
	require.NoError(t, err)
	out := map[cause.Fingerprint]durable.DeadGroup{}
	for i, g := range all {
		require.Positive(t, g.Jobs)
		require.True(t, i == 0 || all[i-1].Jobs >= g.Jobs, "the largest one first")
		out[g.Fingerprint] = g
	}
	require.Len(t, out, len(all))
	return out
}

// letters returns all dead letters that are meant, page by page.
func (f *fixture) letters(t *testing.T, of durable.DeadSelection, down bool, size int) (out []durable.DeadJob) {
	t.Helper()
	from := ident.ID{}
	if down {
		from = ident.Max()
	}
	for {
		page, next, err := f.DeadLetters(f.ctx, of, from, down, size)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), size)
		out = append(out, page...)
		if from = next; next.IsZero() {
			return out
		}
	}
}

// requireGroups compares the counters with a scan.
func (f *fixture) requireGroups(t *testing.T, k uint32) map[cause.Fingerprint]durable.DeadGroup {
	t.Helper()
	want, in := map[cause.Fingerprint]int64{}, map[ident.ID]cause.Fingerprint{}
	for _, d := range f.letters(t, durable.DeadSelection{ConsumerNo: k}, false, 7) {
		want[d.Fingerprint]++
		in[d.ID] = d.Fingerprint
	}
	got := map[cause.Fingerprint]int64{}
	groups := f.groups(t, k)
	for print, g := range groups {
		got[print] = g.Jobs
		require.Equal(t, print, in[g.SampleID], "the sample is in the group")
	}
	require.Equal(t, want, got)
	n, approximate, err := f.CountDead(f.ctx, durable.DeadSelection{ConsumerNo: k})
	require.NoError(t, err)
	require.False(t, approximate)
	require.EqualValues(t, len(in), n)
	return groups
}

var deadGroupTests = map[string]func(*testing.T, *fixture){
	"each dead letter counts once in the group of its cause": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 6)
		require.Empty(t, f.groups(t, k))
		all := []durable.Outcome{deadOf(k, id[0], 3000, 500, "status 500"), deadOf(k, id[1], 1000, 500, "status 500"),
			deadOf(k, id[2], 2000, 0, `dial tcp 10.0.0.1:80: "refused"`), deadOf(k, id[3], 2500, 0,
				`dial tcp 10.9.9.9:443: "no"`),
			durable.Expiration(k, id[4], 3, 1, 4000)}
		f.record(t, all...)
		f.record(t, all...)
		f.record(t, deadOf(k, id[0], 9000, 404, "another end of a job that is dead"), deadOf(k, id[5], 9000, 500,
			"status 500"))
		groups := f.requireGroups(t, k)
		require.Equal(t, durable.DeadGroup{Fingerprint: cause.OfAttempt(500, "status 500"), Jobs: 3, FirstMs: 1000,
			LastMs: 9000, StatusCode: 500, Sample: "status 500", SampleID: id[5]}, groups[cause.OfAttempt(500,
			"status 500")])
		require.EqualValues(t, 2, groups[cause.OfAttempt(0, "dial tcp 1: `x`")].Jobs)
		require.Len(t, groups, 3)
	},
	"a group shrinks with its letters, and goes with the last one": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		in := f.messages(ch, 10)
		f.insert(t, in...)
		k, id := ks[0].No, ids(in)
		for i := range id {
			f.record(t, deadOf(k, id[i], int64(1000+i), 500, "status 500"))
		}
		_, err := f.Redrive(f.ctx, k, []ident.ID{id[0], id[9]}, 5000)
		require.NoError(t, err)
		require.EqualValues(t, 8, f.requireGroups(t, k)[cause.OfAttempt(500, "status 500")].Jobs)
		_, err = f.Reopen(f.ctx, k, id[1], 5000)
		require.NoError(t, err)
		heads, _, err := f.DeadHeads(f.ctx, k, id[2], 2)
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, f.Dispose(f.ctx, k, heads, durable.Discarded))
		}
		require.NoError(t, f.Dispose(f.ctx, k, []durable.DeadHead{{ID: id[4], DiedMs: 1}}, durable.Discarded),
			"another death")
		require.NoError(t, f.Dispose(f.ctx, k, heads, durable.Forwarded),
			"what is removed from the DLQ stays removed")
		late := delivered(k, id[4], 7, 6000)
		late.Tracked = true
		f.record(t, late)
		require.EqualValues(t, 4, f.requireGroups(t, k)[cause.OfAttempt(500, "status 500")].Jobs)
		purged, err := f.Purge(f.ctx, durable.Purge{ChannelNo: ch.No, Consumers: consumers(ks),
			Through: ident.Max(), Limit: 100,
			DeadBeforeMs: 1008})
		require.NoError(t, err)
		require.Equal(t, 6, purged.Removed)
		require.EqualValues(t, 1, f.requireGroups(t, k)[cause.OfAttempt(500, "status 500")].Jobs)
		_, err = f.Redrive(f.ctx, k, id, 7000)
		require.NoError(t, err)
		require.Empty(t, f.requireGroups(t, k))
		f.record(t, deadOf(k, id[8], 8000, 500, "status 501"))
		require.EqualValues(t, 8000, f.requireGroups(t, k)[cause.OfAttempt(500, "status 5")].FirstMs)
	},
	"a consumer has a bounded number of groups": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 130)
		for i := range id {
			text := ""
			for n := i; n > 0; n /= 20 {
				text += string(rune('g' + n%20))
			}
			f.record(t, deadOf(k, id[i], int64(1000+i), 0, "cause "+text))
		}
		groups := f.requireGroups(t, k)
		require.Len(t, groups, 101)
		require.EqualValues(t, 30, groups[cause.Other].Jobs)
		_, err := f.Redrive(f.ctx, k, id, 5000)
		require.NoError(t, err)
		require.Empty(t, f.requireGroups(t, k))
	},
	"the groups are right after any history, and with several brokers at once": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		in := f.messages(ch, 12)
		f.insert(t, in...)
		k, id := ks[0].No, ids(in)
		race(6, func(broker int) {
			r := rand.New(rand.NewPCG(uint64(broker), 7))
			for step := range 60 {
				at := int64(broker*1_000_000 + step*100)
				some := []ident.ID{id[r.IntN(len(id))], id[r.IntN(len(id))], id[r.IntN(len(id))]}
				switch r.IntN(6) {
				case 0, 1, 2:
					var batch []durable.Outcome
					for _, m := range some {
						batch = append(batch, deadOf(k, m, at, 500+r.IntN(3), fmt.Sprintf("status %c",
							'a'+r.IntN(3))))
					}
					if err := f.Record(f.ctx, batch); err != nil {
						t.Error(err)
					}
				case 3:
					if _, err := f.Redrive(f.ctx, k, some, at); err != nil {
						t.Error(err)
					}
				case 4:
					late := delivered(k, some[0], 9, at)
					late.Tracked = true
					if r.IntN(8) == 0 {
						if err := f.Record(f.ctx, []durable.Outcome{late}); err != nil {
							t.Error(err)
						}
					}
				case 5:
					heads, _, err := f.DeadHeads(f.ctx, k, some[0], 2)
					if err == nil && r.IntN(3) == 0 {
						err = f.Dispose(f.ctx, k, heads, durable.Discarded)
					}
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
		f.requireGroupRows(t, k, id)
		_, err := f.Purge(f.ctx, durable.Purge{ChannelNo: ch.No, Consumers: consumers(ks), Through: ident.Max(),
			Limit:        100,
			DeadBeforeMs: 1 << 50})
		require.NoError(t, err)
		f.requireGroupRows(t, k, id)
	},
	"dead letters are selected by cause, reason and time, upwards and downwards": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 9)
		for i := range id {
			o := deadOf(k, id[i], int64(1000+i), 500+i%2, "status")
			if i%3 == 0 {
				o.Reason = durable.Rejected
			}
			f.record(t, o)
		}
		f.record(t, delivered(k, id[8], 1, 5000)) // not tracked: its row stays, and is outranked
		var rejected, both durable.ReasonSet
		rejected.Add(durable.Rejected)
		both.Add(durable.Rejected)
		both.Add(durable.AttemptsExhausted)
		odd := cause.OfAttempt(501, "status")
		for _, c := range []struct {
			of   durable.DeadSelection
			want []int
		}{
			{durable.DeadSelection{}, []int{0, 1, 2, 3, 4, 5, 6, 7}},
			{durable.DeadSelection{Reasons: both}, []int{0, 1, 2, 3, 4, 5, 6, 7}},
			{durable.DeadSelection{Reasons: rejected}, []int{0, 3, 6}},
			{durable.DeadSelection{HasFingerprint: true, Fingerprint: odd}, []int{1, 3, 5, 7}},
			{durable.DeadSelection{HasFingerprint: true, Fingerprint: odd, Reasons: rejected}, []int{3}},
			{durable.DeadSelection{HasFingerprint: true, Fingerprint: 77}, nil},
			{durable.DeadSelection{FromMs: 1002, ToMs: 1004}, []int{2, 3, 4}},
			{durable.DeadSelection{FromMs: 1002, HasFingerprint: true, Fingerprint: odd}, []int{3, 5, 7}},
		} {
			c.of.ConsumerNo = k
			var up, down []ident.ID
			for _, i := range c.want {
				up, down = append(up, id[i]), append([]ident.ID{id[i]}, down...)
			}
			for _, size := range []int{1, 2, 100} {
				require.Equal(t, up, idsOf(f.letters(t, c.of, false, size)), "%+v", c.of)
				require.Equal(t, down, idsOf(f.letters(t, c.of, true, size)), "%+v", c.of)
			}
			among, err := f.DeadAmong(f.ctx, c.of, id[:8])
			require.NoError(t, err)
			require.Len(t, among, len(up), "%+v", c.of)
			for _, picks := range [][]ident.ID{nil, id[3:6]} {
				f.requireRedriveLetters(t, c.of, picks, id[:8], up)
			}
		}
		n, _, err := f.CountDead(f.ctx, durable.DeadSelection{ConsumerNo: k, HasFingerprint: true, Fingerprint: odd})
		require.NoError(t, err)
		require.EqualValues(t, 4, n)
		n, _, err = f.CountDead(f.ctx, durable.DeadSelection{ConsumerNo: k, Reasons: rejected, FromMs: 1001})
		require.NoError(t, err)
		require.EqualValues(t, 2, n)
	},
}

// requireRedriveLetters requires that a redrive of the selection, or of picks of it, has these letters until it
// is cancelled.
func (f *fixture) requireRedriveLetters(t *testing.T, of durable.DeadSelection, picks, among, want []ident.ID) {
	t.Helper()
	r, err := f.CreateRedriving(f.ctx, durable.Redriving{DeadSelection: of, TargetNo: 99}, picks)
	require.NoError(t, err)
	if picks != nil {
		want = slices.DeleteFunc(slices.Clone(want), func(id ident.ID) bool { return !slices.Contains(picks, id) })
	}
	got, err := f.RedriveLetters(f.ctx, r.ConsumerNo, r.No, among)
	require.NoError(t, err)
	require.ElementsMatch(t, want, got)
	_, err = f.ChangeRedriving(f.ctx, r.ConsumerNo, r.No, func(now *durable.Redriving) bool {
		now.State = durable.RedriveCancelled
		return true
	})
	require.NoError(t, err)
	got, err = f.RedriveLetters(f.ctx, r.ConsumerNo, r.No, among)
	require.NoError(t, err)
	require.Empty(t, got)
	got, err = f.RedriveLetters(f.ctx, r.ConsumerNo, r.No+1, among)
	require.NoError(t, err)
	require.Empty(t, got, "there is no such redrive")
}

func idsOf(all []durable.DeadJob) (out []ident.ID) {
	for _, d := range all {
		out = append(out, d.ID)
	}
	return out
}

// requireGroupRows compares the counters with the rows of dead letters, also those that a delivery
// outranks.
func (f *fixture) requireGroupRows(t *testing.T, k uint32, id []ident.ID) {
	t.Helper()
	var jobs int64
	for _, g := range f.groups(t, k) {
		n, _, err := f.CountDead(f.ctx, durable.DeadSelection{ConsumerNo: k, HasFingerprint: true,
			Fingerprint: g.Fingerprint,
			FromMs:      1})
		require.NoError(t, err)
		require.Equal(t, g.Jobs, n, g.Fingerprint)
		jobs += n
	}
	n, _, err := f.CountDead(f.ctx, durable.DeadSelection{ConsumerNo: k, FromMs: 1})
	require.NoError(t, err)
	require.Equal(t, n, jobs)
	require.LessOrEqual(t, n, int64(len(id)))
}
