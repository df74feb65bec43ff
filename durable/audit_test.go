package durable

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/auditlog"
)

// A transaction that panics ends: the next one of the same request does not wait for it, and writes the entry.
func TestATransactionThatPanicsHoldsNoDeed(t *testing.T) {
	s := madeStore(t, t.TempDir(), "c")
	defer s.Close()
	ctx := auditlog.With(t.Context(), auditlog.NewDeed("admin token", "", "put channel", "/channel/c"))
	require.Panics(t, func() {
		_ = s.run(ctx, transaction{name: "panic"}, func(context.Context, *sql.Tx) error { panic("broken") })
	})
	next := make(chan error, 1)
	go func() { next <- s.Audit(ctx) }()
	select {
	case err := <-next:
		require.NoError(t, err)
	case <-time.After(2 * time.Minute):
		require.Fail(t, "it waits for the transaction that panicked")
	}
	head, err := s.AuditHead(t.Context())
	require.NoError(t, err)
	require.Equal(t, uint64(1), head.No)
}
