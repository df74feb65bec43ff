package mysqlengine

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sqle "github.com/dolthub/go-mysql-server"
	"github.com/dolthub/go-mysql-server/memory"
	"github.com/dolthub/go-mysql-server/server"
	engine "github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/analyzer"
	"github.com/dolthub/vitess/go/mysql"
	"github.com/dolthub/vitess/go/sqltypes"
	_ "github.com/go-sql-driver/mysql" // the driver
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// A node is a server of this process, with databases that end with it.
type node struct {
	address   string
	databases atomic.Int64
}

// prepared sets what all servers of this process share.
var prepared = sync.OnceValue(func() error {
	logrus.SetLevel(logrus.PanicLevel)
	analyzer.ExternalFunctionProvider = functions{}
	// This server has it off, and a store refuses a session whose writes are not logged.
	return engine.SystemVariables.AssignValues(map[string]any{"sql_log_bin": int8(1)})
})

// start starts a server that ends with the test.
func start(t *testing.T) *node {
	t.Helper()
	require.NoError(t, prepared())
	databases := memory.NewDBProvider()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, err := server.NewServerWithHandler(server.Config{Listener: listener}, sqle.NewDefault(databases),
		engine.NewContext, memory.NewSessionBuilder(databases), nil, newTurns)
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() { _ = s.Start() })
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		running.Wait()
	})
	return &node{address: listener.Addr().String()}
}

// database makes an empty database.
func (n *node) database(t *testing.T) (dsn string) {
	t.Helper()
	db, err := sql.Open("mysql", "root@tcp("+n.address+")/")
	require.NoError(t, err)
	name := fmt.Sprintf("d%d", n.databases.Add(1))
	_, err = db.ExecContext(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	return "root@tcp(" + n.address + ")/" + name + "?readTimeout=10m&writeTimeout=10m"
}

// migrate makes the tables of a store in an empty database.
func (n *node) migrate(t *testing.T, dsn string) *durable.Store {
	t.Helper()
	s, err := durable.OpenMySQL(t.Context(), dsn, durable.Options{MaxConns: 8})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	return s
}

// store opens a migrated, empty store.
func (n *node) store(t *testing.T) *durable.Store {
	t.Helper()
	return n.migrate(t, n.database(t))
}

// turns let the connections of a database work one after the other: a transaction of this server, or a statement
// without one, writes back all tables that it read, as it read them. What waits longer than a server would gets the
// error of a lock wait.
type turns struct {
	mysql.Handler
	mu    sync.Mutex
	names map[*mysql.Conn]string        // of the databases
	turn  map[string]chan struct{}      // of a database; full while a connection has its turn
	held  map[*mysql.Conn]chan struct{} // by connections that are in a transaction
}

// lockWait is longer than the innodb_lock_wait_timeout of a store: here the wait is for whole transactions.
const lockWait = time.Minute

func newTurns(h mysql.Handler) (mysql.Handler, error) {
	return &turns{Handler: h, names: map[*mysql.Conn]string{}, turn: map[string]chan struct{}{},
		held: map[*mysql.Conn]chan struct{}{}}, nil
}

// ComInitDB implements mysql.Handler.
func (h *turns) ComInitDB(c *mysql.Conn, name string) error {
	h.mu.Lock()
	h.names[c] = name
	if h.turn[name] == nil {
		h.turn[name] = make(chan struct{}, 1)
	}
	h.mu.Unlock()
	return h.Handler.ComInitDB(c, name)
}

// ConnectionClosed implements mysql.Handler.
func (h *turns) ConnectionClosed(c *mysql.Conn) {
	h.Handler.ConnectionClosed(c)
	h.mu.Lock()
	defer h.mu.Unlock()
	if turn := h.held[c]; turn != nil {
		<-turn
	}
	delete(h.held, c)
	delete(h.names, c)
}

// ComQuery implements mysql.Handler.
func (h *turns) ComQuery(ctx context.Context, c *mysql.Conn, text string, answer mysql.ResultSpoolFn) error {
	return h.take(ctx, c, text, func() error { return h.Handler.ComQuery(ctx, c, rewritten(text), answer) })
}

// ComMultiQuery implements mysql.Handler. This server would go on after a statement that failed; MySQL does not.
func (h *turns) ComMultiQuery(ctx context.Context, c *mysql.Conn, text string, answer mysql.ResultSpoolFn) (
	rest string, err error) {
	err = h.take(ctx, c, text, func() error {
		rest, err = h.Handler.ComMultiQuery(ctx, c, rewritten(text), answer)
		return err
	})
	if err != nil {
		return "", err
	}
	return rest, nil
}

// take runs a statement when it is the turn of its connection.
func (h *turns) take(ctx context.Context, c *mysql.Conn, text string, run func() error) error {
	h.mu.Lock()
	turn, has := h.turn[h.names[c]], h.held[c] != nil
	h.mu.Unlock()
	if turn == nil || namedLock.MatchString(text) {
		return run()
	}
	if !has {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockWait):
			return mysql.NewSQLError(mysql.ERLockWaitTimeout, mysql.SSUnknownSQLState, "lock wait timeout")
		}
	}
	err := run()
	if err != nil && !has { // this server would go on with the tables as the statement read them
		if e := h.Handler.ComQuery(ctx, c, "ROLLBACK", func(*sqltypes.Result, bool) error { return nil }); e != nil {
			err = e
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.StatusFlags&uint16(mysql.ServerInTransaction) != 0 {
		h.held[c] = turn
		return err
	}
	delete(h.held, c)
	<-turn
	return err
}

func TestTheServerSaysThatItIsMySQL8(t *testing.T) {
	s := start(t).store(t)
	require.Regexp(t, `^MySQL 8\.0\.\d+$`, s.Describe())
}
