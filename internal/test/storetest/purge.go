package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

var purgeTests = map[string]func(*testing.T, *fixture){
	"a purge removes the messages that are over, and no others": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 2)
		in := f.messages(ch, 8)
		for i, m := range in {
			m.Priority = []int{0, 0, 5, 9}[i%4]
			m.Key = fmt.Sprint("key", i)
		}
		f.insert(t, in...)
		over, half, retried, dead, redriven, waits, late, last := in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7]
		for _, m := range []*durable.Message{over, retried, dead, redriven, late, last} {
			f.end(t, ks[0], durable.OutcomeDelivered, m)
		}
		f.end(t, ks[0], durable.OutcomeDead, half)
		f.end(t, ks[1], durable.OutcomeDelivered, over, half)
		f.end(t, ks[1], durable.OutcomeRetry, retried, late)
		f.end(t, ks[1], durable.OutcomeDead, dead, redriven, last)
		f.end(t, ks[1], durable.OutcomeDelivered, late)
		_, err := f.Redrive(f.ctx, ks[1].No, []ident.ID{redriven.ID}, 1)
		require.NoError(t, err)

		p := durable.Purge{ChannelNo: ch.No, Consumers: consumers(ks), Through: late.ID, Limit: 100}
		got, err := f.Purge(f.ctx, p)
		require.NoError(t, err)
		require.Equal(t, durable.Purged{Last: late.ID, Removed: 2, Kept: 5}, got)
		left := []*durable.Message{half, retried, dead, redriven, waits, last}
		f.requireOnly(t, ch, ks, in, left)

		p.DeadBeforeMs = died // not yet
		got, err = f.Purge(f.ctx, p)
		require.NoError(t, err)
		require.Equal(t, durable.Purged{Last: late.ID, Kept: 5}, got)
		p.DeadBeforeMs++
		got, err = f.Purge(f.ctx, p)
		require.NoError(t, err)
		require.Equal(t, durable.Purged{Last: late.ID, Removed: 2, Kept: 3}, got)
		left = []*durable.Message{retried, redriven, waits, last}
		f.requireOnly(t, ch, ks, in, left)

		again := f.message(ch)
		again.Key = over.Key // free again, since its message is removed
		f.insert(t, again)
	},
	"a purge goes on page by page and returns to the messages it kept": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		in := f.messages(ch, 25)
		f.insert(t, in...)
		stays := []*durable.Message{in[3], in[9], in[24]}
		for _, m := range in {
			if !slices.Contains(stays, m) {
				f.end(t, ks[0], durable.OutcomeDelivered, m)
			}
		}
		p := durable.Purge{ChannelNo: ch.No, Consumers: consumers(ks), Through: ident.Max(), Limit: 10}
		var sum durable.Purged
		for pages := 1; ; pages++ {
			got, err := f.Purge(f.ctx, p)
			require.NoError(t, err)
			require.Positive(t, got.Last.Compare(p.After))
			sum.Removed, sum.Kept = sum.Removed+got.Removed, sum.Kept+got.Kept
			if p.After = got.Last; p.After == p.Through {
				require.Equal(t, 3, pages)
				break
			}
		}
		require.Equal(t, durable.Purged{Removed: 22, Kept: 3}, sum)
		f.requireOnly(t, ch, ks, in, stays)
		f.end(t, ks[0], durable.OutcomeDelivered, stays...)
		p.After = ident.ID{}
		got, err := f.Purge(f.ctx, p)
		require.NoError(t, err)
		require.Equal(t, 3, got.Removed)
		f.requireOnly(t, ch, ks, in, nil)
	},
	"a message for more consumers than the purge knows is kept": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 2)
		m := f.message(ch)
		f.insert(t, m)
		f.end(t, ks[0], durable.OutcomeDelivered, m)
		got, err := f.Purge(f.ctx, durable.Purge{ChannelNo: ch.No, Consumers: consumers(ks[:1]), Through: ident.Max(),
			Limit: 10})
		require.NoError(t, err)
		require.Equal(t, durable.Purged{Last: ident.Max(), Kept: 1}, got)
	},
	"a message without consumers is over": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 0)
		in := f.messages(ch, 3)
		f.insert(t, in...)
		late, _, err := f.PutConsumer(f.ctx, consumerPut("c", "late"))
		require.NoError(t, err)
		got, err := f.Purge(f.ctx, durable.Purge{ChannelNo: ch.No, Consumers: []*durable.Consumer{&late}, Through: in[1].ID,
			Limit: 10})
		require.NoError(t, err)
		require.Equal(t, durable.Purged{Last: in[1].ID, Removed: 2}, got)
		f.requireOnly(t, ch, []durable.Consumer{late}, in, in[2:])
	},
	"outcomes stored after the removal of their message go at the next purge": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		in := f.messages(ch, 4)
		f.insert(t, in...)
		f.end(t, ks[0], durable.OutcomeDelivered, in...)
		p := durable.Purge{ChannelNo: ch.No, Consumers: consumers(ks), Through: ident.Max(), Limit: 10}
		_, err := f.Purge(f.ctx, p)
		require.NoError(t, err)
		f.end(t, ks[0], durable.OutcomeDelivered, in[0])
		f.end(t, ks[0], durable.OutcomeRetry, in[1])
		f.end(t, ks[0], durable.OutcomeDead, in[2])
		got, err := f.Purge(f.ctx, p)
		require.NoError(t, err)
		require.Equal(t, durable.Purged{Last: ident.Max()}, got)
		f.requireOnly(t, ch, ks, in, nil)
	},
	"a redrive and a purge of the same dead letters never both get one": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		in := f.messages(ch, 60)
		f.insert(t, in...)
		f.end(t, ks[0], durable.OutcomeDead, in...)
		var moved []ident.ID
		removed := 0
		race(2, func(i int) {
			if i == 0 {
				for from := 0; from < len(in); from += 7 {
					jobs, err := f.Redrive(f.ctx, ks[0].No, ids(in[from:min(from+7, len(in))]), 1)
					require.NoError(t, err)
					for _, j := range jobs {
						moved = append(moved, j.ID)
					}
				}
				return
			}
			p := durable.Purge{ChannelNo: ch.No, Consumers: consumers(ks), DeadBeforeMs: died + 1, Through: in[len(in)-1].ID,
				Limit: 5}
			for p.After != p.Through {
				got, err := f.Purge(f.ctx, p)
				require.NoError(t, err)
				removed += got.Removed
				p.After = got.Last
			}
		})
		require.Equal(t, len(in), removed+len(moved))
		open, err := f.OpenJobs(f.ctx, ks[0].No, ident.ID{}, 100)
		require.NoError(t, err)
		require.Len(t, open, len(moved), "the redriven jobs are open")
		require.Len(t, f.stored(t, in), len(moved), "their messages are stored")
	},
	"two purges at once remove everything once": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		in := f.messages(ch, 200)
		f.insert(t, in...)
		f.end(t, ks[0], durable.OutcomeDelivered, in...)
		var removed [3]int
		race(len(removed), func(i int) {
			p := durable.Purge{ChannelNo: ch.No, Consumers: consumers(ks), Through: ident.Max(), Limit: 20}
			for p.After != p.Through {
				got, err := f.Purge(f.ctx, p)
				require.NoError(t, err)
				removed[i] += got.Removed
				p.After = got.Last
			}
		})
		require.Equal(t, len(in), removed[0]+removed[1]+removed[2])
		f.requireOnly(t, ch, ks, in, nil)
	},
	"a purge waits for a message that is being inserted": func(t *testing.T, f *fixture) {
		if f.openInsert == nil {
			return // a server with one writer has no concurrent insert
		}
		ch, ks := f.channel(t, "c", 1)
		first := f.message(ch)
		f.insert(t, first)
		f.end(t, ks[0], durable.OutcomeDelivered, first)
		pending := f.ids.Next()
		commit := f.openInsert(t, f.Store, ch.No, pending)
		done := make(chan durable.Purged, 1)
		go func() {
			got, err := f.Purge(f.ctx, durable.Purge{ChannelNo: ch.No, Consumers: consumers(ks), Through: ident.Max(),
				Limit: 10})
			if err != nil {
				t.Error(err)
			}
			done <- got
		}()
		select {
		case got := <-done:
			require.Failf(t, "did not wait", "%+v", got)
		case <-time.After(300 * time.Millisecond):
		}
		commit()
		got := <-done
		require.Equal(t, 1, got.Removed)
		require.Len(t, f.stored(t, []*durable.Message{{ID: pending, ChannelNo: ch.No}}), 1)
	},
}

// died is the time at which the dead letters of these tests died.
const died = 1000

func (f *fixture) end(t *testing.T, k durable.Consumer, kind durable.OutcomeKind, batch ...*durable.Message) {
	t.Helper()
	var out []durable.Outcome
	for _, m := range batch {
		out = append(out, durable.Outcome{Kind: kind, ConsumerNo: k.No, ID: m.ID, Priority: m.Priority, Attempts: 2,
			AtMs: died})
	}
	require.NoError(t, f.Record(f.ctx, out))
}

func consumers(ks []durable.Consumer) []*durable.Consumer {
	out := make([]*durable.Consumer, len(ks))
	for i := range ks {
		out[i] = &ks[i]
	}
	return out
}

// requireOnly checks that the store has the messages of left and no row of the others.
func (f *fixture) requireOnly(t *testing.T, ch durable.Channel, ks []durable.Consumer, all, left []*durable.Message) {
	t.Helper()
	stored := f.stored(t, all)
	require.Len(t, stored, len(left))
	levels := map[int]bool{}
	for _, m := range all {
		stays := slices.Contains(left, m)
		require.Equal(t, stays, stored[m.ID].ID == m.ID)
		if m.Key != "" {
			_, err := f.MessageByKey(f.ctx, ch.No, m.Key)
			if stays {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, durable.ErrNotFound)
			}
		}
		if stays && m.Priority > 0 {
			levels[m.Priority] = true
		}
		for _, k := range ks {
			states, err := f.JobStates(f.ctx, k.No, []ident.ID{m.ID})
			require.NoError(t, err)
			attempts, err := f.Attempts(f.ctx, k.No, m.ID, 100)
			require.NoError(t, err)
			if !stays {
				require.Empty(t, states, "a job of a message that is gone")
				require.Empty(t, attempts, "attempts of a message that is gone")
			}
		}
	}
	got, err := f.Levels(f.ctx, ch.No)
	require.NoError(t, err)
	require.Len(t, got, len(levels))
}
