package durable

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync/atomic"
)

// A boundedConn is a connection to MySQL whose transactions end with their context.
// database/sql has no context for COMMIT and ROLLBACK. Without a boundedConn the driver
// would wait for a stalled server until its read timeout, and every caller that waits for
// the transaction would wait past its deadline.
type boundedConn struct {
	mysqlConn
	live *atomic.Int64 // of its pool
}

// mysqlConn has the interfaces of the driver's connection that database/sql uses.
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

// Close implements driver.Conn. database/sql calls it once.
func (c boundedConn) Close() error {
	c.live.Add(-1)
	return c.mysqlConn.Close()
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

// errCommitCut means that the deadline passed while COMMIT was under way, so the outcome is
// unknown. It does not wrap the error of the context, which means that COMMIT was not sent.
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

// Rollback implements driver.Tx. If the deadline passes first, the connection is closed and
// the server rolls back.
func (t boundedTx) Rollback() error {
	if _, err := t.conn.ExecContext(t.ctx, "ROLLBACK", nil); err != nil {
		t.drop()
		return driver.ErrBadConn
	}
	return nil
}

// drop closes the connection. A transaction may still be open on it, and BEGIN of the next
// user would commit that transaction.
func (t boundedTx) drop() { _ = t.conn.Close() }
