package history

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// A fakeStore is a store in memory, of which the outcome of a write may be unknown.
type fakeStore struct {
	mu    sync.Mutex
	rows  map[rowKey]durable.HistoryRow
	marks []durable.HistoryMark
	seen  map[string]bool

	writes  int
	broken  bool // refuses all
	unknown bool // writes, and answers with an error
}

func newFakeStore() *fakeStore {
	return &fakeStore{rows: map[rowKey]durable.HistoryRow{}, seen: map[string]bool{}}
}

var errAway = errors.New("away")

func (s *fakeStore) KeepHistory(_ context.Context, rows []durable.HistoryRow) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken || len(rows) > durable.MaxHistoryRows {
		return errAway
	}
	s.writes++
	for _, r := range rows {
		s.rows[rowKey{slot{r.Step, r.AtMs}, of{r.Scope, r.No}, r.Writer}] = r
	}
	if s.unknown {
		return errAway
	}
	return nil
}

func (s *fakeStore) MergeHistory(_ context.Context, step int, beforeMs int64, _ int,
	add func(to, from *durable.HistoryRow)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, r := range maps.Clone(s.rows) {
		if k.step != step || k.atMs >= beforeMs || k.writer == 0 {
			continue
		}
		delete(s.rows, k)
		k.writer, r.Writer = 0, 0
		if to, ok := s.rows[k]; ok {
			add(&to, &r)
			r = to
		}
		s.rows[k] = r
	}
	return nil
}

func (s *fakeStore) ForgetHistory(_ context.Context, step int, beforeMs int64, _ int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.rows {
		if k.step == step && k.atMs < beforeMs {
			delete(s.rows, k)
		}
	}
	return 0, nil
}

func (s *fakeStore) KeepMark(_ context.Context, m durable.HistoryMark) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keepMark(m)
}

func (s *fakeStore) keepMark(m durable.HistoryMark) error {
	if s.broken {
		return errAway
	}
	s.marks = append(s.marks, m)
	return nil
}

func (s *fakeStore) KeepVersion(_ context.Context, version string, m durable.HistoryMark) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen[version] {
		return nil
	}
	err := s.keepMark(m)
	s.seen[version] = err == nil
	return err
}

func (s *fakeStore) ForgetMarks(context.Context, int64, int) error { return nil }

func (s *fakeStore) History(_ context.Context, scope durable.HistoryScope, no uint32, step int, fromMs,
	toMs int64) (out []durable.HistoryRow, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, r := range s.rows {
		if k.of == (of{scope, no}) && k.step == step && k.atMs >= fromMs && k.atMs < toMs {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b durable.HistoryRow) int { return int(a.AtMs - b.AtMs) })
	return out, nil
}

func (s *fakeStore) Marks(context.Context, uint32, uint32, int64, int64, int) ([]durable.HistoryMark, error) {
	return slices.Clone(s.marks), nil
}

// A broker counts in a book, and records.
type broker struct {
	*Recorder
	book *metrics.Book
	ages map[uint32]int64
	stop func() // and wait
}

// start starts a broker on the fake store. The consumers 1 to 9 are of channel 1, the others of channel 2.
func (s *fakeStore) start(owns bool) *broker {
	b := &broker{book: metrics.NewBook(nil), ages: map[uint32]int64{}}
	b.Recorder = New(Options{Store: s, Book: b.book.Snapshot, ChannelOf: func(no uint32) uint32 {
		switch {
		case no < 10:
			return 1
		case no < 100:
			return 2
		}
		return 0
	}, Oldest: func() map[uint32]int64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return maps.Clone(b.ages)
	}, Owns: func(uint32) bool { return owns },
		NowMs: func() int64 { return time.Now().UnixMilli() }, Version: "1.2", Name: "b",
		Registerer: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { b.Run(ctx); close(done) }()
	b.stop = func() { cancel(); <-done }
	return b
}

func (s *fakeStore) read(t *testing.T, q Query) apitype.HistoryRange {
	t.Helper()
	q.FromMs, q.ToMs = time.Now().Add(-30*time.Minute).UnixMilli(), time.Now().UnixMilli()
	r := Reader{Store: s, NowMs: func() int64 { return time.Now().UnixMilli() }}
	h, err := r.Range(t.Context(), q)
	require.NoError(t, err)
	return h
}

func (s *fakeStore) sum(t *testing.T, q Query) (out apitype.HistorySlot) {
	t.Helper()
	for _, v := range s.read(t, q).Result {
		out.Accepted += v.Accepted
		out.Delivered += v.Delivered
		out.Failed += v.Failed
		out.Dead += v.Dead
		out.OldestSeconds = max(out.OldestSeconds, v.OldestSeconds)
		out.AckP99 = max(out.AckP99, v.AckP99)
		out.DeliveryP99 = max(out.DeliveryP99, v.DeliveryP99)
	}
	return out
}

func (b *broker) publish(channel uint32, n int, consumers ...uint32) {
	msgs := make([]*durable.Message, n)
	for i := range msgs {
		msgs[i] = &durable.Message{ChannelNo: channel}
	}
	b.book.Stored(msgs)
	b.book.Acked(channel, 2*time.Millisecond, n)
	for _, no := range consumers {
		b.book.Queued(no, n)
	}
}

func (b *broker) end(kind durable.OutcomeKind, consumer uint32, n int) {
	for range n {
		b.book.Ended([]durable.Outcome{{Kind: kind, ConsumerNo: consumer, StatusCode: 200, DurationMs: 40}})
	}
}

func TestTheHistoryOfBrokersAddsUpOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		published := 0
		first, second := s.start(true), s.start(false)
		for i := range 40 {
			first.publish(1, 3, 1, 2)
			second.publish(1, 2, 1, 2)
			second.publish(2, 1, 11)
			published += 5
			first.end(durable.OutcomeDelivered, 1, 4)
			second.end(durable.OutcomeRetry, 1, 1)
			second.end(durable.OutcomeDead, 11, 1)
			time.Sleep(7 * time.Second)
			if i%9 == 8 { // in the middle of a slot
				first.stop()
				first = s.start(true)
			}
		}
		first.stop()
		second.stop()
		for _, step := range Steps {
			require.EqualValues(t, published+40, s.sum(t, Query{Step: step}).Accepted, step.Name)
			of1 := s.sum(t, Query{Step: step, ChannelNo: 1, ConsumerNo: 1})
			require.EqualValues(t, published, of1.Accepted)
			require.EqualValues(t, 160, of1.Delivered)
			require.EqualValues(t, 40, of1.Failed)
			require.InDelta(t, 2, of1.AckP99, 0.7)
			require.InDelta(t, 40, of1.DeliveryP99, 15)
			require.EqualValues(t, published, s.sum(t, Query{Step: step, ChannelNo: 1, ConsumerNo: 2}).Accepted)
			of2 := s.sum(t, Query{Step: step, ChannelNo: 2})
			require.EqualValues(t, 40, of2.Accepted)
			require.EqualValues(t, 40, of2.Dead)
			require.EqualValues(t, 160, s.sum(t, Query{Step: step, ChannelNo: 1}).Delivered)
			require.Zero(t, s.sum(t, Query{Step: step, ChannelNo: 2, ConsumerNo: 12}).Accepted)
		}
		kinds := map[string]int{}
		for _, m := range s.read(t, Query{Step: Steps[0]}).Marks {
			kinds[m.Kind]++
		}
		require.Equal(t, map[string]int{"start": 6, "version": 1}, kinds)
	})
}

func TestASlotHasWhatHappenedInIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins at a full minute
		s := newFakeStore()
		b := s.start(true)
		defer b.stop()
		at := time.Now()
		require.Zero(t, at.UnixMilli()%60_000)
		time.Sleep(9 * time.Second)
		b.end(durable.OutcomeDelivered, 1, 1)
		time.Sleep(2 * time.Second)
		b.end(durable.OutcomeDelivered, 1, 2)
		time.Sleep(20 * time.Second)
		r := Reader{Store: s, NowMs: func() int64 { return time.Now().UnixMilli() }}
		h, err := r.Range(t.Context(), Query{Step: Steps[0], FromMs: at.UnixMilli(), ToMs: time.Now().UnixMilli()})
		require.NoError(t, err)
		var delivered []int64
		for _, v := range h.Result {
			delivered = append(delivered, v.Delivered)
		}
		require.Equal(t, []int64{1, 2, 0, 0}, delivered)
	})
}

// A slot of an answer may have several steps: it is the sum of theirs, and begins at a multiple of its length.
func TestASlotMayHaveSeveralSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins at a full hour
		s := newFakeStore()
		b := s.start(true)
		defer b.stop()
		for range 130 {
			b.end(durable.OutcomeDelivered, 1, 3)
			time.Sleep(time.Minute)
		}
		now := time.Now()
		r := Reader{Store: s, NowMs: func() int64 { return now.UnixMilli() }}
		ask := func(slot time.Duration) []apitype.HistorySlot {
			slots, err := r.Slots(t.Context(), Query{Step: StepIn(slot), Slot: slot, FromMs: now.Add(-5 * time.Hour).UnixMilli(),
				ToMs: now.UnixMilli()})
			require.NoError(t, err)
			return slots
		}
		for _, slot := range []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour} {
			delivered := int64(0)
			for i, got := range ask(slot) {
				delivered += got.Delivered
				require.Zero(t, got.At.UnixMilli()%slot.Milliseconds(), "%s, slot %d", slot, i)
				require.Zero(t, got.Failed)
			}
			require.InDelta(t, 390, delivered, 3, "%s: the present ten seconds may be on their way", slot)
		}
		require.Equal(t, "1m", StepIn(time.Minute).Name)
		require.Equal(t, "10m", StepIn(6*time.Hour).Name)
		require.Equal(t, "10s", StepIn(7*time.Second).Name, "no step fits")
	})
}

func TestTheRowsOfBrokersBecomeOneAndAddUpToTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		brokers := []*broker{s.start(true), s.start(false)}
		time.Sleep(5 * time.Second)
		begun := time.Now()
		for range 40 {
			for _, b := range brokers {
				b.publish(1, 2, 1)
				b.end(durable.OutcomeDelivered, 1, 2)
			}
			time.Sleep(10 * time.Second)
		}
		of1 := Query{ChannelNo: 1, ConsumerNo: 1, FromMs: begun.Add(-time.Minute).UnixMilli(),
			ToMs: begun.Add(time.Hour).UnixMilli()}
		r := Reader{Store: s, NowMs: func() int64 { return time.Now().UnixMilli() }}
		history := func(step int) []apitype.HistorySlot {
			of1.Step = Steps[step]
			h, err := r.Range(t.Context(), of1)
			require.NoError(t, err)
			return slices.DeleteFunc(h.Result, func(s apitype.HistorySlot) bool { return s.Accepted == 0 })
		}
		minutes, tens := history(1), history(2)
		time.Sleep(90 * time.Minute)
		for k := range s.rows {
			require.True(t, k.step != 10 && k.writer == 0, k)
		}
		require.Equal(t, minutes, history(1))
		require.Equal(t, tens, history(2))
		for _, b := range brokers {
			b.stop()
		}
	})
}

func TestARowThatOthersMayHaveMergedIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		s.broken = true
		b := s.start(false)
		time.Sleep(5 * time.Second)
		b.end(durable.OutcomeDelivered, 1, 1)
		time.Sleep(20 * time.Minute)
		b.end(durable.OutcomeDelivered, 1, 2)
		time.Sleep(19 * time.Minute)
		s.mu.Lock()
		s.broken = false
		s.mu.Unlock()
		b.stop()
		all := func(step int) (delivered int64) {
			for k, r := range s.rows {
				if k.step == step && k.scope == durable.HistoryOfAll {
					delivered += r.Delivered
				}
			}
			return delivered
		}
		require.EqualValues(t, 2, all(10))
		require.EqualValues(t, 2, all(60))
		require.EqualValues(t, 3, all(600), "it was over for less")
		require.EqualValues(t, 3*2, testutil.ToFloat64(b.lost), "of the whole, the channel and the consumer")
	})
}

func TestAWriteWithUnknownOutcomeCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		b := s.start(true)
		for i := range 12 {
			s.mu.Lock()
			s.unknown, s.broken = i%3 == 1, i%3 == 2
			s.mu.Unlock()
			b.end(durable.OutcomeDelivered, 1, 10)
			time.Sleep(10 * time.Second)
		}
		s.mu.Lock()
		s.unknown, s.broken = false, false
		s.mu.Unlock()
		b.stop()
		for _, step := range Steps {
			require.EqualValues(t, 120, s.sum(t, Query{Step: step}).Delivered)
			require.EqualValues(t, 120, s.sum(t, Query{Step: step, ChannelNo: 1, ConsumerNo: 1}).Delivered)
		}
		require.Zero(t, testutil.ToFloat64(b.lost))
	})
}

func TestABrokerWithoutWorkWritesNoRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		b := s.start(true)
		defer b.stop()
		writes := func(want int, change func()) {
			t.Helper()
			s.mu.Lock()
			defer s.mu.Unlock()
			require.Equal(t, want, s.writes)
			change()
		}
		time.Sleep(5 * time.Second) // in the middle of each slot
		b.end(durable.OutcomeDelivered, 1, 1)
		time.Sleep(time.Minute)
		writes(1, func() { b.ages[2] = 1500 })
		time.Sleep(20 * time.Second)
		writes(3, func() { delete(b.ages, 2) }) // jobs waited
		time.Sleep(time.Hour)
		writes(3, func() {})
	})
}

func TestTheOwnerOfAConsumerWritesHowLongItsJobsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		owner, other := s.start(true), s.start(false)
		s.mu.Lock()
		for _, b := range []*broker{owner, other} {
			b.ages[1], b.ages[200] = 61_500, 90_000 // the consumer 200 was deleted
		}
		other.ages[2] = 99_000
		s.mu.Unlock()
		time.Sleep(time.Minute)
		owner.stop()
		other.stop()
		for _, q := range []Query{{}, {ChannelNo: 1}, {ChannelNo: 1, ConsumerNo: 1}} {
			for _, q.Step = range Steps {
				require.EqualValues(t, 61.5, s.sum(t, q).OldestSeconds)
			}
		}
		for k := range s.rows {
			require.Equal(t, owner.tally.writer, k.writer)
		}
	})
}

func TestWhatADeletedConsumerHadCountsForTheWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		b := s.start(true)
		b.end(durable.OutcomeDelivered, 1, 3)
		time.Sleep(15 * time.Second)
		b.end(durable.OutcomeDelivered, 1, 4)
		b.book.Prune(func(no uint32) bool { return no != 1 }, func(uint32) bool { return true })
		b.end(durable.OutcomeDelivered, 200, 5)
		time.Sleep(15 * time.Second)
		b.stop()
		require.EqualValues(t, 12, s.sum(t, Query{Step: Steps[0]}).Delivered)
		require.EqualValues(t, 3, s.sum(t, Query{Step: Steps[0], ChannelNo: 1, ConsumerNo: 1}).Delivered)
	})
}

func TestOldSlotsAreRemovedByOneBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		b, other := s.start(true), s.start(false)
		most := map[int]int{}
		time.Sleep(5 * time.Second) // in the middle of each slot
		for range 90 * 6 {
			b.end(durable.OutcomeDelivered, 1, 1)
			time.Sleep(10 * time.Second)
			counts := map[int]int{}
			s.mu.Lock()
			for k := range s.rows {
				counts[k.step]++
			}
			s.mu.Unlock()
			for step, n := range counts {
				most[step] = max(most[step], n)
			}
		}
		b.stop()
		other.stop()
		// of the whole, the channel and the consumer; a minute may pass until slots are removed
		require.InDelta(t, 3*360, most[10], 3*8)
		require.InDelta(t, 3*90, most[60], 3*2)
	})
}
