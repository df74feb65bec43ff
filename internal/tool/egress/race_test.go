package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A network is how addresses answer: after a time, or never, with an error or a connection.
type network struct {
	after map[string]time.Duration // absent: never
	fails map[string]error
	open  atomic.Int32 // connections
}

type networked struct {
	net.Conn
	n *network
}

func (c networked) Close() error { c.n.open.Add(-1); return nil }

func (n *network) connect(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	host := to.Addr().String()
	after, answers := n.after[host]
	if !answers {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(after):
	}
	if err := n.fails[host]; err != nil {
		return nil, err
	}
	n.open.Add(1)
	return networked{n: n}, nil
}

func addrPorts(hosts ...string) (list []netip.AddrPort) {
	for _, h := range hosts {
		list = append(list, netip.AddrPortFrom(netip.MustParseAddr(h), 80))
	}
	return list
}

func TestADeadAddressCostsAQuarterOfASecond(t *testing.T) {
	refused := fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	for name, tc := range map[string]struct {
		n      *network
		hosts  []string
		within time.Duration // the deadline
		winner string        // "": none
		took   time.Duration
		err    error
	}{
		"the first is dead": {&network{after: map[string]time.Duration{"192.0.2.1": 0}}, []string{"2001:db8::1",
			"192.0.2.1"}, 1500 * time.Millisecond, "192.0.2.1", 250 * time.Millisecond, nil},
		"the first refuses": {&network{after: map[string]time.Duration{"2001:db8::1": 0, "192.0.2.1": 0},
			fails: map[string]error{"2001:db8::1": refused}}, []string{"2001:db8::1",
			"192.0.2.1"}, time.Second, "192.0.2.1", 0, nil},
		"the first is far": {&network{after: map[string]time.Duration{"2001:db8::1": 400 * time.Millisecond,
			"192.0.2.1": 200 * time.Millisecond}}, []string{"2001:db8::1", "192.0.2.1"}, time.Second, "2001:db8::1",
			400 * time.Millisecond, nil},
		"one after many dead ones": {&network{after: map[string]time.Duration{"192.0.2.9": 0}}, []string{"2001:db8::1",
			"2001:db8::2", "2001:db8::3", "192.0.2.9"}, 2 * time.Second, "192.0.2.9", 750 * time.Millisecond, nil},
		"the time is short": {&network{after: map[string]time.Duration{"192.0.2.1": 0}}, []string{"2001:db8::1",
			"192.0.2.1"}, 150 * time.Millisecond, "192.0.2.1", 50 * time.Millisecond, nil},
		"all are dead": {&network{}, []string{"2001:db8::1", "192.0.2.1"}, time.Second, "", time.Second,
			context.DeadlineExceeded},
		"all refuse": {&network{after: map[string]time.Duration{"192.0.2.2": 0, "192.0.2.1": 0},
			fails: map[string]error{"192.0.2.2": refused, "192.0.2.1": refused}}, []string{"192.0.2.2",
			"192.0.2.1"}, time.Second, "", 0, syscall.ECONNREFUSED},
		"a family that is not here": {&network{after: map[string]time.Duration{"2001:db8::1": 0, "192.0.2.1": 0},
			fails: map[string]error{"2001:db8::1": syscall.EADDRNOTAVAIL, "192.0.2.1": refused}}, []string{"192.0.2.1",
			"2001:db8::1"}, time.Second, "", 0, syscall.ECONNREFUSED},
		"no descriptor is left": {&network{after: map[string]time.Duration{"192.0.2.2": 0, "192.0.2.1": 0},
			fails: map[string]error{"192.0.2.2": syscall.EMFILE, "192.0.2.1": refused}}, []string{"192.0.2.2",
			"192.0.2.1"}, time.Second, "", 0, syscall.EMFILE},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tc.within)
				defer cancel()
				begun := time.Now()
				addrs := addrPorts(tc.hosts...)
				winner, conn, err := race(ctx, addrs, tc.n.connect)
				require.Equal(t, tc.took, time.Since(begun))
				if tc.winner == "" {
					require.ErrorIs(t, err, tc.err)
					require.Nil(t, conn)
					require.Zero(t, tc.n.open.Load())
					return
				}
				require.NoError(t, err)
				require.Equal(t, tc.winner, addrs[winner].Addr().String())
				require.EqualValues(t, 1, tc.n.open.Load(), "the losers are closed")
			})
		})
	}
}

// A dial of net/http knows the time of the request, which it may outlive.
func TestAShortTimeIsSharedByAllAddresses(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	dialing, stop := context.WithTimeout(context.WithoutCancel(untilEnd(ctx)), dialTimeout)
	defer stop()
	require.LessOrEqual(t, delayFor(dialing, 2), 50*time.Millisecond)
	require.GreaterOrEqual(t, delayFor(dialing, 1000), leastDelay)
	require.Equal(t, attemptDelay, delayFor(t.Context(), 2))
}

func TestManyDeadAddressesTakeNoMoreThanTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts := make([]string, 40)
		for i := range hosts {
			hosts[i] = fmt.Sprintf("192.0.2.%d", i+1)
		}
		n := network{after: map[string]time.Duration{"192.0.2.40": 0}}
		var now, most atomic.Int32
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		winner, _, err := race(ctx, addrPorts(hosts...), func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			return n.connect(ctx, to)
		})
		require.NoError(t, err)
		require.Equal(t, 39, winner)
		require.LessOrEqual(t, most.Load(), int32(maxRacing))
	})
}

func TestTheAddressThatAnsweredIsTriedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memory
		addrs := addrPorts("2001:db8::1", "192.0.2.1", "192.0.2.2")
		require.Equal(t, addrPorts("2001:db8::1", "192.0.2.1", "192.0.2.2"), m.order(addrs, 0))
		require.Equal(t, addrPorts("2001:db8::1", "192.0.2.2", "192.0.2.1"), m.order(addrs, 1), "connections spread")
		m.won(addrs[1], addrs[:1])
		require.Equal(t, addrPorts("192.0.2.1", "192.0.2.2", "2001:db8::1"), m.order(addrs, 0))
		time.Sleep(shunFor)
		require.Equal(t, addrs[0], m.order(addrs, 0)[0], "it gets another chance")
		m.won(addrs[1], addrs[:1])
		m.won(addrs[0], nil)
		require.Equal(t, addrs[0], m.order(addrs, 0)[0], "it answered")
		for i := range 3 * maxNames {
			m.won(addrs[1], []netip.AddrPort{netip.AddrPortFrom(addrs[0].Addr(), uint16(i+1000))})
		}
		require.LessOrEqual(t, len(m.last), maxNames+1)
	})
}

// A name with a dead address before a live one: deliveries and other requests reach the live one.
func TestADeadAddressOfANameDelaysNobodyForLong(t *testing.T) {
	srv := saying(t, says("200 OK", "ok", "Connection: close"))
	dead, err := net.Listen("tcp", "[::1]:"+port(t, srv))
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Log("no IPv6 here: the races above cover it")
		return
	}
	require.NoError(t, err)
	full(t, dead)
	c := client(t, always("::1", "127.0.0.1"))
	for _, protocol := range []string{"", "h2"} {
		r := post(t, c, "http://dual.example:"+port(t, srv)+"/", protocol, "x", 20*time.Second)
		require.NotErrorIs(t, r.Err, ErrTimeout, protocol)
		require.Less(t, r.Took, 10*time.Second)
	}
	_, err = ask(t, c, Configured, "http://dual.example:"+port(t, srv)+"/")
	require.NoError(t, err)
}

// full fills the queue of a listener that accepts nothing, so that further connections get no answer.
func full(t *testing.T, l net.Listener) {
	t.Helper()
	raw, err := l.(*net.TCPListener).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) }))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	for range 4 {
		conn, err := net.DialTimeout("tcp", l.Addr().String(), 200*time.Millisecond)
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}
