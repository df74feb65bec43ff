package durable

import (
	"database/sql"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/servers"
)

// onMigrating runs a test with an empty store of each kind, also with one on a node of a cluster.
func onMigrating(t *testing.T, test func(t *testing.T, s *Store)) {
	for _, kind := range []string{"SQLite", "MySQL", "a cluster of MySQL"} {
		t.Run(kind, func(t *testing.T) {
			var s *Store
			var err error
			if kind == "SQLite" {
				s, err = OpenSQLite(t.Context(), t.TempDir(), Options{})
			} else {
				s, err = OpenMySQL(t.Context(), servers.MySQL(t), Options{})
			}
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			s.clustered = kind == "a cluster of MySQL"
			test(t, s)
		})
	}
}

// alter sends statements to the store.
func alter(t *testing.T, s *Store, statements ...string) {
	t.Helper()
	for _, text := range statements {
		_, err := s.db.ExecContext(t.Context(), text)
		require.NoError(t, err, text)
	}
}

// tablesOf has the columns of each table, and the versions that were noted.
func tablesOf(t *testing.T, s *Store) (all []string) {
	t.Helper()
	columns := `SELECT CONCAT_WS(' ', table_name, column_name, column_type, is_nullable, column_default)
FROM information_schema.columns WHERE table_schema = DATABASE() ORDER BY 1`
	if s.dialect == sqliteDialect {
		columns = `SELECT type || name || sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY 1`
	}
	for _, text := range []string{columns, `SELECT version_id FROM goose_db_version ORDER BY id`} {
		require.NoError(t, each(t.Context(), s.db, text, nil, func(r *sql.Rows) error {
			var line string
			err := r.Scan(&line)
			all = append(all, line)
			return err
		}))
	}
	return all
}

// A broker of an older release is started again after a newer one has migrated.
func TestTablesThatANewerReleaseHasMadeAreRefusedOnMySQL(t *testing.T) {
	onMigrating(t, func(t *testing.T, s *Store) {
		require.NoError(t, s.Migrate(t.Context()))
		require.NoError(t, s.Migrate(t.Context()), "the same release again")
		alter(t, s, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)`)
		err := s.Migrate(t.Context())
		require.ErrorIs(t, err, ErrNewerSchema)
		require.ErrorContains(t, err, "version 9999")
		alter(t, s, `DELETE FROM goose_db_version WHERE version_id = 9999`)
		require.NoError(t, s.Migrate(t.Context()), "the lock was given back")
	})
}

// A build before the first version made the tables, and stopped before the last one of its kind.
func TestTablesFromBeforeTheFirstVersionAreRefusedOnMySQL(t *testing.T) {
	first, _ := schemas()
	onMigrating(t, func(t *testing.T, s *Store) {
		require.NoError(t, s.Migrate(t.Context()))
		for _, last := range []int64{1, 48, first - 1} {
			alter(t, s, `DELETE FROM goose_db_version WHERE version_id > 0`,
				fmt.Sprintf(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (%d, 1)`, last),
				`DROP TABLE IF EXISTS kept_stretches`)
			before := tablesOf(t, s)
			err := s.Migrate(t.Context())
			require.ErrorIs(t, err, ErrOlderSchema)
			require.ErrorContains(t, err, fmt.Sprintf("version %d, this program knows versions from %d on; start the build "+
				"of commit dc2e5c56", last, first))
			require.Equal(t, before, tablesOf(t, s), "nothing was changed")
		}
	})
}

// The first migration of such a build broke off: its tables are there, and no version of it is noted.
func TestMySQLTablesThatTheFirstMigrationOfAnOldBuildLeftAreRefused(t *testing.T) {
	s, err := OpenMySQL(t.Context(), servers.MySQL(t), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Migrate(t.Context()))
	alter(t, s, `DELETE FROM goose_db_version WHERE version_id > 0`, `DROP TABLE producers`, `DROP TABLE messages`,
		`CREATE TABLE producers (no INT UNSIGNED NOT NULL PRIMARY KEY, id VARBINARY(255) NOT NULL)`)
	before := tablesOf(t, s)
	err = s.Migrate(t.Context())
	require.ErrorIs(t, err, ErrOlderSchema)
	require.ErrorContains(t, err, "version 0")
	require.Equal(t, before, tablesOf(t, s))
	alter(t, s, `DROP TABLE producers`)
	require.NoError(t, s.Migrate(t.Context()), "the lock was given back")
}

// A build before the first version has brought the tables up to date: all its versions are noted, but 49.
func TestTablesThatTheLastOldBuildMadeAreTakenAsTheyAreOnMySQL(t *testing.T) {
	first, _ := schemas()
	onMigrating(t, func(t *testing.T, s *Store) {
		require.NoError(t, s.migrateTo(t.Context(), upTo(t, first)))
		alter(t, s, `DELETE FROM goose_db_version WHERE version_id > 0`)
		for v := int64(1); v <= first; v++ {
			if v != first-1 {
				alter(t, s, fmt.Sprintf(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (%d, 1)`, v))
			}
		}
		before := tablesOf(t, s)
		require.NoError(t, s.migrateTo(t.Context(), upTo(t, first)))
		require.Equal(t, before, tablesOf(t, s), "there was nothing to do")
		require.NoError(t, s.Migrate(t.Context()))
		require.NoError(t, s.migrateTo(t.Context(), withNext(t, `CREATE TABLE later (no INTEGER)`)))
		alter(t, s, `INSERT INTO later (no) VALUES (1)`)
	})
}

// upTo are the migrations of this program up to a version.
func upTo(t *testing.T, last int64) fs.FS {
	all := fstest.MapFS{}
	for name, file := range withNext(t, "DO 0") {
		number, _, _ := strings.Cut(path.Base(name), "_")
		if v, err := strconv.ParseInt(number, 10, 64); err == nil && v <= last {
			all[name] = file
		}
	}
	return all
}

// withNext are the migrations of this program and a later one.
func withNext(t *testing.T, statement string) fstest.MapFS {
	all := fstest.MapFS{}
	require.NoError(t, fs.WalkDir(migrations, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			text, readErr := fs.ReadFile(migrations, path)
			all[path], err = &fstest.MapFile{Data: text}, readErr
		}
		return err
	}))
	for _, dialect := range []string{"mysql", "sqlite"} {
		all[fmt.Sprintf("migrations/%s/%05d_next.sql", dialect, KnownSchema()+1)] = &fstest.MapFile{
			Data: []byte("-- +goose NO TRANSACTION\n-- +goose Up\n" + statement + ";\n")}
	}
	return all
}

// A broker that dies between the change of a table and the note that it was made
// leaves a migration that runs again.
func TestMySQLMigrationsRunAgainAfterACrash(t *testing.T) {
	s, err := OpenMySQL(t.Context(), servers.MySQL(t), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Migrate(t.Context()))
	whole := tablesOf(t, s)
	for _, lost := range [][]string{{}, {"audit_head"}, {"producers", "messages", "attempts", "audit", "audit_head"}} {
		alter(t, s, "DELETE FROM goose_db_version WHERE version_id > 0")
		for _, table := range lost {
			alter(t, s, "DROP TABLE "+table)
		}
		require.NoError(t, s.Migrate(t.Context()))
		require.Equal(t, whole, tablesOf(t, s), lost)
	}
}

// A change of a table takes as long as the server needs, which is longer than any other statement may. Whoever
// waits is told so.
func TestMySQLAMigrationTakesAsLongAsItTakes(t *testing.T) {
	var said []string
	s, err := OpenMySQL(t.Context(), servers.MySQL(t)+"?readTimeout=1s", Options{Tell: func(message string, args ...any) {
		said = append(said, fmt.Sprint(append([]any{message}, args...)...))
	}})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Migrate(t.Context()))
	require.Empty(t, said, "new tables take no time")
	reader, err := s.inserts.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	var n int
	// The change waits for this reader.
	require.NoError(t, reader.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM dead_jobs").Scan(&n))
	time.AfterFunc(3*time.Second, func() { _ = reader.Rollback() })
	require.NoError(t, s.migrateTo(t.Context(), withNext(t, "ALTER TABLE dead_jobs ADD COLUMN later INT NULL")))
	require.Len(t, said, 2)
	require.Regexp(t, fmt.Sprintf(`^the tables are brought up to date.*%d.*%d`, KnownSchema(), KnownSchema()+1), said[0])
	require.Regexp(t, `^the tables are up to date.*took`, said[1])
	require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT COUNT(later) FROM dead_jobs").Scan(&n))
}
