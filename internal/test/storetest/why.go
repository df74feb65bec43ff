package storetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

func (f *fixture) circumstances(t *testing.T, k durable.Consumer) durable.Circumstances {
	t.Helper()
	c, err := f.CircumstancesOf(f.ctx, k.No)
	require.NoError(t, err)
	return c
}

var whyTests = map[string]func(*testing.T, *fixture){
	"of the facts of brokers the newest attempt counts": func(t *testing.T, f *fixture) {
		_, ks := f.channel(t, "c", 3)
		no := ks[1].No
		require.NoError(t, f.KeepFacts(f.ctx, nil))
		require.Zero(t, f.circumstances(t, ks[1]).AttemptMs)
		long := strings.Repeat("é", 200)
		require.NoError(t, f.KeepFacts(f.ctx, []durable.Fact{{ConsumerNo: ks[0].No, AttemptMs: 5, SuccessMs: 5},
			{ConsumerNo: no, AttemptMs: 20, SuccessMs: 10, StatusCode: 503, Error: long}}))
		require.NoError(t, f.KeepFacts(f.ctx, []durable.Fact{{ConsumerNo: no, AttemptMs: 15, SuccessMs: 15,
			StatusCode: 204}}))
		got := f.circumstances(t, ks[1])
		require.Equal(t, durable.Fact{ConsumerNo: no, AttemptMs: 20, SuccessMs: 15, StatusCode: 503,
			Error: strings.Repeat("é", 127)}, got.Fact)
		race(6, func(i int) {
			ms := int64(100 + i)
			require.NoError(t, f.KeepFacts(f.ctx, []durable.Fact{{ConsumerNo: ks[0].No, AttemptMs: ms, StatusCode: 200 + i},
				{ConsumerNo: no, AttemptMs: ms, SuccessMs: ms, StatusCode: 200 + i}}))
		})
		require.Equal(t, durable.Fact{ConsumerNo: no, AttemptMs: 105, SuccessMs: 105, StatusCode: 205},
			f.circumstances(t, ks[1]).Fact)
		require.Zero(t, f.circumstances(t, ks[2]).AttemptMs)
		facts, err := f.Facts(f.ctx, []uint32{ks[0].No, no, ks[2].No})
		require.NoError(t, err)
		require.ElementsMatch(t, []durable.Fact{{ConsumerNo: ks[0].No, AttemptMs: 105, SuccessMs: 5, StatusCode: 205},
			{ConsumerNo: no, AttemptMs: 105, SuccessMs: 105, StatusCode: 205}}, facts)
		for _, ms := range []int64{300, 200} {
			require.NoError(t, f.KeepFacts(f.ctx, []durable.Fact{{ConsumerNo: no, ClaimMs: ms}}))
		}
		require.Equal(t, durable.Fact{ConsumerNo: no, AttemptMs: 105, SuccessMs: 105, StatusCode: 205, ClaimMs: 300},
			f.circumstances(t, ks[1]).Fact, "a claim is no attempt")
		_, err = f.CircumstancesOf(f.ctx, 9999)
		require.ErrorIs(t, err, durable.ErrNotFound)
	},
	"the circumstances of a consumer are in one answer": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		require.True(t, f.hold(t, ks[0], 9000))
		_, _, err := f.CountPace(f.ctx, ks[0].No, ks[0].CallbackURL, 1, 2, 100, func(p durable.Pace) durable.Pace {
			p.Mode = durable.PaceSlow
			return p
		})
		require.NoError(t, err)
		_, _, err = f.SetChannelPaused(f.ctx, ch.ID, true)
		require.NoError(t, err)
		c := f.circumstances(t, ks[0])
		require.Equal(t, ks[0].Version, c.Version)
		require.True(t, c.ChannelPaused)
		require.EqualValues(t, 9000, c.Hold.UntilMs)
		require.Equal(t, "503", c.Hold.By)
		require.Equal(t, durable.PaceSlow, c.Pace.Mode)
		require.True(t, c.Settled.IsZero())
		require.NoError(t, f.KeepFacts(f.ctx, []durable.Fact{{ConsumerNo: ks[0].No, AttemptMs: 5}}))
		_, err = f.DeleteConsumer(f.ctx, "c", durable.Put{ID: ks[0].ID})
		require.NoError(t, err)
		require.Zero(t, f.circumstances(t, ks[0]).AttemptMs, "the facts end with the consumer")
	},
	"jobs that wait are counted by what they wait for": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		k := ks[0].No
		batch := f.messages(ch, 6)
		f.insert(t, batch...)
		id := ids(batch)
		back := func(id ident.ID, attempts int, atMs, nextMs int64) durable.Outcome {
			return durable.Outcome{Kind: durable.OutcomeGivenBack, ConsumerNo: k, ID: id, Attempts: attempts, AtMs: atMs,
				NextMs: nextMs, Tracked: true, Phase: durable.PhaseGivenBack}
		}
		f.record(t, retry(k, id[0], 1, 1000))   // until 6000
		f.record(t, back(id[1], 0, 2000, 9000)) // was never attempted
		f.record(t, retry(k, id[2], 1, 1500))   // failed,
		f.record(t, back(id[2], 1, 1600, 9000)) // and was given back then
		f.record(t, back(id[3], 0, 1700, 1800)) // was given back,
		f.record(t, retry(k, id[3], 1, 3000))   // and failed then
		f.record(t, back(id[4], 0, 1000, 1000)) // is due
		open, all, err := f.UnfinishedJobs(f.ctx, ks[0], ident.ID{}, 1000)
		require.NoError(t, err)
		require.True(t, all)
		require.ElementsMatch(t, []durable.Unfinished{
			{ID: id[0], NextMs: 6000, ChangedMs: 1000}, {ID: id[1], NextMs: 9000, ChangedMs: 2000, Returned: true},
			{ID: id[2], NextMs: 9000, ChangedMs: 1600, Returned: true}, {ID: id[3], NextMs: 8000, ChangedMs: 3000},
			{ID: id[4], NextMs: 1000, ChangedMs: 1000, Returned: true}, {ID: id[5]},
		}, open)
		for limit := 1; limit < 7; limit++ {
			_, all, err = f.UnfinishedJobs(f.ctx, ks[0], ident.ID{}, limit)
			require.NoError(t, err)
			require.False(t, all, "there are more messages")
		}
		f.record(t, delivered(k, id[5], 1, 5000), delivered(k, id[0], 2, 5000), dead(k, id[1], 1, 5000))
		open, _, err = f.UnfinishedJobs(f.ctx, ks[0], ident.ID{}, 1000)
		require.NoError(t, err)
		require.Len(t, open, 3)
		open, _, err = f.UnfinishedJobs(f.ctx, ks[0], id[5], 1000)
		require.NoError(t, err)
		require.Len(t, open, 3, "jobs with a row are open behind the watermark, too")
		gone := f.message(ch) // and removed, before its lease ended
		f.record(t, retry(k, gone.ID, 1, 1000))
		open, _, err = f.UnfinishedJobs(f.ctx, ks[0], id[5], 1000)
		require.NoError(t, err)
		require.Len(t, open, 3, "the job of a message that is gone is over")
	},
	"the plight of a job has its message, its state and its consumer": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 3)
		m := f.message(ch)
		m.Priority = 7
		f.insert(t, m)
		f.record(t, delivered(ks[0].No, m.ID, 1, 1000), retry(ks[1].No, m.ID, 2, 2000), dead(ks[2].No, m.ID, 3, 3000))
		p, err := f.PlightOf(f.ctx, ch.No, m.ID, ks[1].No)
		require.NoError(t, err)
		require.Equal(t, ks[1].No, p.ConsumerNo)
		require.EqualValues(t, 1, p.ProducerNo)
		require.Equal(t, m.Head(), p.Head)
		require.Equal(t, f.state(t, ks[1].No, m.ID), p.Job)
		require.False(t, p.Returned)
		_, err = f.PlightOf(f.ctx, ch.No, f.ids.Next(), ks[1].No)
		require.ErrorIs(t, err, durable.ErrNotFound)
		all, err := f.Plights(f.ctx, ch.No, m.ID, 10)
		require.NoError(t, err)
		require.Len(t, all, 3)
		for i, status := range []durable.JobStatus{durable.Delivered, durable.Open, durable.Dead} {
			require.Equal(t, ks[i].No, all[i].ConsumerNo)
			require.Equal(t, status, all[i].Job.Status)
		}
		require.Equal(t, durable.AttemptsExhausted, all[2].Job.Reason)
		require.Equal(t, "out of attempts", all[2].Job.Error)
		some, err := f.Plights(f.ctx, ch.No, m.ID, 2)
		require.NoError(t, err)
		require.Len(t, some, 2)
		f.record(t, durable.Outcome{Kind: durable.OutcomeGivenBack, ConsumerNo: ks[1].No, ID: m.ID, Attempts: 2, AtMs: 4000,
			NextMs: 9000, Tracked: true, Phase: durable.PhaseGivenBack})
		p, err = f.PlightOf(f.ctx, ch.No, m.ID, ks[1].No)
		require.NoError(t, err)
		require.True(t, p.Returned)
	},
	"the plight of a job that is over tells whether attempts of it were removed": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 4)
		m := f.message(ch)
		f.insert(t, m)
		at := m.ID.Millis() + 1000
		for _, k := range ks {
			f.record(t, retry(k.No, m.ID, 1, at))
		}
		taken, said := delivered(ks[0].No, m.ID, 2, at+2000), delivered(ks[1].No, m.ID, 2, at+2000)
		taken.Tracked, said.Tracked, said.Note = true, true, "the status URL says" // which is an attempt, too
		f.record(t, taken, said, dead(ks[2].No, m.ID, 2, at+2000), retry(ks[3].No, m.ID, 2, at+2000))
		removed := func() (times []int64) {
			all, err := f.Plights(f.ctx, ch.No, m.ID, 10)
			require.NoError(t, err)
			for i := range all {
				times = append(times, all[i].RemovedAttempts())
			}
			one, err := f.PlightOf(f.ctx, ch.No, m.ID, ks[1].No)
			require.NoError(t, err)
			require.Equal(t, times[1], one.RemovedAttempts())
			return times
		}
		want := make([]int64, len(ks))
		require.Equal(t, want, removed())
		for i, k := range ks {
			_, n, err := f.RemoveOldAttempts(f.ctx, durable.OldAttempts{ChannelNo: ch.No, ConsumerNo: k.No, Through: m.ID,
				BeforeMs: at + 1000, Limit: 10})
			require.NoError(t, err)
			if i < 3 {
				want[i] = at + 1000
			}
			require.Equal(t, i < 3, n == 1, "those of an open job stay")
			require.Equal(t, want, removed())
		}
	},
	"the first job of a key that is not over blocks the others": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 2)
		k := ks[0]
		var batch []*durable.Message
		for range 5 {
			batch = append(batch, keyed(f.message(ch), "a"))
		}
		f.insert(t, batch...)
		blocker := func(i int, dead bool) (ident.ID, durable.JobState) {
			p, err := f.Blocker(f.ctx, k, batch[i].ID, dead)
			if err != nil {
				require.ErrorIs(t, err, durable.ErrNotFound)
			}
			return p.Head.ID, p.Job
		}
		id, _ := blocker(4, true)
		require.Equal(t, batch[0].ID, id)
		f.record(t, delivered(k.No, batch[0].ID, 1, 1000), dead(k.No, batch[1].ID, 2, 2000),
			retry(k.No, batch[2].ID, 1, 3000))
		id, state := blocker(4, true)
		require.Equal(t, batch[1].ID, id)
		require.Equal(t, durable.Dead, state.Status)
		id, state = blocker(4, false)
		require.Equal(t, batch[2].ID, id, "dead letters are skipped")
		require.Equal(t, durable.Open, state.Status)
		id, _ = blocker(1, true)
		require.Zero(t, id)
		id, _ = blocker(0, true)
		require.Zero(t, id)
		p, err := f.Blocker(f.ctx, ks[1], batch[4].ID, true)
		require.NoError(t, err)
		require.Equal(t, batch[0].ID, p.Head.ID, "for another consumer")
	},
}
