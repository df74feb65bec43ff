package quota

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A shelf is a store with one channel, whose messages are of producer 1.
type shelf struct {
	mu     sync.Mutex
	sizes  map[ident.ID]int64
	mark   ident.ID
	sum    durable.StoredSum
	away   atomic.Bool
	writes int

	waiting int64 // schedules
}

var errAway = errors.New("away")

func (s *shelf) err() error {
	if s.away.Load() {
		return errAway
	}
	return nil
}

func (s *shelf) put(id ident.ID, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sizes[id] = size
}

func (s *shelf) LatestMessages(context.Context, uint32, int) ([]durable.Latest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	latest := durable.Latest{ChannelNo: 1}
	for id := range s.sizes {
		if id.Compare(latest.ID) > 0 {
			latest.ID = id
		}
	}
	return []durable.Latest{latest}, s.err()
}

func (s *shelf) CountStored(_ context.Context, _ uint32, through ident.ID, _ int) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	for id, size := range s.sizes {
		if id.Compare(s.mark) > 0 && id.Compare(through) <= 0 {
			s.sum = durable.StoredSum{Messages: s.sum.Messages + 1, Bytes: s.sum.Bytes + size}
		}
	}
	s.mark = through
	return false, s.err()
}

func (s *shelf) Stored(context.Context) (durable.Stored, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return durable.Stored{Sums: map[uint32]durable.StoredSum{1: s.sum}, Marks: map[uint32]ident.ID{1: s.mark}}, s.err()
}

func (s *shelf) ScheduledCounts(_ context.Context, _ ident.ID, of []uint32) (map[uint32]int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of != nil { // those of producers without a bound are not read
		return map[uint32]int64{}, s.err()
	}
	return map[uint32]int64{1: s.waiting}, s.err()
}

func (s *shelf) ScheduledBytes(context.Context, ident.ID, []uint32) (map[uint32]int64, error) {
	return map[uint32]int64{}, s.err()
}

// A clock is the store's time; this broker owns everything.
type clock struct{ ms atomic.Int64 }

func (c *clock) Owns(uint32) bool { return true }
func (c *clock) NowMs() int64     { return c.ms.Load() }
func (c *clock) PastMs() int64    { return c.ms.Load() }

func newQuota(most int64) (*Quota, *shelf, *clock) {
	s, c := &shelf{sizes: map[ident.ID]int64{}}, &clock{}
	c.ms.Store(1_700_000_000_500)
	log := slog.New(slog.DiscardHandler)
	return New(Options{Store: s, Catalogue: catalogue.New(nil, log), Cluster: c, MaxStored: most, Log: log}), s, c
}

// What one broker stores is counted exactly while it passes from the memory of the broker into the sums.
func TestOneBrokerNeverExceedsTheBoundAndUsesAllOfIt(t *testing.T) {
	q, s, c := newQuota(1000)
	var no atomic.Int64
	publish := func() bool {
		taken, err := q.Take(1, 10, 0, 0)
		if err != nil {
			require.ErrorIs(t, err, ErrFull)
			return false
		}
		id := ident.AtMillis(c.NowMs())
		n := no.Add(1)
		id[10], id[11] = byte(n>>8), byte(n)
		s.put(id, 10)
		taken.Messages(1, id, 10)
		return true
	}
	var stored atomic.Int64
	for range 40 {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if publish() {
					stored.Add(1)
				}
			})
		}
		all.Go(func() { require.NoError(t, q.round(t.Context())) })
		all.Wait()
		c.ms.Add(333)
	}
	require.EqualValues(t, 100, stored.Load())
	c.ms.Add(10_000)
	require.NoError(t, q.round(t.Context()))
	require.EqualValues(t, 1000, s.sum.Bytes)
	require.Empty(t, q.accounts, "nothing is kept twice")
	require.False(t, publish())
	writes := s.writes
	require.NoError(t, q.round(t.Context()))
	require.Equal(t, writes, s.writes, "a channel without new messages is not counted again")
}

func TestRoomThatIsNotUsedIsFreeAgain(t *testing.T) {
	q, _, _ := newQuota(100)
	taken, err := q.Take(1, 80, 0, 0)
	require.NoError(t, err)
	_, err = q.Take(1, 30, 0, 0)
	require.ErrorIs(t, err, ErrFull)
	_, err = q.Take(1, 30, 0, 10)
	require.NoError(t, err, "beyond a body that will be over")
	_, err = q.Take(2, 100, 0, 0)
	require.NoError(t, err, "another producer")
	taken.Messages(1, ident.ID{}, 0)
	_, err = q.Take(1, 70, 0, 0)
	require.NoError(t, err)
}

// A message is gone with a store that went back, and no later one of its channel comes.
func TestWhatAStoreThatWentBackDoesNotHaveTakesNoRoom(t *testing.T) {
	q, _, c := newQuota(100)
	taken, err := q.Take(1, 80, 0, 0)
	require.NoError(t, err)
	taken.Messages(1, ident.AtMillis(c.NowMs()), 80)
	c.ms.Add(60_000)
	require.NoError(t, q.round(t.Context()))
	_, err = q.Take(1, 30, 0, 0)
	require.ErrorIs(t, err, ErrFull)
	q.StoreWentBack()
	_, err = q.Take(1, 30, 0, 0)
	require.NoError(t, err)
	(*Quota)(nil).StoreWentBack()
}

func TestAStoreThatIsAwayHoldsNobodyUp(t *testing.T) {
	q, s, _ := newQuota(100)
	s.away.Store(true)
	taken, err := q.Take(1, 80, 0, 0)
	require.NoError(t, err)
	taken.Messages(1, ident.ID{}, 80) // the journal has it
	_, err = q.Take(1, 80, 0, 0)
	require.ErrorIs(t, err, ErrFull, "what this broker took is known")
	q.failed = time.Time{}
	s.away.Store(false)
	_, err = q.Take(1, 20, 0, 0)
	require.NoError(t, err)
	require.True(t, q.loaded.Load())
}

func TestWithoutABoundNothingIsTaken(t *testing.T) {
	q, _, _ := newQuota(0)
	taken, err := q.Take(1, 1<<60, 1<<60, 0)
	require.NoError(t, err)
	require.False(t, taken.Bounded())
	require.Zero(t, testing.AllocsPerRun(100, func() {
		taken, _ := q.Take(1, 1, 0, 0)
		taken.Messages(1, ident.ID{}, 1)
	}))
	var none *Quota
	_, err = none.Take(1, 1, 1, 0)
	require.NoError(t, err)
}

// The schedules of producers without a bound are not counted. The first message behind a new bound is
// checked against a count that has them.
func TestABoundThatIsNewCountsTheSchedulesThatWaitAlready(t *testing.T) {
	q, s, _ := newQuota(1000)
	s.waiting = 3
	_, err := q.Take(1, 10, 1, 0)
	require.NoError(t, err)
	require.True(t, q.loaded.Load())
	q.o.MaxScheduled = 4
	_, err = q.Take(1, 10, 1, 0)
	require.ErrorIs(t, err, ErrFull, "three in the store, and the one under way")
	_, err = q.Take(1, 10, 0, 0)
	require.NoError(t, err)
	require.False(t, q.Full(1, 10))
	require.True(t, q.Full(1, 1000))
	require.False(t, (*Quota)(nil).Full(1, 1))
}
