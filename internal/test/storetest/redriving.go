package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/cause"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// redriving begins a redrive of the letters of a consumer.
func (f *fixture) redriving(t *testing.T, r durable.Redriving, picks ...ident.ID) durable.Redriving {
	t.Helper()
	out, err := f.CreateRedriving(f.ctx, r, picks)
	require.NoError(t, err)
	stored, err := f.Redriving(f.ctx, out.ConsumerNo, out.No)
	require.NoError(t, err)
	require.Equal(t, stored, out)
	return out
}

func (f *fixture) busy(t *testing.T) (nos []uint32) {
	t.Helper()
	all, err := f.BusyRedrivings(f.ctx, 0, 0, 100)
	require.NoError(t, err)
	for _, r := range all {
		nos = append(nos, r.No)
	}
	return nos
}

func becomes(state durable.RedrivingState) func(*durable.Redriving) bool {
	return func(r *durable.Redriving) bool {
		r.State = state
		return true
	}
}

func openIDs(jobs []durable.OpenJob) (out []ident.ID) {
	for _, j := range jobs {
		out = append(out, j.ID)
	}
	return out
}

var redrivingTests = map[string]func(*testing.T, *fixture){
	"a step opens letters and moves the cursor, and is taken once": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 5)
		for i := range id {
			f.record(t, deadOf(k, id[i], int64(1000+i), 500, "status 500"))
		}
		all := durable.DeadSelection{ConsumerNo: k}
		r := f.redriving(t, durable.Redriving{DeadSelection: all, Rate: "5/1s", Canary: true, Matched: 5})
		require.EqualValues(t, 1, r.No)
		require.Equal(t, []uint32{1}, f.busy(t))
		step := durable.RedriveStep{ConsumerNo: k, No: 1, Through: id[1], IDs: id[:2], NowMs: 5000}
		moved, after, err := f.AdvanceRedriving(f.ctx, step)
		require.NoError(t, err)
		require.Equal(t, id[:2], openIDs(moved))
		require.Equal(t, []any{id[1], int64(2), int64(2), int64(5000)}, []any{after.Cursor, after.Redriven,
			after.StageJobs,
			after.StageMs})
		again, same, err := f.AdvanceRedriving(f.ctx, step)
		require.NoError(t, err)
		require.Empty(t, again, "from another cursor")
		require.Equal(t, after, same)
		require.Equal(t, durable.Open, f.state(t, k, id[0]).Status)
		require.EqualValues(t, 3, f.requireGroups(t, k)[cause.OfAttempt(500, "status 500")].Jobs)
		jobs, err := f.RedrivenJobs(f.ctx, &after, ident.ID{}, 10)
		require.NoError(t, err)
		require.Equal(t, []durable.RedrivenJob{{ID: id[0], MovedMs: 5000, Fingerprint: cause.OfAttempt(500,
			"status 500")},
			{ID: id[1], MovedMs: 5000, Fingerprint: cause.OfAttempt(500, "status 500")}}, jobs)
		_, _, err = f.AdvanceRedriving(f.ctx, durable.RedriveStep{ConsumerNo: k, No: 9})
		require.ErrorIs(t, err, durable.ErrNotFound)
	},
	"one of several brokers takes a step": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 40)
		for i := range id {
			f.record(t, deadOf(k, id[i], int64(1000+i), 500, "status 500"))
		}
		r := f.redriving(t, durable.Redriving{DeadSelection: durable.DeadSelection{ConsumerNo: k}})
		race(4, func(int) {
			now := r
			for now.Cursor != id[39] {
				page, _, err := f.DeadLetters(f.ctx, now.DeadSelection, now.Cursor.Next(), false, 3)
				if err != nil {
					t.Error(err)
					return
				}
				through := id[39]
				if len(page) == 3 {
					through = page[2].ID
				}
				if _, now, err = f.AdvanceRedriving(f.ctx, durable.RedriveStep{ConsumerNo: k, No: 1, From: now.Cursor,
					Through: through, IDs: idsOf(page), NowMs: 5000}); err != nil {
					t.Error(err)
					return
				}
			}
		})
		after, err := f.Redriving(f.ctx, k, 1)
		require.NoError(t, err)
		require.EqualValues(t, 40, after.Redriven)
		require.Empty(t, f.requireGroups(t, k))
	},
	"each outcome of a redriven job counts once": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 3)
		for i := range id {
			f.record(t, deadOf(k, id[i], int64(1000+i), 500, "status 500"))
		}
		f.redriving(t, durable.Redriving{DeadSelection: durable.DeadSelection{ConsumerNo: k}, Canary: true})
		_, _, err := f.AdvanceRedriving(f.ctx, durable.RedriveStep{ConsumerNo: k, No: 1, Through: id[2], IDs: id,
			NowMs: 5000})
		require.NoError(t, err)
		ends := []durable.RedriveEnd{{ID: id[0]}, {ID: id[1], Dead: true, Again: true}}
		race(3, func(int) {
			if _, err := f.SettleRedriving(f.ctx, k, 1, ends); err != nil {
				t.Error(err)
			}
		})
		r, err := f.ChangeRedriving(f.ctx, k, 1, becomes(durable.RedriveDone))
		require.NoError(t, err)
		require.Equal(t, [5]int64{1, 1, 3, 2, 1}, [5]int64{r.Delivered, r.Dead, r.StageJobs, r.StageOver,
			r.StageAgain})
		require.True(t, r.Busy, "one job is not over")
		r, err = f.SettleRedriving(f.ctx, k, 1, []durable.RedriveEnd{{ID: id[2]}})
		require.NoError(t, err)
		require.False(t, r.Busy)
		require.EqualValues(t, 2, r.Delivered)
		require.Empty(t, f.busy(t))
		_, err = f.ChangeRedriving(f.ctx, k, 1, becomes(durable.RedrivePaused))
		require.ErrorIs(t, err, durable.ErrRedriveEnded)
		_, err = f.ChangeRedriving(f.ctx, k, 1, func(*durable.Redriving) bool { return false })
		require.NoError(t, err)
	},
	"a step opens what is meant only, and nothing while the redrive is held": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 4)
		f.record(t, deadOf(k, id[0], 1000, 500, "status a"), deadOf(k, id[1], 1000, 500, "status b"),
			deadOf(k, id[2], 1000, 500, "status a"))
		heads, _, err := f.DeadHeads(f.ctx, k, id[2], 1)
		require.NoError(t, err)
		require.NoError(t, f.Dispose(f.ctx, k, heads, durable.Discarded))
		r := f.redriving(t, durable.Redriving{DeadSelection: durable.DeadSelection{ConsumerNo: k,
			HasFingerprint: true,
			Fingerprint:    cause.OfAttempt(500, "status a")}}, id...)
		picks, err := f.RedrivePicks(f.ctx, &r, ident.ID{}, 10)
		require.NoError(t, err)
		require.Equal(t, id, picks)
		pause := func(to durable.RedrivingState) {
			_, err := f.ChangeRedriving(f.ctx, k, 1, becomes(to))
			require.NoError(t, err)
		}
		pause(durable.RedrivePaused)
		require.Empty(t, f.busy(t))
		step := durable.RedriveStep{ConsumerNo: k, No: 1, Through: id[3], IDs: id, NowMs: 5000}
		moved, _, err := f.AdvanceRedriving(f.ctx, step)
		require.NoError(t, err)
		require.Empty(t, moved)
		pause(durable.RedriveRunning)
		moved, _, err = f.AdvanceRedriving(f.ctx, step)
		require.NoError(t, err)
		require.Equal(t, id[:1], openIDs(moved))
		picks, err = f.RedrivePicks(f.ctx, &r, ident.ID{}, 10)
		require.NoError(t, err)
		require.Equal(t, id[1:], picks)
		pause(durable.RedriveDone)
		picks, err = f.RedrivePicks(f.ctx, &r, ident.ID{}, 10)
		require.NoError(t, err)
		require.Empty(t, picks)
	},
	"a consumer has a bounded number of redrives, which go with it": func(t *testing.T, f *fixture) {
		_, ks := f.channel(t, "c", 2)
		all := durable.Redriving{DeadSelection: durable.DeadSelection{ConsumerNo: ks[0].No}}
		for range durable.MaxRedrives {
			f.redriving(t, all)
		}
		_, err := f.CreateRedriving(f.ctx, all, nil)
		require.ErrorIs(t, err, durable.ErrTooManyRedrives)
		for no := uint32(1); no <= 120; no++ {
			_, err := f.ChangeRedriving(f.ctx, ks[0].No, no, becomes(durable.RedriveCancelled))
			require.NoError(t, err)
			f.redriving(t, all)
		}
		list, err := f.Redrivings(f.ctx, ks[0].No, 1<<32-1, 1000)
		require.NoError(t, err)
		require.Len(t, list, 100)
		require.EqualValues(t, 136, list[0].No)
		list, err = f.Redrivings(f.ctx, ks[0].No, 50, 3)
		require.NoError(t, err)
		require.EqualValues(t, []uint32{50, 49, 48}, []uint32{list[0].No, list[1].No, list[2].No})
		_, err = f.DeleteConsumer(f.ctx, "c", durable.Put{ID: ks[0].ID})
		require.NoError(t, err)
		require.Empty(t, f.busy(t))
		_, err = f.CreateRedriving(f.ctx, all, nil)
		require.ErrorIs(t, err, durable.ErrNotFound)
		_, err = f.CreateRedriving(f.ctx, durable.Redriving{DeadSelection: durable.DeadSelection{ConsumerNo: 999}},
			nil)
		require.ErrorIs(t, err, durable.ErrNotFound)
	},
}
