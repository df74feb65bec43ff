package importer

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/oldbroker"
	"github.com/penstock-broker/penstock/internal/test/servers"
)

func openOld(t *testing.T, o *oldbroker.Broker) *Old {
	t.Helper()
	old, err := OpenOld(t.Context(), o.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { _ = old.Close() })
	return old
}

func TestRealServersADatabaseOfAnotherProgramIsRefused(t *testing.T) {
	dsn := servers.MySQL(t)
	_, err := OpenOld(t.Context(), dsn)
	require.ErrorIs(t, err, ErrNoOld)
	_, err = OpenOld(t.Context(), strings.Replace(dsn, "/", "/nothing_of_that_name_", 1))
	require.Error(t, err)
	for _, wrong := range []string{"", "mysql://u:secret@h", "sqlite:/x", "mysql://u:secret@127.0.0.1:1/old"} {
		_, err := OpenOld(t.Context(), wrong)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestTimesOfTheOldDatabase(t *testing.T) {
	for text, want := range map[string]int64{"2026-01-02 03:04:05": 1767323045000,
		"2026-01-02 03:04:05.250000": 1767323045250,
		"0000-00-00 00:00:00":        0, "": 0, "nonsense": 0, "1969-12-31 23:59:59": 0} {
		require.Equal(t, want, timeOf(sql.NullString{String: text, Valid: true}), text)
	}
}

func TestNamesAreComparedAsTheOldDatabaseDoes(t *testing.T) {
	a, b := "a", "b"
	of := map[string]*string{"Case": &a, fold("Case"): &a, "other": &b}
	for name, want := range map[string]*string{"Case": &a, "case": &a, "CASE ": &a, "other": &b, "x": nil} {
		require.Equal(t, want, named(of, name), fmt.Sprint(name))
	}
}
