//go:build unix

package tables

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/go-sql-driver/mysql"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/test/servers"
)

// MySQL returns the DSN of a database with the tables of a migrated, empty store, on the server
// that the tests of this process share. The database is dropped when the test ends.
func MySQL(tb servers.TB) string {
	tb.Helper()
	dsn := servers.MySQL(tb)
	if err := fill(dsn); err != nil {
		tb.Fatal(err)
	}
	return dsn
}

// fill makes the tables in the empty database of dsn.
func fill(dsn string) error {
	first := false
	script.once.Do(func() {
		first = true
		script.text, script.err = migrated(dsn)
	})
	if first || script.err != nil {
		return script.err
	}
	db, err := open(dsn)
	if err != nil {
		return err
	}
	_, err = db.Exec(script.text)
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("tables: %w", err)
	}
	return nil
}

// script has the statements that make the tables and their rows.
var script struct {
	once sync.Once
	text string
	err  error
}

// migrated migrates the empty database of dsn and returns statements that repeat the result.
func migrated(dsn string) (text string, err error) {
	ctx := context.Background()
	s, err := durable.OpenMySQL(ctx, dsn, durable.Options{})
	if err != nil {
		return "", fmt.Errorf("tables: %w", err)
	}
	if err := errors.Join(s.Migrate(ctx), s.Close()); err != nil {
		return "", fmt.Errorf("tables: %w", err)
	}
	db, err := open(dsn)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return dump(db)
}

// open connects with what a script of several statements needs.
func open(dsn string) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("tables: %w", err)
	}
	cfg.MultiStatements = true
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("tables: %w", err)
	}
	return sql.OpenDB(connector), nil
}

// dump returns the statements that make the tables of db and their rows.
func dump(db *sql.DB) (string, error) {
	names, err := query(db, "SHOW TABLES")
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, name := range names {
		table := name[0].String
		created, err := query(db, "SHOW CREATE TABLE `"+table+"`")
		if err != nil {
			return "", err
		}
		text.WriteString(created[0][1].String + ";\n")
		rows, err := query(db, "SELECT * FROM `"+table+"`")
		if err != nil {
			return "", err
		}
		for _, row := range rows {
			values, err := literals(row)
			if err != nil {
				return "", fmt.Errorf("tables: a row of %s: %w", table, err)
			}
			text.WriteString("INSERT INTO `" + table + "` VALUES (" + values + ");\n")
		}
	}
	return text.String(), nil
}

// plain is text that needs no escaping.
var plain = regexp.MustCompile(`^[\w :.-]*$`)

// literals returns a row as the values of an INSERT. Migrations write only numbers, names and times.
func literals(row []sql.NullString) (string, error) {
	out := make([]string, len(row))
	for i, v := range row {
		switch {
		case !v.Valid:
			out[i] = "NULL"
		case plain.MatchString(v.String):
			out[i] = "'" + v.String + "'"
		default:
			return "", fmt.Errorf("%q needs escaping", v.String)
		}
	}
	return strings.Join(out, ", "), nil
}

// query returns the rows of a query as text.
func query(db *sql.DB, text string) (out [][]sql.NullString, err error) {
	rows, err := db.Query(text)
	if err != nil {
		return nil, fmt.Errorf("tables: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Err(), rows.Close()) }()
	columns, err := rows.Columns()
	if err != nil {
		return nil, fmt.Errorf("tables: %w", err)
	}
	for rows.Next() {
		row := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, fmt.Errorf("tables: %w", err)
		}
		out = append(out, row)
	}
	return out, nil
}
