package bench

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnOpenLoopKeepsItsTimesWhenNobodyTakesThem(t *testing.T) {
	o := newOpenLoop(&openLoop{rate: 1000, batch: 1, limit: MaxMessages, base: time.Now(), length: 200 * time.Millisecond,
		grace: time.Second})
	var wg sync.WaitGroup
	wg.Go(func() { require.NoError(t, o.Run(context.Background())) })
	time.Sleep(150 * time.Millisecond) // a worker that is busy
	taken := 0
	for {
		ticket, ok := o.Next(context.Background())
		if !ok {
			break
		}
		require.EqualValues(t, taken, ticket.First)
		require.EqualValues(t, time.Duration(taken)*time.Millisecond,
			time.Duration(o.Intended(ticket.First, 0)).Round(time.Microsecond))
		taken++
	}
	wg.Wait()
	require.Equal(t, 200, taken, "what was due is sent late, not left out")
	require.EqualValues(t, 200, o.Issued())
}

func TestWhatIsNeverTakenIsKnownAsUnsent(t *testing.T) {
	o := newOpenLoop(&openLoop{rate: 1000, batch: 1, limit: MaxMessages, base: time.Now(), length: 50 * time.Millisecond,
		grace: 20 * time.Millisecond})
	require.NoError(t, o.Run(context.Background()))
	require.Zero(t, o.Issued())
	require.EqualValues(t, 50, o.Unsent(time.Now().Add(time.Hour)))
	require.EqualValues(t, 10, o.Unsent(o.base.Add(10*time.Millisecond)))
}

func TestABatchIsSentWhenItsLastMessageIsDue(t *testing.T) {
	start := time.Now()
	o := newOpenLoop(&openLoop{rate: 1000, batch: 50, limit: 70, base: start, grace: time.Second})
	var wg sync.WaitGroup
	wg.Go(func() { require.NoError(t, o.Run(context.Background())) })
	first, ok := o.Next(context.Background())
	require.True(t, ok)
	require.Equal(t, Ticket{0, 50}, first)
	require.GreaterOrEqual(t, time.Since(start), 49*time.Millisecond)
	second, ok := o.Next(context.Background())
	require.True(t, ok)
	require.Equal(t, Ticket{50, 20}, second)
	_, ok = o.Next(context.Background())
	require.False(t, ok)
	wg.Wait()
}

func TestAClosedLoopGivesEveryMessageOnce(t *testing.T) {
	c := &closedLoop{batch: 7, limit: 1000}
	var mu sync.Mutex
	seen := map[uint64]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				ticket, ok := c.Next(context.Background())
				if !ok {
					return
				}
				mu.Lock()
				for i := range ticket.N {
					seen[ticket.First+uint64(i)] = true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Len(t, seen, 1000)
	require.EqualValues(t, 1000, c.Issued())
}

func TestSleepEndsOnTimeAndWithItsContext(t *testing.T) {
	at := time.Now().Add(5 * time.Millisecond)
	require.True(t, sleepUntil(context.Background(), at))
	require.False(t, time.Now().Before(at))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.False(t, sleepUntil(ctx, time.Now().Add(time.Hour)))
}
