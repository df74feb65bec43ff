package durable

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"
)

// Tap makes the store call hear with the text of each statement that it prepares or sends from now on.
// It comes before the first use of the store. hear is called from several goroutines.
func (s *Store) Tap(hear func(text string)) {
	tapped := map[*sql.DB]*sql.DB{}
	for _, pool := range []**sql.DB{&s.db, &s.reads, &s.inserts} {
		if *pool == nil {
			continue
		}
		if tapped[*pool] == nil {
			conns := (*pool).Stats().MaxOpenConnections
			db := sql.OpenDB(tap{*pool, hear})
			db.SetMaxOpenConns(conns)
			db.SetMaxIdleConns(conns)
			db.SetConnMaxIdleTime(20 * time.Second)
			tapped[*pool] = db
		}
		*pool = tapped[*pool]
	}
}

// Unheard are the statements that the conformance suite does not make a store send: those that open it,
// copy it, or belong to a server with replicas, and rare ones.
var (
	UnheardMySQL = append([]string{setSession, setReadCommitted, selectSession, selectVersion, selectVariables,
		showGrants, selectDatabase, selectRole, selectServerMs, selectSchema, selectHasSchema.mysql,
		selectGroup, upsertProof, selectHasScheduled, selectHasChange, insertClock.mysql, insertMigrationLease,
		takeMigrationLease, endMigrationLease, setSyncWait, createMigrationLease, selectOldTables}, unheard...)
	UnheardSQLite = append([]string{selectSQLiteVersion, vacuumInto, checkBackup, checkWhole, emptyLog, selectSize,
		selectSchema, selectHasSchema.sqlite, insertClock.sqlite}, unheard...)

	unheard = []string{updateIntake, deleteOldReplays, selectSizes, countBlockOwed}
)

// A tap opens connections that are those of another pool.
type tap struct {
	pool *sql.DB
	hear func(text string)
}

func (t tap) Connect(ctx context.Context) (driver.Conn, error) {
	held, err := t.pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	c := tappedConn{held: held, hear: t.hear}
	err = held.Raw(func(conn any) error {
		c.Conn = conn.(driver.Conn)
		return nil
	})
	return c, err
}

func (t tap) Driver() driver.Driver { return t.pool.Driver() }

// Close is called by the pool of the tapped connections.
func (t tap) Close() error { return t.pool.Close() }

// A tappedConn has the connection of the other pool for itself until it is closed.
type tappedConn struct {
	driver.Conn
	held *sql.Conn
	hear func(text string)
}

func (c tappedConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	c.hear(text)
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, text, args)
}

func (c tappedConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	c.hear(text)
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, text, args)
}

func (c tappedConn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	c.hear(text)
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, text)
}

func (c tappedConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
}

func (c tappedConn) Ping(ctx context.Context) error { return c.Conn.(driver.Pinger).Ping(ctx) }

func (c tappedConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c tappedConn) ResetSession(ctx context.Context) error {
	if session, ok := c.Conn.(driver.SessionResetter); ok {
		return session.ResetSession(ctx)
	}
	return nil
}

func (c tappedConn) IsValid() bool {
	session, ok := c.Conn.(driver.Validator)
	return !ok || session.IsValid()
}

// Close closes the connection, which does not go back to its pool.
func (c tappedConn) Close() error {
	_ = c.held.Raw(func(any) error { return driver.ErrBadConn })
	return nil
}
