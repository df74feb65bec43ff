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
)

// A verdict says what an error of a statement or commit means for what was sent.
type verdict uint8

const (
	failed    verdict = iota // answered, nothing stored, no use to try again
	transient                // nothing stored, the same statement may work next time
	unknown                  // stored or not: only the server can tell
	bad                      // a value in it can never be stored
	exists                   // a key in it is taken
	stale                    // the guard made a NULL
)

// judge tells what err, returned by the execution of a statement that commits
// by itself, or by COMMIT, means.
func judge(err error) verdict {
	var answer *mysql.MySQLError
	if !errors.As(err, &answer) {
		switch {
		case errors.Is(err, driver.ErrBadConn): // the driver returns it only when no byte has left, or the server refused
			return transient
		case errors.Is(err, mysql.ErrPktTooLarge): // refused before sending
			return bad
		default: // connection lost, timed out or cancelled underway
			return unknown
		}
	}
	switch answer.Number {
	case 1213, 1205, 1020, 3101: // deadlock, lock wait, record changed, group replication conflict
		return transient
	case 1040, 1203, 1226: // too many connections
		return transient
	case 1180, 1053, 1317, 1927, 1077, 1079, 3024, 1969: // error during commit, shutdown, killed, interrupted
		return unknown
	case 1062: // duplicate key
		return exists
	case 1048: // column cannot be null
		return stale
	case 1406, 1366, 1264, 1292, 1300, 1365, 3140, 3819, 4025, 1118, 1153, 1301, 1690: // too long, not of the type, out of range, CHECK, packet
		return bad
	}
	return failed
}

// withoutValues is an error of a statement as it may be logged: the text of some of
// the server's errors quotes what the statement held. Those that only name columns
// and constraints stay as they are.
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

// broken reports whether err says that the connection, not the statement, failed.
func broken(err error) bool {
	var network net.Error
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network)
}

// repeatable reports whether a transaction that failed with err before its
// COMMIT was sent may run again. A server that cannot be dialled is not tried again.
func repeatable(err error) bool {
	var answer *mysql.MySQLError
	if errors.As(err, &answer) {
		v := judge(err)
		return v == transient || v == unknown
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return false
	}
	return broken(err)
}

// pause waits before the try-th repetition: a few milliseconds at first, up to
// half a second, with jitter so that rivals part. It returns early with the
// error of ctx.
func pause(ctx context.Context, try int) error {
	longest := 500 * time.Millisecond
	d := min(longest, 4*time.Millisecond<<min(try, 10))
	t := time.NewTimer(d/2 + rand.N(d))
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

// A failure is an error of the store with what it was asked. It is ErrFailed.
type failure struct {
	asked string
	cause error
}

func failedTo(asked string, cause error) error { return &failure{asked, cause} }

func (f *failure) Error() string   { return "durable: " + f.asked + ": " + f.cause.Error() }
func (f *failure) Unwrap() []error { return []error{ErrFailed, f.cause} }
