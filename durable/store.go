package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/penstock-broker/penstock/internal/model/atrest"
)

// Bounds of one INSERT statement. More than 1024 rows gain nothing and make all messages of
// the batch wait (measured from 256 to 1024: 17 % more rows a second at three times the
// latency).
const (
	maxBatchRows  = 1024
	maxBatchBytes = 8 << 20
)

// Options tune a Store. The zero value is ready to use.
type Options struct {
	// MaxConns bounds the connections to MySQL besides up to 8 for inserts, or the readers of
	// SQLite, which always has one writer. 0 means 32 connections, or 4 readers.
	MaxConns int
	// IdempotencyRetention is how long an Idempotency-Key is kept. 0 means a day.
	IdempotencyRetention time.Duration
	// Clock is the clock of SQLite in Unix ms. nil means that of this process.
	Clock func() int64
	// Tell is told what takes time: the Info of a slog.Logger. nil means nobody.
	Tell func(message string, args ...any)
}

func (o Options) teller() func(message string, args ...any) {
	if o.Tell != nil {
		return o.Tell
	}
	return func(string, ...any) {}
}

func (o Options) keysKept() time.Duration {
	if o.IdempotencyRetention > 0 {
		return o.IdempotencyRetention
	}
	return 24 * time.Hour
}

// A Store is the durable store. It is safe for concurrent use.
type Store struct {
	dialect   dialect
	db        *sql.DB // MySQL: for all statements; SQLite: the only writer
	reads     *sql.DB // MySQL: the same as db
	inserts   *sql.DB // MySQL only: for inserts of messages
	describe  string
	clustered bool // MySQL only: other servers take writes too, see galera.go
	warnings  []string
	packet    int      // bytes of the largest statement that the server accepts
	lock      *os.File // SQLite: locked while the store is open
	files     []place  // SQLite: the database and the lock

	keys     *atrest.Keys  // of tokens and secrets; nil: none
	keysKept time.Duration // of Idempotency-Keys
	clock    func() int64  // SQLite: Options.Clock

	migrating sync.Mutex    // SQLite: one migration at a time
	patient   *mysql.Config // MySQL only: for migrations
	tell      func(message string, args ...any)
}

// UseKeys sets the keys that seal tokens, secrets and credentials; nil: they are stored as they are. It is called
// before the store is used.
func (s *Store) UseKeys(keys *atrest.Keys) { s.keys = keys }

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
	if s.inserts != nil {
		err = errors.Join(err, s.inserts.Close())
	}
	if s.reads != s.db {
		err = errors.Join(s.reads.Close(), err)
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close()) // closing the file ends the lock
	}
	if err != nil {
		return fmt.Errorf("durable: close: %w", err)
	}
	return nil
}

// Describe returns the product and version of the server as text.
func (s *Store) Describe() string { return s.describe }

// Warnings returns a sentence for each setting of the server that weakens the promise of a
// 201.
func (s *Store) Warnings() []string { return s.warnings }

// MaxBatchBytes returns how many bytes of payloads, headers and keys one batch of Insert
// should contain at most: a quarter of the largest statement, because escaping can double
// them, and no more than 8 MiB.
func (s *Store) MaxBatchBytes() int { return min(s.packet/4, maxBatchBytes) }

// overhead bounds the bytes of an insert of one message besides the payload: 64 KiB of
// headers, which escaping can double, small fields, and the rows of its keys.
const overhead = 2*(64<<10) + 16<<10

// CheckPayload returns an error if the server cannot store every payload of up to n bytes.
func (s *Store) CheckPayload(n int) error {
	if s.dialect == sqliteDialect { // SQLite needs no escaping, and its limit is 1 GB
		return nil
	}
	return CheckPacket(s.packet, n)
}

// CheckPacket returns an error if payloads of n bytes do not fit a MySQL server with a
// max_allowed_packet: the size of a statement is limited, and escaping can double a payload.
func CheckPacket(packet, n int) error {
	if most := (packet - overhead) / 2; n > most {
		return fmt.Errorf("payloads of %d bytes do not fit the MySQL server, whose max_allowed_packet of %d takes %d, "+
			"because escaping can double a payload: set max_allowed_packet to at least %d",
			n, packet, max(most, 0), 2*n+overhead)
	}
	return nil
}

// A place is a path with the file that was there when it was opened.
type place struct {
	path string
	was  fs.FileInfo
}

func placeOf(path string) (place, error) {
	info, err := os.Stat(path)
	return place{path, info}, err
}

// InPlace returns an error if the database of the embedded store, or its lock, is no longer the
// file at its path. Writes then go to a file that no later start finds, or a second process may
// write to the database as well, and no statement fails because of that. MySQL is always in place.
func (s *Store) InPlace() error {
	for _, file := range s.files {
		now, err := os.Stat(file.path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(file.was, now) {
			return fmt.Errorf("durable: %s was removed, renamed or replaced while it was in use", file.path)
		} // other errors do not show a change of the file
	}
	return nil
}
