package durable_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/tables"
)

// stalled opens a store behind a proxy that can stall, with a read timeout that would outlast
// the test, and makes channel 1.
func stalled(t *testing.T) (*durable.Store, *proxy, durable.NodeLease) {
	dsn := tables.MySQL(t)
	direct := openMySQL(t, dsn)
	_, _, err := direct.PutChannel(t.Context(), durable.Put{ID: "c"})
	require.NoError(t, err)
	node, err := direct.LeaseNode(t.Context(), "n", time.Hour)
	require.NoError(t, err)
	cfg, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	p := startProxy(t, cfg.Addr)
	t.Cleanup(func() { p.stop(t) })
	cfg.Addr, cfg.ReadTimeout = p.listener.Addr().String(), 10*time.Minute
	s, err := durable.OpenMySQL(t.Context(), cfg.FormatDSN(), durable.Options{MaxConns: 4})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, p, node
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
func TestAStalledServerIsLeftAtTheDeadlineWhateverItWasDoingOnMySQL(t *testing.T) {
	s, proxy, node := stalled(t)
	ids := ident.NewGenerator(node.No, func() int64 { return time.Now().UnixMilli() })
	insert := func(ctx context.Context, key string) error {
		m := &durable.Message{ID: ids.Next(), ChannelNo: 1, ProducerNo: 1, Key: key}
		return s.Insert(ctx, node, []*durable.Message{m})[0]
	}
	// A message alone, and a transaction: each is one packet.
	for at, key := range map[string]string{"INSERT INTO messages": "", "START TRANSACTION": "key"} {
		proxy.arm(at)
		err := within(t, func(ctx context.Context) error { return insert(ctx, key) })
		require.True(t, proxy.wasHit(), at)
		require.ErrorIs(t, err, durable.ErrOutcomeUnknown, "only the server can tell")
		require.NoError(t, insert(t.Context(), key), at)
	}
	proxy.arm("ROLLBACK") // after the key was found taken
	require.Error(t, within(t, func(ctx context.Context) error { return insert(ctx, "key") }))
	require.True(t, proxy.wasHit())
	// Nobody inherits the half-done transaction, and its locks are gone.
	require.ErrorIs(t, insert(t.Context(), "key"), durable.ErrDuplicate)
	heads, err := s.Heads(t.Context(), 1, ident.ID{}, ident.Max(), 100)
	require.NoError(t, err)
	require.Len(t, heads, 2, "nothing of what was given up was stored later")
}

// Messages with rows of their own besides cost no more round trips than others.
func TestATransactionIsOneRoundTripOnMySQL(t *testing.T) {
	s, proxy, node := stalled(t)
	ids := ident.NewGenerator(node.No, func() int64 { return time.Now().UnixMilli() })
	insert := func(m durable.Message) int64 {
		m.ID, m.ChannelNo, m.ProducerNo, m.Payload = ids.Next(), 1, 1, []byte("; DROP TABLE messages -- '")
		before := proxy.queries.Load()
		require.NoError(t, s.Insert(t.Context(), node, []*durable.Message{&m})[0])
		return proxy.queries.Load() - before
	}
	insert(durable.Message{}) // opens the connection
	require.EqualValues(t, 1, insert(durable.Message{}))
	require.EqualValues(t, 1, insert(durable.Message{Priority: 5}))
	require.EqualValues(t, 1, insert(durable.Message{Key: "a key; ROLLBACK; '", Priority: 7, TTLMs: 60_000,
		Headers: durable.OrderingLine("o'; COMMIT", nil)}))
	heads, err := s.Heads(t.Context(), 1, ident.ID{}, ident.Max(), 100)
	require.NoError(t, err)
	require.Len(t, heads, 4)
}

// So are those who wait for an outcome.
func TestAStalledCommitOfOutcomesIsLeftAtTheDeadlineOnMySQL(t *testing.T) {
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
