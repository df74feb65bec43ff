package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

// OpenMySQL connects to a MySQL or MariaDB server. From the DSN it takes address, credentials,
// database, TLS and timeouts. It sets the options that correctness depends on itself, on
// every connection: strict mode, time zone, isolation, character set, found rows. No error
// contains the DSN or the password.
func OpenMySQL(ctx context.Context, dsn string, o Options) (*Store, error) {
	cfg, err := mysqlConfig(dsn)
	if err != nil {
		return nil, err
	}
	conns := o.MaxConns
	if conns <= 0 {
		conns = 32
	}
	s := &Store{dialect: mysqlDialect, keysKept: o.keysKept(), tell: o.teller()}
	// Migrate has its lock on one connection, and works on another one that waits longer.
	others, inserts := yielding{conns: max(conns, 2)}, yielding{conns: min(conns, insertConns)}
	if err = others.open(cfg, inserts.yield); err != nil {
		return nil, err
	}
	s.db, s.reads = others.DB, others.DB
	s.patient = cfg.Clone()
	s.patient.ReadTimeout = 0 // none: the change of a large table takes as long as it takes
	whole := cfg.Clone()
	whole.MultiStatements = true
	if err = inserts.open(whole, others.yield); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	s.inserts = inserts.DB
	if err := s.inspect(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// insertConns bounds the connections for inserts of messages. A packet on them may have several
// statements: the transaction of a part in one round trip. The builder assembles these texts, and
// escapes every value. On the other connections no value can start a second statement.
const insertConns = 8

// A yielding is a pool that gives half of its connections up for a moment where the other pool of a
// store gets none. Where the server allows the user two connections, say, one pool could keep both in
// use for ever, and no message would be stored.
type yielding struct {
	*sql.DB
	conns int
	live  atomic.Int64 // connections that the server has given, unlike those that the pool asks for

	mu    sync.Mutex
	since time.Time // the last time it gave up some
	ends  int       // yields that have not ended
}

// yieldFor is the time for which a pool that yields has half of its connections: several times the
// pause between two tries of a statement, and what a connection takes on a slow machine. A pool
// yields again where the other one still gets none after yieldAgain.
const (
	yieldFor   = 10 * time.Second
	yieldAgain = 2 * time.Second
)

func (y *yielding) yield() {
	if y.DB == nil {
		return
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if time.Since(y.since) < yieldAgain {
		return
	}
	y.since = time.Now()
	y.ends++
	y.SetMaxOpenConns(max(int(y.live.Load()/2), 1))
	time.AfterFunc(yieldFor, func() {
		y.mu.Lock()
		defer y.mu.Unlock()
		if y.ends--; y.ends == 0 {
			y.SetMaxOpenConns(y.conns)
			y.SetMaxIdleConns(y.conns)
		}
	})
}

// open makes the pool. It opens no connection. crowded is called where the server allows the user no
// further one.
func (y *yielding) open(cfg *mysql.Config, crowded func()) error {
	inner, err := mysql.NewConnector(cfg)
	if err != nil {
		return errors.New("durable: open MySQL: the DSN names an unknown TLS configuration or server key")
	}
	y.DB = sql.OpenDB(sessions{inner, crowded, &y.live})
	y.SetMaxOpenConns(y.conns)
	y.SetMaxIdleConns(y.conns)
	y.SetConnMaxLifetime(3 * time.Minute) // below the idle limits of servers and proxies
	y.SetConnMaxIdleTime(20 * time.Second)
	return nil
}

// CheckDSN returns what is wrong with a DSN, without opening a connection. The error does not quote it.
func CheckDSN(dsn string) error {
	_, err := mysqlConfig(dsn)
	return err
}

// mysqlConfig returns the settings for a DSN. Its errors are fixed sentences, because errors
// of the parser may quote a piece of the password.
func mysqlConfig(dsn string) (*mysql.Config, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, errors.New("durable: open MySQL: malformed DSN, want user:password@tcp(host:port)/database")
	}
	if cfg.DBName == "" {
		return nil, errors.New("durable: open MySQL: the DSN names no database")
	}
	// In the character set binary the server does not check literals for characters. In
	// utf8mb4 MariaDB decodes every character of a literal, and literals need an introducer;
	// both cost a fifth of the work for a row. Put ensures that names are UTF-8.
	if err := cfg.Apply(mysql.Charset("binary", "binary")); err != nil {
		return nil, fmt.Errorf("durable: open MySQL: %w", err)
	}
	cfg.ClientFoundRows = true  // count the matched rows of an UPDATE, changed or not
	cfg.MultiStatements = false // no value can start a second statement; see insertConns
	// one round trip instead of two; safe without multi-byte characters and with backslash escapes
	cfg.InterpolateParams = true
	cfg.AllowAllFiles = false
	cfg.CheckConnLiveness = true
	cfg.RejectReadOnly = true // after a failover, leave a server that is now a replica
	cfg.ParseTime = false
	cfg.Logger = &mysql.NopLogger{} // every error is returned, and the caller logs it
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	if cfg.ReadTimeout == 0 {
		cfg.ReadTimeout = 10 * time.Second
	}
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = 10 * time.Second
	}
	// The server's limit applies, even above the default limit of the driver.
	cfg.MaxAllowedPacket = 1 << 30
	return cfg, nil
}

const (
	selectVersion = `
SELECT VERSION()`

	selectVariables = `
SHOW GLOBAL VARIABLES
WHERE Variable_name IN (
    'max_allowed_packet',
    'innodb_flush_log_at_trx_commit',
    'innodb_doublewrite',
    'sync_binlog',
    'log_bin',
    'wsrep_on'
)`
)

// inspect reads the product, the version and the durability settings of the server.
func (s *Store) inspect(ctx context.Context) error {
	var version string
	if err := s.db.QueryRowContext(ctx, selectVersion).Scan(&version); err != nil {
		return fmt.Errorf("durable: connect to MySQL: %w", err)
	}
	var err error
	if s.describe, err = product(version); err != nil {
		return err
	}
	vars := map[string]string{}
	err = each(ctx, s.db, selectVariables, nil, func(r *sql.Rows) error {
		var name, value string
		if err := r.Scan(&name, &value); err != nil {
			return err
		}
		vars[strings.ToLower(name)] = strings.ToUpper(value)
		return nil
	})
	if err != nil {
		return fmt.Errorf("durable: read the settings of the MySQL server: %w", err)
	}
	if s.packet, err = strconv.Atoi(vars["max_allowed_packet"]); err != nil {
		return errors.New("durable: the MySQL server does not report its max_allowed_packet")
	}
	s.warnings = weaknesses(vars)
	return nil
}

// product turns the result of VERSION() into a name. It refuses servers that are too old for
// the statements of this package.
func product(version string) (string, error) {
	number, _, _ := strings.Cut(version, "-")
	name, oldest := "MySQL", [2]int{8, 0}
	if strings.Contains(strings.ToLower(version), "mariadb") {
		name, oldest = "MariaDB", [2]int{10, 6}
	}
	var have [2]int
	for i, part := range strings.SplitN(number, ".", 3) {
		if i < len(have) {
			have[i], _ = strconv.Atoi(part)
		}
	}
	if have[0] < oldest[0] || have[0] == oldest[0] && have[1] < oldest[1] {
		return "", fmt.Errorf("durable: %s %s is too old, want %d.%d or newer", name, number, oldest[0], oldest[1])
	}
	return name + " " + number, nil
}

func weaknesses(vars map[string]string) []string {
	var out []string
	on := func(name string) bool { return vars[name] == "ON" || vars[name] == "1" }
	if v := vars["innodb_flush_log_at_trx_commit"]; v != "1" {
		out = append(out, "innodb_flush_log_at_trx_commit is "+v+", not 1: a power loss of the MySQL server loses up to a "+
			"second of messages that were answered 201")
	}
	if on("log_bin") && vars["sync_binlog"] != "1" {
		out = append(out, "sync_binlog is "+vars["sync_binlog"]+", not 1: after a power loss of the MySQL server its "+
			"replicas may lack messages that were answered 201")
	}
	if vars["innodb_doublewrite"] == "OFF" {
		out = append(out, "innodb_doublewrite is off: a power loss can tear a page unless the file system writes whole pages")
	}
	if on("wsrep_on") {
		out = append(out, "the server is part of a Galera cluster: a commit is not flushed on the other nodes when it is "+
			"answered")
	}
	return out
}
