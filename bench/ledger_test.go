package bench

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

const testRun = 7

func testLedger(t *testing.T, o LedgerOptions) *Ledger {
	t.Helper()
	var err error
	if o.Mix.Len() == 0 {
		o.Mix, err = ParseMix("0")
		require.NoError(t, err)
	}
	o.Run = testRun
	return NewLedger(o)
}

// promise plans and acknowledges messages 0..n-1.
func promise(l *Ledger, n uint64) {
	for seq := range n {
		l.Plan(seq, uint32(seq))
		l.Acked(seq, 0, ident.AtMillis(int64(seq)+1))
	}
}

func arrivalOf(consumer int, seq uint64) Delivery {
	return Delivery{Consumer: consumer, ID: Identity{Run: testRun, Seq: seq}, Known: true, Sum: uint32(seq)}
}

func TestTheLedgerFindsExactlyWhatIsMissing(t *testing.T) {
	l := testLedger(t, LedgerOptions{Consumers: []Subscription{{0, "a"}, {0, "b"}}})
	const n = pageLen + 100
	promise(l, n)
	for seq := range uint64(n) {
		l.Received(arrivalOf(0, seq))
		if seq != 5 && seq != pageLen+64 {
			l.Received(arrivalOf(1, seq))
		}
	}
	require.EqualValues(t, 2, l.Owed())
	v := l.Reconcile(n, nil)
	require.False(t, v.OK())
	require.EqualValues(t, 2*n, v.Expected)
	require.EqualValues(t, 2*n-2, v.Delivered)
	require.EqualValues(t, 2, v.Lost)
	require.Equal(t, []string{
		"lost: message " + ident.AtMillis(6).String() + ", sequence 5, consumer b",
		"lost: message " + ident.AtMillis(pageLen+65).String() + ", sequence 65600, consumer b",
	}, v.Offenders)
	require.Equal(t, "2 lost", v.Problems())
}

func TestADeadLetterIsNotLostAndNeitherIsAQueuedJob(t *testing.T) {
	l := testLedger(t, LedgerOptions{Consumers: []Subscription{{0, "a"}}})
	promise(l, 4)
	l.Received(arrivalOf(0, 0))
	v := l.Reconcile(4, func(consumer int, seq uint64, id ident.ID) Standing {
		require.Zero(t, consumer)
		require.Equal(t, ident.AtMillis(int64(seq)+1), id)
		return map[uint64]Standing{1: StandingDead, 2: StandingGone, 3: StandingPending}[seq]
	})
	require.EqualValues(t, 1, v.Dead)
	require.EqualValues(t, 1, v.Pending)
	require.False(t, v.Proven())
	require.EqualValues(t, 1, v.Lost)
}

func TestCopiesAreCountedPerConsumer(t *testing.T) {
	l := testLedger(t, LedgerOptions{Consumers: []Subscription{{0, "a"}, {0, "b"}}})
	promise(l, 2)
	require.True(t, l.Received(arrivalOf(0, 0)))
	require.False(t, l.Received(arrivalOf(0, 0)))
	require.False(t, l.Received(arrivalOf(0, 0)))
	require.True(t, l.Received(arrivalOf(1, 0)), "another consumer's first is no copy")
	v := l.Reconcile(1, nil)
	require.EqualValues(t, 2, v.Duplicates)
	require.Equal(t, 3, v.MaxCopies)
	require.True(t, v.OK(), "copies are allowed where faults hit")
}

func TestABodyThatChangedIsCorruptedAndNotLost(t *testing.T) {
	l := testLedger(t, LedgerOptions{Consumers: []Subscription{{0, "a"}}})
	promise(l, 2)
	changed := arrivalOf(0, 0)
	changed.Sum++
	l.Received(changed)
	unreadable := Delivery{Consumer: 0, Label: "m1"}
	l.Received(unreadable)
	never := arrivalOf(0, 90*pageLen) // a sequence that nobody has sent
	l.Received(never)
	v := l.Reconcile(2, nil)
	require.EqualValues(t, 3, v.Corrupted)
	require.EqualValues(t, 1, v.Lost, "the unreadable one did not arrive as what it was")
	require.False(t, v.OK())
}

func TestAMessageOfAnotherChannelIsCorrupted(t *testing.T) {
	l := testLedger(t, LedgerOptions{Channels: 2, Consumers: []Subscription{{0, "a"}, {1, "b"}}})
	promise(l, 2)
	l.Received(arrivalOf(0, 1))
	require.EqualValues(t, 1, l.Reconcile(2, nil).Corrupted)
}

func TestMessagesOfOtherRunsAreStrangers(t *testing.T) {
	l := testLedger(t, LedgerOptions{Consumers: []Subscription{{0, "a"}}})
	promise(l, 1)
	d := arrivalOf(0, 0)
	d.ID.Run++
	require.False(t, l.Received(d))
	v := l.Reconcile(1, nil)
	require.EqualValues(t, 1, v.Strangers)
	require.EqualValues(t, 1, v.Lost)
}

func TestStripedChannelsShareTheBitmapWithoutCollisions(t *testing.T) {
	for _, shape := range []struct{ channels, stripe int }{{1, 1}, {3, 1}, {1, 50}, {3, 50}, {7, 13}} {
		o := LedgerOptions{Channels: shape.channels, Stripe: shape.stripe}
		for i := range shape.channels {
			o.Consumers = append(o.Consumers, Subscription{i, "k"})
		}
		l := testLedger(t, o)
		const n = 3*pageLen + 17
		promise(l, n)
		for seq := range uint64(n) {
			require.True(t, l.Received(arrivalOf(l.Channel(seq), seq)))
		}
		v := l.Reconcile(n, nil)
		require.True(t, v.OK())
		require.EqualValues(t, n, v.Delivered)
	}
}

func TestARefusalThatWasStoredAndAnUncertainOneAreToldApart(t *testing.T) {
	l := testLedger(t, LedgerOptions{Consumers: []Subscription{{0, "a"}}})
	for seq := range uint64(4) {
		l.Plan(seq, uint32(seq))
	}
	l.Refused(0)
	l.Refused(1)
	l.Uncertain(2)
	l.Uncertain(3)
	l.Received(arrivalOf(0, 1))
	l.Received(arrivalOf(0, 3))
	v := l.Reconcile(4, nil)
	require.EqualValues(t, 1, v.Unpromised)
	require.EqualValues(t, 1, v.Bonus)
	require.Zero(t, v.Lost)
	require.False(t, v.OK())
}

func TestOvertakingIsCountedBeyondTheSlackOnly(t *testing.T) {
	m, err := ParseMix("0,9")
	require.NoError(t, err)
	var low, high []uint64
	for seq := uint64(0); len(low) < 2 || len(high) < 2; seq++ {
		if m.Level(seq) == 0 {
			low = append(low, seq)
		} else {
			high = append(high, seq)
		}
	}
	l := testLedger(t, LedgerOptions{Mix: m, SlackNs: 1e9, LateNs: 5e9, Consumers: []Subscription{{0, "a"}}})
	promise(l, 100) // all acknowledged at the start of the run
	at := func(seq uint64, ns int64) Delivery {
		d := arrivalOf(0, seq)
		d.NowNs = ns
		return d
	}
	l.Received(at(low[0], 5e8))
	l.Received(at(high[0], 6e8)) // half a second behind: within the slack
	require.Zero(t, l.Reconcile(0, nil).Overtaken)
	l.Received(at(low[1], 3e9))
	l.Received(at(high[1], 6e9)) // a low one came three seconds after this one was due
	v := l.Reconcile(0, nil)
	require.EqualValues(t, 1, v.Overtaken)
	require.InDelta(t, 3000, v.MaxOvertakenMs, 1)
	require.EqualValues(t, 1, v.Late)
}

func TestAMillionMessagesFitInModestMemory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	l := testLedger(t, LedgerOptions{Consumers: []Subscription{{0, "a"}, {0, "b"}, {0, "c"}}})
	const n = 1_000_000
	promise(l, n)
	var wg sync.WaitGroup
	for k := range 3 {
		wg.Go(func() {
			for seq := range uint64(n) {
				l.Received(arrivalOf(k, seq))
			}
		})
	}
	wg.Wait()
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(32<<20))
	v := l.Reconcile(n, nil)
	require.True(t, v.OK())
	require.EqualValues(t, 3*n, v.Delivered)
}
