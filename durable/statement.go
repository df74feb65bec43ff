package durable

import "strings"

// A dialect is one of the two kinds of SQL that the package writes.
type dialect uint8

const (
	mysqlDialect dialect = iota
	sqliteDialect
)

// A statement has a text for each dialect. It is used only where the dialects differ.
type statement struct {
	mysql  string
	sqlite string
}

func (d dialect) sql(s statement) string {
	if d == sqliteDialect {
		return s.sqlite
	}
	return s.mysql
}

// keepFirst is an INSERT that leaves a row alone which is there already. column is any column of the
// table.
func keepFirst(insert, column string) statement {
	return statement{
		mysql:  insert + "\nON DUPLICATE KEY UPDATE " + column + " = " + column,
		sqlite: insert + "\nON CONFLICT DO NOTHING",
	}
}

// ignoring is keepFirst for an INSERT whose result tells whether the row is new.
func ignoring(insert string) statement {
	return statement{
		mysql:  strings.Replace(insert, "INSERT INTO", "INSERT IGNORE INTO", 1),
		sqlite: insert + "\nON CONFLICT DO NOTHING",
	}
}

// replacing is an INSERT that takes the place of a row which is there already: it sets some columns.
func replacing(insert string, names ...string) statement {
	var my, lite []string
	for _, name := range names {
		my = append(my, "\n    "+name+" = VALUES("+name+")")
		lite = append(lite, "\n    "+name+" = excluded."+name)
	}
	return statement{
		mysql:  insert + "\nON DUPLICATE KEY UPDATE" + strings.Join(my, ","),
		sqlite: insert + "\nON CONFLICT DO UPDATE SET" + strings.Join(lite, ","),
	}
}

// copying is an INSERT of the rows of a query that leaves rows alone which are there already.
func copying(table, names, query string) statement {
	into := " INTO " + table + " (" + names + "\n)" + query
	return statement{mysql: "\nINSERT IGNORE" + into, sqlite: "\nINSERT OR IGNORE" + into}
}

// The locks of locking.
const (
	shareLock  = "LOCK IN SHARE MODE"
	updateLock = "FOR UPDATE"
)

// locking is a query that locks its rows on MySQL. SQLite has only one writer.
func locking(query, lock string) statement {
	return statement{mysql: query + "\n" + lock, sqlite: query}
}

// list replaces the only `(?...)` of query by n placeholders, for an IN list whose length is
// known at run time.
func list(query string, n int) string {
	return strings.ReplaceAll(query, "(?...)", "("+strings.Repeat("?, ", n-1)+"?)")
}

// rows replaces the only `(?, ...)` of an INSERT by n rows of placeholders.
func rows(insert string, n int) string {
	row := "(" + strings.Repeat("?, ", width(insert)-1) + "?)"
	return strings.Replace(insert, "(?, ...)", strings.Repeat(row+",\n", n-1)+row, 1)
}

// width returns how many columns an INSERT names.
func width(insert string) int { return 1 + strings.Count(insert[:strings.IndexByte(insert, ')')], ",") }

func deleteOf(table string) string {
	return `
DELETE FROM ` + table + `
WHERE consumer_no = ?`
}
