package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/servers"
)

// envStop makes the long stop of MySQL longer than a test run should wait.
const envStop = "PENSTOCK_FAULT_STOP" // duration; default 8s

// A mysqlFault is a broker on a MySQL and a Redis of its own.
type mysqlFault struct {
	*world
	dsn   string // of the broker's user, who has no privileges beyond his database
	user  string
	admin *sql.DB
	p     *process
}

func startMySQLFault(t *testing.T, serverArgs ...string) *mysqlFault {
	return faultOn(t, servers.StartMySQL(t, serverArgs...))
}

func faultOn(t *testing.T, mysql *servers.MySQLServer) *mysqlFault {
	const user = "penstock"
	redis := servers.StartRedis(t)
	f := &mysqlFault{dsn: mysql.UserDSN(user), user: user}
	f.world = &world{t: t, redis: redis, mysql: mysql, env: []string{"BROKER_MYSQL_DSN=" + f.dsn, "BROKER_REDIS_URL=" +
		redis.URL(),
		"BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=10s"}}
	var err error
	f.admin, err = sql.Open("mysql", mysql.RootDSN())
	require.NoError(t, err)
	f.admin.SetMaxOpenConns(1) // one that is never given up to the fault
	t.Cleanup(func() { require.NoError(t, f.admin.Close()) })
	f.p = f.start()
	return f
}

// exec runs a statement as the administrator.
func (f *mysqlFault) exec(t *testing.T, statement string) {
	t.Helper()
	_, err := f.admin.Exec(statement)
	require.NoError(t, err, statement)
}

// load begins a story: a channel with a push consumer and steady producers.
func (f *mysqlFault) load(t *testing.T, producers int) (*steady, *sink) {
	t.Helper()
	sink := newSink(t, nil)
	l := startSteady(f.p.stage(t, "k="+sink.URL), producers, only(f.p))
	l.progress(20)
	return l, sink
}

// requireWhole ends a story: it goes on without a hand, nothing is lost, nothing
// is there twice, and everything is delivered once, for the broker never died.
func (f *mysqlFault) requireWhole(t *testing.T, l *steady, sink *sink, healed time.Time) {
	t.Helper()
	recovery := l.recovery(healed)
	l.progress(50)
	sum := l.finish()
	l.requireAllOf(f.dsn, sink, 0)
	t.Logf("%d acknowledged, %d refused, slowest answer %v, first 201 after %v", sum.acked, sum.refused,
		sum.slowest.Round(time.Millisecond), recovery.Round(time.Millisecond))
	require.Less(t, recovery, answerWithin)
}

// kill ends every connection of the broker, one by one, and returns how many.
func (f *mysqlFault) kill(t *testing.T) (n int) {
	t.Helper()
	rows, err := f.admin.Query("SELECT id FROM information_schema.processlist WHERE user = ?", f.user)
	require.NoError(t, err)
	var ids []int64
	for rows.Next() {
		var id int64
		require.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())
	for _, id := range ids {
		if _, err := f.admin.Exec(fmt.Sprint("KILL ", id)); err == nil { // else it was quicker
			n++
		}
	}
	return n
}

// The answer to a producer is 201 and stored, or 503, within five seconds,
// whatever MySQL does, and afterwards everything goes on by itself.
func TestMySQLFaults(t *testing.T) {
	parallel(t)
	f := startMySQLFault(t)
	// One after the other: each is a fault of the whole server.
	t.Run("tables are locked", func(t *testing.T) {
		f.holding(t, "LOCK TABLES %[1]s.messages WRITE, %[1]s.message_keys WRITE", "UNLOCK TABLES")
	})
	t.Run("the rows of the nodes are locked until every lease has ended", func(t *testing.T) {
		f.holding(t, "SELECT no FROM %s.nodes FOR UPDATE", "ROLLBACK")
	})
	t.Run("the rows of the channels are locked", func(t *testing.T) {
		f.holding(t, "SELECT no FROM %s.channels FOR UPDATE", "ROLLBACK")
	})
	t.Run("the primary is read-only for a while", f.readOnly)
	t.Run("connections are killed all the time", f.killed)
	t.Run("others take all connections", f.exhausted)
	t.Run("the user may have two connections only", f.twoConnections)
	t.Run("the server stops and goes on many times a second", f.hiccups)
}

// holding lets another session hold locks that the broker needs until a producer
// is refused, which takes longer than the lease of a node number.
func (f *mysqlFault) holding(t *testing.T, lock, unlock string) {
	l, sink := f.load(t, 4)
	conn, err := f.admin.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	exec := func(statement string) {
		_, err := conn.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	exec("START TRANSACTION")
	exec(fmt.Sprintf(lock, f.database(t)))
	l.awaitRefusal(time.Now())
	exec(unlock)
	f.requireWhole(t, l, sink, time.Now())
}

// database is the name of the broker's database.
func (f *mysqlFault) database(t *testing.T) (name string) {
	t.Helper()
	db, err := sql.Open("mysql", f.dsn)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.QueryRow("SELECT DATABASE()").Scan(&name))
	return name
}

func (f *mysqlFault) readOnly(t *testing.T) {
	l, sink := f.load(t, 4)
	f.exec(t, "SET GLOBAL read_only = 1")
	begun := time.Now() // every commit before it is over
	l.awaitRefusal(begun)
	for _, a := range l.since(begun) {
		require.NotEqual(t, 201, a.status, "nothing can be stored")
	}
	f.exec(t, "SET GLOBAL read_only = 0")
	f.requireWhole(t, l, sink, time.Now())
}

func (f *mysqlFault) killed(t *testing.T) {
	l, sink := f.load(t, 4)
	killed, before := 0, l.count()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		killed += f.kill(t)
	}
	healed := time.Now()
	t.Logf("%d connections killed", killed)
	require.Greater(t, killed, 20)
	require.Greater(t, l.count(), before, "publishing went on meanwhile")
	f.requireWhole(t, l, sink, healed)
}

// squatters take every connection that the server has left.
type squatters struct {
	held  atomic.Int64
	leave func() // gives all of them back
}

// occupy starts squatters.
func (f *mysqlFault) occupy(t *testing.T) *squatters {
	db, err := sql.Open("mysql", f.mysql.UserDSN("crowd"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	c, done := &squatters{}, make(chan struct{})
	go func() {
		defer close(done)
		defer db.Close()
		for ctx.Err() == nil {
			if conn, err := db.Conn(ctx); err == nil {
				defer conn.Close()
				c.held.Add(1)
				continue
			}
			time.Sleep(time.Millisecond)
		}
	}()
	c.leave = func() { cancel(); <-done }
	return c
}

func (f *mysqlFault) exhausted(t *testing.T) {
	const places = 20
	l, sink := f.load(t, 4)
	f.exec(t, fmt.Sprint("SET GLOBAL max_connections = ", places))
	c := f.occupy(t)
	// The broker's connections are killed until the squatters have every place but that of the
	// administrator. An instant in which the broker has no connection is not enough, because it
	// may connect again before the squatters do.
	eventually(t, "the squatters to have every place", func() bool { return f.kill(t) == 0 && c.held.Load() >= places-1 })
	l.awaitRefusal(time.Now())
	c.leave()
	f.exec(t, "SET GLOBAL max_connections = 500")
	f.requireWhole(t, l, sink, time.Now())
}

func (f *mysqlFault) twoConnections(t *testing.T) {
	l, sink := f.load(t, 4)
	f.exec(t, "ALTER USER "+f.user+" WITH MAX_USER_CONNECTIONS 2")
	f.kill(t)
	limited := time.Now()
	l.progress(100)
	for _, a := range l.since(limited) {
		require.NotZero(t, a.status)
	}
	f.exec(t, "ALTER USER "+f.user+" WITH MAX_USER_CONNECTIONS 0")
	f.requireWhole(t, l, sink, time.Now())
}

func (f *mysqlFault) hiccups(t *testing.T) {
	l, sink := f.load(t, 4)
	before := l.count()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		f.mysql.Pause()
		time.Sleep(50 * time.Millisecond)
		f.mysql.Resume()
		time.Sleep(10 * time.Millisecond)
	}
	require.Greater(t, l.count(), before, "it went on meanwhile")
	f.requireWhole(t, l, sink, time.Now())
}

// MySQL stands still for longer than anything waits. Meanwhile nothing piles up.
func TestMySQLStandsStillAndEveryoneIsTold(t *testing.T) {
	parallel(t)
	stop := 8 * time.Second
	if text := os.Getenv(envStop); text != "" {
		var err error
		stop, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	f := startMySQLFault(t)
	l, sink := f.load(t, 32)
	l.progress(500)
	// The heap, because the race detector keeps resident what it ever had.
	goroutines, memory := f.p.gauge(t, "go_goroutines"), f.p.gauge(t, "go_memstats_heap_inuse_bytes")
	f.mysql.Pause()
	begun := time.Now()
	var most, mostMemory float64
	// At least until something that was sent meanwhile was answered, too.
	for time.Since(begun) < stop || len(l.since(begun)) == 0 && time.Since(begun) < patience {
		most = max(most, f.p.gauge(t, "go_goroutines"))
		mostMemory = max(mostMemory, f.p.gauge(t, "go_memstats_heap_inuse_bytes"))
		time.Sleep(200 * time.Millisecond)
	}
	stood := l.since(begun)
	require.NotEmpty(t, stood)
	for _, a := range stood {
		require.Equal(t, 503, a.status)
	}
	f.mysql.Resume()
	t.Logf("stood still for %v; goroutines %.0f, most %.0f; memory %.0f MiB, most %.0f MiB", stop, goroutines, most,
		memory/(1<<20), mostMemory/(1<<20))
	f.requireWhole(t, l, sink, time.Now())
	require.Less(t, most, 2*goroutines+64, "goroutines do not pile up")
	require.Less(t, mostMemory, memory+128<<20, "nor does memory")
}

// The disk of MySQL fills up: what cannot be stored is refused, what is stored is
// delivered, and a larger disk is all that is needed.
func TestMySQLDiskIsFull(t *testing.T) {
	parallel(t)
	f := startMySQLFault(t, "--innodb-file-per-table=0", "--innodb-data-file-path=ibdata1:12M:autoextend:max:32M",
		"--innodb-autoextend-increment=4")
	l, sink := f.load(t, 4)
	rest := f.database(t) + ".rest"
	// Each row fits into a page: MariaDB 10.11.19 aborts where it runs out of space in a row that does not.
	f.exec(t, "CREATE TABLE "+rest+" (no INT PRIMARY KEY AUTO_INCREMENT, b VARBINARY(7000) NOT NULL) ENGINE = InnoDB")
	for _, fill := range []struct{ rows, size int }{{100, 7000}, {1, 7000}, {1, 1000}, {1, 100}} {
		rows := strings.Repeat(fmt.Sprintf(", (REPEAT('x', %d))", fill.size), fill.rows)[2:]
		var err error
		for err == nil {
			_, err = f.admin.Exec("INSERT INTO " + rest + " (b) VALUES " + rows)
		}
		require.ErrorContains(t, err, "full")
	}
	full := time.Now()
	eventually(t, "many refusals", func() bool { return l.refused(full) > 100 })
	require.Contains(t, f.p.log.String(), "Error 1114", "the reason is in the log")
	delivered := sink.count()
	f.mysql.Kill()
	f.mysql.RestartWith("--innodb-data-file-path=ibdata1:12M:autoextend:max:256M")
	t.Logf("%d refused while the disk was full, %d of %d delivered", l.refused(full), delivered, l.count())
	f.requireWhole(t, l, sink, time.Now())
}
