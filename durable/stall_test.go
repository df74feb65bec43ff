package durable_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/internal/test/servers"
)

// A stall stands between a store and its server. Armed with a statement it
// swallows that statement and everything after it, and stays silent until the
// client leaves, as a server that stands still just then. Connections made later
// work again.
type stall struct {
	listener net.Listener
	server   string
	wg       sync.WaitGroup

	mu  sync.Mutex
	at  []byte // the statement that stalls next; nil: none
	hit bool   // it came
}

func startStall(t *testing.T, server string) *stall {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &stall{listener: l, server: server}
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		s.wg.Wait()
	})
	return s
}

// arm makes the next statement that begins with text stall.
func (s *stall) arm(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.hit = []byte(text), false
}

// wasHit reports whether the statement came.
func (s *stall) wasHit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hit
}

func (s *stall) stalls(packet []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil || len(packet) < 5 || !bytes.HasPrefix(packet[5:], s.at) {
		return false
	}
	s.at, s.hit = nil, true
	return true
}

func (s *stall) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", s.server)
	if err != nil {
		return
	}
	defer server.Close()
	s.wg.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	for {
		packet, err := readPacket(client)
		if err != nil {
			return
		}
		if s.stalls(packet) {
			_, _ = io.Copy(io.Discard, client)
			return
		}
		if _, err := server.Write(packet); err != nil {
			return
		}
	}
}

// stalled opens a store behind a stall, with a read timeout that would outlast
// the test, and makes channel 1.
func stalled(t *testing.T) (*durable.Store, *stall, durable.NodeLease) {
	dsn := servers.MySQL(t)
	direct := openMySQL(t, dsn)
	_, _, err := direct.PutChannel(t.Context(), durable.Put{ID: "c"})
	require.NoError(t, err)
	node, err := direct.LeaseNode(t.Context(), "n", time.Hour)
	require.NoError(t, err)
	cfg, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	proxy := startStall(t, cfg.Addr)
	cfg.Addr, cfg.ReadTimeout = proxy.listener.Addr().String(), 10*time.Minute
	s, err := durable.OpenMySQL(t.Context(), cfg.FormatDSN(), durable.Options{MaxConns: 4})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, proxy, node
}

// within runs f with a deadline of a second and requires that it obeys.
func within(t *testing.T, f func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	select {
	case err := <-done:
		return err
	case <-time.After(30 * time.Second):
		t.Fatal("it did not obey its deadline")
		return nil
	}
}

// The producers who wait for a commit are answered at the deadline wherever the
// server stops answering.
func TestAStalledServerIsLeftAtTheDeadlineWhateverItWasDoing(t *testing.T) {
	s, proxy, node := stalled(t)
	ids := ident.NewGenerator(node.No, func() int64 { return time.Now().UnixMilli() })
	insert := func(ctx context.Context, key string) error {
		m := &durable.Message{ID: ids.Next(), ChannelNo: 1, ProducerNo: 1, Key: key}
		return s.Insert(ctx, node, []*durable.Message{m})[0]
	}
	for _, at := range []string{"START TRANSACTION", "INSERT INTO message_keys", "INSERT INTO messages", "COMMIT"} {
		proxy.arm(at)
		err := within(t, func(ctx context.Context) error { return insert(ctx, "key of "+at) })
		require.True(t, proxy.wasHit(), at)
		require.Error(t, err, at)
		if at == "COMMIT" {
			require.ErrorIs(t, err, durable.ErrOutcomeUnknown, "only the server can tell")
		}
		// Nobody inherits the half-done transaction, and its locks are gone.
		require.NoError(t, insert(t.Context(), "key of "+at), at)
		id, err := s.MessageByKey(t.Context(), 1, "key of "+at)
		require.NoError(t, err)
		got, err := s.Messages(t.Context(), 1, []ident.ID{id})
		require.NoError(t, err)
		require.Len(t, got, 1)
	}
	proxy.arm("ROLLBACK") // after the key was found taken
	require.Error(t, within(t, func(ctx context.Context) error { return insert(ctx, "key of COMMIT") }))
	require.True(t, proxy.wasHit())
	require.ErrorIs(t, insert(t.Context(), "key of COMMIT"), durable.ErrDuplicate)
	heads, err := s.Heads(t.Context(), 1, ident.ID{}, ident.Max(), 100)
	require.NoError(t, err)
	require.Len(t, heads, 4, "nothing of what was given up was stored later")
}

// So are those who wait for an outcome.
func TestAStalledCommitOfOutcomesIsLeftAtTheDeadline(t *testing.T) {
	s, proxy, _ := stalled(t)
	id := ident.AtMillis(time.Now().UnixMilli())
	out := []durable.Outcome{{Kind: durable.OutcomeRetry, ConsumerNo: 1, ID: id, Attempts: 1, AtMs: 1, NextMs: 2}}
	for _, at := range []string{"START TRANSACTION", "COMMIT"} {
		proxy.arm(at)
		require.Error(t, within(t, func(ctx context.Context) error { return s.Record(ctx, out) }), at)
		require.True(t, proxy.wasHit(), at)
	}
	require.NoError(t, s.Record(t.Context(), out))
	states, err := s.JobStates(t.Context(), 1, []ident.ID{id})
	require.NoError(t, err)
	require.Equal(t, durable.Open, states[id].Status)
}
