package durable

import (
	"context"
	"database/sql"
	"errors"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A querier is a pool, a connection or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// exec runs a statement of which nothing but an error is of interest.
func exec(ctx context.Context, q querier, query string, args ...any) error {
	_, err := q.ExecContext(ctx, query, args...)
	return err
}

// each calls f for every row. If it cannot read all rows, it returns an error.
func each(ctx context.Context, q querier, query string, args []any, f func(*sql.Rows) error) (err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// insertRows runs an INSERT of rows(insert, n), whose arguments are those of all rows.
func insertRows(ctx context.Context, q querier, insert string, args []any) error {
	return exec(ctx, q, rows(insert, len(args)/width(insert)), args...)
}

// chunks cuts v into pieces of at most n.
func chunks[T any](v []T, n int) [][]T {
	var out [][]T
	for len(v) > n {
		out = append(out, v[:n:n])
		v = v[n:]
	}
	if len(v) > 0 {
		out = append(out, v)
	}
	return out
}

// inArgs returns the arguments of a statement with an IN list of IDs.
func inArgs(first any, ids []ident.ID) []any {
	args := make([]any, 0, 1+len(ids))
	args = append(args, first)
	for i := range ids {
		args = append(args, ids[i][:])
	}
	return args
}

// blob returns b as an argument that is never NULL, as nil would be.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// A transaction that fails before its COMMIT is repeated until its context ends.
type transaction struct {
	name     string
	options  *sql.TxOptions
	reads    bool // on the read pool
	harmless bool // may run twice, so it is repeated even if the outcome of COMMIT is unknown
}

// run executes f in a transaction and commits it. After a deadlock, a lock wait timeout or a
// broken connection it repeats f, until ctx ends. f must not keep results of a failed run.
// If COMMIT gets no answer, run returns ErrOutcomeUnknown, unless t is harmless and a repeat succeeds. With a
// deed in the context the transaction ends with its entry in the audit log.
func (s *Store) run(ctx context.Context, t transaction, f func(ctx context.Context, tx *sql.Tx) error) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	ctx = s.withKeys(ctx)
	f, done := s.audited(ctx, t, f)
	err := errPanicked
	defer func() { done(err) }()
	err = s.runAgain(ctx, t, f)
	return err
}

// errPanicked is what becomes of a transaction that panics: nothing of it is committed.
var errPanicked = errors.New("durable: the transaction panicked")

func (s *Store) runAgain(ctx context.Context, t transaction, f func(ctx context.Context, tx *sql.Tx) error) error {
	db := s.db
	if t.reads {
		db = s.reads
	}
	uncertain := false // a COMMIT had no answer, and no later one had
	for try := 0; ; try++ {
		unanswered, err := runOnce(ctx, db, t.options, f)
		if err == nil {
			return nil
		}
		uncertain = uncertain || unanswered
		again := repeatable(err) && (!uncertain || t.harmless)
		if again && pause(ctx, try) == nil {
			continue
		}
		if uncertain {
			err = errors.Join(ErrOutcomeUnknown, err)
		}
		return failedTo(t.name, err)
	}
}

func runOnce(ctx context.Context, db *sql.DB, o *sql.TxOptions, f func(ctx context.Context,
	tx *sql.Tx) error) (uncertain bool, err error) {
	tx, err := db.BeginTx(ctx, o)
	if err != nil {
		return false, err
	}
	if err := f(ctx, tx); err != nil {
		_ = tx.Rollback() // the error of f is the cause; the server rolls back a lost connection
		return false, err
	}
	if err := tx.Commit(); err != nil {
		// database/sql does not send a COMMIT after the end of the context.
		sent := !errors.Is(err, sql.ErrTxDone) && !errors.Is(err, context.Canceled) &&
			!errors.Is(err, context.DeadlineExceeded)
		return sent && classify(err) == unknown, err
	}
	return false, nil
}

// repeat runs one statement with the repetitions of run. The statement reads, or it commits by
// itself and may run twice.
func repeat(ctx context.Context, name string, f func(ctx context.Context) error) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	for try := 0; ; try++ {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if repeatable(err) && pause(ctx, try) == nil {
			continue
		}
		return failedTo(name, err)
	}
}

func orNotFound(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	return err
}

// orNothing returns an error that is not the absence of a row.
func orNothing(err error) error {
	if orNotFound(err) == ErrNotFound {
		return nil
	}
	return err
}

func bytesOf(id ident.ID) []byte { return id[:] }

// maxInList bounds the IDs of one statement. Longer lists take several statements.
const maxInList = 500

func idArgs(ids []ident.ID) []any {
	args := make([]any, len(ids))
	for i := range ids {
		args[i] = ids[i][:]
	}
	return args
}

// orNull returns the argument for a column. A driver.Valuer would cost an allocation for each row.
func orNull(n sql.NullInt64) any {
	if !n.Valid {
		return nil
	}
	return n.Int64
}
