package durable

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"github.com/go-sql-driver/mysql"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// A verdict is the meaning of an error for the statement or commit that returned it.
type verdict uint8

const (
	failed    verdict = iota // refused, nothing stored; a repetition fails too
	transient                // nothing stored; a repetition may succeed
	unknown                  // stored or not
	bad                      // the server cannot store a value of the statement
	exists                   // a key of the statement is taken
	stale                    // the guard resulted in NULL
)

// classify returns the verdict on err, which COMMIT or a statement that commits by itself has
// returned.
func classify(err error) verdict {
	if full(err) {
		return failed
	}
	var answer *mysql.MySQLError
	if !errors.As(err, &answer) {
		switch {
		case errors.Is(err, driver.ErrBadConn): // the driver sent no byte, or the server refused
			return transient
		case errors.Is(err, mysql.ErrPktTooLarge): // refused before sending
			return bad
		default: // the connection was lost, timed out or was cancelled on the way
			return unknown
		}
	}
	switch answer.Number {
	case 1213, 1205, 1020, 3101: // deadlock, lock wait, record changed, group replication conflict
		return transient
	case 1040, 1203, 1226, 1047: // too many connections, the node of a cluster is not ready
		return transient
	// error during commit, also of Group Replication; shutdown, killed, interrupted
	case 1180, 3100, 1053, 1317, 1927, 1077, 1079, 3024, 1969:
		return unknown
	case 1062: // duplicate key
		return exists
	case 1048: // column cannot be null
		return stale
	// too long, not of the type, out of range, CHECK, packet
	case 1406, 1366, 1264, 1292, 1300, 1365, 3140, 3819, 4025, 1118, 1153, 1301, 1690:
		return bad
	}
	return failed
}

// Full reports whether an error says that the store has no room, or may not be written: nothing is stored.
func Full(err error) bool { return full(err) }

// full reports whether SQLite has no room, or may not write, as beyond a quota (a failed write). The
// last page of a transaction is the one that commits it, so nothing is committed then.
func full(err error) bool {
	var answer *sqlite.Error
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.Code() & 0xff {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY:
		return true
	}
	return answer.Code() == sqlite3.SQLITE_IOERR_WRITE
}

// withoutValues returns an error of a statement in a form that may be logged. Some error
// texts of the server quote values of the statement; only the numbers of those errors are
// kept. Error texts that name only columns and constraints are kept.
func withoutValues(err error) error {
	var answer *mysql.MySQLError
	if !errors.As(err, &answer) {
		return err
	}
	switch answer.Number {
	case 1406, 1264, 1118, 1153, 1301, 3819, 4025: // too long, out of range, row, packet, result, CHECK
		return err
	}
	return fmt.Errorf("error %d (%s) of the MySQL server", answer.Number, answer.SQLState[:])
}

// broken reports whether err means that the connection failed, rather than the statement.
func broken(err error) bool {
	var network net.Error
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network)
}

// Away reports whether an error says that the server cannot be reached, or takes no connection now.
func Away(err error) bool {
	var answer *mysql.MySQLError
	return broken(err) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &answer) && (classify(err) == transient || classify(err) == unknown)
}

// repeatable reports whether a transaction that failed with err before its COMMIT was sent
// may run again. After a failed dial it may not.
func repeatable(err error) bool {
	var answer *mysql.MySQLError
	if errors.As(err, &answer) {
		v := classify(err)
		return v == transient || v == unknown
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return false
	}
	return broken(err)
}

// pause waits before repetition number try: a few milliseconds at first, later up to three
// quarters of a second, with jitter that separates rivals. It returns early with the error
// of ctx.
func pause(ctx context.Context, try int) error {
	longest := 500 * time.Millisecond
	d := min(longest, 4*time.Millisecond<<min(try, 10))
	return wait(ctx, d/2+rand.N(d))
}

// wait sleeps, unless ctx ends before.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// bounded gives ctx a deadline when it has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, patience)
}

// A failure is an error of the store with the name of the call. It is ErrFailed.
type failure struct {
	asked string
	cause error
}

func failedTo(asked string, cause error) error { return &failure{asked, cause} }

func (f *failure) Error() string   { return "durable: " + f.asked + ": " + f.cause.Error() }
func (f *failure) Unwrap() []error { return []error{ErrFailed, f.cause} }

// patience bounds a call whose context has no deadline of its own.
const patience = 30 * time.Second
