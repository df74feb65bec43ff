package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// steps returns the steps of one job, read in pages of that size.
func (f *fixture) steps(t *testing.T, channelNo, k uint32, id ident.ID, size int) []durable.Step {
	t.Helper()
	page := durable.StepPage{ID: id, ChannelNo: channelNo, Consumers: []uint32{k}, Limit: size}
	var out []durable.Step
	for range 100 {
		got, next, more, err := f.Steps(f.ctx, page)
		require.NoError(t, err)
		out = append(out, got...)
		if !more {
			return out
		}
		require.Greater(t, next.AtMs, page.FromMs, "a page makes progress")
		page.FromMs = next.AtMs
	}
	t.Fatal("the pages never end")
	return nil
}

type step struct {
	kind    string
	atMs    int64
	attempt int
	node    int
}

func briefly(steps []durable.Step) []step {
	var out []step
	for _, s := range steps {
		out = append(out, step{s.Kind.String(), s.AtMs, s.Attempt, s.Node})
	}
	return out
}

// replaysIn returns the replay of each step.
func replaysIn(steps []durable.Step) (out []uint32) {
	for _, s := range steps {
		out = append(out, s.ReplayNo)
	}
	return out
}

var stepTests = map[string]func(*testing.T, *fixture){
	"the steps of a job tell all that became of it, in pages of any size": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 2)
		first, last := retry(k, id[0], 1, 1000), dead(k, id[0], 2, 2000)
		first.Node, last.Node = 1, 4
		f.record(t, first)
		f.record(t, last)
		_, err := f.Redrive(f.ctx, k, id[:1], 3000)
		require.NoError(t, err)
		require.NoError(t, f.RecordLeaseEnds(f.ctx, k, []durable.LeaseEnd{{ID: id[0], Attempt: 1}}, 4000))
		f.record(t, dead(k, id[0], 2, 5000))
		_, err = f.RedriveAgain(f.ctx, k, id[:1], 6000)
		require.NoError(t, err)
		f.record(t, dead(k, id[0], 1, 7000))
		_, err = f.Reopen(f.ctx, k, id[0], 8000)
		require.NoError(t, err)
		ok := delivered(k, id[0], 2, 9000)
		ok.Tracked, ok.Node, ok.DurationMs = true, 0x10000, 31
		f.record(t, ok)
		f.record(t, retry(k, id[1], 1, 1500)) // of another message
		want := []step{
			{"ATTEMPT", 1000, 1, 1}, {"ATTEMPT", 2000, 2, 4}, {"DEAD", 2000, 2, 0}, {"REDRIVEN", 3000, 0, 0},
			{"LEASE_ENDED", 4000, 1, 0}, {"ATTEMPT", 5000, 2, 0}, {"DEAD", 5000, 2, 0}, {"REDRIVEN", 6000, 0, 0},
			{"ATTEMPT", 7000, 1, 0}, {"DEAD", 7000, 1, 0}, {"REDRIVEN", 8000, 0, 0}, {"DELIVERED", 9000, 2, 0x10000},
		}
		for _, size := range []int{1, 2, 3, 100} {
			got := f.steps(t, 0, k, id[0], size)
			require.Equal(t, want, briefly(got), size)
			require.Equal(t, "unavailable", got[0].Text)
			require.Equal(t, "try later", string(got[0].Answer))
			require.EqualValues(t, 12, *got[0].DurationMs)
			require.Equal(t, durable.AttemptsExhausted, got[2].Reason)
			require.Equal(t, []durable.Reopening{durable.ByRequest, durable.ByBroker, durable.ByWorker},
				[]durable.Reopening{got[3].How, got[7].How, got[10].How})
			require.Equal(t, durable.PhaseLeaseEnded, got[4].Phase)
			require.EqualValues(t, 31, *got[11].DurationMs)
		}
		attempts, err := f.Attempts(f.ctx, k, id[0], 100)
		require.NoError(t, err)
		require.Len(t, attempts, 5, "the end of a lease is an attempt")
	},
	"the end of a lease whose outcome is stored is none": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 4)
		f.record(t, delivered(k, id[0], 1, 1000))
		f.record(t, retry(k, id[1], 2, 1000), dead(k, id[2], 1, 1000))
		var ends []durable.LeaseEnd
		for _, i := range id {
			ends = append(ends, durable.LeaseEnd{ID: i, Attempt: 2})
		}
		require.NoError(t, f.RecordLeaseEnds(f.ctx, k, ends, 2000))
		for i, want := range []string{"DELIVERED", "ATTEMPT", "DEAD", "LEASE_ENDED"} {
			got := briefly(f.steps(t, 0, k, id[i], 10))
			require.Equal(t, want, got[len(got)-1].kind)
		}
		require.NoError(t, f.RecordLeaseEnds(f.ctx, k, []durable.LeaseEnd{{ID: id[1], Attempt: 3}}, 3000))
		require.Len(t, f.steps(t, 0, k, id[1], 10), 2)
		require.Equal(t, 3, f.state(t, k, id[1]).Attempts)
		require.Equal(t, durable.Delivered, f.state(t, k, id[0]).Status, "the state of a job that is over is left alone")
		require.Equal(t, 1, f.state(t, k, id[2]).Attempts)
	},
	"a lost lease is an attempt that is stored, and due at once": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 2)
		lost := []durable.LeaseEnd{{ID: id[1], Priority: 7, Attempt: 1}}
		require.NoError(t, f.RecordLeaseEnds(f.ctx, k, lost, 2000))
		require.NoError(t, f.RecordLeaseEnds(f.ctx, k, lost, 2000))
		open, err := f.OpenJobs(f.ctx, k, ident.ID{}, 10)
		require.NoError(t, err)
		require.Equal(t, []durable.OpenJob{{ID: id[1], Priority: 7, Attempts: 1, NextMs: 2000}}, open)
		givenBack, leases, err := f.LeaseCounts(f.ctx, k, id[1])
		require.NoError(t, err)
		require.Equal(t, []int{0, 1}, []int{givenBack, leases})
	},
	"a delivery without a broker and without a duration says so": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 2)
		pulled := delivered(k, id[0], 1, 1000)
		pulled.StatusCode, pulled.Node = 0, 3
		f.record(t, pulled, delivered(k, id[1], 1, 1000))
		got := f.steps(t, 0, k, id[0], 10)
		require.Nil(t, got[0].DurationMs)
		require.Equal(t, 3, got[0].Node)
		got = f.steps(t, 0, k, id[1], 10)
		require.Nil(t, got[0].DurationMs)
		require.Zero(t, got[0].Node)
	},
	"steps of many consumers come in the order of the consumers": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 5)
		m := f.message(ch)
		f.insert(t, m)
		page := durable.StepPage{ID: m.ID, ChannelNo: ch.No, Limit: 3}
		for i, k := range ks {
			page.Consumers = append(page.Consumers, k.No)
			for attempt := range 4 {
				f.record(t, retry(k.No, m.ID, attempt+1, int64(1000*(attempt+1)-i)))
			}
		}
		var got []durable.Step
		for range 20 {
			steps, next, more, err := f.Steps(f.ctx, page)
			require.NoError(t, err)
			require.LessOrEqual(t, len(steps), 3)
			got = append(got, steps...)
			if !more {
				break
			}
			for page.Consumers[0] != next.ConsumerNo {
				page.Consumers = page.Consumers[1:]
			}
			page.FromMs = next.AtMs
		}
		require.Len(t, got, 20)
		for i, s := range got {
			require.Equal(t, ks[i/4].No, s.ConsumerNo)
			require.Equal(t, i%4+1, s.Attempt)
		}
	},
	"what replays and exchanges did with a job is among its steps": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 2)
		m := f.message(ch)
		f.insert(t, m, f.message(ch))
		k, id := ks[0].No, m.ID
		f.record(t, answered(answer(k, id, 1000, true, "secret")))
		var replays []uint32
		for _, who := range []uint32{k, k, ks[1].No} {
			r, err := f.CreateReplay(f.ctx, durable.Replay{ChannelNo: ch.No, ConsumerNo: who, Through: id})
			require.NoError(t, err)
			_, err = f.SetReplayState(f.ctx, r.No, durable.ReplayCancelled)
			require.NoError(t, err)
			replays = append(replays, r.No)
		}
		reply := delivered(ks[1].No, f.ids.Next(), 1, 2000)
		reply.ReplyTo = durable.ExchangeKey{ConsumerNo: k, ID: id}
		f.record(t, retry(replays[0], id, 1, 1500), reply)
		again := delivered(replays[0], id, 2, 3000)
		again.Tracked, again.Node = true, 2
		f.record(t, again, dead(replays[1], id, 1, 4000), delivered(replays[2], id, 1, 5000))
		lost := pending(ks[1].No, id, 10, 20)
		f.record(t, answered(lost))
		e := f.exchange(t, ks[1].No, id)
		e.Fail(6000, "no result")
		_, err := f.MoveExchange(f.ctx, e, durable.DeliveredReceiver)
		require.NoError(t, err)
		want := []step{
			{"DELIVERED", 1000, 1, 0}, {"RESPONSE_RECEIVED", 1000, 1, 0}, {"ATTEMPT", 1500, 1, 0}, {"RESPONSE_DELIVERED",
				2000, 1, 0},
			{"REPLAYED", 3000, 2, 2}, {"ATTEMPT", 4000, 1, 0}, {"REPLAYED", 4000, 1, 0},
		}
		for _, size := range []int{1, 2, 100} {
			got := f.steps(t, ch.No, k, id, size)
			require.Equal(t, want, briefly(got), size)
			require.Equal(t, []uint32{0, 0, replays[0], 0, replays[0], replays[1], replays[1]}, replaysIn(got))
			require.Equal(t, 200, got[1].StatusCode)
			require.Empty(t, string(got[1].Answer)+got[1].Text, "a response is read elsewhere")
			require.Equal(t, durable.NoReason, got[4].Reason)
			require.Equal(t, durable.AttemptsExhausted, got[6].Reason)
		}
		other := f.steps(t, ch.No, ks[1].No, id, 100)
		require.Equal(t, []step{{"DELIVERED", 1000, 1, 0}, {"REPLAYED", 5000, 1, 0}, {"FAILED", 6000, 1, 0}}, briefly(other))
		require.Equal(t, "no result", other[2].Text)
	},
	"a purge takes the redrives with it": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		m := f.message(ch)
		f.insert(t, m)
		f.record(t, dead(ks[0].No, m.ID, 1, 1000))
		_, err := f.Redrive(f.ctx, ks[0].No, []ident.ID{m.ID}, 2000)
		require.NoError(t, err)
		ok := delivered(ks[0].No, m.ID, 1, 3000)
		ok.Tracked = true
		f.record(t, ok)
		done, err := f.Purge(f.ctx, durable.Purge{ChannelNo: ch.No, Consumers: []*durable.Consumer{&ks[0]},
			Through: ident.Max(), Limit: 10})
		require.NoError(t, err)
		require.Equal(t, 1, done.Removed)
		require.Empty(t, f.steps(t, ch.No, ks[0].No, m.ID, 10))
	},
}
