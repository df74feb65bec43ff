package durable

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

func TestMain(m *testing.M) {
	// These tests wait more than they compute; -parallel still overrides it.
	_ = flag.Set("test.parallel", "4")
	goleak.VerifyTestMain(m)
}

func TestAChannelIsFullWhenItsMessagesHaveNoIDLeftForAJob(t *testing.T) {
	s, err := OpenSQLite(t.Context(), t.TempDir(), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Migrate(t.Context()))
	_, _, err = s.PutChannel(t.Context(), Put{ID: "c"})
	require.NoError(t, err)
	_, err = s.db.ExecContext(t.Context(), `UPDATE channels SET audience = ?`, ident.MaxPositions-1)
	require.NoError(t, err)
	pull := Pull
	k, created, err := s.PutConsumer(t.Context(), ConsumerPut{Put: Put{ID: "last"}, ChannelID: "c", Type: &pull})
	require.NoError(t, err)
	require.True(t, created)
	require.Equal(t, ident.MaxPositions-1, k.Position)
	_, _, err = s.PutConsumer(t.Context(), ConsumerPut{Put: Put{ID: "one too many"}, ChannelID: "c", Type: &pull})
	require.ErrorIs(t, err, ErrFull)
	_, created, err = s.PutConsumer(t.Context(), ConsumerPut{Put: Put{ID: "last"}, ChannelID: "c"})
	require.NoError(t, err, "those there can still be updated")
	require.False(t, created)
}
