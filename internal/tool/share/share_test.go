package share

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// fill takes one place after the other until the bound refuses, and returns how many it got.
func fill(b *Bound, k Key) (n int) {
	for b.Take(k, 1) {
		n++
	}
	return n
}

func TestAKeyHoldsAtMostAsMuchAsIsFree(t *testing.T) {
	b := New(Options{Most: 1200})
	require.Equal(t, 600, fill(b, Producer(1)), "alone: a half")
	require.Equal(t, 300, fill(b, Producer(2)))
	require.Equal(t, 150, fill(b, Consumer(2)), "another kind is another key")
	require.EqualValues(t, 1050, b.Taken())
	b.Give(Producer(1), 600)
	require.Equal(t, 225, fill(b, Producer(2)), "what is given back is for all")
	require.EqualValues(t, 525, b.Held(Producer(2)))
}

func TestKeysThatGrowTogetherGetEqualShares(t *testing.T) {
	b := New(Options{Most: 1200})
	for grew := true; grew; {
		grew = false
		for no := range uint32(3) {
			grew = b.Take(Producer(no), 1) || grew
		}
	}
	for no := range uint32(3) {
		require.InDelta(t, 300, b.Held(Producer(no)), 1)
	}
	require.True(t, b.Take(Producer(9), 250), "a fourth one finds room")
}

func TestTheLastPlaceIsForAKeyThatHasNone(t *testing.T) {
	b := New(Options{Most: 2})
	require.True(t, b.Take(Host("a"), 1))
	require.False(t, b.Take(Host("a"), 1))
	require.True(t, b.Take(Host("b"), 1))
	require.False(t, b.Take(Host("c"), 1))
}

func TestManagementAndSmallTakesHaveAReserve(t *testing.T) {
	b := New(Options{Most: 100, Reserve: 20, Small: 2})
	manager := Management(netip.MustParseAddr("10.0.0.1"))
	b.Add(Producer(1), 100)
	require.False(t, b.Take(Producer(2), 3), "not small")
	require.True(t, b.Take(Producer(2), 2))
	require.True(t, b.Take(manager, 9), "management takes what it needs")
	require.False(t, b.Take(manager, 9), "but not more than is free of the reserve")
	b.Give(Producer(2), 2)
	require.EqualValues(t, 109, b.Taken())
	b.Give(manager, 9)
	b.Give(Producer(1), 100)
	require.Zero(t, b.Taken())
}

func TestWhatWaitsIsServedInTurnByKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Most: 2})
		require.True(t, b.Take(Producer(9), 1))
		b.Add(Producer(9), 1)
		var mu sync.Mutex
		var order []uint32
		wait := func(no uint32) {
			go func() {
				if b.Wait(t.Context(), Producer(no), 1) == nil {
					mu.Lock()
					order = append(order, no)
					mu.Unlock()
				}
			}()
			synctest.Wait()
		}
		for _, no := range []uint32{1, 1, 1, 2, 3} {
			wait(no)
		}
		b.Give(Producer(9), 1)
		synctest.Wait()
		for i := range 4 {
			b.Give(Producer(order[i]), 1)
			synctest.Wait()
		}
		require.Equal(t, []uint32{1, 2, 3, 1, 1}, order)
	})
}

func TestWhoStopsWaitingHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Most: 1})
		b.Add(Producer(1), 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, b.Wait(ctx, Producer(2), 1), context.DeadlineExceeded)
		b.Give(Producer(1), 1)
		require.Zero(t, b.Taken())
		require.NoError(t, b.Wait(t.Context(), Producer(2), 1))
	})
}

func TestUnderPressureTheSlowestHoldOfALargerKeyIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Name: "bodies", Most: 100})
		var ended []string
		permit := func(k Key, name string, n int64, moved int) *Permit {
			h := b.Permit(k, func() { ended = append(ended, name) })
			require.True(t, h.Take(n))
			h.Moved(moved)
			return h
		}
		slow := permit(Producer(1), "slow", 20, 10)
		fast := permit(Producer(1), "fast", 20, 1000)
		small := permit(Producer(2), "small", 10, 0)
		b.Add(Producer(3), 45)
		mine := b.Permit(Producer(4), nil)
		require.False(t, mine.Take(15))
		require.Empty(t, ended, "all are young: their rates say nothing")
		time.Sleep(2 * time.Second)
		require.False(t, mine.Take(15))
		require.Equal(t, []string{"slow"}, ended, "the permit of a smaller key is left alone")
		slow.Close()
		require.True(t, mine.Take(15))
		fast.Close()
		small.Close()
		mine.Close()
		b.Give(Producer(3), 45)
		require.Zero(t, b.Taken())
		require.Empty(t, b.permits)
	})
}

func TestAHoldThatWaitsEndsTheSlowestOfOthersWhenItIsOldEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Most: 3, Young: 5 * time.Second, Fast: 100, Others: true})
		var ended []string
		permit := func(k Key, name string, moved int) *Permit {
			var h *Permit
			h = b.Permit(k, func() {
				ended = append(ended, name)
				h.Close()
			})
			require.NoError(t, h.Wait(t.Context(), 1))
			h.Moved(moved)
			return h
		}
		fast := permit(Host("a"), "fast", 10_000)
		slow := permit(Host("b"), "slow", 10)
		b.Add(Host("c"), 1)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		mine := b.Permit(Host("d"), func() {})
		require.ErrorIs(t, mine.Wait(ctx, 1), context.DeadlineExceeded, "all are young")
		own := b.Permit(Host("b"), nil)
		require.ErrorIs(t, own.Wait(ctx, 1), context.DeadlineExceeded, "permits of one key wait for each other")
		began := time.Now()
		require.NoError(t, mine.Wait(t.Context(), 1))
		require.Less(t, time.Since(began), 2*time.Second)
		require.Equal(t, []string{"slow"}, ended)
		require.EqualValues(t, 1, b.Held(Host("d")))
		require.Zero(t, b.Held(Host("b")), slow)
		mine.Close()
		fast.Close()
		b.Give(Host("c"), 1)
		require.Zero(t, b.Taken())
	})
}

func TestWhatRestsLongestIsEndedBeforeWhatMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Most: 4})
		var ended []int
		client := Address(netip.MustParseAddr("10.0.0.1"))
		var permits []*Permit
		for i := range 2 {
			h := b.Permit(client, func() { ended = append(ended, i) })
			require.True(t, h.Take(1))
			permits = append(permits, h)
			time.Sleep(2 * time.Second)
		}
		permits[1].Rest()
		require.False(t, b.Permit(client, nil).Take(1))
		require.Equal(t, []int{1}, ended)
		require.False(t, permits[1].Work(), "it was ended")
		require.True(t, permits[0].Work())
	})
}

func TestAHoldThatWorksIsLeftAloneWhereOnlyRestingOnesAreEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Most: 4, Resting: true, Rash: true})
		var ended []int
		client := Address(netip.MustParseAddr("10.0.0.1"))
		var permits []*Permit
		for i := range 2 {
			h := b.Permit(client, func() { ended = append(ended, i) })
			require.True(t, h.Take(1))
			permits = append(permits, h)
		}
		require.False(t, b.Permit(client, nil).Take(1))
		require.Empty(t, ended, "both work")
		for i := range permits {
			permits[1-i].Rest()
			time.Sleep(time.Millisecond)
		}
		require.True(t, permits[1].Work())
		for range 3 {
			require.False(t, b.Permit(client, nil).Take(1))
		}
		require.Equal(t, []int{0}, ended, "young as it is, and once")
		permits[0].Rest()
		require.False(t, permits[0].Work(), "it stays over")
		permits[1].Add(9)
		require.EqualValues(t, 11, b.Taken())
		permits[0].Close()
		permits[1].Close()
		require.Zero(t, b.Taken())
	})
}

func TestAHoldWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Most: 10})
		b.Add(Producer(1), 10)
		h := b.Permit(Producer(2), nil)
		begun := time.Now()
		require.False(t, h.Await(t.Context(), 4, time.Second))
		require.Equal(t, time.Second, time.Since(begun))
		time.AfterFunc(time.Second, func() { b.Give(Producer(1), 10) })
		require.True(t, h.Await(t.Context(), 4, time.Minute))
		h.Give(1)
		require.EqualValues(t, 3, b.Taken())
		require.EqualValues(t, 3, h.Keep())
		h.Close()
		h.Close()
		require.EqualValues(t, 3, b.Taken(), "what is kept is given back by its keeper")
	})
}

func TestAHoldIsAsOldAsThePlaceThatItWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Most: 1, Young: time.Second})
		b.Add(Producer(9), 1)
		ended := false
		h := b.Permit(Producer(1), func() { ended = true })
		waits := make(chan error)
		go func() { waits <- h.Wait(t.Context(), 1) }()
		time.Sleep(time.Minute)
		b.Give(Producer(9), 1)
		require.NoError(t, <-waits)
		other := b.Permit(Producer(2), nil)
		require.False(t, other.Take(1))
		require.False(t, ended)
		time.Sleep(time.Second)
		require.False(t, other.Take(1))
		require.True(t, ended)
	})
}

func TestNothingOvertakesTheFirstWhereTurnsAreInOrder(t *testing.T) {
	var turns Turns[int]
	turns.Push(Producer(1), 5)
	turns.Push(Producer(2), 1)
	free := 3
	take := func(n int) bool {
		if n > free {
			return false
		}
		free -= n
		return true
	}
	turns.ServeInOrder(take)
	require.Equal(t, 2, turns.Len())
	turns.Serve(take)
	require.Equal(t, 1, turns.Len(), "elsewhere the others go on")
	require.True(t, turns.Remove(Producer(1), 5))
	require.False(t, turns.Remove(Producer(1), 5))
	require.Zero(t, turns.Len())
}

func TestClientsOfOneNetworkShareAKey(t *testing.T) {
	a := func(s string) Key { return Address(AddressOf(&net.TCPAddr{IP: net.ParseIP(s), Port: 1})) }
	require.Equal(t, a("2001:db8::1"), a("2001:db8::ffff:1"))
	require.NotEqual(t, a("2001:db8::1"), a("2001:db8:0:1::1"))
	require.Equal(t, a("10.0.0.1"), a("::ffff:10.0.0.1"))
	require.NotEqual(t, a("10.0.0.1"), a("10.0.0.2"))
	require.NotEqual(t, Address(netip.MustParseAddr("10.0.0.1")), Management(netip.MustParseAddr("10.0.0.1")))
}

func TestAccountsOfKeysThatHoldNothingAreForgotten(t *testing.T) {
	b := New(Options{Most: 1 << 20})
	for no := range uint32(10 * keptAccounts) {
		require.True(t, b.Take(Producer(no), 1))
		b.Give(Producer(no), 1)
	}
	require.LessOrEqual(t, len(b.accounts), keptAccounts+1)
}

func TestTheMetricsShowABound(t *testing.T) {
	b := New(Options{Name: "bodies", Most: 10})
	b.Take(Producer(1), 4)
	b.Take(Producer(2), 2)
	b.Take(Producer(2), 9)
	require.Equal(t, 5, testutil.CollectAndCount(Collector{b}))
	require.EqualValues(t, 4, b.largest())
	require.EqualValues(t, 1, b.refused.Load())
}

func BenchmarkTake(b *testing.B) {
	bound := New(Options{Most: 1 << 30})
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if bound.Take(Producer(7), 1000) {
				bound.Give(Producer(7), 1000)
			}
		}
	})
}
