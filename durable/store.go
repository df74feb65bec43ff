package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Bounds of one INSERT statement. More than 1024 rows gain nothing and make
// everybody in the batch wait (measured: 17 % more rows at three times the
// latency from 256 to 1024).
const (
	maxBatchRows  = 1024
	maxBatchBytes = 8 << 20
)

// patience bounds a call whose context has no deadline of its own.
const patience = 30 * time.Second

// Options tune a Store. The zero value is ready to use.
type Options struct {
	// MaxConns bounds the connections to MySQL, or the readers of SQLite
	// (which has one writer always). 0: 32, or 4.
	MaxConns int
}

// A Store is the durable store. It is safe for concurrent use.
type Store struct {
	dialect  dialect
	db       *sql.DB // everything; of SQLite, the one writer
	reads    *sql.DB // MySQL: the same as db
	describe string
	warnings []string
	packet   int      // bytes of the largest statement the server takes
	lock     *os.File // SQLite: held as long as the store is open
	files    []place  // SQLite: the database and the lock

	migrating sync.Mutex // SQLite: one migration at a time
}

// A dialect is one of the two kinds of SQL that the package writes.
type dialect uint8

const (
	mysqlDialect dialect = iota
	sqliteDialect
)

// A statement is spelled twice only where the dialects differ.
type statement struct {
	mysql  string
	sqlite string
}

func (d dialect) sql(s statement) string {
	if d == sqliteDialect {
		return s.sqlite
	}
	return s.mysql
}

// Ping reports whether the store answers.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.reads.PingContext(ctx); err != nil {
		return failedTo("ping", err)
	}
	return nil
}

// Close waits for running statements and closes all connections.
func (s *Store) Close() error {
	err := s.db.Close()
	if s.reads != s.db {
		err = errors.Join(s.reads.Close(), err)
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close()) // closing gives the lock back
	}
	if err != nil {
		return fmt.Errorf("durable: close: %w", err)
	}
	return nil
}

// Describe returns the product and version of the server, for people.
func (s *Store) Describe() string { return s.describe }

// Warnings returns a sentence for each setting of the server that makes the
// promise of a 201 weaker than it reads.
func (s *Store) Warnings() []string { return s.warnings }

// MaxBatchBytes is how many bytes of payloads, headers and keys one batch of
// Insert should hold at most: a quarter of what the server takes in a statement,
// because escaping can double them, and never more than 8 MiB.
func (s *Store) MaxBatchBytes() int { return min(s.packet/4, maxBatchBytes) }

// overhead is what an insert of one message holds beside the payload: 64 KiB of
// headers, which escaping can double, and small things.
const overhead = 2*(64<<10) + 4<<10

// CheckPayload returns a sentence when the server cannot take every payload of up
// to n bytes: a statement has a largest size, and escaping can double a payload.
func (s *Store) CheckPayload(n int) error {
	if s.dialect == sqliteDialect { // nothing is escaped, and its bound is 1 GB
		return nil
	}
	if most := (s.packet - overhead) / 2; n > most {
		return fmt.Errorf("payloads of %d bytes do not fit the MySQL server, whose max_allowed_packet of %d takes %d, because escaping can double a payload: set max_allowed_packet to at least %d",
			n, s.packet, max(most, 0), 2*n+overhead)
	}
	return nil
}

const nowMySQL = `
SELECT CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)`

// NowMs returns the clock that decides about leases and the age of IDs, in Unix
// milliseconds: the server's, or for SQLite that of this process.
func (s *Store) NowMs(ctx context.Context) (int64, error) {
	ms, err := s.now(ctx, s.reads)
	if err != nil {
		return 0, failedTo("clock", err)
	}
	return ms, nil
}

func (s *Store) now(ctx context.Context, q querier) (int64, error) {
	if s.dialect == sqliteDialect {
		return time.Now().UnixMilli(), nil
	}
	var ms int64
	err := q.QueryRowContext(ctx, nowMySQL).Scan(&ms)
	return ms, err
}
