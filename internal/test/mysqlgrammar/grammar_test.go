package mysqlgrammar

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"vitess.io/vitess/go/vt/sqlparser"
)

const durable = "../../../durable/"

// parser reads as MySQL of the oldest release that a broker starts on, so that what later ones have is refused.
func parser(t *testing.T) *sqlparser.Parser {
	t.Helper()
	p, err := sqlparser.New(sqlparser.Options{MySQLServerVersion: "8.0.30"})
	require.NoError(t, err)
	return p
}

// reserved are words that MySQL 8 to 8.4 reserve and the grammar of Vitess takes as names.
var reserved = []string{"cume_dist", "dense_rank", "empty", "except", "first_value", "function", "grouping", "groups",
	"intersect", "json_table", "lag", "last_value", "lateral", "lead", "manual", "nth_value", "ntile", "of", "over",
	"parallel", "percent_rank", "qualify", "rank", "row_number", "rows", "system", "tablesample", "window"}

// functions are those of MySQL 8 that the store calls by names for which the grammar has no rule: to it any name is a
// function. Whoever calls another one looks it up in the manual of MySQL first.
var functions = []string{"coalesce", "concat", "current_role", "current_user", "database", "greatest", "hex", "if",
	"instr", "least", "left", "length", "lpad", "replace", "sha1", "unhex", "unix_timestamp", "version"}

// refusal reports why MySQL 8 does not take a statement; nil: it does.
func refusal(p *sqlparser.Parser, statement string) error {
	parsed, err := p.ParseStrictDDL(statement)
	if err != nil {
		return err
	}
	return sqlparser.Walk(func(node sqlparser.SQLNode) (bool, error) {
		name := ""
		switch n := node.(type) {
		case *sqlparser.FuncExpr:
			if name = n.Name.Lowered(); !slices.Contains(functions, name) {
				return false, fmt.Errorf("the function %s is not known to be one of MySQL", name)
			}
		case sqlparser.IdentifierCI:
			name = n.Lowered()
		case sqlparser.IdentifierCS:
			name = strings.ToLower(n.String())
		}
		if slices.Contains(reserved, name) {
			return false, fmt.Errorf("MySQL reserves the word %s", name)
		}
		return true, nil
	}, parsed)
}

// statements returns those of the golden file of durable, with a list of two where a list is of any length.
func statements(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile(durable + "testdata/mysql.sql")
	require.NoError(t, err)
	for statement := range strings.SplitSeq(strings.TrimSuffix(string(text), ";\n\n"), ";\n\n") {
		statement = strings.ReplaceAll(statement, "(?...)", "(?, ?)")
		if strings.HasPrefix(statement, "SET\n") {
			// The grammar of Vitess lacks this word as a value of SET, which that of MySQL has.
			statement = strings.ReplaceAll(statement, "= binary", "= 'binary'")
		}
		all = append(all, statement)
	}
	require.Greater(t, len(all), 300)
	return all
}

func TestMySQLReadsEachStatementOfTheStore(t *testing.T) {
	p := parser(t)
	for _, statement := range statements(t) {
		if err := refusal(p, statement); err != nil {
			t.Errorf("%v\n%s", err, statement)
		}
	}
}

func TestMySQLReadsEachMigration(t *testing.T) {
	p := parser(t)
	files, err := filepath.Glob(durable + "migrations/mysql/*.sql")
	require.NoError(t, err)
	statements := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all, err := p.SplitStatementToPieces(string(text))
		require.NoError(t, err, file)
		require.NotEmpty(t, all, file)
		statements += len(all)
		for _, statement := range all {
			if err := refusal(p, statement); err != nil {
				t.Errorf("%s: %v\n%s", filepath.Base(file), err, statement)
			}
		}
	}
	require.Greater(t, statements, 50)
}

// What MariaDB, or SQLite, takes and MySQL does not; one of it is also planted into statements of the store.
func TestWhatOnlyMariaDBReadsIsRefused(t *testing.T) {
	p := parser(t)
	for _, statement := range []string{
		"INSERT INTO a (b) VALUES (?) RETURNING b",
		"REPLACE INTO a (b) VALUES (?) RETURNING b",
		"DELETE FROM a WHERE b = ? RETURNING b",
		"SELECT a FROM b ORDER BY a OFFSET 1 ROWS FETCH NEXT 2 ROWS ONLY",
		"SELECT a FROM b LIMIT 1 ROWS EXAMINED 5",
		"SELECT a FROM b FOR UPDATE WAIT 5",
		"SELECT a FROM b FOR SYSTEM_TIME ALL",
		"SELECT NEXTVAL(s)",
		"SELECT a AS `rank` FROM b",
		"SELECT a AS groups FROM b",
		"SET STATEMENT max_statement_time=1 FOR SELECT 1",
		"CREATE SEQUENCE s",
		"CREATE OR REPLACE TABLE a (b INT)",
		"CREATE TABLE a (b UUID)",
		"CREATE TABLE a (b VARCHAR(10) COMPRESSED)",
		"CREATE INDEX IF NOT EXISTS i ON a (b)",
		"ALTER TABLE a ADD COLUMN IF NOT EXISTS b INT",
		"ALTER TABLE a DROP COLUMN IF EXISTS b",
		"INSERT INTO a (b) VALUES (?) ON CONFLICT DO NOTHING", // SQLite
	} {
		require.Error(t, refusal(p, statement), statement)
	}
	planted := 0
	for _, statement := range statements(t) {
		if strings.HasPrefix(statement, "INSERT ") || strings.HasPrefix(statement, "DELETE ") {
			require.Error(t, refusal(p, statement+"\nRETURNING id"), statement)
			planted++
		}
	}
	require.Greater(t, planted, 100)
}
