package durable_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/test/storetest"
	"github.com/penstock-broker/penstock/internal/test/tables"
)

func TestSQLite(t *testing.T) {
	sent := listen(t, "testdata/sqlite.sql", durable.UnheardSQLite)
	storetest.Run(t, func(t *testing.T) *durable.Store { return sent.tap(openSQLite(t)) }, nil)
}

func openSQLite(t *testing.T) *durable.Store {
	t.Helper()
	dir := t.TempDir()
	tables.SQLite(t, dir)
	s, err := durable.OpenSQLite(t.Context(), dir, durable.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestAFolderBelongsToOneStoreAtATime(t *testing.T) {
	dir := t.TempDir() + "/made by open"
	s, err := durable.OpenSQLite(t.Context(), dir, durable.Options{})
	require.NoError(t, err)
	_, err = durable.OpenSQLite(t.Context(), dir, durable.Options{})
	require.ErrorContains(t, err, "in use by another broker")
	require.NoError(t, s.Close())

	s, err = durable.OpenSQLite(t.Context(), dir, durable.Options{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

func TestSQLiteKeepsEverythingOverARestart(t *testing.T) {
	dir := t.TempDir()
	s, err := durable.OpenSQLite(t.Context(), dir, durable.Options{})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	p, _, err := s.PutProducer(t.Context(), durable.Put{ID: "p", NewToken: "t"})
	require.NoError(t, err)
	require.NoError(t, s.Close())

	s, err = durable.OpenSQLite(t.Context(), dir, durable.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Migrate(t.Context()))
	c, err := s.Changes(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, []durable.Producer{p}, c.Producers)
	require.Regexp(t, `^SQLite 3\.`, s.Describe())
	require.Empty(t, s.Warnings())
}
