package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// newBulk stores a bulk with a body and claims it.
func (f *fixture) newBulk(t *testing.T, ch durable.Channel, body string) *durable.Bulk {
	t.Helper()
	b := &durable.Bulk{ChannelNo: ch.No, ProducerNo: 1, State: durable.BulkRunning, Spec: []byte("{}"), Total: 100}
	b.ID = f.ids.Next()
	for range 2 { // also after a lost answer
		require.NoError(t, f.CreateBulk(f.ctx, b, []byte(body)))
	}
	return f.claimBulk(t, b.ID)
}

// expanding is the queue of bulks that are expanded.
var expanding = durable.BulkQueue{State: durable.BulkRunning, ProducerNo: 1}

func (f *fixture) claimBulk(t *testing.T, id ident.ID) *durable.Bulk {
	t.Helper()
	return f.claimBulkOf(t, id, expanding)
}

// claimBulkOf requires that a bulk is the next one of a queue.
func (f *fixture) claimBulkOf(t *testing.T, id ident.ID, of durable.BulkQueue) *durable.Bulk {
	t.Helper()
	b, err := f.ClaimBulk(f.ctx, [16]byte(fmt.Appendf(nil, "%16d", f.ids.Next().Millis())), of)
	require.NoError(t, err)
	require.NotNil(t, b)
	require.Equal(t, id, b.ID)
	return b
}

// step returns the next step of a bulk, with a message for each key.
func (f *fixture) step(ch durable.Channel, b *durable.Bulk, from int64, keys ...string) *durable.BulkStep {
	s := &durable.BulkStep{By: b.BulkOwner, From: durable.BulkPosition{Row: from, Byte: 10 * from},
		Audience: ch.Audience, Speed: 2,
		Reason: func(err error) string { return "reason: " + err.Error() }}
	for i, key := range keys {
		m := f.message(ch)
		m.Key, m.Payload = key, []byte("payload of "+key)
		s.Messages, s.Rows = append(s.Messages, m), append(s.Rows, from+int64(i)+1)
	}
	n := from + int64(len(keys))
	s.To = durable.BulkPosition{Row: n, Byte: 10 * n}
	return s
}

// run stores a step, with fresh IDs until they are young enough.
func (f *fixture) run(t *testing.T, s *durable.BulkStep) {
	t.Helper()
	for range 50 {
		f.fresh(s)
		err := f.StepBulk(f.ctx, f.node, s)
		if err == nil {
			return
		}
		require.ErrorIs(t, err, durable.ErrStale)
	}
	t.Fatal("the IDs are always too old")
}

func (f *fixture) fresh(s *durable.BulkStep) {
	if len(s.Messages) > 0 {
		first := f.ids.Block(len(s.Messages))
		for i, m := range s.Messages {
			m.ID = first.After(i)
		}
	}
}

func (f *fixture) bulkNow(t *testing.T, id ident.ID) *durable.Bulk {
	t.Helper()
	b, err := f.BulkByID(f.ctx, id)
	require.NoError(t, err)
	return b
}

var bulkTests = map[string]func(*testing.T, *fixture){
	"a body comes in chunks and is not seen before its end": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 0)
		b := &durable.Bulk{ChannelNo: ch.No, ProducerNo: 7, Spec: []byte{0, 255}}
		b.ID, b.Owner = f.ids.Next(), [16]byte{1}
		require.NoError(t, f.CreateBulk(f.ctx, b, []byte("one")))
		for range 2 {
			require.NoError(t, f.AddBulkChunk(f.ctx, b.BulkOwner, 1, []byte("two\x00\xff")))
		}
		require.Error(t, f.AddBulkChunk(f.ctx, b.BulkOwner, 3, []byte("four")))
		other := b.BulkOwner
		other.Owner = [16]byte{2}
		require.ErrorIs(t, f.AddBulkChunk(f.ctx, other, 2, []byte("x")), durable.ErrBulkLost)
		_, err := f.BulkByID(f.ctx, b.ID)
		require.ErrorIs(t, err, durable.ErrNotFound)
		list, err := f.Bulks(f.ctx, ch.No, 0, ident.ID{}, 10)
		require.NoError(t, err)
		require.Empty(t, list)
		none, err := f.ClaimBulk(f.ctx, [16]byte{3}, expanding)
		require.NoError(t, err)
		require.Nil(t, none)
		for range 2 {
			require.NoError(t, f.RunBulk(f.ctx, b.BulkOwner, 5))
		}
		got := f.bulkNow(t, b.ID)
		require.Equal(t, [4]int64{2, 8, 5, 0}, [4]int64{got.Chunks, got.Bytes, got.Total, got.At.Row})
		require.Equal(t, []byte{0, 255}, got.Spec)
		body, err := f.BulkChunk(f.ctx, b.ID, 1)
		require.NoError(t, err)
		require.Equal(t, "two\x00\xff", string(body))
		_, err = f.BulkChunk(f.ctx, b.ID, 2)
		require.ErrorIs(t, err, durable.ErrNotFound)
		for producer, n := range map[uint32]int{0: 1, 7: 1, 8: 0} {
			list, err = f.Bulks(f.ctx, ch.No, producer, ident.ID{}, 10)
			require.NoError(t, err)
			require.Len(t, list, n)
		}
	},
	"a step stores messages, results and checkpoint together": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		before := f.message(ch)
		before.Key, before.Payload = "same", []byte("payload of same")
		taken := f.message(ch)
		taken.Key = "taken"
		f.insert(t, before, taken)
		b := f.newBulk(t, ch, "body")
		s := f.step(ch, b, 0, "", "same", "taken", "new", "new", "", "new")
		s.Messages[4].Payload = []byte("another")
		s.Bad = []durable.BadRow{{Row: 8, Reason: "unreadable"}}
		s.To.Row++
		f.run(t, s)
		require.NoError(t, s.Results[0])
		requireDuplicate(t, s.Results[1], before.ID)
		require.ErrorIs(t, s.Results[2], durable.ErrConflict)
		require.NoError(t, s.Results[3])
		require.ErrorIs(t, s.Results[4], durable.ErrConflict)
		require.NoError(t, s.Results[5])
		requireDuplicate(t, s.Results[6], s.Messages[3].ID)
		got := f.bulkNow(t, b.ID)
		require.Equal(t, [4]int64{8, 3, 3, 2}, [4]int64{got.At.Row, got.Published, got.Rejected, got.Duplicates})
		require.Equal(t, durable.BulkRunning, got.State)
		bad, err := f.BadRows(f.ctx, b.ID, 0, 10)
		require.NoError(t, err)
		require.Equal(t, []int64{3, 5, 8}, []int64{bad[0].Row, bad[1].Row, bad[2].Row})
		require.Contains(t, bad[0].Reason, "reason: ")
		require.Len(t, f.stored(t, s.Messages), 3)

		require.NoError(t, f.StepBulk(f.ctx, f.node, s), "after a lost answer")
		require.Equal(t, int64(3), f.bulkNow(t, b.ID).Published)
		old := f.step(ch, b, 0, "x")
		require.ErrorIs(t, f.StepBulk(f.ctx, f.node, old), durable.ErrBulkLost, "not behind the checkpoint")
		last := f.step(ch, b, 8)
		last.From.Byte, last.To, last.Last = s.To.Byte, durable.BulkPosition{Row: 8, Byte: s.To.Byte}, true
		f.run(t, last)
		got = f.bulkNow(t, b.ID)
		require.Equal(t, durable.BulkDone, got.State)
		require.Equal(t, int64(8), got.Total)
		require.Zero(t, got.LeaseMs)
	},
	"a stale step stores nothing": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		b := f.newBulk(t, ch, "body")
		for _, change := range []func(s *durable.BulkStep){
			func(s *durable.BulkStep) { s.Messages[1].Audience = 0 },
			func(s *durable.BulkStep) { s.Messages[0].ID = ident.AtMillis(s.Messages[0].ID.Millis() - 5000) },
		} {
			for _, keys := range [][]string{{"", ""}, {"a", "b"}} {
				s := f.step(ch, b, 0, keys...)
				f.fresh(s)
				change(s)
				require.ErrorIs(t, f.StepBulk(f.ctx, f.node, s), durable.ErrStale)
				require.Empty(t, f.stored(t, s.Messages))
			}
		}
		require.Zero(t, f.bulkNow(t, b.ID).At.Row)
		f.run(t, f.step(ch, b, 0, "a", ""))
	},
	"a step stores schedules": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		b := f.newBulk(t, ch, "body")
		later := f.ids.Next().Millis() + time.Hour.Milliseconds()
		s := f.step(ch, b, 0, "m")
		for i, plan := range []*durable.Scheduled{f.plan(ch, "a", later), f.plan(ch, "a", later), f.plan(ch, "a", later+1),
			f.plan(ch, "m", later), f.plan(ch, "", later)} {
			s.Later, s.Rows = append(s.Later, plan), append(s.Rows, int64(i)+2)
		}
		s.To.Row = 6
		f.run(t, s)
		require.NoError(t, s.Results[1])
		requireDuplicate(t, s.Results[2], s.Later[0].ID)
		require.ErrorIs(t, s.Results[3], durable.ErrConflict)
		require.ErrorIs(t, s.Results[4], durable.ErrConflict)
		require.NoError(t, s.Results[5])
		got := f.bulkNow(t, b.ID)
		require.Equal(t, [3]int64{3, 2, 1}, [3]int64{got.Published, got.Rejected, got.Duplicates})
	},
	"bulks are claimed a producer at a time": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		add := func(producer uint32, state durable.BulkState) *durable.Bulk {
			b := &durable.Bulk{ChannelNo: ch.No, ProducerNo: producer, State: state, Spec: []byte("{}")}
			b.ID = f.ids.Next()
			require.NoError(t, f.CreateBulk(f.ctx, b, nil))
			return b
		}
		for range 3 {
			add(1, durable.BulkRunning)
		}
		other, file := add(7, durable.BulkRunning), add(3, durable.BulkFetching)
		now := f.ids.Next().Millis() + time.Minute.Milliseconds()
		queues := func(state durable.BulkState) (found []uint32, ready int) {
			for q := (durable.BulkQueue{State: state}); ; {
				next, due, err := f.NextBulkQueue(f.ctx, q, now)
				require.NoError(t, err)
				if next.ProducerNo == 0 {
					require.False(t, due)
					return found, ready
				}
				if due {
					ready++
				}
				q, found = next, append(found, next.ProducerNo)
			}
		}
		found, ready := queues(durable.BulkRunning)
		require.Equal(t, []uint32{1, 7}, found)
		require.Equal(t, 2, ready)
		claim := func(q durable.BulkQueue) *durable.Bulk {
			b, err := f.ClaimBulk(f.ctx, [16]byte{8}, q)
			require.NoError(t, err)
			return b
		}
		require.Equal(t, other.ID, claim(durable.BulkQueue{State: durable.BulkRunning, ProducerNo: 7}).ID,
			"the bulks of another one are passed over")
		require.Nil(t, claim(durable.BulkQueue{State: durable.BulkRunning, ProducerNo: 7}))
		require.Nil(t, claim(durable.BulkQueue{State: durable.BulkRunning, ProducerNo: 3}), "its bulk is a file")
		require.Equal(t, file.ID, claim(durable.BulkQueue{State: durable.BulkFetching, ProducerNo: 3}).ID)
		now = f.ids.Next().Millis()
		found, ready = queues(durable.BulkRunning)
		require.Equal(t, []uint32{1, 7}, found)
		require.Equal(t, 1, ready, "7 has no bulk without an owner")
	},
	"a bulk has one owner, until it is paused or over": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		b := f.newBulk(t, ch, "body")
		none, err := f.ClaimBulk(f.ctx, [16]byte{9}, expanding)
		require.NoError(t, err)
		require.Nil(t, none, "it has an owner")
		require.NoError(t, f.RenewBulk(f.ctx, b.BulkOwner))
		require.NoError(t, f.ReleaseBulk(f.ctx, b.BulkOwner, 0, 3, "because"))
		require.NoError(t, f.ReleaseBulk(f.ctx, b.BulkOwner, 0, 4, "twice"), "it is not its own any more")
		second := f.claimBulk(t, b.ID)
		require.Equal(t, [2]any{3, "because"}, [2]any{second.Tries, second.Reason})
		require.ErrorIs(t, f.StepBulk(f.ctx, f.node, f.step(ch, b, 0, "old")), durable.ErrBulkLost)
		require.ErrorIs(t, f.FailBulk(f.ctx, b.BulkOwner, "old"), durable.ErrBulkLost)
		for range 2 {
			paused, err := f.PauseBulk(f.ctx, b.ID, true)
			require.NoError(t, err)
			require.True(t, paused.Paused)
		}
		require.ErrorIs(t, f.StepBulk(f.ctx, f.node, f.step(ch, second, 0, "x")), durable.ErrBulkLost)
		none, err = f.ClaimBulk(f.ctx, [16]byte{9}, expanding)
		require.NoError(t, err)
		require.Nil(t, none)
		_, err = f.PauseBulk(f.ctx, b.ID, false)
		require.NoError(t, err)
		third := f.claimBulk(t, b.ID)
		s := f.step(ch, third, 0, "x")
		s.PauseMs = time.Hour.Milliseconds()
		f.run(t, s)
		require.NoError(t, f.ReleaseBulk(f.ctx, third.BulkOwner, 0, 0, ""))
		none, err = f.ClaimBulk(f.ctx, [16]byte{9}, expanding)
		require.NoError(t, err)
		require.Nil(t, none, "its rate holds it back")
		for range 2 {
			over, err := f.CancelBulk(f.ctx, b.ID)
			require.NoError(t, err)
			require.Equal(t, durable.BulkCancelled, over.State)
		}
		_, err = f.PauseBulk(f.ctx, b.ID, true)
		require.ErrorIs(t, err, durable.ErrBulkOver)
		_, err = f.CancelBulk(f.ctx, f.ids.Next())
		require.ErrorIs(t, err, durable.ErrNotFound)
	},
	"a fetch begins its body anew": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		b := &durable.Bulk{ChannelNo: ch.No, ProducerNo: 1, State: durable.BulkFetching, Spec: []byte("{}")}
		b.ID = f.ids.Next()
		require.NoError(t, f.CreateBulk(f.ctx, b, nil))
		held := f.claimBulkOf(t, b.ID, durable.BulkQueue{State: durable.BulkFetching, ProducerNo: 1})
		for range 2 {
			for no := range int64(20) {
				require.NoError(t, f.AddBulkChunk(f.ctx, held.BulkOwner, no, []byte("x")))
			}
			require.NoError(t, f.RestartBulkBody(f.ctx, held.BulkOwner))
			_, err := f.BulkChunk(f.ctx, b.ID, 19)
			require.ErrorIs(t, err, durable.ErrNotFound)
		}
		require.NoError(t, f.FailBulk(f.ctx, held.BulkOwner, "gone"))
		got := f.bulkNow(t, b.ID)
		require.Equal(t, durable.BulkFailed, got.State)
		require.Equal(t, "gone", got.Reason)
		require.Zero(t, got.Bytes)
	},
	"the jobs of a bulk are counted among others": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 2)
		b := f.newBulk(t, ch, "body")
		var steps []*durable.BulkStep
		for i := range int64(3) {
			s := f.step(ch, b, 3*i, "", "", "")
			f.run(t, s)
			steps = append(steps, s)
			alien := f.message(ch)
			f.insert(t, alien)
			f.end(t, ks[0], durable.OutcomeDelivered, alien)
		}
		consumers := []*durable.Consumer{&ks[0], &ks[1]}
		count := func() durable.BulkJobs {
			n, err := f.CountBulkJobs(f.ctx, b.ID, consumers, time.Minute)
			require.NoError(t, err)
			return n
		}
		require.Equal(t, durable.BulkJobs{Open: 18}, count())
		for _, k := range ks {
			f.end(t, k, durable.OutcomeDelivered, steps[0].Messages...)
		}
		f.end(t, ks[0], durable.OutcomeDead, steps[1].Messages...)
		f.end(t, ks[0], durable.OutcomeDelivered, steps[1].Messages[0])
		for range 2 { // the first step is complete now
			require.Equal(t, durable.BulkJobs{Delivered: 7, Open: 9, Dead: 2}, count())
		}
		n, err := f.CountBulkJobs(f.ctx, b.ID, consumers, -time.Second)
		require.NoError(t, err)
		require.Equal(t, durable.BulkJobs{Delivered: 6, Open: 12, Partly: true}, n)
	},
	"bulks are removed when they are over": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		b := f.newBulk(t, ch, "body")
		s := f.step(ch, b, 0, "", "")
		s.Bad = []durable.BadRow{{Row: 3, Reason: "x"}}
		s.To.Row, s.Last = 3, true
		f.run(t, s)
		lost := &durable.Bulk{ChannelNo: ch.No, ProducerNo: 1, Spec: []byte("{}")}
		lost.ID = f.ids.Next()
		require.NoError(t, f.CreateBulk(f.ctx, lost, []byte("never whole")))
		live := f.newBulk(t, ch, "live")
		sweep := func(now, before int64) {
			for range 50 {
				more, err := f.SweepBulks(f.ctx, now, before)
				require.NoError(t, err)
				if !more {
					return
				}
			}
			t.Fatal("the sweep does not end")
		}
		now := f.ids.Next().Millis()
		sweep(now, now-time.Hour.Milliseconds())
		_, err := f.BulkChunk(f.ctx, b.ID, 0)
		require.ErrorIs(t, err, durable.ErrNotFound, "the body is removed")
		require.Equal(t, int64(2), f.bulkNow(t, b.ID).Published)
		_, err = f.BulkChunk(f.ctx, lost.ID, 0)
		require.NoError(t, err, "its client may still send")
		future := now + time.Hour.Milliseconds()
		sweep(now, future)
		_, err = f.BulkByID(f.ctx, b.ID)
		require.ErrorIs(t, err, durable.ErrNotFound)
		bad, err := f.BadRows(f.ctx, b.ID, 0, 10)
		require.NoError(t, err)
		require.Empty(t, bad)
		n, err := f.CountBulkJobs(f.ctx, b.ID, nil, time.Minute)
		require.NoError(t, err)
		require.Equal(t, durable.BulkJobs{}, n)
		sweep(future, 0)
		_, err = f.BulkChunk(f.ctx, lost.ID, 0)
		require.ErrorIs(t, err, durable.ErrNotFound)
		require.ErrorIs(t, f.RunBulk(f.ctx, lost.BulkOwner, 1), durable.ErrBulkLost)
		require.Equal(t, durable.BulkRunning, f.bulkNow(t, live.ID).State)
	},
}
