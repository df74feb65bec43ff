//go:build unix

package tables

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/test/servers"
)

// The copy is what a migration makes: every table, column, key and row.
func TestMySQLTablesAreThoseOfAMigration(t *testing.T) {
	made := servers.MySQL(t)
	s, err := durable.OpenMySQL(t.Context(), made, durable.Options{})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Close())

	MySQL(t) // migrates, if it is the first of this process
	require.Equal(t, contents(t, made), contents(t, MySQL(t)))
}

func TestMySQLTablesNeedNoMigration(t *testing.T) {
	MySQL(t)
	dsn := MySQL(t)
	before := dumpOf(t, dsn)
	s, err := durable.OpenMySQL(t.Context(), dsn, durable.Options{})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Close())
	require.Equal(t, before, dumpOf(t, dsn))
}

func TestSQLiteTablesAreThoseOfAMigration(t *testing.T) {
	made, copied := t.TempDir(), t.TempDir()
	SQLite(t, copied)
	before := sqliteContents(t, copied)
	for _, dir := range []string{made, copied} {
		s, err := durable.OpenSQLite(t.Context(), dir, durable.Options{})
		require.NoError(t, err)
		require.NoError(t, s.Migrate(t.Context()))
		require.NoError(t, s.Close())
	}
	require.Equal(t, before, sqliteContents(t, copied), "there was nothing to migrate")
	require.Equal(t, sqliteContents(t, made), before)
}

func TestARowThatNeedsEscapingIsRefused(t *testing.T) {
	text, err := literals([]sql.NullString{{String: "catalogue", Valid: true}, {}})
	require.NoError(t, err)
	require.Equal(t, "'catalogue', NULL", text)
	_, err = literals([]sql.NullString{{String: "it's", Valid: true}})
	require.ErrorContains(t, err, "escaping")
}

func dumpOf(t *testing.T, dsn string) string {
	db, err := open(dsn)
	require.NoError(t, err)
	defer db.Close()
	text, err := dump(db)
	require.NoError(t, err)
	return text
}

// contents is the dump without the times of the migrations.
func contents(t *testing.T, dsn string) []string {
	lines := strings.Split(dumpOf(t, dsn), "\n")
	require.Greater(t, len(lines), 50)
	for i, line := range lines {
		if strings.HasPrefix(line, "INSERT INTO `goose_db_version`") {
			lines[i] = line[:strings.LastIndex(line, ",")]
		}
	}
	return lines
}

// sqliteContents are the statements that made the tables, the settings and the versions.
func sqliteContents(t *testing.T, dir string) (out [][]sql.NullString) {
	db, err := sql.Open("sqlite", dir+"/"+databaseFile)
	require.NoError(t, err)
	defer db.Close()
	for _, text := range []string{
		"SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name",
		"SELECT name, value FROM settings ORDER BY name",
		"SELECT version_id, is_applied FROM goose_db_version ORDER BY id",
	} {
		rows, err := query(db, text)
		require.NoError(t, err)
		require.NotEmpty(t, rows)
		out = append(out, rows...)
	}
	return out
}
