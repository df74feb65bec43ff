package durable

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"
)

// sessions is a connector whose connections have the settings that the statements of this
// package rely on, and obey deadlines in COMMIT. It makes its settings after those of the
// DSN, because a variable has several names there and a value may contain further
// assignments. It then reads the settings back, because a proxy may swallow statements.
type sessions struct {
	driver.Connector
	crowded func()        // the server allows the user no further connection
	live    *atomic.Int64 // connections that are open
}

const (
	// Without strict mode the NULL of a stale guard would be stored as 0. With
	// NO_BACKSLASH_ESCAPES, or with a client character set in which a character can end in
	// a quote, literals would end early.
	//
	// sql_select_limit can cut lists short. completion_type can begin a transaction at the
	// end of another. Without unique_checks InnoDB may store a key twice.
	//
	// The scans of other brokers wait for the locks of a transaction. wait_timeout bounds
	// the time for which a stalled or disconnected broker keeps its locks; it is longer than
	// the idle time of a connection in the pool. lock_wait_timeout bounds the time for which
	// an ALTER TABLE can block statements.
	setSession = `SET
    SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION',
    SESSION time_zone = '+00:00',
    SESSION autocommit = 1,
    SESSION completion_type = 0,
    SESSION unique_checks = 1,
    SESSION sql_safe_updates = 0,
    SESSION sql_select_limit = 18446744073709551615,
    SESSION character_set_client = binary,
    SESSION character_set_connection = binary,
    SESSION character_set_results = binary,
    SESSION innodb_lock_wait_timeout = 5,
    SESSION lock_wait_timeout = 10,
    SESSION wait_timeout = 60`

	// A statement sets it, because the variable has different names in MySQL and MariaDB.
	setReadCommitted = `SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE`

	selectSession = `
SHOW SESSION VARIABLES
WHERE Variable_name IN (
    'sql_mode',
    'time_zone',
    'autocommit',
    'completion_type',
    'unique_checks',
    'sql_log_bin',
    'sql_select_limit',
    'character_set_client',
    'character_set_connection',
    'character_set_results',
    'tx_isolation',
    'transaction_isolation',
    'tx_read_only',
    'transaction_read_only',
    'wsrep_on',
    'wsrep_sync_wait'
)`
)

// Connect implements driver.Connector.
func (c sessions) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		if ofUser(err) {
			c.crowded()
		}
		return nil, err
	}
	bounded := boundedConn{conn.(mysqlConn), c.live}
	c.live.Add(1)
	if err := bounded.prepare(ctx); err != nil {
		return nil, errors.Join(err, bounded.Close())
	}
	return bounded, nil
}

// prepare makes the settings of a new session and verifies them.
func (c boundedConn) prepare(ctx context.Context) error {
	for _, set := range []string{setSession, setReadCommitted} {
		if _, err := c.ExecContext(ctx, set, nil); err != nil {
			return fmt.Errorf("set up the session: %w", err)
		}
	}
	vars, err := c.variables(ctx)
	if err == nil && writesElsewhere(vars) && !syncs(vars) {
		if _, err := c.ExecContext(ctx, setSyncWait, nil); err != nil {
			return fmt.Errorf("set up the session: %w", err)
		}
		vars, err = c.variables(ctx)
	}
	if err != nil {
		return fmt.Errorf("read the settings of the session: %w", err)
	}
	return checkSession(vars)
}

// variables reads the settings of the session.
func (c boundedConn) variables(ctx context.Context) (map[string]string, error) {
	rows, err := c.QueryContext(ctx, selectSession, nil)
	if err != nil {
		return nil, err
	}
	vars, err := variables(rows)
	return vars, errors.Join(err, rows.Close())
}

// variables reads names, in lower case, and values, in upper case.
func variables(rows driver.Rows) (map[string]string, error) {
	vars, row := map[string]string{}, make([]driver.Value, 2)
	for {
		switch err := rows.Next(row); err {
		case nil:
			vars[strings.ToLower(text(row[0]))] = strings.ToUpper(text(row[1]))
		case io.EOF:
			return vars, nil
		default:
			return nil, err
		}
	}
}

func text(v driver.Value) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(v)
}

// A sessionError means that a setting of a session differs from the one that was made.
type sessionError struct{ name, value, want string }

func (e *sessionError) Error() string {
	return fmt.Sprintf("the session of MySQL has %s %q where the broker needs %s, although it has set that: look at "+
		"the parameters of the DSN, and at a proxy before the server",
		e.name, e.value, e.want)
}

// checkSession returns an error if a setting of a session differs from the one that was made.
// It ignores variables that the server does not have.
func checkSession(vars map[string]string) error {
	for _, v := range [][]string{
		{"time_zone", "+00:00"},
		{"autocommit", "ON", "1"},
		{"completion_type", "NO_CHAIN", "0"},
		{"unique_checks", "ON", "1"},
		{"sql_log_bin", "ON", "1"}, // otherwise replicas lack messages that were acknowledged
		{"sql_select_limit", "18446744073709551615"},
		{"character_set_client", "BINARY"},
		{"character_set_connection", "BINARY"},
		{"character_set_results", "BINARY", ""}, // none: as it is stored
		{"tx_isolation", "READ-COMMITTED"},
		{"transaction_isolation", "READ-COMMITTED"},
		{"tx_read_only", "OFF", "0"},
		{"transaction_read_only", "OFF", "0"},
	} {
		name, want := v[0], v[1:]
		value, known := vars[name]
		if !known {
			continue
		}
		if !slices.Contains(want, value) {
			return &sessionError{name, value, want[0]}
		}
	}
	if writesElsewhere(vars) && !syncs(vars) {
		return &sessionError{"wsrep_sync_wait", vars["wsrep_sync_wait"], strconv.Itoa(syncWait)}
	}
	modes := strings.Split(vars["sql_mode"], ",")
	if !slices.Contains(modes, "STRICT_TRANS_TABLES") && !slices.Contains(modes, "STRICT_ALL_TABLES") {
		return &sessionError{"sql_mode", vars["sql_mode"], "STRICT_TRANS_TABLES"}
	}
	for _, mode := range []string{"NO_BACKSLASH_ESCAPES", "PIPES_AS_CONCAT", "HIGH_NOT_PRECEDENCE", "ORACLE", "MSSQL"} {
		if slices.Contains(modes, mode) {
			return &sessionError{"sql_mode", vars["sql_mode"], "none of " + mode}
		}
	}
	return nil
}

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

// ofUser reports whether the user, not the server, has as many connections as are allowed. Others
// would take at once what is given up of the server's.
func ofUser(err error) bool {
	var answer *mysql.MySQLError
	return errors.As(err, &answer) && (answer.Number == 1203 || answer.Number == 1226)
}
