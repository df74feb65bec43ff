package durable_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/test/tables"
)

// What GET /history asks of the store is one statement for the rows and one for the marks, whatever the
// range.
func TestARangeOfTheHistoryIsOneStatementAndItsMarksAreAnother(t *testing.T) {
	dir := t.TempDir()
	tables.SQLite(t, dir)
	s, err := durable.OpenSQLite(t.Context(), dir, durable.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	var mu sync.Mutex
	sent := 0
	s.Tap(func(string) {
		mu.Lock()
		defer mu.Unlock()
		sent++
	})
	for at := int64(1); at <= 1000; at++ {
		require.NoError(t, s.KeepHistory(t.Context(), []durable.HistoryRow{{Step: 600, AtMs: at, Writer: 1},
			{Step: 600, AtMs: at, Writer: 2}}))
		require.NoError(t, s.KeepMark(t.Context(), durable.HistoryMark{AtMs: at}))
	}
	sent = 0
	rows, err := s.History(t.Context(), durable.HistoryOfAll, 0, 600, 0, 2000)
	require.NoError(t, err)
	require.Len(t, rows, 2000)
	marks, err := s.Marks(t.Context(), 0, 0, 0, 2000, 1000)
	require.NoError(t, err)
	require.Len(t, marks, 1000)
	require.Equal(t, 2, sent)
}
