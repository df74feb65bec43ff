package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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
	server, err := askServer(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if server.Unfit != nil {
		return nil, server.Unfit
	}
	s := &Store{dialect: mysqlDialect, keysKept: o.keysKept(), tell: o.teller(), packet: server.Packet,
		describe: server.Product, clustered: server.Clustered}
	for _, w := range server.Weak {
		s.warnings = append(s.warnings, w.Text)
	}
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
	if err := s.db.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("durable: connect to MySQL: %w", err), s.Close())
	}
	return s, nil
}

// askServer asks a server about itself on a connection of its own, which has no settings of a session
// yet: a server that cannot be the store may not take them.
func askServer(ctx context.Context, cfg *mysql.Config) (s Server, err error) {
	db, err := plainPool(cfg)
	if err != nil {
		return Server{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return readServer(ctx, db)
}

// plainPool is a pool of one connection as the server gives it, without the variables of a session that the DSN
// sets: one of them may cut what the server says.
func plainPool(cfg *mysql.Config) (*sql.DB, error) {
	plain := cfg.Clone()
	plain.Params = nil
	inner, err := mysql.NewConnector(plain)
	if err != nil {
		return nil, errUnknownKey
	}
	db := sql.OpenDB(inner)
	db.SetMaxOpenConns(1)
	return db, nil
}

var errUnknownKey = errors.New("durable: open MySQL: the DSN names an unknown TLS configuration or server key")

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
		return errUnknownKey
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
