package storetest

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/cause"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// jobs returns n stored messages and the number of their only consumer.
func (f *fixture) jobs(t *testing.T, n int) (uint32, []ident.ID) {
	ch, ks := f.channel(t, "c", 1)
	batch := f.messages(ch, n)
	f.insert(t, batch...)
	return ks[0].No, ids(batch)
}

func (f *fixture) record(t *testing.T, outcomes ...durable.Outcome) {
	t.Helper()
	require.NoError(t, f.Record(f.ctx, outcomes))
}

func (f *fixture) state(t *testing.T, k uint32, id ident.ID) durable.JobState {
	t.Helper()
	states, err := f.JobStates(f.ctx, k, []ident.ID{id})
	require.NoError(t, err)
	return states[id]
}

func delivered(k uint32, id ident.ID, attempts int, atMs int64) durable.Outcome {
	return durable.Outcome{Kind: durable.OutcomeDelivered, ConsumerNo: k, ID: id, Attempts: attempts, AtMs: atMs,
		StatusCode: 200}
}

func retry(k uint32, id ident.ID, attempts int, atMs int64) durable.Outcome {
	return durable.Outcome{
		Kind: durable.OutcomeRetry, ConsumerNo: k, ID: id, Priority: 3, Attempts: attempts, AtMs: atMs,
		StatusCode: 503, NextMs: atMs + 5000, Error: "unavailable", Answer: []byte("try later"), DurationMs: 12,
		Tracked: attempts > 1,
	}
}

func dead(k uint32, id ident.ID, attempts int, atMs int64) durable.Outcome {
	o := retry(k, id, attempts, atMs)
	o.Kind, o.NextMs, o.Error, o.Reason = durable.OutcomeDead, 0, "out of attempts", durable.AttemptsExhausted
	return o
}

var outcomeTests = map[string]func(*testing.T, *fixture){
	"a job without an outcome is waiting": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 2)
		states, err := f.JobStates(f.ctx, k, id)
		require.NoError(t, err)
		require.Empty(t, states)
		require.Equal(t, durable.Waiting, states[id[0]].Status)
		require.NoError(t, f.Record(f.ctx, nil))
	},
	"a delivered job keeps the attempt that succeeded first": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 3)
		f.record(t, delivered(k, id[0], 1, 1000), delivered(k, id[1], 1, 1001))
		f.record(t, delivered(k, id[0], 2, 2000), delivered(k, id[2], 1, 1002))
		require.Equal(t, durable.JobState{Status: durable.Delivered, Attempts: 1, ChangedMs: 1000, StatusCode: 200},
			f.state(t, k, id[0]))
		states, err := f.JobStates(f.ctx, k, id)
		require.NoError(t, err)
		require.Len(t, states, 3)
		other, err := f.JobStates(f.ctx, k+1, id)
		require.NoError(t, err)
		require.Empty(t, other, "another consumer's job is another job")
	},
	"a large batch of successes is recorded whole": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 2300)
		var all []durable.Outcome
		for i := len(id) - 1; i >= 0; i-- {
			all = append(all, delivered(k, id[i], 1, int64(i)))
		}
		f.record(t, all...)
		states, err := f.JobStates(f.ctx, k, id)
		require.NoError(t, err)
		require.Len(t, states, len(id))
		require.Equal(t, int64(17), states[id[17]].ChangedMs)
	},
	"a retry opens a job, later ones move it, repeated and late ones do not": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 1)
		f.record(t, retry(k, id[0], 1, 1000))
		want := durable.JobState{Status: durable.Open, Attempts: 1, ChangedMs: 1000, NextMs: 6000, StatusCode: 503,
			Error: "unavailable"}
		require.Equal(t, want, f.state(t, k, id[0]))
		second := retry(k, id[0], 2, 2000)
		second.Error = "again"
		f.record(t, second)
		f.record(t, retry(k, id[0], 1, 1000), second)
		f.record(t, retry(k, id[0], 1, 1500)) // late, from a broker that was stuck
		want = durable.JobState{Status: durable.Open, Attempts: 2, ChangedMs: 2000, NextMs: 7000, StatusCode: 503,
			Error: "again"}
		require.Equal(t, want, f.state(t, k, id[0]))
		open, err := f.OpenJobs(f.ctx, k, ident.ID{}, 10)
		require.NoError(t, err)
		require.Equal(t, []durable.OpenJob{{ID: id[0], Priority: 3, Attempts: 2, NextMs: 7000}}, open)
		attempts, err := f.Attempts(f.ctx, k, id[0], 100)
		require.NoError(t, err)
		require.Len(t, attempts, 3)
		require.Equal(t, durable.Attempt{No: 1, AtMs: 1000, StatusCode: 503, Error: "unavailable", DurationMs: 12,
			Answer: []byte("try later")}, attempts[0])
		require.Equal(t, 2, attempts[2].No)
		newest, err := f.Attempts(f.ctx, k, id[0], 2)
		require.NoError(t, err)
		require.Equal(t, attempts[1:], newest, "the newest, in order of time")
	},
	"a job that is given back keeps its attempts, and is due at the time that its worker said": func(t *testing.T,
		f *fixture) {
		k, id := f.jobs(t, 2)
		back := durable.Outcome{Kind: durable.OutcomeGivenBack, ConsumerNo: k, ID: id[0], Priority: 3, AtMs: 1000,
			NextMs: 9000, Phase: durable.PhaseGivenBack, Error: "given back"}
		f.record(t, back)
		f.record(t, back) // again
		want := durable.JobState{Status: durable.Open, ChangedMs: 1000, NextMs: 9000, GivenBack: 1}
		require.Equal(t, want, f.state(t, k, id[0]))
		f.record(t, retry(k, id[0], 1, 2000), retry(k, id[1], 1, 2000))
		again := back
		again.Attempts, again.AtMs, again.NextMs = 1, 3000, 8000
		f.record(t, again)
		want = durable.JobState{Status: durable.Open, Attempts: 1, ChangedMs: 3000, NextMs: 8000, StatusCode: 503,
			Error: "unavailable", GivenBack: 2}
		require.Equal(t, want, f.state(t, k, id[0]), "the failure before it is not forgotten")
		late := back
		late.AtMs = 1500
		f.record(t, late)
		require.Equal(t, want, f.state(t, k, id[0]), "an attempt came after it")
		stored, err := f.Job(f.ctx, &durable.Consumer{No: k}, id[0])
		require.NoError(t, err)
		require.Equal(t, want, stored.JobState)
		open, err := f.OpenJobs(f.ctx, k, ident.ID{}, 1)
		require.NoError(t, err)
		require.Equal(t, []durable.OpenJob{{ID: id[0], Priority: 3, Attempts: 1, NextMs: 8000}}, open)
		attempts, err := f.Attempts(f.ctx, k, id[0], 10)
		require.NoError(t, err)
		require.Len(t, attempts, 4)
		require.Equal(t, 2, attempts[3].No, "as its worker was told")
		require.Equal(t, durable.PhaseGivenBack, attempts[3].Phase)
		givenBack, lost, err := f.LeaseCounts(f.ctx, k, id[0])
		require.NoError(t, err)
		require.Equal(t, []int{3, 0}, []int{givenBack, lost})
		f.record(t, dead(k, id[0], 2, 4000))
		_, err = f.Redrive(f.ctx, k, id[:1], 5000)
		require.NoError(t, err)
		require.Zero(t, f.state(t, k, id[0]).GivenBack, "it counts again")
		ok := delivered(k, id[0], 1, 6000)
		ok.Tracked = true
		f.record(t, ok)
		require.Equal(t, durable.Delivered, f.state(t, k, id[0]).Status)
	},
	"an attempt keeps its phase, and a delivery with a note has an entry in the list": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 1)
		lost := retry(k, id[0], 1, 1000)
		lost.Phase = durable.PhaseMaybeProcessed
		ok := delivered(k, id[0], 2, 2000)
		ok.Tracked, ok.Note = true, "asked"
		f.record(t, lost)
		f.record(t, ok)
		f.record(t, ok) // again
		got, err := f.Attempts(f.ctx, k, id[0], 10)
		require.NoError(t, err)
		require.Len(t, got, 2)
		require.Equal(t, durable.PhaseMaybeProcessed, got[0].Phase)
		require.Equal(t, "asked", got[1].Error)
		require.Equal(t, durable.Delivered, f.state(t, k, id[0]).Status)
	},
	"a tracked success removes the rows of the job, and a later failure has no effect": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 3)
		f.record(t, retry(k, id[0], 1, 1000), retry(k, id[1], 1, 1000), dead(k, id[2], 1, 1000))
		ok := delivered(k, id[0], 2, 2000)
		ok.Tracked = true
		ok2 := delivered(k, id[2], 2, 2000)
		ok2.Tracked = true
		f.record(t, ok, ok2)
		open, err := f.OpenJobs(f.ctx, k, ident.ID{}, 10)
		require.NoError(t, err)
		require.Len(t, open, 1)
		require.Equal(t, id[1], open[0].ID)

		f.record(t, dead(k, id[0], 3, 3000), retry(k, id[2], 4, 3000))
		for _, i := range []int{0, 2} {
			require.Equal(t, durable.JobState{Status: durable.Delivered, Attempts: 2, ChangedMs: 2000, StatusCode: 200},
				f.state(t, k, id[i]))
		}
		letters, err := f.DeadJobs(f.ctx, k, ident.ID{}, 10)
		require.NoError(t, err)
		require.Empty(t, letters)
		open, err = f.OpenJobs(f.ctx, k, ident.ID{}, 10)
		require.NoError(t, err)
		require.Len(t, open, 1)
	},
	"an untracked success outranks the rows of the job": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 2)
		f.record(t, retry(k, id[0], 1, 1000), dead(k, id[1], 1, 1000))
		f.record(t, delivered(k, id[0], 1, 900), delivered(k, id[1], 1, 900))
		for _, j := range id {
			require.Equal(t, durable.Delivered, f.state(t, k, j).Status)
		}
		open, err := f.OpenJobs(f.ctx, k, ident.ID{}, 10)
		require.NoError(t, err)
		require.Empty(t, open)
		letters, err := f.DeadJobs(f.ctx, k, ident.ID{}, 10)
		require.NoError(t, err)
		require.Empty(t, letters)
		moved, err := f.Redrive(f.ctx, k, id, 1)
		require.NoError(t, err)
		require.Empty(t, moved, "a delivered job stays delivered")
	},
	"a dead job leaves open_jobs and is listed with its last answer": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 2)
		f.record(t, retry(k, id[0], 1, 1000))
		d := dead(k, id[0], 2, 2000)
		f.record(t, d)
		f.record(t, d)
		f.record(t, retry(k, id[0], 1, 1000))
		require.Equal(t, durable.JobState{Status: durable.Dead, Attempts: 2, ChangedMs: 2000, StatusCode: 503,
			Error: "out of attempts", Reason: durable.AttemptsExhausted, Fingerprint: cause.OfAttempt(503, "out of attempts")},
			f.state(t, k, id[0]))
		letters, err := f.DeadJobs(f.ctx, k, ident.ID{}, 10)
		require.NoError(t, err)
		require.Equal(t, []durable.DeadJob{{ID: id[0], Priority: 3, Attempts: 2, DiedMs: 2000, StatusCode: 503,
			Error: "out of attempts", Reason: durable.AttemptsExhausted, Answer: []byte("try later"),
			Fingerprint: cause.OfAttempt(503, "out of attempts")}}, letters)
		open, err := f.OpenJobs(f.ctx, k, ident.ID{}, 10)
		require.NoError(t, err)
		require.Empty(t, open)
		attempts, err := f.Attempts(f.ctx, k, id[0], 100)
		require.NoError(t, err)
		require.Len(t, attempts, 2)
	},
	"a batch of every kind in any order, with a job twice, is recorded": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 4)
		ok := delivered(k, id[3], 1, 500)
		ok.Tracked = true
		batch := []durable.Outcome{ok, retry(k, id[2], 2, 2000), dead(k, id[1], 6, 1000), retry(k, id[2], 1, 1000),
			delivered(k+1, id[0], 1, 1), delivered(k, id[0], 1, 1)}
		f.record(t, batch...)
		f.record(t, batch...)
		var got []durable.JobStatus
		for _, j := range id {
			got = append(got, f.state(t, k, j).Status)
		}
		require.Equal(t, []durable.JobStatus{durable.Delivered, durable.Dead, durable.Open, durable.Delivered}, got)
		require.Equal(t, 2, f.state(t, k, id[2]).Attempts)
	},
	"long and odd error texts and answers are cut, not refused": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 2)
		o := retry(k, id[0], 1, 1000)
		o.Error, o.Answer = strings.Repeat("ä", 1000)+"\xff", []byte(strings.Repeat("\x00'\\\xff", 1000))
		d := dead(k, id[1], 1, 1000)
		d.Error, d.Answer = "a\xffb'\\", nil
		f.record(t, o, d)
		attempts, err := f.Attempts(f.ctx, k, id[0], 100)
		require.NoError(t, err)
		require.True(t, utf8.ValidString(attempts[0].Error))
		require.Equal(t, strings.Repeat("ä", 512), attempts[0].Error)
		require.Equal(t, o.Answer[:1024], attempts[0].Answer)
		require.Equal(t, "a\uFFFDb'\\", f.state(t, k, id[1]).Error)
	},
	"racing brokers record the same jobs without an error": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 100)
		race(6, func(w int) {
			for round := range 5 {
				var batch []durable.Outcome
				for i, j := range id {
					switch {
					case i%3 == 0:
						ok := delivered(k, j, 1, 1000)
						ok.Tracked = i%2 == 0
						batch = append(batch, ok)
					case i%3 == 1:
						batch = append(batch, retry(k, j, 1+round, int64(1000+round)))
					default:
						batch = append(batch, dead(k, j, 6, 1000))
					}
				}
				if w%2 == 0 {
					for i, j := 0, len(batch)-1; i < j; i, j = i+1, j-1 {
						batch[i], batch[j] = batch[j], batch[i]
					}
				}
				if err := f.Record(f.ctx, batch); err != nil {
					t.Error(err)
				}
			}
		})
		for i, j := range id {
			want := []durable.JobStatus{durable.Delivered, durable.Open, durable.Dead}[i%3]
			require.Equal(t, want, f.state(t, k, j).Status)
		}
	},
	"an outcome that no column can hold is rejected": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 1)
		o := retry(k, id[0], 1, 1)
		o.Priority = 5000
		require.ErrorIs(t, f.Record(f.ctx, []durable.Outcome{o}), durable.ErrRejected)
	},
}
