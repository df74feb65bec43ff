package durable

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/servers"
)

// A broker that dies between the change of a table and the note that it was made
// leaves a migration that runs again.
func TestMySQLMigrationsRunAgainAfterACrash(t *testing.T) {
	s, err := OpenMySQL(t.Context(), servers.MySQL(t), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Migrate(t.Context()))
	_, err = s.db.ExecContext(t.Context(), "DELETE FROM goose_db_version WHERE version_id > 0")
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	var last int
	require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT MAX(version_id) FROM goose_db_version").Scan(&last))
	require.GreaterOrEqual(t, last, 7)
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
	for _, statement := range []string{"DELETE FROM goose_db_version WHERE version_id >= 40",
		"ALTER TABLE dead_jobs DROP KEY dead_jobs_fingerprint, DROP COLUMN fingerprint"} {
		_, err = s.db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	reader, err := s.inserts.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	var n int
	// The change waits for this reader.
	require.NoError(t, reader.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM dead_jobs").Scan(&n))
	time.AfterFunc(3*time.Second, func() { _ = reader.Rollback() })
	require.NoError(t, s.Migrate(t.Context()))
	require.Len(t, said, 2)
	require.Regexp(t, `^the tables are brought up to date.*39`, said[0])
	require.Regexp(t, `^the tables are up to date.*took`, said[1])
}

// Growing dead letters that an earlier release has alerted are open alarms after the update.
func TestAGrowthOfAnEarlierReleaseIsAnOpenAlarm(t *testing.T) {
	s, err := OpenSQLite(t.Context(), t.TempDir(), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Migrate(t.Context()))
	_, err = s.db.ExecContext(t.Context(), "INSERT INTO dlq_growth (consumer_no, since_ms) VALUES (7, 500)")
	require.NoError(t, err)
	text, err := os.ReadFile("migrations/sqlite/00041_alarms.sql")
	require.NoError(t, err)
	_, err = s.db.ExecContext(t.Context(), string(text)) // its tables are there already
	require.NoError(t, err)
	open, err := s.Alarms(t.Context())
	require.NoError(t, err)
	require.Equal(t, []Alarm{{Event: DLQGrowing, No: 7, SinceMs: 500}}, open)
}
