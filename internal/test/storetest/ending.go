package storetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// producer makes a producer and the consumer of replies to it.
func (f *fixture) producer(t *testing.T, id string) (durable.Producer, durable.Consumer) {
	t.Helper()
	p, _, err := f.PutProducer(f.ctx, durable.Put{ID: id, NewToken: "t"})
	require.NoError(t, err)
	_, _, err = f.PutChannel(f.ctx, durable.Put{ID: ident.Replies(p.No), NewToken: "t"})
	require.NoError(t, err)
	to := "http://x/old"
	k, _, err := f.PutConsumer(f.ctx, durable.ConsumerPut{Put: durable.Put{ID: ident.Sender, NewToken: "t"},
		ChannelID: ident.Replies(p.No), CallbackURL: &to})
	require.NoError(t, err)
	return p, k
}

var endingTests = map[string]func(*testing.T, *fixture){
	"a deleted producer takes its bulks, its schedules and its replies with it": func(t *testing.T, f *fixture) {
		p, sender := f.producer(t, "p")
		other, stays := f.producer(t, "other")
		ch, _ := f.channel(t, "c", 1)
		bulk := func(of durable.Producer) ident.ID {
			b := &durable.Bulk{ChannelNo: ch.No, ProducerNo: of.No, State: durable.BulkRunning, Spec: []byte("{}"), Total: 100}
			b.ID = f.ids.Next()
			require.NoError(t, f.CreateBulk(f.ctx, b, []byte("body")))
			return b.ID
		}
		mine, theirs, paused := bulk(p), bulk(other), bulk(p)
		_, err := f.PauseBulk(f.ctx, paused, true)
		require.NoError(t, err)
		for i, of := range []uint32{p.No, p.No, other.No} {
			s := f.plan(ch, string(rune('a'+i)), 1)
			s.ProducerNo = of
			f.schedule(t, s)
		}
		_, err = f.DeleteProducer(f.ctx, durable.Put{ID: "p"})
		require.NoError(t, err)
		for id, want := range map[ident.ID]durable.BulkState{mine: durable.BulkFailed, paused: durable.BulkFailed,
			theirs: durable.BulkRunning} {
			b, err := f.BulkByID(f.ctx, id)
			require.NoError(t, err)
			require.Equal(t, want, b.State)
			require.Equal(t, want == durable.BulkFailed, b.Reason == "the producer was deleted")
		}
		_, err = f.PauseBulk(f.ctx, mine, true)
		require.ErrorIs(t, err, durable.ErrBulkOver)
		for _, want := range []int{1, 1, 0} {
			n, err := f.EndScheduled(f.ctx, p.No, 1)
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
		counts, err := f.Count(f.ctx, ch.No, 10)
		require.NoError(t, err)
		require.Equal(t, 1, counts.Waiting)
		require.Equal(t, durable.StateDeleted, f.consumerState(t, sender.No).State)
		require.Equal(t, durable.StateActive, f.consumerState(t, stays.No).State)
		late := bulk(p) // of a broker that did not know yet
		for more := true; more; {
			more, err = f.SweepBulks(f.ctx, 1<<50, 0)
			require.NoError(t, err)
		}
		b, err := f.BulkByID(f.ctx, late)
		require.NoError(t, err)
		require.Equal(t, durable.BulkFailed, b.State)
	},
	"the consumer of replies follows the settings of its producer in their transaction": func(t *testing.T, f *fixture) {
		_, k := f.producer(t, "p")
		k = f.to(t, k, durable.StateActive, durable.StateGone, "410")
		put := func(url string) {
			_, _, err := f.PutProducer(f.ctx, durable.Put{ID: "p", Settings: func(string) (string, error) {
				return "to " + url, nil
			},
				Replies: func(settings string, k durable.Consumer) (durable.Consumer, error) {
					require.Equal(t, "to "+url, settings)
					if k.CallbackURL, k.Type = url, durable.Push; url == "" {
						k.Type = durable.Pull
					}
					return k, nil
				}})
			require.NoError(t, err)
			k = f.consumerState(t, k.No)
		}
		put("http://x/new")
		require.Equal(t, "http://x/new", k.CallbackURL)
		require.Equal(t, durable.StateActive, k.State)
		put("")
		require.Empty(t, k.CallbackURL)
		require.Equal(t, durable.Pull, k.Type)
		put("http://x/newer")
		require.Equal(t, durable.Push, k.Type)
	},
	"a new address ends what was learnt about the former one": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		k, m := ks[0], f.message(ch)
		f.insert(t, m)
		at := m.ID.Millis()
		move := func(url string) {
			_, _, err := f.PutConsumer(f.ctx, durable.ConsumerPut{Put: durable.Put{ID: k.ID}, ChannelID: "c", CallbackURL: &url})
			require.NoError(t, err)
			k = f.consumerState(t, k.No)
		}
		require.False(t, f.failed(t, k, m, 1, at, 2))
		require.False(t, f.failed(t, k, m, 2, at, 2))
		_, _, err := f.CountPace(f.ctx, k.No, k.CallbackURL, 0, 9, at, func(p durable.Pace) durable.Pace {
			p.Mode = durable.PaceSlow
			return p
		})
		require.NoError(t, err)
		move("http://x/1")
		paces, err := f.Paces(f.ctx)
		require.NoError(t, err)
		require.Empty(t, paces)
		require.False(t, f.failed(t, k, m, 3, at+100_000, 2), "the failures of the former address do not count")
		for _, state := range []durable.ConsumerState{durable.StateGone, durable.StateDead, durable.StateProbing} {
			k = f.to(t, k, durable.StateActive, state, "of the former address")
			move(fmt.Sprint("http://x/state-", int(state)))
			require.Equal(t, durable.StateActive, k.State)
			require.Empty(t, k.StateReason)
		}
		k = f.to(t, k, durable.StateActive, durable.StatePaused, "by a person")
		former := k.CallbackURL
		move("http://x/2")
		require.Equal(t, durable.StatePaused, k.State)
		k = f.to(t, k, durable.StatePaused, durable.StateActive, "")
		_, changed, err := f.SetConsumerState(f.ctx, durable.StateChange{ConsumerNo: k.No,
			From:    []durable.ConsumerState{durable.StateActive},
			SinceMs: k.StateMs, URL: former, To: durable.StateGone})
		require.NoError(t, err)
		require.False(t, changed, "a late 410 is about the former address")
	},
	"a response rests until its end, or until its producer wakes it": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 4)
		for i, keep := range []int64{0, 50, 0, 0} {
			e := &durable.Exchange{ConsumerNo: k, ID: id[i], GoesBack: true, Status: 200, DeliveredMs: 1, KeepMs: keep,
				Body: []byte("x")}
			e.Answered(100)
			f.record(t, answered(e))
		}
		for range 2 { // also after a lost answer
			rest := []durable.Awaiting{{ID: id[0], ProducerNo: 7}, {ID: id[1], ProducerNo: 7}, {ID: id[2], ProducerNo: 9},
				{ID: id[3]}}
			require.NoError(t, f.RestReplies(f.ctx, k, rest, 120, 1000))
		}
		for i, want := range []int64{1100, 150, 1100, 1100} {
			require.Equal(t, want, f.exchange(t, k, id[i]).DueMs)
		}
		require.NoError(t, f.RestReplies(f.ctx, k, []durable.Awaiting{{ID: id[3]}}, 5000, 1000))
		require.EqualValues(t, 5000+4900+60_000, f.exchange(t, k, id[3]).DueMs, "past its end it is seldom looked at")
		require.NoError(t, f.RestReplies(f.ctx, k, []durable.Awaiting{{ID: id[3]}}, 5000, 0))
		require.EqualValues(t, durable.Never, f.exchange(t, k, id[3]).DueMs)
		for after, want := range map[uint32]uint32{0: 7, 7: 9, 9: 0} {
			no, err := f.NextAwaited(f.ctx, after)
			require.NoError(t, err)
			require.Equal(t, want, no)
		}
		for _, want := range [][]uint32{{k}, {k}, nil} {
			woken, err := f.WakeReplies(f.ctx, 7, 1)
			require.NoError(t, err)
			require.Equal(t, want, woken)
		}
		require.EqualValues(t, 1, f.exchange(t, k, id[0]).DueMs)
		require.EqualValues(t, 1, f.exchange(t, k, id[1]).DueMs)
		require.EqualValues(t, 1100, f.exchange(t, k, id[2]).DueMs)
		require.NoError(t, f.ForgetAwaiting(f.ctx, k, id))
		no, err := f.NextAwaited(f.ctx, 0)
		require.NoError(t, err)
		require.Zero(t, no)
	},
	"what waits for a reply URL goes with its message": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		m := f.message(ch)
		f.insert(t, m)
		f.record(t, answered(answer(ks[0].No, m.ID, 10, true, "x")))
		require.NoError(t, f.RestReplies(f.ctx, ks[0].No, []durable.Awaiting{{ID: m.ID, ProducerNo: 3}}, 20, 0))
		_, err := f.Purge(f.ctx, durable.Purge{ChannelNo: ch.No, Consumers: []*durable.Consumer{&ks[0]}, Through: m.ID,
			Limit: 100, DeadBeforeMs: 1000})
		require.NoError(t, err)
		no, err := f.NextAwaited(f.ctx, 0)
		require.NoError(t, err)
		require.Zero(t, no)
	},
}
