package cluster

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// A clockStore is a store whose clock is not that of this machine, and which may
// stand still.
type clockStore struct {
	ahead  atomic.Int64 // ns
	stands chan struct{}
	taken  atomic.Int64 // how many leases another broker took from us
}

func (s *clockStore) now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

func (s *clockStore) LeaseNode(_ context.Context, _ string, ttl time.Duration) (durable.NodeLease, error) {
	no := 3 + uint16(s.taken.Load())
	return durable.NodeLease{No: no, Token: [16]byte{byte(no)}, Expires: s.now().Add(ttl)}, nil
}

func (s *clockStore) RenewNode(ctx context.Context, l durable.NodeLease, ttl time.Duration) (durable.NodeLease, error) {
	if s.stands != nil {
		select {
		case <-s.stands:
		case <-ctx.Done():
			return durable.NodeLease{}, ctx.Err()
		}
	}
	if int64(l.No) < 3+s.taken.Load() {
		return durable.NodeLease{}, durable.ErrStale
	}
	l.Expires = s.now().Add(ttl)
	return l, nil
}

func (s *clockStore) ReleaseNode(context.Context, durable.NodeLease) error { return nil }
func (s *clockStore) Nodes(context.Context) ([]durable.Node, error)        { return nil, nil }
func (s *clockStore) requireFollowed(t *testing.T, n *Node) {
	t.Helper()
	require.InDelta(t, s.now().UnixMilli(), n.NowMs(), 2000)
	require.InDelta(t, s.now().UnixMilli(), n.IDs().Next().Millis(), 2000)
}

func newTestNode(t *testing.T, s *clockStore) *Node {
	n, err := New(t.Context(), s, "test", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return n
}

// A broker whose wall clock is wrong, by an hour either way, makes IDs by the
// clock of the store, and follows that when it is corrected forwards.
func TestIDsFollowTheClockOfTheStore(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, 0, time.Hour} {
		s := &clockStore{}
		s.ahead.Store(int64(ahead))
		n := newTestNode(t, s)
		s.requireFollowed(t, n)
		s.ahead.Add(int64(10 * time.Minute))
		require.NoError(t, n.Renew(t.Context()))
		s.requireFollowed(t, n)
	}
}

// A renewal that hangs with the store holds back nobody who has a deadline.
func TestALeaseIsReadWhileItsRenewalHangs(t *testing.T) {
	s := &clockStore{stands: make(chan struct{})}
	n := newTestNode(t, s)
	renewed := make(chan error, 1)
	go func() { renewed <- n.Renew(context.Background()) }()
	require.Eventually(t, func() bool { return len(n.renewing) == 1 }, 30*time.Second, time.Millisecond)
	read := make(chan durable.NodeLease, 1)
	go func() {
		lease, _ := n.Lease()
		n.Owns(1)
		read <- lease
	}()
	select {
	case lease := <-read:
		require.EqualValues(t, 3, lease.No)
	case <-time.After(30 * time.Second):
		t.Error("it waited for the renewal")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, n.Renew(ctx), context.DeadlineExceeded, "nor does the second in the queue stay for longer than "+
		"it may")
	close(s.stands)
	require.NoError(t, <-renewed)
}

// Whoever reads the lease before it makes an ID never has an ID of a lost number
// under the lease of another.
func TestAnIDBelongsToTheLeaseReadBeforeIt(t *testing.T) {
	s := &clockStore{}
	n := newTestNode(t, s)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			lease, _ := n.Lease()
			id := n.IDs().Next()
			if no := uint16(id[6])<<8 | uint16(id[7]); no < lease.No {
				t.Errorf("ID of number %d under the lease of %d", no, lease.No)
			}
		}
	}()
	const times = 5000
	for range times {
		s.taken.Add(1)
		require.NoError(t, n.Renew(t.Context()))
	}
	close(stop)
	<-done
	lease, err := n.Lease()
	require.NoError(t, err)
	require.EqualValues(t, 3+times, lease.No)
}

// A slow answer after a quick one does not put the clock ahead: IDs would be of a time to come, and what happens
// after the next answer would seem to come before. A store whose clock went forwards meanwhile is followed.
func TestASlowAnswerDoesNotPutTheClockAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, way := range []*slowStore{{to: 900 * time.Millisecond}, {from: 900 * time.Millisecond}} {
			to, from := way.to, way.from
			way.to, way.from = 0, 0
			n, err := New(t.Context(), way, "test", slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			for range 100 {
				way.to, way.from = to, from
				require.NoError(t, n.Renew(t.Context()))
				now := time.Now().UnixMilli()
				require.GreaterOrEqual(t, n.NowMs(), now)
				require.LessOrEqual(t, n.NowMs(), now+300, "nothing else was known for 90 s: the room is 1/1024")
				require.LessOrEqual(t, n.PastMs(), now)
			}
			way.to, way.from = 0, 0
			require.NoError(t, n.Renew(t.Context()))
			require.InDelta(t, time.Now().UnixMilli(), n.NowMs(), 1)
			way.ahead.Store(int64(time.Minute))
			way.to, way.from = to, from
			require.NoError(t, n.Renew(t.Context()))
			require.GreaterOrEqual(t, n.NowMs(), way.now().UnixMilli())
			require.LessOrEqual(t, n.NowMs(), way.now().UnixMilli()+900)
		}
	})
}

// Nor does a slow first answer: the store is asked again before anybody asks for the time. One that stays slow does
// not hold the start up for ever.
func TestASlowFirstAnswerDoesNotPutTheClockAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, lease := range []*slowStore{{to: 3 * time.Second}, {from: 3 * time.Second}} {
			n, err := New(t.Context(), &slowLease{slowStore: lease}, "test", slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			require.Equal(t, time.Now().UnixMilli(), n.NowMs())
			require.Equal(t, time.Now().UnixMilli(), n.PastMs())
			begun := time.Now()
			_, err = New(t.Context(), lease, "test", slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			require.Equal(t, 12*time.Second, time.Since(begun))
		}
	})
}

// A slowLease leases late, and renews at once.
type slowLease struct{ *slowStore }

func (s *slowLease) RenewNode(ctx context.Context, l durable.NodeLease, ttl time.Duration) (durable.NodeLease, error) {
	return s.clockStore.RenewNode(ctx, l, ttl)
}

// A lease that waited, for a lock or on the way, must not move the horizon of the
// reconciler ahead: it would leave out messages that are inserted behind it.
func TestClockOfTheStoreIsKnownFromBothSidesWhenItsAnswerIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, way := range []*slowStore{{to: 3 * time.Second}, {from: 3 * time.Second}} {
			n, err := New(t.Context(), way, "test", slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			now := time.Now().UnixMilli()
			require.LessOrEqual(t, n.PastMs(), now)
			require.GreaterOrEqual(t, n.NowMs(), now)
			time.Sleep(time.Second)
			require.LessOrEqual(t, n.PastMs(), now+1000)
			require.GreaterOrEqual(t, n.NowMs(), now+1000)
		}
	})
}

// A slowStore leases late: after a while on the way to it and one from it.
type slowStore struct {
	clockStore
	to, from time.Duration
}

func (s *slowStore) LeaseNode(ctx context.Context, name string, ttl time.Duration) (durable.NodeLease, error) {
	time.Sleep(s.to)
	defer time.Sleep(s.from)
	return s.clockStore.LeaseNode(ctx, name, ttl)
}

func (s *slowStore) RenewNode(ctx context.Context, l durable.NodeLease, ttl time.Duration) (durable.NodeLease, error) {
	time.Sleep(s.to)
	defer time.Sleep(s.from)
	return s.clockStore.RenewNode(ctx, l, ttl)
}

// A peerStore has another broker, whose lease was renewed a while ago.
type peerStore struct {
	clockStore
	renewed time.Duration
}

func (s *peerStore) Nodes(context.Context) ([]durable.Node, error) {
	expires := s.now().Add(TTL - s.renewed)
	return []durable.Node{{No: 9, Token: [16]byte{9}, Expires: expires, Alive: s.renewed < TTL}}, nil
}

// The consumers of a broker that is late with its renewal are looked after before
// its lease has ended; its number is its own until then.
func TestConsumersOfALateBrokerAreNotLeftToIt(t *testing.T) {
	s := &peerStore{}
	n, err := New(t.Context(), s, "test", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	changes := 0
	n.PeersChanged = func() { changes++ }
	consumer := uint32(1)
	for n.Owns(consumer) {
		consumer++
	}
	for _, stage := range []struct {
		renewed        time.Duration
		owned          bool
		peers, changes int
	}{
		{RenewEvery, false, 1, 0},
		{peerLate + RenewEvery/2, true, 1, 1},
		{TTL, true, 0, 2},
		{0, false, 1, 3},
	} {
		s.renewed = stage.renewed
		n.readPeers(t.Context())
		require.Equal(t, stage.owned, n.Owns(consumer), "renewed %v ago", stage.renewed)
		require.Len(t, n.Peers(), stage.peers)
		require.Equal(t, stage.changes, changes)
	}
}

// The write that a broker makes each second tells whether the store takes writes: a store that is
// full, or read-only, still answers reads.
func TestAStoreThatTakesNoRenewalIsNotWritable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const renewals = 10 // that the store takes
		stands := make(chan struct{}, renewals)
		for range renewals {
			stands <- struct{}{}
		}
		n := newTestNode(t, &clockStore{stands: stands})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- n.Run(ctx) }()
		time.Sleep(renewals*RenewEvery + RenewEvery/2)
		require.NoError(t, n.Writable())
		time.Sleep(RenewEvery)
		require.NoError(t, n.Writable(), "one late renewal is no reason")
		time.Sleep(unwritable)
		require.ErrorIs(t, n.Writable(), context.DeadlineExceeded)
		close(stands)
		time.Sleep(2 * time.Second)
		require.NoError(t, n.Writable())
		cancel()
		require.NoError(t, <-done)
	})
}
