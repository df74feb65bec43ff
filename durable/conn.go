package durable

import (
	"context"
	"database/sql/driver"
	"errors"
)

// A boundedConn is a connection to MySQL whose transactions end when their
// context does. database/sql has no context for COMMIT and ROLLBACK: the driver
// would wait for a server that stands still until its read timeout, and with it
// everybody who waits for the transaction, long past the deadline.
type boundedConn struct{ mysqlConn }

// mysqlConn is everything that a connection of the driver can do and that
// database/sql looks for.
type mysqlConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// BeginTx implements driver.ConnBeginTx.
func (c boundedConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if _, err := c.mysqlConn.BeginTx(ctx, o); err != nil {
		return nil, err
	}
	return boundedTx{ctx, c.mysqlConn}, nil
}

// A boundedTx is a transaction of a boundedConn.
type boundedTx struct {
	ctx  context.Context // of BeginTx
	conn mysqlConn
}

// errCommitCut says that the deadline came while COMMIT was under way: whether
// the server has got it is not known. It is no error of the context, which
// would mean that COMMIT was not sent.
var errCommitCut = errors.New("the deadline came before COMMIT was answered")

// Commit implements driver.Tx.
func (t boundedTx) Commit() error {
	_, err := t.conn.ExecContext(t.ctx, "COMMIT", nil)
	if err != nil && t.ctx.Err() != nil {
		t.drop()
		return errCommitCut
	}
	return err
}

// Rollback implements driver.Tx. What cannot be rolled back in time is left to
// the server, which does so when the connection closes.
func (t boundedTx) Rollback() error {
	if _, err := t.conn.ExecContext(t.ctx, "ROLLBACK", nil); err != nil {
		t.drop()
		return driver.ErrBadConn
	}
	return nil
}

// drop closes the connection: the transaction may still be open on it, and its
// next user would commit what is left of it by beginning another.
func (t boundedTx) drop() { _ = t.conn.Close() }
