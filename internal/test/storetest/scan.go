package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

var scanTests = map[string]func(*testing.T, *fixture){
	"heads go from after one ID through another": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 2)
		in := f.messages(ch, 10)
		for i, m := range in {
			m.Priority = []int{0, 0, 5, 1023}[i%4]
		}
		f.insert(t, in...)
		got, err := f.Heads(f.ctx, ch.No, in[1].ID, in[8].ID, 5)
		require.NoError(t, err)
		require.Equal(t, heads(in[2:7]), got)
		got, err = f.Heads(f.ctx, ch.No, in[6].ID, in[8].ID, 5)
		require.NoError(t, err)
		require.Equal(t, heads(in[7:9]), got)
		got, err = f.Heads(f.ctx, ch.No+1, ident.ID{}, ident.Max(), 5)
		require.NoError(t, err)
		require.Empty(t, got)

		levels, err := f.Levels(f.ctx, ch.No)
		require.NoError(t, err)
		require.Equal(t, []int{1023, 5}, levels)
		for _, level := range []int{0, 5, 1023, 7} {
			var want []durable.Head
			for _, m := range in {
				if m.Priority == level {
					want = append(want, heads([]*durable.Message{m})...)
				}
			}
			got, err := f.LevelHeads(f.ctx, ch.No, level, ident.ID{}, ident.Max(), 100)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		got, err = f.LevelHeads(f.ctx, ch.No, 5, in[2].ID, in[9].ID, 1)
		require.NoError(t, err)
		require.Equal(t, heads(in[6:7]), got)
	},
	"a range is delivered when every job of it is": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		first := f.messages(ch, 3)
		f.insert(t, first...)
		late, _, err := f.PutConsumer(f.ctx, consumerPut("c", "late"))
		require.NoError(t, err)
		ch.Audience++
		more := f.messages(ch, 3)
		f.insert(t, more...)
		all := append(append([]*durable.Message{}, first...), more...)
		check := func(k durable.Consumer, want bool) {
			t.Helper()
			tally, got, err := f.AllDelivered(f.ctx, k, ident.ID{}, all[5].ID)
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.EqualValues(t, 6-3*k.Position, tally.Owed)
		}
		check(ks[0], false)
		for i, m := range all {
			check(ks[0], false)
			require.NoError(t, f.Record(f.ctx, []durable.Outcome{{ConsumerNo: ks[0].No, ID: m.ID, Attempts: 1, AtMs: 1}}))
			if i >= 3 {
				check(late, false)
				require.NoError(t, f.Record(f.ctx, []durable.Outcome{{ConsumerNo: late.No, ID: m.ID, Attempts: 1, AtMs: 1}}))
			}
		}
		check(ks[0], true)
		check(late, true)
		_, got, err := f.AllDelivered(f.ctx, ks[0], all[5].ID, ident.Max())
		require.NoError(t, err)
		require.True(t, got, "an empty range is delivered")
	},
	"a level is delivered up to its first undelivered job": func(t *testing.T, f *fixture) {
		for _, priority := range []int{0, 7} {
			ch, ks := f.channel(t, fmt.Sprint("c", priority), 1)
			var all []*durable.Message
			for i := range 6 {
				if i == 3 {
					_, _, err := f.PutConsumer(f.ctx, consumerPut(ch.ID, "late"))
					require.NoError(t, err)
					ch.Audience++
				}
				m, other := f.message(ch), f.message(ch)
				m.Priority, other.Priority = priority, 7-priority
				f.insert(t, m, other)
				all = append(all, m)
			}
			late := ks[0]
			// none of its jobs is delivered, and the first three messages do not concern it
			late.No, late.Position = late.No+1000, 1
			for i, m := range all {
				require.NoError(t, f.Record(f.ctx, []durable.Outcome{{ConsumerNo: ks[0].No, ID: m.ID, Attempts: 1, AtMs: 1}}))
				for limit := 1; limit <= 7; limit++ {
					last, over, err := f.LevelDelivered(f.ctx, ks[0], priority, ident.ID{}, all[5].ID, limit)
					require.NoError(t, err)
					require.Equal(t, limit <= i+1 || i == 5, over, "%d delivered, %d examined", i+1, limit)
					require.Equal(t, all[min(limit, 6)-1].ID, last)
					_, over, err = f.LevelDelivered(f.ctx, late, priority, ident.ID{}, all[5].ID, limit)
					require.NoError(t, err)
					require.Equal(t, limit <= 3, over)
				}
			}
			last, over, err := f.LevelDelivered(f.ctx, ks[0], priority, all[2].ID, all[4].ID, 9)
			require.NoError(t, err)
			require.True(t, over)
			require.Equal(t, all[4].ID, last)
		}
	},
	"a channel without prioritised messages has no levels": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		f.insert(t, f.message(ch))
		levels, err := f.Levels(f.ctx, ch.No)
		require.NoError(t, err)
		require.Empty(t, levels)
	},
	"heads wait for a message that is being inserted": func(t *testing.T, f *fixture) {
		if f.openInsert == nil {
			return // a server with one writer has no concurrent insert
		}
		ch, _ := f.channel(t, "c", 1)
		before, held, after := f.ids.Next(), f.ids.Next(), f.ids.Next()
		commit := f.openInsert(t, f.Store, ch.No, held)
		m, n := f.message(ch), f.message(ch)
		m.ID, n.ID = before, after
		f.insert(t, m, n)
		result := make(chan []durable.Head, 1)
		go func() {
			got, err := f.Heads(f.ctx, ch.No, ident.ID{}, ident.Max(), 10)
			if err != nil {
				t.Error(err)
			}
			result <- got
		}()
		select {
		case got := <-result:
			require.Failf(t, "did not wait", "%v", got)
		case <-time.After(300 * time.Millisecond):
		}
		commit()
		got := <-result
		require.Len(t, got, 3)
		require.Equal(t, held, got[1].ID)
	},
	"a scan behind concurrent inserts misses no message": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		done := make(chan struct{})
		written := make([][]*durable.Message, 3)
		go func() {
			defer close(done)
			race(len(written), func(w int) {
				for len(written[w]) < 15*30 {
					batch := f.messages(ch, 30)
					errs := f.Insert(f.ctx, f.node, batch)
					if errors.Is(errs[0], durable.ErrStale) { // on a slow machine: new IDs, as the broker takes
						continue
					}
					for _, err := range errs {
						if err != nil {
							t.Error(err)
						}
					}
					written[w] = append(written[w], batch...)
				}
			})
		}()
		seen := map[ident.ID]bool{}
		var after ident.ID
		walk := func(through ident.ID) {
			for {
				got, err := f.Heads(f.ctx, ch.No, after, through, 50)
				require.NoError(t, err)
				for _, h := range got {
					require.False(t, seen[h.ID])
					seen[h.ID] = true
					after = h.ID
				}
				if len(got) < 50 {
					after = through
					return
				}
			}
		}
		horizon := durable.MaxIDAge.Milliseconds() + 200
		for running := true; running; {
			select {
			case <-done:
				running = false
			default:
				now, err := f.NowMs(f.ctx)
				require.NoError(t, err)
				walk(ident.AtMillis(now - horizon))
			}
		}
		walk(ident.Max())
		for _, batch := range written {
			for _, m := range batch {
				require.True(t, seen[m.ID])
			}
		}
	},
	"the newest message of each channel is found": func(t *testing.T, f *fixture) {
		var want []durable.Latest
		for i := range 5 {
			ch, _ := f.channel(t, fmt.Sprint("c", i), 1)
			l := durable.Latest{ChannelNo: ch.No}
			if i != 2 {
				in := f.messages(ch, 3)
				f.insert(t, in...)
				l.ID = in[2].ID
			}
			want = append(want, l)
		}
		got, err := f.LatestMessages(f.ctx, 0, 3)
		require.NoError(t, err)
		require.Equal(t, want[:3], got)
		got, err = f.LatestMessages(f.ctx, want[2].ChannelNo, 10)
		require.NoError(t, err)
		require.Equal(t, want[3:], got)
	},
	"a setting has its last value, and zero before the first": func(t *testing.T, f *fixture) {
		for _, want := range []int64{0, 7, -3, 1<<63 - 1} {
			if want != 0 {
				require.NoError(t, f.SetSetting(f.ctx, "test", want))
			}
			got, err := f.Setting(f.ctx, "test")
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		other, err := f.Setting(f.ctx, "other")
		require.NoError(t, err)
		require.Zero(t, other)
	},
	"a watermark moves from where it stands": func(t *testing.T, f *fixture) {
		none, err := f.Watermarks(f.ctx)
		require.NoError(t, err)
		require.Empty(t, none)
		a, b, c := f.ids.Next(), f.ids.Next(), f.ids.Next()
		f.mark(t, map[uint32]ident.ID{1: b, 2: b})
		others, err := f.SaveWatermarks(f.ctx, durable.Clock{}, []durable.Settled{{ConsumerNo: 1, After: a, Through: c},
			{ConsumerNo: 2, After: b, Through: c}, {ConsumerNo: 3, Through: a}, {ConsumerNo: 4, After: a, Through: b}})
		require.NoError(t, err)
		require.Equal(t, map[uint32]ident.ID{1: b, 4: {}}, others)
		others, err = f.SaveWatermarks(f.ctx, durable.Clock{}, nil)
		require.NoError(t, err)
		require.Empty(t, others)
		f.requireMarks(t, map[uint32]ident.ID{1: b, 2: c, 3: a})
		many := map[uint32]ident.ID{}
		for i := range uint32(1100) {
			many[i+10] = f.ids.Next()
		}
		race(3, func(int) {
			if _, err := f.SaveWatermarks(f.ctx, durable.Clock{}, settled(many)); err != nil {
				t.Error(err)
			}
		})
		got, err := f.Watermarks(f.ctx)
		require.NoError(t, err)
		require.Len(t, got, 1103)
		require.NoError(t, f.ForgetWatermarks(f.ctx))
		f.requireMarks(t, map[uint32]ident.ID{})
		f.mark(t, map[uint32]ident.ID{1: a})
		f.requireMarks(t, map[uint32]ident.ID{1: a})
	},
	"the watermark of one consumer goes back, and its books": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 2)
		all := f.messages(ch, 3)
		f.insert(t, all...)
		for _, k := range ks {
			f.save(t, durable.Settled{ConsumerNo: k.No, Through: all[2].ID, Accepted: 4})
			begin, found, err := f.FirstBookRow(f.ctx, k.No, ident.ID{})
			require.NoError(t, err)
			require.True(t, found)
			require.Zero(t, begin)
		}
		require.NoError(t, f.RewindWatermark(f.ctx, ks[0].No, all[0].ID))
		f.requireMarks(t, map[uint32]ident.ID{ks[0].No: all[0].ID, ks[1].No: all[2].ID})
		f.requireBooks(t, ks[0], all, ident.ID{}, ident.Max())
		_, found, err := f.FirstBookRow(f.ctx, ks[0].No, ident.ID{})
		require.NoError(t, err)
		require.False(t, found)
		b, err := f.Books(f.ctx, ks[1], ident.ID{}, all[2].ID)
		require.NoError(t, err)
		require.EqualValues(t, 4, b.Accepted)
	},
	"outcomes without a message are removed, and no others": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 2)
		all := f.messages(ch, 3)
		f.insert(t, all...)
		var strays []ident.ID
		for i, kind := range []durable.OutcomeKind{durable.OutcomeDelivered, durable.OutcomeDead, durable.OutcomeRetry} {
			strays = append(strays, f.ids.Next())
			for _, k := range ks {
				for _, id := range []ident.ID{all[i].ID, strays[i]} {
					require.NoError(t, f.Record(f.ctx, []durable.Outcome{{Kind: kind, ConsumerNo: k.No, ID: id, Attempts: 1,
						AtMs: 1}}))
				}
			}
		}
		for _, want := range []int{2, 1, 0} {
			n, err := f.RemoveStrays(f.ctx, ks[0], ident.ID{}, ident.Max(), 2)
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
		f.requireBooks(t, ks[0], all, ident.ID{}, ident.Max())
		states, err := f.JobStates(f.ctx, ks[1].No, strays)
		require.NoError(t, err)
		require.Len(t, states, 3, "those of the other consumer stay")
	},
	"later watermarks go back to an ID, and the books with them": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		all := f.messages(ch, 9)
		f.insert(t, all...)
		for _, m := range all {
			require.NoError(t, f.Record(f.ctx, []durable.Outcome{{ConsumerNo: ks[0].No, ID: m.ID, Attempts: 1, AtMs: 1}}))
		}
		f.mark(t, map[uint32]ident.ID{100: all[2].ID, 101: all[4].ID})
		f.settle(t, ks[0], all, ident.ID{}, all[4].ID)
		f.settle(t, ks[0], all, all[4].ID, all[8].ID)
		require.NoError(t, f.RewindWatermarks(f.ctx, all[4].ID))
		f.requireMarks(t, map[uint32]ident.ID{100: all[2].ID, 101: all[4].ID, ks[0].No: all[4].ID})
		f.requireBooks(t, ks[0], all, ident.ID{}, ident.Max())
		f.settle(t, ks[0], all, all[4].ID, all[6].ID)
		f.requireBooks(t, ks[0], all, ident.ID{}, ident.Max())
	},
}

func (f *fixture) requireMarks(t *testing.T, want map[uint32]ident.ID) {
	t.Helper()
	got, err := f.Watermarks(f.ctx)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// settled are watermarks without sums.
func settled(watermarks map[uint32]ident.ID) (all []durable.Settled) {
	for no, id := range watermarks {
		all = append(all, durable.Settled{ConsumerNo: no, Through: id})
	}
	return all
}

func (f *fixture) mark(t *testing.T, watermarks map[uint32]ident.ID) {
	t.Helper()
	_, err := f.SaveWatermarks(f.ctx, durable.Clock{}, settled(watermarks))
	require.NoError(t, err)
}

func heads(batch []*durable.Message) []durable.Head {
	var out []durable.Head
	for _, m := range batch {
		out = append(out, durable.Head{ID: m.ID, Audience: m.Audience, Priority: m.Priority})
	}
	return out
}
