package hotpath

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheGateIsOpenWhileNothingIsLate(t *testing.T) {
	g := newAdmission(100, 100)
	for range 100 {
		require.True(t, g.enter(1, admissionPatience))
	}
	g.observe(5*time.Millisecond, time.Millisecond)
	g.adjust()
	require.Equal(t, 100, g.limit)
}

func TestTheGateClosesStepByStepWhileDeliveriesAreLateAndOpensAgain(t *testing.T) {
	g := newAdmission(1000, 1000)
	for range 200 {
		require.True(t, g.enter(1, admissionPatience))
	}
	late := func() { g.observe(2*admissionDelay, time.Millisecond); g.adjust() }
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
		g.observe(admissionDelay/2, time.Millisecond)
		g.adjust()
	}
	require.Equal(t, 1000, g.limit)
}

// A broker in small: what passes admission adds to a backlog, deliveries take a
// fixed number from it in each tick, and their delay is the length of the backlog.
func TestTheGateSettlesAtTheDelayWithoutSwinging(t *testing.T) {
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
		g.observe(delay, time.Millisecond)
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
		g.observe(delay, time.Millisecond)
		g.adjust()
		if tick >= 600 {
			late = max(late, delay)
		}
	}
	require.Less(t, late, time.Second)
	require.Less(t, g.limit, 200)
}

func TestTheGateStaysClosedForWhatItLetInTooFast(t *testing.T) {
	g := newAdmission(1000, 1000)
	g.enter(500, admissionPatience)
	g.observe(2*admissionFar, time.Millisecond)
	g.adjust()
	before := g.limit
	for range 5 {
		g.observe(admissionYoung*2, time.Millisecond)
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

func TestTheGateIgnoresSlowConsumersAndOldBacklogs(t *testing.T) {
	g := newAdmission(1000, 1000)
	for range 50 {
		g.enter(1, admissionPatience)
	}
	g.observe(admissionDelay*2, admissionFast*2)
	g.observe(admissionYoung*2, time.Millisecond)
	g.adjust()
	require.Equal(t, 1000, g.limit)
}

// queueUp starts n publishes of one place each, one after the other, so that they wait
// in this order; each reports its number when it is admitted.
func queueUp(t *testing.T, g *admission, n int) (admitted chan int) {
	t.Helper()
	admitted = make(chan int, n)
	for i := range n {
		go func() {
			if g.enter(1, time.Hour) {
				admitted <- i
			}
		}()
		synctest.Wait()
		require.Len(t, g.waiting, i+1)
	}
	return admitted
}

func TestTheGateAdmitsOnePublishForEachPlaceInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20
		g := newAdmission(2, n)
		require.True(t, g.enter(2, admissionPatience))
		admitted := queueUp(t, g, n)
		require.Empty(t, admitted, "no place is free")
		for i := range n {
			g.leave(1)
			synctest.Wait()
			require.Len(t, admitted, 1, "one place, one publish")
			require.Equal(t, i, <-admitted)
			require.Equal(t, 2, g.inside)
			require.Len(t, g.waiting, n-1-i)
		}
		g.leave(2)
		require.Zero(t, g.inside)
	})
}

func TestAPublishThatWouldFitDoesNotOvertakeALargerOneAtTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newAdmission(10, 10)
		require.True(t, g.enter(8, admissionPatience))
		large := make(chan bool, 1)
		go func() { large <- g.enter(6, admissionPatience) }()
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
func queueUpBehind(t *testing.T, g *admission) (admitted chan bool) {
	t.Helper()
	admitted = make(chan bool, 1)
	go func() { admitted <- g.enter(1, time.Hour) }()
	synctest.Wait()
	require.Len(t, g.waiting, 2)
	return admitted
}

func TestTheGateRefusesAfterItsPatienceAndAtOnceWhereTooManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newAdmission(10, 2)
		require.True(t, g.enter(9, admissionPatience))
		refused := make(chan time.Duration, 1)
		go func() {
			begun := time.Now()
			if !g.enter(2, admissionPatience) {
				refused <- time.Since(begun)
			}
		}()
		synctest.Wait()
		behind := queueUpBehind(t, g)

		begun := time.Now()
		require.False(t, g.enter(1, admissionPatience), "two may wait")
		require.Zero(t, time.Since(begun), "the third is refused at once")

		require.Equal(t, admissionPatience, <-refused)
		require.True(t, <-behind, "the place that was too small for the first one")
		require.Empty(t, g.waiting)
		require.Equal(t, 10, g.inside, "a refused publish holds no place")
		g.leave(10)
		require.True(t, g.enter(10, admissionPatience))
	})
}

func TestALimitThatGrowsAdmitsThoseWhoWaitAndOneThatShrinksNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newAdmission(1000, 1000)
		require.True(t, g.enter(100, admissionPatience))
		for range 100 {
			g.observe(2*admissionDelay, time.Millisecond)
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
	require.True(t, g.enter(256, admissionPatience), "it would never fit")
	require.False(t, g.enter(1, time.Millisecond))
	g.leave(256)
	require.True(t, g.enter(6, admissionPatience))
	require.False(t, g.enter(6, time.Millisecond))
	require.True(t, g.enter(4, admissionPatience))
	g.leave(10)
	require.Zero(t, g.inside)
}

func TestALaneNeverHasMoreRequestsThanItsLimit(t *testing.T) {
	l := &lane{limit: 4, more: true}
	require.Equal(t, 7, l.room(), "three are claimed ahead")
	l.reserve(7)
	started := 0
	for range 7 {
		if l.put(&delivery{}) != nil {
			started++
		}
	}
	require.Equal(t, 4, started)
	require.Zero(t, l.room())
	v, claim := l.next()
	require.NotNil(t, v, "the next request takes the place of the one that ended")
	require.False(t, claim)
	v, claim = l.next()
	require.NotNil(t, v)
	require.True(t, claim, "a quarter of what it may hold is free")
	v, _ = l.next()
	require.NotNil(t, v)
	v, _ = l.next()
	require.Nil(t, v)
	l.leftMore(false)
	l.reserve(1)
	l.put(&delivery{})
	_, claim = l.next()
	require.False(t, claim, "nothing was left behind: a wake-up will come")
	l.observe(10 * time.Second)
	require.Equal(t, 1, l.room(), "a slow consumer gets none ahead")
}

func TestALaneOfOneClaimsNothingAhead(t *testing.T) {
	l := &lane{limit: 1, more: true}
	require.Equal(t, 1, l.room())
	l.reserve(1)
	require.NotNil(t, l.put(&delivery{}))
	require.Zero(t, l.room())
	v, claim := l.next()
	require.Nil(t, v)
	require.True(t, claim)
}

func TestAWakeUpGoesToOneWaiterAndIsPassedOn(t *testing.T) {
	var w waiters
	a, b := w.join(1), w.join(1)
	require.True(t, a.first())
	require.False(t, b.first())
	w.Wake(1)
	require.Len(t, a.wake, 1)
	require.Empty(t, b.wake)
	w.Wake(1)
	require.Len(t, b.wake, 1, "the second wake-up is not lost on the first")
	<-b.wake
	a.leave() // unused: the next one gets it
	require.Len(t, b.wake, 1)
	b.leave()
	require.Empty(t, w.byNo)
	w.Wake(1)
}
