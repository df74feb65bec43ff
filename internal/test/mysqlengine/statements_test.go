package mysqlengine

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

const golden = "../../../durable/testdata/mysql.sql"

// statements returns those of the golden file of durable.
func statements(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(golden)
	require.NoError(t, err)
	return strings.Split(strings.TrimSuffix(string(text), end), end)
}

// filled returns a statement with a value for each place: 1 is a number, a limit, and bytes that fit each column. A
// list has two values, a CASE one alternative.
func filled(statement string) string {
	return strings.ReplaceAll(strings.ReplaceAll(statement, "(?...)", "(1, 2)"), "?", "1")
}

// Each statement runs twice, each time in a transaction that is rolled back: on the tables as the migrations leave
// them, and with a row in each of them that the values of the statement find.
func TestEachStatementRunsOnTheTablesOfTheMigrations(t *testing.T) {
	n := start(t)
	var dbs []*sql.DB
	for _, rows := range []bool{false, true} {
		dsn := n.database(t)
		n.migrate(t, dsn)
		db, err := sql.Open("mysql", dsn)
		require.NoError(t, err)
		db.SetMaxOpenConns(1)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		if rows {
			fill(t, db)
		}
		dbs = append(dbs, db)
	}
	var refused []exception
	all := statements(t)
	for _, statement := range all {
		err := run(t, dbs[0], filled(statement))
		if err == nil {
			err = run(t, dbs[1], filled(statement))
			var answer *mysql.MySQLError
			if errors.As(err, &answer) && answer.Number == 1062 {
				err = nil // the row is there
			}
		}
		if err != nil {
			refused = append(refused, exception{text: statement, said: strings.ReplaceAll(err.Error(), "\n", " ")})
		}
	}
	require.Greater(t, len(all), 500)
	require.Less(t, len(refused), len(all)/20, "the server runs nearly all")
	hold(t, "statements.txt", refused)
	t.Logf("%d statements, %d of them do not run", len(all), len(refused))
}

// run runs a statement in a transaction that is rolled back, and reads all that it returns.
func run(t *testing.T, db *sql.DB, statement string) error {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	rows, err := tx.QueryContext(t.Context(), statement)
	if err == nil {
		for more := true; more; {
			more = rows.Next()
		}
		err = errors.Join(rows.Err(), rows.Close())
	}
	if e := tx.Rollback(); e != nil { // the statement has ended the transaction
		require.ErrorIs(t, e, sql.ErrTxDone)
	}
	return err
}

// fill gives each table a row of ones, where the migrations have not left one with that key.
func fill(t *testing.T, db *sql.DB) {
	t.Helper()
	names := query(t, db, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()")
	require.Greater(t, len(names), 50)
	for _, name := range names {
		if name == "goose_db_version" {
			continue
		}
		columns := query(t, db, "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() "+
			"AND table_name = '"+name+"'")
		ones := strings.TrimSuffix(strings.Repeat("1, ", len(columns)), ", ")
		_, err := db.ExecContext(t.Context(), fmt.Sprintf("INSERT IGNORE INTO %s (%s) VALUES (%s)", name,
			strings.Join(columns, ", "), ones))
		require.NoError(t, err, name)
	}
}

// query returns the only column of a result.
func query(t *testing.T, db *sql.DB, text string) (out []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), text)
	require.NoError(t, err)
	for rows.Next() {
		var s string
		require.NoError(t, rows.Scan(&s))
		out = append(out, s)
	}
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())
	return out
}

// What the grammar of MySQL reads, or MariaDB runs, and MySQL does not run; and a statement of the store with a
// mistake in it.
func TestWhatMySQLDoesNotRunIsRefused(t *testing.T) {
	n := start(t)
	dsn := n.database(t)
	n.migrate(t, dsn)
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	for _, statement := range []string{
		"SELECT none FROM messages",
		"SELECT id FROM messages JOIN message_keys USING (channel_no) WHERE msg_key = 1",
		"SELECT id FROM no_table",
		"SELECT JSON_DETAILED('{}')",
		"SELECT NATURAL_SORT_KEY('a')",
		"SELECT id FROM messages UNION ALL SELECT id, msg_key FROM messages",
		"SELECT MAX(id) FROM messages FOR UPDATE WAIT 5",
		"INSERT INTO messages (id) VALUES (1, 2)",
		"INSERT INTO clock (no, ms, ahead_ms, steps, beat, history) VALUES (300, 1, 1, 1, 1, 1)",
		"INSERT INTO clock (no) VALUES (5)",
		"INSERT INTO settings (name, value) VALUES ('n', 'much')",
		"INSERT INTO settings (name, value) VALUES (REPEAT('n', 65), 1)",
		"INSERT INTO settings (name, value) VALUES ('nodes', 1) RETURNING value",
		"UPDATE settings SET value = 1 WHERE no = 1",
		"DELETE FROM settings WHERE no = 1",
	} {
		require.Error(t, run(t, db, statement), statement)
	}
	for _, statement := range statements(t) {
		if strings.HasPrefix(statement, "DELETE FROM") && strings.Contains(statement, "WHERE") {
			require.Error(t, run(t, db, filled(strings.Replace(statement, "WHERE", "WHERE none = 1 AND", 1))), statement)
		}
	}
}
