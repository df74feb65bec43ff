package durable

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The columns of a table are listed once, beside the fields of its row, in the method columns of the
// row. The texts of statements have their names from that list, when the package is initialised; the
// arguments and the destinations of a statement are the fields of a row in the same order. The
// statements that result are in testdata, where a review reads them whole.
//
// The inserts of messages and outcomes have lists of their own, because a broker runs them for every
// message: see insert_text.go, insert_sqlite.go and outcome.go.

// A column is a column of a table, or an expression of a SELECT, with the field that has its value. The
// field is both the destination of Scan and the argument of a statement: a pointer, or one of the types
// below where a value is stored in another form.
type column struct {
	name  string
	field any
}

// columns are some columns of a row, in the order of a statement.
type columns []column

// names are the names for SELECT and INSERT, one in a line.
func (c columns) names() string { return c.lines(func(name string) string { return name }) }

// sets are the assignments of an UPDATE.
func (c columns) sets() string { return c.lines(func(name string) string { return name + " = ?" }) }

func (c columns) lines(of func(name string) string) string {
	lines := make([]string, len(c))
	for i, one := range c {
		lines[i] = "\n    " + of(one.name)
	}
	return strings.Join(lines, ",")
}

// insert is an INSERT of one row, and inserts one of several: see rows.
func (c columns) insert(table string) string { return rows(c.inserts(table), 1) }

func (c columns) inserts(table string) string {
	return "\nINSERT INTO " + table + " (" + c.names() + "\n)\nVALUES (?, ...)"
}

// of returns the columns with the name of their table before them.
func (c columns) of(table string) columns {
	for i := range c {
		c[i].name = table + "." + c[i].name
	}
	return c
}

// fields are the destinations of Scan, or the arguments of a statement.
func (c columns) fields() []any {
	fields := make([]any, len(c))
	for i := range c {
		fields[i] = c[i].field
	}
	return fields
}

// only returns the columns with some names, in the order of the names.
func (c columns) only(names ...string) columns {
	out := make(columns, len(names))
	at := 0 // the names usually have the order of the list
	for i, name := range names {
		for tried := 0; c[at].name != name; tried++ {
			if tried == len(c) {
				panic("durable: no column " + name) // before main, where the texts of the statements are made
			}
			at = (at + 1) % len(c)
		}
		out[i] = c[at]
	}
	return out
}

// A rowOf is a pointer to a row that lists its columns.
type rowOf[T any] interface {
	*T
	columns() columns
}

// selectAll returns the rows of a query that selects the columns of T.
func selectAll[T any, P rowOf[T]](ctx context.Context, q querier, query string, args ...any) ([]T, error) {
	return selectOf(ctx, q, func(row *T) columns { return P(row).columns() }, query, args...)
}

// selectOf is selectAll for a query that selects other columns of T.
func selectOf[T any](ctx context.Context, q querier, of func(*T) columns, query string, args ...any) (out []T,
	err error) {
	err = eachOf(ctx, q, of, query, args, func(row *T) { out = append(out, *row) })
	return out, err
}

// eachOf calls f for every row of a query. f must not keep the row, whose fields are those of all rows.
func eachOf[T any](ctx context.Context, q querier, of func(*T) columns, query string, args []any,
	f func(row *T)) error {
	var row, empty T
	fields := of(&row).fields()
	return each(ctx, q, query, args, func(r *sql.Rows) error {
		row = empty
		if err := r.Scan(fields...); err != nil {
			return err
		}
		if err := unseal(ctx, &row); err != nil {
			return err
		}
		f(&row)
		return nil
	})
}

// selectOne returns the row of a query that selects the columns of T. sql.ErrNoRows: there is none.
func selectOne[T any, P rowOf[T]](ctx context.Context, q querier, query string, args ...any) (row T, err error) {
	if err = q.QueryRowContext(ctx, query, args...).Scan(P(&row).columns().fields()...); err == nil {
		err = unseal(ctx, &row)
	}
	return row, err
}

// readAll is selectAll outside of a transaction, with the repetitions of repeat.
func readAll[T any, P rowOf[T]](ctx context.Context, s *Store, name, query string, args ...any) (out []T, err error) {
	return readOf(ctx, s, name, func(row *T) columns { return P(row).columns() }, query, args...)
}

// readOf is readAll for a query that selects other columns of T.
func readOf[T any](ctx context.Context, s *Store, name string, of func(*T) columns, query string, args ...any) (out []T,
	err error) {
	err = repeat(s.withKeys(ctx), name, func(ctx context.Context) (err error) {
		out, err = selectOf(ctx, s.reads, of, query, args...)
		return err
	})
	return out, err
}

// pointersTo returns pointers to rows, each of which can be kept without the others.
func pointersTo[T any](rows []T) []*T {
	var out []*T
	for _, row := range rows {
		out = append(out, &row)
	}
	return out
}

// asBytes is text in a column of bytes.
type asBytes struct{ *string }

// Scan implements sql.Scanner. NULL is the empty text.
func (d asBytes) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*d.string = ""
	case []byte:
		*d.string = string(v)
	case string:
		*d.string = v
	default:
		return fmt.Errorf("stored bytes are %T", v)
	}
	return nil
}

// Value implements driver.Valuer.
func (d asBytes) Value() (driver.Value, error) { return []byte(*d.string), nil }

// asOptional is text in a column of bytes, or NULL for the empty text.
type asOptional struct{ *string }

// Scan implements sql.Scanner.
func (d asOptional) Scan(v any) error { return asBytes(d).Scan(v) }

// Value implements driver.Valuer.
func (d asOptional) Value() (driver.Value, error) {
	if *d.string == "" {
		return nil, nil
	}
	return []byte(*d.string), nil
}

// asNote is an error text, which is cut where it is stored.
type asNote struct{ *string }

// Scan implements sql.Scanner.
func (d asNote) Scan(v any) error { return asBytes(d).Scan(v) }

// Value implements driver.Valuer.
func (d asNote) Value() (driver.Value, error) { return note(*d.string), nil }

// asBlob is bytes in a column that is never NULL, as nil would be.
type asBlob struct{ b *[]byte }

// Scan implements sql.Scanner.
func (d asBlob) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*d.b = nil
	case []byte:
		*d.b = bytes.Clone(v)
	case string:
		*d.b = []byte(v)
	default:
		return fmt.Errorf("stored bytes are %T", v)
	}
	return nil
}

// Value implements driver.Valuer.
func (d asBlob) Value() (driver.Value, error) { return blob(*d.b), nil }

// asFixed is a slice of an array in a column of that many bytes.
type asFixed []byte

// Scan implements sql.Scanner. What a person wrote there may be shorter.
func (d asFixed) Scan(v any) error {
	clear(d)
	switch v := v.(type) {
	case []byte:
		copy(d, v)
	case string:
		copy(d, v)
	default:
		return fmt.Errorf("stored bytes are %T", v)
	}
	return nil
}

// Value implements driver.Valuer.
func (d asFixed) Value() (driver.Value, error) { return []byte(d), nil }

// asID is an ID.
type asID struct{ *ident.ID }

// Scan implements sql.Scanner.
func (d asID) Scan(v any) error {
	b, ok := v.([]byte)
	if !ok || len(b) != ident.Size {
		return fmt.Errorf("stored ID is %T of %d bytes", v, len(b))
	}
	copy(d.ID[:], b)
	return nil
}

// Value implements driver.Valuer.
func (d asID) Value() (driver.Value, error) { return d.ID[:], nil }

// asOptionalID is an ID, or NULL for the zero ID.
type asOptionalID struct{ *ident.ID }

// Scan implements sql.Scanner.
func (d asOptionalID) Scan(v any) error {
	if v == nil {
		*d.ID = ident.ID{}
		return nil
	}
	return asID(d).Scan(v)
}

// Value implements driver.Valuer.
func (d asOptionalID) Value() (driver.Value, error) {
	if d.IsZero() {
		return nil, nil
	}
	return d.ID[:], nil
}

// asMillis is a time in a column of Unix milliseconds.
type asMillis struct{ *time.Time }

// Scan implements sql.Scanner.
func (d asMillis) Scan(v any) error {
	var ms sql.NullInt64
	err := ms.Scan(v)
	*d.Time = fromMillis(ms.Int64)
	return err
}

// Value implements driver.Valuer.
func (d asMillis) Value() (driver.Value, error) { return d.UnixMilli(), nil }

func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// selectIDs returns the IDs of a query with one column.
func selectIDs(ctx context.Context, q querier, query string, args []any) (ids []ident.ID, err error) {
	err = each(ctx, q, query, args, func(r *sql.Rows) error {
		var id ident.ID
		err := r.Scan(asID{&id})
		ids = append(ids, id)
		return err
	})
	return ids, err
}
