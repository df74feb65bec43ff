package accept

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/tool/share"
)

func TestAdmissionIsOpenWhileNothingIsLate(t *testing.T) {
	g := newAdmission(100, 100)
	for range 100 {
		require.True(t, g.enter(anybody, 1, Patience, nil))
	}
	g.Observe(5*time.Millisecond, time.Millisecond)
	g.adjust()
	require.Equal(t, 100, g.limit)
}

func TestAdmissionNarrowsStepByStepWhileDeliveriesAreLateAndOpensAgain(t *testing.T) {
	g := newAdmission(1000, 1000)
	for range 200 {
		require.True(t, g.enter(anybody, 1, Patience, nil))
	}
	late := func() { g.Observe(2*admissionDelay, time.Millisecond); g.adjust() }
	late()
	require.Equal(t, 95, g.limit, "below what is in use: a twentieth for good, and half of that now")
	for range 100 {
		late()
	}
	require.Equal(t, admissionLeast, g.limit, "some may always pass")
	for range 184 {
		g.leave(1)
	}
	for range 200 {
		g.Observe(admissionDelay/2, time.Millisecond)
		g.adjust()
	}
	require.Equal(t, 1000, g.limit)
}

// A broker in small: what passes admission adds to a backlog, deliveries take a
// fixed number from it in each tick, and their delay is the length of the backlog.
func TestAdmissionComesToRestAtTheDelayWithoutSwinging(t *testing.T) {
	g := newAdmission(4096, 4096)
	const perTick = 1000 // deliveries: 20 000/s
	backlog, late := 0.0, 0.0
	delays := []float64{}
	for tick := range 600 {
		inside := min(256, g.limit) // 256 producers in a closed loop
		g.mu.Lock()
		g.inside, g.peak = inside, inside
		g.mu.Unlock()
		backlog = max(0, backlog+float64(inside)*5-perTick) // a publish takes 10 ms
		delay := time.Duration(backlog / perTick * float64(admissionTick))
		g.Observe(delay, time.Millisecond)
		g.adjust()
		delays = append(delays, delay.Seconds())
		if tick >= 300 {
			late = max(late, delay.Seconds())
		}
	}
	require.Less(t, late, 2*admissionDelay.Seconds(), "%v", delays)
	require.InDelta(t, admissionDelay.Seconds(), delays[599], admissionDelay.Seconds()/4, "%v", delays)
}

// Thousands of producers offer twice what the broker can deliver: they are let in
// at once when nothing is known yet, and accepting comes before delivering on the
// processors. The backlog of that moment goes, and does not come back.
func TestAFloodOfProducersDoesNotStarveDeliveries(t *testing.T) {
	g := newAdmission(admissionMost, 8192)
	const perTick = 1000 // accepting a message takes 1 of these, delivering it 2
	backlog, late := 0.0, time.Duration(0)
	for tick := range 1200 {
		inside := min(8192, g.limit)
		g.mu.Lock()
		g.inside, g.peak = inside, inside
		g.mu.Unlock()
		accepted := min(float64(inside)*5, perTick*0.95)
		delivered := min(backlog, (perTick-accepted)/2)
		backlog += accepted - delivered
		delay := time.Duration(backlog / max(delivered, 1) * float64(admissionTick))
		g.Observe(delay, time.Millisecond)
		g.adjust()
		if tick >= 600 {
			late = max(late, delay)
		}
	}
	require.Less(t, late, time.Second)
	require.Less(t, g.limit, 200)
}

func TestAdmissionStaysNarrowForWhatItAdmittedTooFast(t *testing.T) {
	g := newAdmission(1000, 1000)
	g.enter(anybody, 500, Patience, nil)
	g.Observe(2*admissionFar, time.Millisecond)
	g.adjust()
	before := g.limit
	for range 5 {
		g.Observe(admissionYoung*2, time.Millisecond)
		g.adjust()
	}
	require.Less(t, g.limit, before)
	before = g.limit
	for range admissionQuiet - 1 {
		g.adjust()
	}
	require.Equal(t, before, g.limit, "a broker that is too busy to deliver for a moment")
	g.adjust()
	require.Equal(t, 1000, g.limit, "nothing is delivered any more")
}

func TestAdmissionIgnoresSlowConsumersAndOldBacklogs(t *testing.T) {
	g := newAdmission(1000, 1000)
	for range 50 {
		g.enter(anybody, 1, Patience, nil)
	}
	g.Observe(admissionDelay*2, admissionFast*2)
	g.Observe(admissionYoung*2, time.Millisecond)
	g.adjust()
	require.Equal(t, 1000, g.limit)
}

// anybody is the key of publishes whose producer does not matter.
var anybody = share.Producer(1)

// queueUp starts n publishes of one place each, one after the other, so that they wait
// in this order; each reports its number when it is admitted.
func queueUp(t *testing.T, g *Admission, n int) (admitted chan int) {
	t.Helper()
	admitted = make(chan int, n)
	for i := range n {
		go func() {
			if g.enter(anybody, 1, time.Hour, nil) {
				admitted <- i
			}
		}()
		synctest.Wait()
		require.Equal(t, i+1, g.waiting.Len())
	}
	return admitted
}

func TestAdmissionAdmitsOnePublishForEachPlaceInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20
		g := newAdmission(2, 2*n)
		require.True(t, g.enter(anybody, 2, Patience, nil))
		admitted := queueUp(t, g, n)
		require.Empty(t, admitted, "no place is free")
		for i := range n {
			g.leave(1)
			synctest.Wait()
			require.Len(t, admitted, 1, "one place, one publish")
			require.Equal(t, i, <-admitted)
			require.Equal(t, 2, g.inside)
			require.Equal(t, n-1-i, g.waiting.Len())
		}
		g.leave(2)
		require.Zero(t, g.inside)
	})
}

func TestAPublishThatWouldFitDoesNotOvertakeALargerOneAtAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newAdmission(10, 10)
		require.True(t, g.enter(anybody, 8, Patience, nil))
		large := make(chan bool, 1)
		go func() { large <- g.enter(anybody, 6, Patience, nil) }()
		synctest.Wait()
		small := queueUpBehind(t, g)
		require.Empty(t, small, "two places are free, but the larger one came first")
		g.leave(4)
		require.True(t, <-large)
		synctest.Wait()
		require.Empty(t, small, "the larger one has taken all")
		g.leave(6)
		require.True(t, <-small)
	})
}

// queueUpBehind starts a publish of one place that waits behind another one.
func queueUpBehind(t *testing.T, g *Admission) (admitted chan bool) {
	t.Helper()
	admitted = make(chan bool, 1)
	go func() { admitted <- g.enter(anybody, 1, time.Hour, nil) }()
	synctest.Wait()
	require.Equal(t, 2, g.waiting.Len())
	return admitted
}

func TestPublishesOfProducersAreAdmittedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newAdmission(1, 100)
		require.True(t, g.enter(anybody, 1, Patience, nil))
		admitted := make(chan uint32, 10)
		for _, producer := range []uint32{1, 1, 1, 1, 2, 3, 3} {
			go func() {
				if g.enter(share.Producer(producer), 1, time.Hour, nil) {
					admitted <- producer
				}
			}()
			synctest.Wait()
		}
		var order []uint32
		for range cap(admitted) - 3 {
			g.leave(1)
			order = append(order, <-admitted)
		}
		require.Equal(t, []uint32{1, 2, 3, 1, 3, 1, 1}, order)
	})
}

func TestOneProducerDoesNotFillTheRoomOfThoseThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newAdmission(1, 8)
		require.True(t, g.enter(anybody, 1, Patience, nil))
		var refused atomic.Int64
		for range 20 {
			go func() {
				if !g.enter(share.Producer(1), 1, time.Hour, nil) {
					refused.Add(1)
				}
			}()
		}
		synctest.Wait()
		require.EqualValues(t, 16, refused.Load(), "it takes a half")
		other := make(chan bool, 1)
		go func() { other <- g.enter(share.Producer(2), 1, time.Hour, nil) }()
		synctest.Wait()
		g.leave(1)
		g.leave(1)
		require.True(t, <-other, "the second place is for the other one")
		for range 3 {
			g.leave(1)
			synctest.Wait()
		}
	})
}

func TestAdmissionRefusesAfterItsPatienceAndAtOnceWhereTooManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newAdmission(10, 4)
		require.True(t, g.enter(anybody, 9, Patience, nil))
		refused := make(chan time.Duration, 1)
		go func() {
			begun := time.Now()
			if !g.enter(anybody, 2, Patience, nil) {
				refused <- time.Since(begun)
			}
		}()
		synctest.Wait()
		behind := queueUpBehind(t, g)

		begun := time.Now()
		require.False(t, g.enter(anybody, 1, Patience, nil), "half of the room is for one key")
		require.Zero(t, time.Since(begun), "the third is refused at once")

		require.Equal(t, Patience, <-refused)
		require.True(t, <-behind, "the place that was too small for the first one")
		require.Zero(t, g.waiting.Len())
		require.Equal(t, 10, g.inside, "a refused publish holds no place")
		g.leave(10)
		require.True(t, g.enter(anybody, 10, Patience, nil))
	})
}

func TestALimitThatGrowsAdmitsThoseWhoWaitAndOneThatShrinksNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newAdmission(1000, 1000)
		require.True(t, g.enter(anybody, 100, Patience, nil))
		for range 100 {
			g.Observe(2*admissionDelay, time.Millisecond)
			g.adjust()
		}
		require.Equal(t, admissionLeast, g.limit)
		admitted := queueUp(t, g, 3)
		g.leave(100 - admissionLeast)
		synctest.Wait()
		require.Empty(t, admitted, "as many are inside as the limit allows")
		g.leave(1)
		require.Equal(t, 0, <-admitted)
		synctest.Wait()
		require.Empty(t, admitted)
		for range admissionQuiet { // nothing is delivered any more
			g.adjust()
		}
		require.Equal(t, 1000, g.limit)
		require.Equal(t, []int{1, 2}, sorted(<-admitted, <-admitted), "admitted by the limit: no place became free")
		require.Equal(t, admissionLeast+2, g.inside)
	})
}

func sorted(n ...int) []int { slices.Sort(n); return n }

func TestABatchTakesItsPlacesTogetherAndALargeOneGoesAlone(t *testing.T) {
	g := newAdmission(10, 10)
	require.True(t, g.enter(anybody, 256, Patience, nil), "it would never fit")
	require.False(t, g.enter(anybody, 1, time.Millisecond, nil))
	g.leave(256)
	require.True(t, g.enter(anybody, 6, Patience, nil))
	require.False(t, g.enter(anybody, 6, time.Millisecond, nil))
	require.True(t, g.enter(anybody, 4, Patience, nil))
	g.leave(10)
	require.Zero(t, g.inside)
}
