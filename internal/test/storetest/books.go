package storetest

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// booksOf counts the jobs of a stretch one by one.
func (f *fixture) booksOf(t *testing.T, k durable.Consumer, all []*durable.Message, after,
	through ident.ID) (b durable.Books) {
	t.Helper()
	for _, m := range all {
		if !k.Concerns(m.Head()) || m.ID.Compare(after) <= 0 || m.ID.Compare(through) > 0 {
			continue
		}
		states, err := f.JobStates(f.ctx, k.No, []ident.ID{m.ID})
		require.NoError(t, err)
		b.Accepted++
		switch s := states[m.ID]; {
		case s.Status == durable.Delivered:
			b.Delivered++
		case s.Status == durable.Dead && s.Reason == durable.Expired:
			b.Expired++
		case s.Status == durable.Dead:
			b.Dead++
		default:
			b.Open++
		}
	}
	return b
}

// settle enters the stretch after a message up to another one, as a reconciler does.
func (f *fixture) settle(t *testing.T, k durable.Consumer, all []*durable.Message, after, through ident.ID) {
	t.Helper()
	b := f.booksOf(t, k, all, after, through)
	if stored, err := f.Watermarks(f.ctx); err != nil || stored[k.No].Compare(after) < 0 { // a gap that is in no stretch
		require.NoError(t, err)
		f.save(t, durable.Settled{ConsumerNo: k.No, After: stored[k.No], Through: after})
	}
	f.save(t, durable.Settled{ConsumerNo: k.No, After: after, Through: through, Accepted: b.Accepted,
		Delivered: b.Delivered})
}

// save saves a stretch, if the watermark stands at its begin.
func (f *fixture) save(t *testing.T, m durable.Settled) {
	t.Helper()
	_, err := f.SaveWatermarks(f.ctx, durable.Clock{}, []durable.Settled{m})
	require.NoError(t, err)
}

func (f *fixture) requireBooks(t *testing.T, k durable.Consumer, all []*durable.Message, after, through ident.ID) {
	t.Helper()
	got, err := f.Books(f.ctx, k, after, through)
	require.NoError(t, err)
	require.Equal(t, f.booksOf(t, k, all, after, through), got)
	require.Zero(t, got.Difference())
}

var bookTests = map[string]func(*testing.T, *fixture){
	"the books are the jobs counted one by one": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		all := f.messages(ch, 30)
		f.insert(t, all...)
		late, _, err := f.PutConsumer(f.ctx, consumerPut("c", "late"))
		require.NoError(t, err)
		ch.Audience++
		more := f.messages(ch, 30)
		f.insert(t, more...)
		all = append(all, more...)
		r := rand.New(rand.NewPCG(1, 2))
		record := func(k durable.Consumer, m *durable.Message, kind durable.OutcomeKind, reason durable.Reason) {
			out := durable.Outcome{Kind: kind, ConsumerNo: k.No, ID: m.ID, Attempts: 1, AtMs: 1, NextMs: 2, Reason: reason,
				Tracked: true}
			require.NoError(t, f.Record(f.ctx, []durable.Outcome{out}))
		}
		kinds := []durable.OutcomeKind{durable.OutcomeDelivered, durable.OutcomeDelivered, durable.OutcomeDead,
			durable.OutcomeRetry}
		for _, k := range []durable.Consumer{ks[0], late} {
			for i, m := range all[:50] {
				if !k.Concerns(m.Head()) {
					continue
				}
				kind, reason := kinds[r.IntN(len(kinds))], durable.AttemptsExhausted
				if i%7 == 0 {
					kind, reason = durable.OutcomeDead, durable.Expired
				}
				record(k, m, kind, reason)
				if i%11 == 0 {
					record(k, m, durable.OutcomeDelivered, 0) // later than its death
				}
			}
			for i := 0; i+10 <= 50; i += 10 { // the reconciler comes three times, and one save is lost
				if i != 20 {
					after := ident.ID{}
					if i > 0 {
						after = all[i-1].ID
					}
					f.settle(t, k, all, after, all[i+9].ID)
				}
			}
			check := func() {
				t.Helper()
				f.requireBooks(t, k, all, ident.ID{}, ident.Max())
				for range 20 {
					a, b := r.IntN(len(all)), r.IntN(len(all))
					f.requireBooks(t, k, all, all[min(a, b)].ID, all[max(a, b)].ID)
				}
			}
			check()
			// Dead letters are redriven: some are delivered, some die again, some wait.
			dead, err := f.DeadJobs(f.ctx, k.No, ident.ID{}, 100)
			require.NoError(t, err)
			for i, d := range dead {
				_, err := f.Redrive(f.ctx, k.No, []ident.ID{d.ID}, 3)
				require.NoError(t, err)
				if i%3 > 0 {
					record(k, &durable.Message{ID: d.ID}, kinds[1+i%3-1], durable.AttemptsExhausted)
				}
			}
			check()
			check() // with what the first question has corrected
		}
	},
	"a stretch is entered once": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		all := f.messages(ch, 10)
		f.insert(t, all...)
		for _, m := range all {
			require.NoError(t, f.Record(f.ctx, []durable.Outcome{{ConsumerNo: ks[0].No, ID: m.ID, Attempts: 1, AtMs: 1}}))
		}
		f.settle(t, ks[0], all, ident.ID{}, all[4].ID)
		f.settle(t, ks[0], all, ident.ID{}, all[4].ID) // after a lost answer
		f.settle(t, ks[0], all, all[2].ID, all[7].ID)  // of a broker that is slower
		f.settle(t, ks[0], all, all[4].ID, all[6].ID)
		f.settle(t, ks[0], all, all[4].ID, all[9].ID)
		race(4, func(int) { f.settle(t, ks[0], all, all[6].ID, all[9].ID) })
		f.requireBooks(t, ks[0], all, ident.ID{}, ident.Max())
		require.NoError(t, f.TrimBooks(f.ctx, ks[0].No, all[9].ID))
		f.requireBooks(t, ks[0], all, ident.ID{}, ident.Max())
	},
	"what is double or has no message is a difference": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		all := f.messages(ch, 4)
		f.insert(t, all...)
		require.NoError(t, f.Record(f.ctx, []durable.Outcome{{ConsumerNo: ks[0].No, ID: f.ids.Next(), Attempts: 1, AtMs: 1}}))
		b, err := f.Books(f.ctx, ks[0], ident.ID{}, ident.Max())
		require.NoError(t, err)
		require.Equal(t, durable.Books{Accepted: 4, Delivered: 1, Open: 4}, b)
		require.EqualValues(t, -1, b.Difference())
		f.settle(t, ks[0], all, ident.ID{}, ident.ID{})
		f.save(t, durable.Settled{ConsumerNo: ks[0].No, Through: all[3].ID, Accepted: 4})
		b, err = f.Books(f.ctx, ks[0], ident.ID{}, all[3].ID)
		require.NoError(t, err)
		require.EqualValues(t, 4, b.Difference(), "four jobs were lost below the watermark")
	},
}
