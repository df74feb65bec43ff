package standby

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEachBudgetEndsAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b budgets
		random := rand.New(rand.NewPCG(1, 2))
		start := time.Now()
		ended := make(chan time.Duration, 2000)
		most := time.Duration(0)
		for range 1000 {
			time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
			length := time.Duration(random.IntN(200)-10) * time.Millisecond // some are over at once
			over := make(chan bool, 2)
			one := &budget{until: time.Now().Add(length), over: over}
			b.begin(one)
			if random.IntN(2) == 0 { // the answer comes first, or at the same moment
				time.Sleep(time.Duration(random.IntN(2)) * time.Millisecond)
				early := time.Now().Before(one.until)
				b.end(one)
				synctest.Wait()
				if early {
					require.Empty(t, over)
				}
				b.end(one)
				ended <- 0
				continue
			}
			most = max(most, time.Since(start)+length)
			go func() {
				require.False(t, <-over)
				ended <- time.Since(one.until)
				b.end(one)
			}()
		}
		for range 1000 {
			require.LessOrEqual(t, <-ended, 10*time.Millisecond, "only a budget that was over at its start, by up to 10 ms, "+
				"is told later than its end")
		}
		require.GreaterOrEqual(t, time.Since(start), most)
		require.Empty(t, b.waiting)
	})
}

func TestABudgetThatEndsBeforeTheOthersIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b budgets
		long, short := make(chan bool, 2), make(chan bool, 2)
		start := time.Now()
		b.begin(&budget{until: start.Add(time.Hour), over: long})
		b.begin(&budget{until: start.Add(time.Second), over: short})
		require.False(t, <-short)
		require.Equal(t, time.Second, time.Since(start))
		require.False(t, <-long)
		require.Equal(t, time.Hour, time.Since(start))
	})
}
