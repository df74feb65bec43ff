package storetest

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

var deadTests = map[string]func(*testing.T, *fixture){
	"dead letters are listed in order, page by page": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 7)
		for _, j := range []int{3, 0, 6, 2} {
			f.record(t, dead(k, id[j], 6, 1000))
		}
		page, err := f.DeadJobs(f.ctx, k, ident.ID{}, 3)
		require.NoError(t, err)
		require.Equal(t, []ident.ID{id[0], id[2], id[3]}, deadIDs(page))
		page, err = f.DeadJobs(f.ctx, k, id[3].Next(), 3)
		require.NoError(t, err)
		require.Equal(t, []ident.ID{id[6]}, deadIDs(page))
		page, err = f.DeadJobs(f.ctx, k, id[6], 3)
		require.NoError(t, err)
		require.Len(t, page, 1, "a page begins with its first ID")
	},
	"a redriven job starts again": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 3)
		d := dead(k, id[0], 6, 1000)
		f.record(t, d, retry(k, id[1], 2, 1000))
		moved, err := f.Redrive(f.ctx, k, id, 5000)
		require.NoError(t, err)
		require.Equal(t, []durable.OpenJob{{ID: id[0], Priority: 3, Attempts: 0, NextMs: 5000, RedrivenMs: 5000}}, moved)
		require.Equal(t, durable.Open, f.state(t, k, id[0]).Status)
		require.Equal(t, 2, f.state(t, k, id[1]).Attempts, "a job that is not dead is left alone")

		f.record(t, d) // the outcome that made the job dead, once more
		require.Equal(t, durable.Open, f.state(t, k, id[0]).Status)
		f.record(t, retry(k, id[0], 1, 6000))
		require.Equal(t, 1, f.state(t, k, id[0]).Attempts)
		f.record(t, dead(k, id[0], 6, 9000))
		require.Equal(t, durable.Dead, f.state(t, k, id[0]).Status)
		attempts, err := f.Attempts(f.ctx, k, id[0], 100)
		require.NoError(t, err)
		require.Len(t, attempts, 3, "the attempts before and after the redrive are kept")
		moved, err = f.Redrive(f.ctx, k, nil, 1)
		require.NoError(t, err)
		require.Empty(t, moved)
	},
	"each job is moved by one of several racing redrives": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 60)
		for _, j := range id {
			f.record(t, dead(k, j, 6, 1000))
		}
		var mu sync.Mutex
		got := map[ident.ID]int{}
		race(5, func(w int) {
			mine := slices.Clone(id)
			if w%2 == 1 {
				slices.Reverse(mine)
			}
			moved, err := f.Redrive(f.ctx, k, mine, 5000)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, j := range moved {
				got[j.ID]++
			}
		})
		require.Len(t, got, len(id))
		for _, n := range got {
			require.Equal(t, 1, n)
		}
	},
	"more dead letters than fit one statement are redriven": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 1200)
		var all []durable.Outcome
		for _, j := range id {
			all = append(all, dead(k, j, 6, 1000))
		}
		f.record(t, all...)
		moved, err := f.Redrive(f.ctx, k, id, 5000)
		require.NoError(t, err)
		require.Len(t, moved, len(id))
		open, err := f.OpenJobs(f.ctx, k, ident.ID{}, 2000)
		require.NoError(t, err)
		require.Len(t, open, len(id))
		page, err := f.OpenJobs(f.ctx, k, id[1198], 10)
		require.NoError(t, err)
		require.Len(t, page, 2)
	},
	"a revived job keeps its attempts, and one of several racing calls gets it": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 2)
		f.record(t, dead(k, id[0], 6, 1000), retry(k, id[1], 1, 1000))
		var won atomic.Int32
		race(8, func(int) {
			j, err := f.Reopen(f.ctx, k, id[0], 7000)
			switch {
			case err == nil:
				won.Add(1)
				if want := (durable.OpenJob{ID: id[0], Priority: 3, Attempts: 6, NextMs: 7000, RedrivenMs: 7000}); j != want {
					t.Errorf("%+v", j)
				}
			default:
				if !isNotFound(err) {
					t.Error(err)
				}
			}
		})
		require.EqualValues(t, 1, won.Load())
		require.Equal(t, durable.Open, f.state(t, k, id[0]).Status)
		_, err := f.Reopen(f.ctx, k, id[1], 1)
		require.ErrorIs(t, err, durable.ErrNotFound)
	},
	"of a redrive and a revival that race for a job, one succeeds": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 20)
		for _, j := range id {
			f.record(t, dead(k, j, 6, 1000))
			var won atomic.Int32
			race(2, func(i int) {
				if i == 0 {
					moved, err := f.Redrive(f.ctx, k, []ident.ID{j}, 1)
					if err != nil {
						t.Error(err)
					}
					won.Add(int32(len(moved)))
				} else if _, err := f.Reopen(f.ctx, k, j, 1); err == nil {
					won.Add(1)
				} else if !isNotFound(err) {
					t.Error(err)
				}
			})
			require.EqualValues(t, 1, won.Load())
		}
	},
}

func deadIDs(jobs []durable.DeadJob) []ident.ID {
	out := make([]ident.ID, len(jobs))
	for i, j := range jobs {
		out[i] = j.ID
	}
	return out
}
