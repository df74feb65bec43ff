package lockout

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

type world struct {
	*Lockout
	at  time.Time
	log bytes.Buffer
}

func newWorld(after int) *world {
	w := &world{at: time.Unix(1_700_000_000, 0)}
	w.Lockout = New(after, slog.New(slog.NewTextHandler(&w.log, nil)))
	w.now = func() time.Time { return w.at }
	return w
}

func address(text string) netip.Addr { return netip.MustParseAddr(text) }

func TestAnAddressIsLimitedForAMinuteAfterSoManyFailures(t *testing.T) {
	w, a := newWorld(3), address("192.0.2.1")
	for range 3 {
		require.Zero(t, w.Limited(a))
		require.Zero(t, w.Failed(a))
	}
	require.Equal(t, time.Minute, w.Limited(a))
	w.at = w.at.Add(20 * time.Second)
	require.Equal(t, 40*time.Second, w.Failed(a), "a failure while limited does not make it longer")
	require.Zero(t, w.Limited(address("192.0.2.2")), "its neighbour is not")
	require.Equal(t, time.Duration(0), w.Failed(address("192.0.2.2")))
	w.at = w.at.Add(40 * time.Second)
	require.Zero(t, w.Limited(a))
	require.Zero(t, w.Failed(a), "it has all its failures again")
	require.Equal(t, 1, strings.Count(w.log.String(), "192.0.2.1/32"), w.log.String())
	require.EqualValues(t, 6, testutil.ToFloat64(w.failed))
	require.EqualValues(t, 2, testutil.ToFloat64(w.refused))
}

func TestFailuresOfAnEarlierMinuteAreForgotten(t *testing.T) {
	w, a := newWorld(3), address("192.0.2.1")
	for range 20 {
		require.Zero(t, w.Failed(a))
		w.at = w.at.Add(31 * time.Second)
	}
	require.Zero(t, w.Limited(a))
}

func TestAddressesOfOneNetworkOfIPv6AreOne(t *testing.T) {
	w := newWorld(2)
	w.Failed(address("2001:db8::1"))
	w.Failed(address("2001:db8::ffff:2"))
	require.NotZero(t, w.Limited(address("2001:db8:0:0:9::1")))
	require.Zero(t, w.Limited(address("2001:db8:0:1::1")))
	w.Failed(address("::ffff:192.0.2.7"))
	w.Failed(address("192.0.2.7"))
	require.NotZero(t, w.Limited(address("192.0.2.7")), "an IPv4 address in another form is the same")
	require.Zero(t, w.Failed(netip.Addr{}))
}

func TestTheMemoryIsBoundedAndLimitsLast(t *testing.T) {
	w := newWorld(1)
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	w.Failed(at(0))
	w.after = 1 << 30
	for i := 1; i < 3*most; i++ {
		w.Failed(at(i))
		require.LessOrEqual(t, len(w.of), most)
	}
	require.NotZero(t, w.Limited(at(0)), "who is limited is not forgotten for those who are not")
	w.after = 1
	for i := 1; i < 3*most; i++ {
		w.Failed(at(i))
	}
	require.LessOrEqual(t, len(w.of), most)
	require.LessOrEqual(t, strings.Count(w.log.String(), "\n"), mostLines+1)
}

func TestWithoutALimitNothingIsCounted(t *testing.T) {
	l := New(0, nil)
	require.Nil(t, l)
	for range 1000 {
		require.Zero(t, l.Failed(address("192.0.2.1")))
	}
	require.Zero(t, l.Limited(address("192.0.2.1")))
	require.Empty(t, l.Collectors())
}

func TestARightRequestCostsNothingWhileNobodyIsLimited(t *testing.T) {
	w := newWorld(3)
	require.Zero(t, testing.AllocsPerRun(100, func() { w.Limited(address("192.0.2.1")) }))
}
