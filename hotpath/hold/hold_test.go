package hold

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// A shelf is a store of holds.
type shelf struct {
	mu      sync.Mutex
	holds   map[uint32]durable.Hold
	version int64         // of all consumers
	broken  error         // of every call
	storing chan struct{} // not nil: KeepHolds waits for it, twice
	calls   int
}

func (s *shelf) KeepHolds(_ context.Context, holds []durable.Hold) ([]bool, error) {
	if s.storing != nil {
		s.storing <- struct{}{}
		<-s.storing
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	kept := make([]bool, len(holds))
	for i, h := range holds {
		if kept[i] = h.Version == s.version; kept[i] && s.broken == nil {
			s.holds[h.ConsumerNo] = h
		}
	}
	return kept, s.broken
}

func (s *shelf) Holds(_ context.Context, nowMs int64) (out []durable.Hold, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.holds {
		if h.UntilMs > nowMs {
			out = append(out, h)
		}
	}
	return out, s.broken
}

func (s *shelf) HoldOf(_ context.Context, no uint32) (durable.Hold, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holds[no], s.broken
}

func (s *shelf) EndHolds(_ context.Context, nos []uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, no := range nos {
		delete(s.holds, no)
	}
	return s.broken
}

func (s *shelf) breaks(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
}

// A bench has brokers on one store and one Redis.
type bench struct {
	*shelf
	redis map[uint32]time.Duration // the last call
	ended map[uint32]int
}

func newBench() *bench {
	return &bench{&shelf{holds: map[uint32]durable.Hold{}}, map[uint32]time.Duration{}, map[uint32]int{}}
}

func (b *bench) Hold(_ context.Context, no uint32, wait time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.redis[no] = wait
	return nil
}

// broker starts a keeper, which runs until the test ends or stop is called.
func (b *bench) broker(t *testing.T) (k *Keeper, stop func()) {
	k = New(Options{Store: b, Queue: b, NowMs: func() int64 { return time.Now().UnixMilli() },
		Log: slog.New(slog.DiscardHandler), Ended: func(no uint32) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.ended[no]++
		}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	synctest.Wait()
	return k, stop
}

var one = &durable.Consumer{No: 1}

func TestAHoldIsKnownToEveryBrokerAndOutlivesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		k, stop := b.broker(t)
		other, _ := b.broker(t)
		k.Begin(one, time.Hour, "503")
		require.Equal(t, time.Hour, k.Rest(1))
		require.Equal(t, inRedis, b.redis[1], "until the others have read the store")
		require.Zero(t, k.Rest(2))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, time.Hour-2*time.Second, other.Rest(1))
		stop()
		again, _ := b.broker(t)
		require.Equal(t, time.Hour-2*time.Second, again.Rest(1))
		h, ok := again.Of(t.Context(), 1)
		require.True(t, ok)
		require.Equal(t, "503", h.By)
		time.Sleep(time.Hour)
		require.LessOrEqual(t, again.Rest(1), time.Duration(0))
		_, ok = again.Of(t.Context(), 1)
		require.False(t, ok)
		require.Empty(t, b.ended, "it ended by itself")
	})
}

func TestAHoldThatTheStoreHasEndedEndsOnEveryBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		k, _ := b.broker(t)
		other, _ := b.broker(t)
		k.Begin(one, time.Hour, "503")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.NoError(t, b.EndHolds(t.Context(), []uint32{1}))
		other.Learn(one) // it has changed
		time.Sleep(gather)
		synctest.Wait()
		require.Zero(t, other.Rest(1))
		time.Sleep(readEvery)
		synctest.Wait()
		require.Zero(t, k.Rest(1))
		require.Zero(t, b.redis[1], "Redis holds it no more")
		require.Equal(t, 2, b.ended[1])
	})
}

func TestTheWordOfAPersonEndsAHoldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		k, _ := b.broker(t)
		k.Begin(one, time.Hour, "503")
		require.NoError(t, k.End(t.Context(), 1, 2))
		require.Zero(t, k.Rest(1))
		require.Zero(t, b.redis[1])
		require.Equal(t, map[uint32]int{1: 1}, b.ended)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, b.holds)
		b.breaks(errors.New("away"))
		k.Begin(one, time.Hour, "503")
		require.Error(t, k.End(t.Context(), 1))
		require.Positive(t, k.Rest(1), "nothing was ended")
	})
}

// An answer that was read from the store while the hold was stored is no proof that the hold is over.
func TestAReadThatBeganBeforeTheHoldWasStoredDoesNotEndIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		k, _ := b.broker(t)
		other, _ := b.broker(t)
		k.Begin(one, time.Hour, "503")
		began := time.Now()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for _, broker := range []*Keeper{k, other} {
			_, stored, ok := broker.KnownOf(1, began)
			require.True(t, ok)
			require.False(t, stored)
			now := time.Now().Add(time.Millisecond)
			_, stored, _ = broker.KnownOf(1, now)
			require.True(t, stored)
			time.Sleep(2 * readEvery)
			synctest.Wait()
			_, stored, _ = broker.KnownOf(1, now)
			require.True(t, stored, "a hold that is read again was stored before")
		}
	})
}

func TestAHoldThatIsEndedWhileItIsStoredStaysEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		k, _ := b.broker(t)
		b.storing = make(chan struct{})
		k.Begin(one, time.Hour, "503")
		<-b.storing
		require.NoError(t, k.End(t.Context(), 1))
		b.storing <- struct{}{}
		b.storing = nil
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, k.Rest(1))
		require.Empty(t, b.holds)
	})
}

// Of says so before the store was asked: whoever has changed the consumer looks at it next.
func TestAChangeEndsAHoldThatIsNotStoredYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.storing = make(chan struct{})
		k, _ := b.broker(t)
		k.Begin(one, time.Hour, "503")
		<-b.storing // it is on its way to the store
		b.version = 7
		k.Learn(&durable.Consumer{No: 1, Version: 7})
		_, held := k.Of(t.Context(), 1)
		require.False(t, held)
		require.Zero(t, k.Rest(1))
		b.storing <- struct{}{}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Zero(t, k.Rest(1))
		require.Equal(t, 1, b.ended[1])
		require.Zero(t, b.redis[1])
	})
}

func TestAnAnswerToAFormerConsumerHoldsNobodyForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		k, _ := b.broker(t)
		b.version = 7
		k.Begin(one, time.Hour, "503")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Zero(t, k.Rest(1))
		require.Equal(t, 1, b.ended[1])
	})
}

func TestFaultAStoreThatIsAwayGetsTheHoldLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		k, _ := b.broker(t)
		b.breaks(errors.New("away"))
		k.Begin(one, time.Hour, "503")
		require.NoError(t, b.Hold(t.Context(), 1, 0))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, inRedis, b.redis[1], "Redis has it for the others, again and again")
		require.Positive(t, k.Rest(1))
		h, ok := k.Of(t.Context(), 1)
		require.True(t, ok, "without the store this broker says what it knows")
		require.Equal(t, "503", h.By)
		b.breaks(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.EqualValues(t, time.Now().Add(time.Hour-4*time.Second).UnixMilli(), b.holds[1].UntilMs)
	})
}

func TestABrokerThatStopsStoresItsHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		k, stop := b.broker(t)
		b.breaks(errors.New("away"))
		k.Begin(one, time.Hour, "503")
		synctest.Wait()
		b.breaks(nil)
		stop()
		require.Len(t, b.holds, 1)
	})
}

func TestManyHoldsAreFewTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		k, _ := b.broker(t)
		for i := range 1000 {
			k.Begin(&durable.Consumer{No: uint32(1 + i%100)}, time.Duration(i+1)*time.Second, "429")
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.LessOrEqual(t, b.calls, 1000/int(gather.Milliseconds())+2)
		require.Len(t, b.holds, 100)
	})
}

func TestNothingIsSentBeforeTheHoldsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.breaks(errors.New("away"))
		b.holds[1] = durable.Hold{ConsumerNo: 1, UntilMs: time.Now().Add(time.Hour).UnixMilli()}
		k, _ := b.broker(t)
		require.Positive(t, k.Rest(1))
		require.Positive(t, k.Rest(2))
		b.breaks(nil)
		time.Sleep(2 * readEvery)
		synctest.Wait()
		require.Positive(t, k.Rest(1))
		require.Zero(t, k.Rest(2))
	})
}
