package durable_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/test/servers"
)

// The tables and rows that the migrations make are in the folder testdata/tables, one file per dialect: a
// review sees in them what a migration makes of the tables.
//
//	go test -run 'TablesAreThoseOfTestdata' ./durable -update

func TestMySQLTablesAreThoseOfTestdata(t *testing.T) {
	dsn := servers.MySQL(t)
	s, err := durable.OpenMySQL(t.Context(), dsn, durable.Options{})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Close())
	compareTables(t, "testdata/tables/mysql.txt", tablesOfMySQL(t, dsn))
}

func TestSQLiteTablesAreThoseOfTestdata(t *testing.T) {
	dir := t.TempDir()
	s, err := durable.OpenSQLite(t.Context(), dir, durable.Options{})
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Close())
	compareTables(t, "testdata/tables/sqlite.txt", tablesOfSQLite(t, filepath.Join(dir, "penstock.db")))
}

// Both files have the same tables, and each table has the same columns.
func TestTheTablesOfBothDialectsHaveTheSameColumns(t *testing.T) {
	name := regexp.MustCompile(`(?m)^(?:\w+|    [a-z]\w*)`)
	var names [2][]string
	for i, file := range []string{"testdata/tables/mysql.txt", "testdata/tables/sqlite.txt"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		names[i] = name.FindAllString(string(text), -1)
	}
	require.Greater(t, len(names[0]), 300)
	require.Equal(t, names[0], names[1])
}

func compareTables(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "after a review of the difference, run the test with -update")
}

// A form is a table in the words of a file.
type form struct {
	strings.Builder
	t  *testing.T
	db *sql.DB
}

// each calls add with the values of each row of a query; NULL is "NULL".
func (f *form) each(add func(v []string), query string, args ...any) {
	rows, err := f.db.QueryContext(f.t.Context(), query, args...)
	require.NoError(f.t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(f.t, err)
	var all [][]string
	for rows.Next() {
		row, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		require.NoError(f.t, rows.Scan(into...))
		texts := make([]string, len(columns))
		for i, v := range row {
			if texts[i] = v.String; !v.Valid {
				texts[i] = "NULL"
			}
		}
		all = append(all, texts)
	}
	require.NoError(f.t, rows.Err())
	for _, row := range all { // after the query, because SQLite may have one connection
		add(row)
	}
}

func (f *form) line(format string, args ...any) {
	f.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " ") + "\n")
}

func (f *form) rows(table string) {
	f.each(func(v []string) { f.line("    ROW %q", v) }, "SELECT * FROM "+table+" ORDER BY 1")
}

// tablesOfMySQL has what MySQL and MariaDB say in the same words: no widths of integers, no parentheses.
func tablesOfMySQL(t *testing.T, dsn string) string {
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	defer db.Close()
	f := &form{t: t, db: db}
	width := regexp.MustCompile(`int\(\d+\)`)
	plain := strings.NewReplacer("`", "", "(", "", ")", "", "_utf8mb4", "", `\`, "")
	f.each(func(table []string) {
		f.line("%s %s %s", table[0], table[1], table[2])
		f.each(func(c []string) {
			fallback := strings.Trim(c[3], "'")
			switch {
			case c[3] == "NULL":
				fallback = ""
			case fallback == "" || fallback == "0x": // MySQL has bytes in hexadecimal
				fallback = " DEFAULT ''"
			default:
				fallback = " DEFAULT " + fallback
			}
			null := map[string]string{"YES": " NULL", "NO": " NOT NULL"}[c[2]]
			collation := map[bool]string{true: " " + c[4]}[c[4] != "NULL"]
			f.line("    %s %s%s%s%s %s", c[0], width.ReplaceAllString(c[1], "int"), collation, null, fallback, c[5])
		}, `SELECT column_name, column_type, is_nullable, column_default, collation_name, extra
FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = ? ORDER BY ordinal_position`, table[0])
		f.each(func(k []string) {
			f.line("    KEY %s%s (%s)", k[0], map[string]string{"0": " UNIQUE"}[k[1]], k[2])
		}, `SELECT index_name, non_unique, GROUP_CONCAT(CONCAT(column_name, COALESCE(sub_part, '')) ORDER BY seq_in_index
SEPARATOR ', ') FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = ?
GROUP BY index_name, non_unique ORDER BY CAST(index_name AS BINARY)`, table[0])
		f.each(func(c []string) {
			f.line("    CHECK %s: %s", c[0], plain.Replace(strings.ToLower(c[1])))
		}, `SELECT c.constraint_name, k.check_clause FROM information_schema.table_constraints c
JOIN information_schema.check_constraints k ON k.constraint_schema = c.constraint_schema
AND k.constraint_name = c.constraint_name WHERE c.table_schema = DATABASE() AND c.table_name = ?
AND c.constraint_type = 'CHECK' ORDER BY c.constraint_name`, table[0])
		f.rows(table[0])
	}, `SELECT table_name, engine, row_format FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name <> 'goose_db_version' ORDER BY CAST(table_name AS BINARY)`)
	return f.String()
}

func tablesOfSQLite(t *testing.T, file string) string {
	db, err := sql.Open("sqlite", file)
	require.NoError(t, err)
	defer db.Close()
	f := &form{t: t, db: db}
	check := regexp.MustCompile(`(\w+) CHECK \((.*?)\),?\s*(?:\n|\)|$)`)
	f.each(func(table []string) {
		f.line("%s%s", table[0], map[string]string{"1": " WITHOUT ROWID"}[table[1]])
		f.each(func(c []string) {
			fallback := map[bool]string{true: " DEFAULT " + c[3]}[c[3] != "NULL"]
			f.line("    %s %s%s%s", c[0], c[1], map[string]string{"0": " NULL", "1": " NOT NULL"}[c[2]], fallback)
		}, `SELECT name, type, "notnull", dflt_value FROM pragma_table_xinfo(?) ORDER BY cid`, table[0])
		f.each(func(k []string) {
			f.line("    KEY PRIMARY UNIQUE (%s)", k[0])
		}, `SELECT GROUP_CONCAT(name, ', ') FROM (SELECT name FROM pragma_table_xinfo(?) WHERE pk > 0 ORDER BY pk)`, table[0])
		f.each(func(k []string) {
			f.line("    KEY %s%s (%s)%s", k[0], map[string]string{"1": " UNIQUE"}[k[1]], k[2],
				map[string]string{"1": " PARTIAL"}[k[3]])
		}, `SELECT name, "unique", (SELECT GROUP_CONCAT(name, ', ') FROM (SELECT x.name FROM pragma_index_xinfo(l.name) x
WHERE x.key = 1 ORDER BY x.seqno)), partial FROM pragma_index_list(?) l WHERE origin <> 'pk' ORDER BY name`, table[0])
		f.each(func(c []string) {
			for _, m := range check.FindAllStringSubmatch(c[0], -1) {
				f.line("    CHECK %s: %s", m[1], strings.ToLower(m[2]))
			}
		}, `SELECT sql FROM sqlite_schema WHERE name = ?`, table[0])
		f.rows(table[0])
	}, `SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table'
AND name NOT LIKE 'sqlite_%' AND name <> 'goose_db_version' ORDER BY name`)
	return f.String()
}
