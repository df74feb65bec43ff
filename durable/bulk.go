package durable

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A Bulk is many messages that come as one body or file. Its body is stored in chunks before the
// first of its rows is expanded into a message.
type Bulk struct {
	BulkOwner
	ChannelNo  uint32
	ProducerNo uint32
	State      BulkState
	Paused     bool   // nothing is fetched or expanded until it is resumed
	Spec       []byte // what package bulk needs to expand it
	Chunks     int64
	Bytes      int64 // of the body
	Total      int64 // rows of the body; an estimate until the last one is expanded
	At         BulkPosition
	Published  int64
	Rejected   int64
	Duplicates int64
	Speed      float64 // rows a second, at the last step
	Tries      int     // of the fetch, that failed
	NextMs     int64   // when it may be worked on
	LeaseMs    int64   // until when the owner has it
	ChangedMs  int64   // of the state, or the last step
	Reason     string  // of FAILED; else of the last failed try
}

// A BulkState is how far a bulk has come. The numbers are stored.
type BulkState uint8

// The states. A bulk in BulkReceiving is not visible, and those after BulkRunning are over.
const (
	BulkReceiving BulkState = iota // its body is on its way
	BulkFetching
	BulkRunning
	BulkDone
	BulkCancelled
	BulkFailed
)

// Over reports whether nothing of the bulk is published any more.
func (s BulkState) Over() bool { return s > BulkRunning }

// A BulkPosition is the end of the rows that are expanded: their number, and that of their bytes.
type BulkPosition struct{ Row, Byte int64 }

// A BulkOwner is the right of an owner to work on a bulk, until another owner takes it.
type BulkOwner struct {
	ID    ident.ID
	Owner [16]byte
	Fence int64
}

// A BadRow is a row that became no message.
type BadRow struct {
	Row    int64
	Reason string
}

var (
	// ErrBulkLost means that the bulk is paused or over, or has another owner. Nothing has changed.
	ErrBulkLost = errors.New("durable: the bulk is no longer worked on by this owner")
	// ErrBulkOver means that the bulk is over, so that its state does not change any more.
	ErrBulkOver = errors.New("durable: the bulk is over")
)

// columns are those of the table bulks.
func (b *Bulk) columns() columns {
	return columns{
		{"id", asID{&b.ID}},
		{"owner", asFixed(b.Owner[:])},
		{"fence", &b.Fence},
		{"channel_no", &b.ChannelNo},
		{"producer_no", &b.ProducerNo},
		{"state", &b.State},
		{"paused", &b.Paused},
		{"spec", asBlob{&b.Spec}},
		{"chunks", &b.Chunks},
		{"bytes", &b.Bytes},
		{"total", &b.Total},
		{"row_no", &b.At.Row},
		{"byte_pos", &b.At.Byte},
		{"published", &b.Published},
		{"rejected", &b.Rejected},
		{"duplicates", &b.Duplicates},
		{"speed", &b.Speed},
		{"tries", &b.Tries},
		{"next_ms", &b.NextMs},
		{"lease_ms", &b.LeaseMs},
		{"changed_ms", &b.ChangedMs},
		{"reason", asBytes{&b.Reason}},
	}
}

var (
	fromBulks = `
SELECT` + new(Bulk).columns().names() + `
FROM bulks
`

	selectBulkByID = fromBulks + `WHERE id = ?`

	lockBulk = locking(selectBulkByID, updateLock)

	insertBulk = new(Bulk).columns().insert("bulks")
)

const (
	insertBulkChunk = `
INSERT INTO bulk_chunks (
    bulk_id,
    no,
    body
)
VALUES (?, ?, ?)`

	growBulk = `
UPDATE bulks
SET
    chunks = chunks + 1,
    bytes = bytes + ?,
    lease_ms = ?
WHERE id = ?`

	runBulk = `
UPDATE bulks
SET
    state = 2,
    owner = ?,
    lease_ms = 0,
    next_ms = 0,
    tries = 0,
    total = ?,
    changed_ms = ?,
    reason = ''
WHERE id = ?`

	restartBulk = `
UPDATE bulks
SET
    chunks = 0,
    bytes = 0
WHERE id = ?`
)

// The lease of a bulk that is being received, and that of one that is worked on. A client that
// sends nothing for so long is gone: package bulk reads with a shorter patience.
const (
	receivingLease = 2 * time.Minute
	// BulkLease is how long an owner has a bulk without a sign of life. An owner that stands still
	// inside a transaction loses its connection after the same time, and with it its locks.
	BulkLease = 8 * time.Second
)

// A second owner waits for the row of a bulk only as long as the connection of the first one is
// open. The server closes a connection that sends nothing for wait_timeout, or no more of a
// statement for net_read_timeout.
//
// The limits stay until the connection is closed, since a reset would have to follow the commit: an
// owner may stand still in between. The pool notices that the server has closed one.
const setBulkSession = `SET SESSION wait_timeout = 8, SESSION net_read_timeout = 8`

// selectBulk returns the bulk of a query, a pointer in any case.
func selectBulk(ctx context.Context, q querier, query string, args ...any) (*Bulk, error) {
	b, err := selectOne[Bulk](ctx, q, query, args...)
	return &b, err
}

// CreateBulk stores a bulk with its ID, owner, numbers, state, spec and total. A body is one chunk,
// the whole of it or its beginning; nil: there is none yet. Only a bulk in BulkReceiving has an owner.
func (s *Store) CreateBulk(ctx context.Context, b *Bulk, body []byte) error {
	return s.run(ctx, transaction{name: "store a bulk", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		_, err := selectBulk(ctx, tx, selectBulkByID, b.ID[:])
		if err == nil { // after a lost answer
			return nil
		} else if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		row := Bulk{BulkOwner: BulkOwner{ID: b.ID, Owner: b.Owner}, ChannelNo: b.ChannelNo, ProducerNo: b.ProducerNo,
			State: b.State, Spec: b.Spec, Total: b.Total, ChangedMs: now}
		if b.State == BulkReceiving {
			row.LeaseMs = now + receivingLease.Milliseconds()
		}
		err = exec(ctx, tx, insertBulk, row.columns().fields()...)
		if err != nil || len(body) == 0 {
			return err
		}
		return s.addChunk(ctx, tx, b.ID, 0, body, row.LeaseMs)
	})
}

// addChunk appends a chunk to the body of a bulk.
func (s *Store) addChunk(ctx context.Context, tx *sql.Tx, id ident.ID, no int64, body []byte, leaseMs int64) error {
	if err := exec(ctx, tx, insertBulkChunk, id[:], no, body); err != nil {
		return err
	}
	return exec(ctx, tx, growBulk, len(body), leaseMs, id[:])
}

// An ownedBulk is a bulk whose row is locked, and the store's time.
type ownedBulk struct {
	*Bulk
	nowMs int64
}

// owning runs f in a transaction that has the row of a bulk locked, for its owner. A repeat
// after a lost answer runs f again: f looks whether it has its effect already.
func (s *Store) owning(ctx context.Context, name string, h BulkOwner, f func(ctx context.Context, tx *sql.Tx,
	b ownedBulk) error) error {
	err := s.run(ctx, transaction{name: name, harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		if s.dialect != sqliteDialect {
			if err := exec(ctx, tx, setBulkSession); err != nil {
				return err
			}
		}
		b, err := selectBulk(ctx, tx, s.dialect.sql(lockBulk), h.ID[:])
		if errors.Is(err, sql.ErrNoRows) {
			return ErrBulkLost
		}
		if err != nil {
			return err
		}
		if b.Owner != h.Owner || b.Fence != h.Fence || b.Paused || b.State.Over() {
			return ErrBulkLost
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		if b.State == BulkReceiving && b.LeaseMs < now { // a sweep may have removed a part of its body
			return ErrBulkLost
		}
		return f(ctx, tx, ownedBulk{b, now})
	})
	if errors.Is(err, ErrBulkLost) {
		return ErrBulkLost
	}
	return err
}

// AddBulkChunk appends chunk no to the body of a bulk that its owner receives or fetches.
func (s *Store) AddBulkChunk(ctx context.Context, h BulkOwner, no int64, body []byte) error {
	return s.owning(ctx, "store a chunk of a bulk", h, func(ctx context.Context, tx *sql.Tx, b ownedBulk) error {
		lease := BulkLease
		if b.State == BulkReceiving {
			lease = receivingLease
		}
		switch {
		case b.Chunks == no+1: // after a lost answer
			return nil
		case b.Chunks != no || b.State == BulkRunning:
			return fmt.Errorf("chunk %d of a bulk with %d", no, b.Chunks)
		}
		return s.addChunk(ctx, tx, b.ID, no, body, b.nowMs+lease.Milliseconds())
	})
}

// RestartBulkBody begins the body of a bulk anew: a fetch starts from the beginning.
func (s *Store) RestartBulkBody(ctx context.Context, h BulkOwner) error {
	for {
		n := 0
		err := s.owning(ctx, "restart the body of a bulk", h, func(ctx context.Context, tx *sql.Tx, b ownedBulk) (err error) {
			if n, err = s.removeChunks(ctx, tx, b.ID); err != nil || n > 0 {
				return err
			}
			return exec(ctx, tx, restartBulk, b.ID[:])
		})
		if err != nil || n == 0 {
			return err
		}
	}
}

// RunBulk says that the body of a bulk is whole and has that many rows: from here on brokers expand
// it. The caller owns it no longer.
func (s *Store) RunBulk(ctx context.Context, h BulkOwner, total int64) error {
	err := s.owning(ctx, "start a bulk", h, func(ctx context.Context, tx *sql.Tx, b ownedBulk) error {
		return exec(ctx, tx, runBulk, noOwner, total, b.nowMs, b.ID[:])
	})
	if errors.Is(err, ErrBulkLost) { // or an earlier run of the same transaction ended it
		if b, e := s.BulkByID(ctx, h.ID); e == nil && b.State >= BulkRunning && b.Total == total {
			return nil
		}
	}
	return err
}

var noOwner = bytes.Repeat([]byte{0}, 16)

// chunksAtOnce is the number of chunks that one transaction removes, of at most 1 MiB each.
const chunksAtOnce = 16

const selectFirstChunk = `
SELECT COALESCE(MIN(no), -1)
FROM bulk_chunks
WHERE bulk_id = ?`

const deleteChunks = `
DELETE FROM bulk_chunks
WHERE bulk_id = ?
  AND no < ?`

// removeChunks removes the first chunks of a bulk and returns how many there may have been.
func (s *Store) removeChunks(ctx context.Context, tx *sql.Tx, id ident.ID) (int, error) {
	first := int64(-1)
	if err := tx.QueryRowContext(ctx, selectFirstChunk, id[:]).Scan(&first); err != nil || first < 0 {
		return 0, err
	}
	err := exec(ctx, tx, deleteChunks, id[:], first+chunksAtOnce)
	return chunksAtOnce, err
}

// BulkByID returns a bulk. ErrNotFound: there is none, or its body is not whole yet.
func (s *Store) BulkByID(ctx context.Context, id ident.ID) (b *Bulk, err error) {
	err = repeat(ctx, "read a bulk", func(ctx context.Context) error {
		b, err = selectBulk(ctx, s.reads, selectBulkByID, id[:])
		if errors.Is(err, sql.ErrNoRows) || err == nil && b.State == BulkReceiving {
			return ErrNotFound
		}
		return err
	})
	return b, err
}

// maxBadRow and maxBulkReason are the longest stored reasons of a bad row and of a bulk, bytes.
const maxBadRow, maxBulkReason = 512, 1024
