package durable

import (
	"context"
	"database/sql"
	"errors"

	"github.com/penstock-broker/penstock/internal/model/auditlog"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The index bulks_work has the bulks of a producer together. Those that are worked on stand among
// those that are due, and are few. A row that another transaction holds is left out: its owner works,
// or stands still until the server ends its connection.
var lockDueBulk = locking(fromBulks+dueBulk, updateLock+" SKIP LOCKED")

const (
	dueBulk = `WHERE state = ?
  AND paused = 0
  AND producer_no = ?
  AND lease_ms <= ?
  AND next_ms <= ?
ORDER BY next_ms, id
LIMIT 1`

	selectBulkDue = `
SELECT 1
FROM bulks
` + dueBulk

	selectBulkProducer = `
SELECT producer_no
FROM bulks
WHERE state = ?
  AND paused = 0
  AND producer_no > ?
ORDER BY producer_no
LIMIT 1`

	takeBulk = `
UPDATE bulks
SET
    owner = ?,
    fence = fence + 1,
    lease_ms = ?
WHERE id = ?`

	renewBulk = `
UPDATE bulks
SET lease_ms = ?
WHERE id = ?`

	releaseBulk = `
UPDATE bulks
SET
    owner = ?,
    lease_ms = 0,
    next_ms = ?,
    tries = ?,
    reason = ?
WHERE id = ?`

	endBulk = `
UPDATE bulks
SET
    state = ?,
    owner = ?,
    paused = 0,
    lease_ms = 0,
    next_ms = 0,
    changed_ms = ?,
    reason = ?
WHERE id = ?`

	pauseBulk = `
UPDATE bulks
SET
    paused = ?,
    owner = ?,
    lease_ms = 0,
    changed_ms = ?
WHERE id = ?`
)

const selectBulkChunk = `
SELECT body
FROM bulk_chunks
WHERE bulk_id = ?
  AND no = ?`

// A BulkQueue is the bulks of a producer that have the same kind of work: BulkFetching or BulkRunning.
type BulkQueue struct {
	State      BulkState
	ProducerNo uint32
}

// NextBulkQueue returns the queue after another one of the same state, by the number of the producer,
// and whether a bulk of it is due at nowMs and has no owner. A ProducerNo of 0: there is no other.
func (s *Store) NextBulkQueue(ctx context.Context, after BulkQueue, nowMs int64) (q BulkQueue, due bool, err error) {
	err = repeat(ctx, "find a producer with bulks", func(ctx context.Context) error {
		q, due = BulkQueue{State: after.State}, false
		err := s.reads.QueryRowContext(ctx, selectBulkProducer, q.State, after.ProducerNo).Scan(&q.ProducerNo)
		if err == nil {
			err = s.reads.QueryRowContext(ctx, selectBulkDue, q.State, q.ProducerNo, nowMs, nowMs).Scan(&due)
		}
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return q, due, err
}

// ClaimBulk takes a bulk of a queue that has no owner, or one whose lease has ended. nil: there is
// none.
func (s *Store) ClaimBulk(ctx context.Context, owner [16]byte, of BulkQueue) (b *Bulk, err error) {
	err = s.run(ctx, transaction{name: "claim a bulk", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		b = nil
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		found, err := selectBulk(ctx, tx, s.dialect.sql(lockDueBulk), of.State, of.ProducerNo, now, now)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := exec(ctx, tx, takeBulk, owner[:], now+BulkLease.Milliseconds(), found.ID[:]); err != nil {
			return err
		}
		found.Owner, found.Fence = owner, found.Fence+1
		b = found
		return nil
	})
	return b, err
}

// RenewBulk extends the lease of an owner.
func (s *Store) RenewBulk(ctx context.Context, h BulkOwner) error {
	return s.owning(ctx, "renew the lease of a bulk", h, func(ctx context.Context, tx *sql.Tx, b ownedBulk) error {
		return exec(ctx, tx, renewBulk, b.nowMs+BulkLease.Milliseconds(), b.ID[:])
	})
}

// ReleaseBulk gives a bulk back, to be worked on again after a wait. It stores the number of failed
// tries and why the last one failed.
func (s *Store) ReleaseBulk(ctx context.Context, h BulkOwner, waitMs int64, tries int, reason string) error {
	err := s.owning(ctx, "release a bulk", h, func(ctx context.Context, tx *sql.Tx, b ownedBulk) error {
		return exec(ctx, tx, releaseBulk, noOwner, max(b.NextMs, b.nowMs+waitMs), tries, []byte(cutTo(reason, maxBulkReason)),
			b.ID[:])
	})
	if errors.Is(err, ErrBulkLost) {
		return nil // it is not the caller's any more
	}
	return err
}

// FailBulk ends a bulk with a reason. What it published stays published.
func (s *Store) FailBulk(ctx context.Context, h BulkOwner, reason string) error {
	return s.owning(ctx, "fail a bulk", h, func(ctx context.Context, tx *sql.Tx, b ownedBulk) error {
		return exec(ctx, tx, endBulk, BulkFailed, noOwner, b.nowMs, []byte(cutTo(reason, maxBulkReason)), b.ID[:])
	})
}

// CancelBulk ends a bulk, and returns it. ErrBulkOver: it is over, and was not cancelled.
func (s *Store) CancelBulk(ctx context.Context, id ident.ID) (*Bulk, error) {
	return s.changeBulk(ctx, "cancel a bulk", id, func(ctx context.Context, tx *sql.Tx, b ownedBulk) error {
		if b.State == BulkCancelled {
			return errUnchanged
		}
		if b.State.Over() {
			return ErrBulkOver
		}
		was := *b.Bulk
		b.State, b.Paused, b.ChangedMs = BulkCancelled, false, b.nowMs
		auditlog.Note(ctx, was, *b.Bulk)
		return exec(ctx, tx, endBulk, BulkCancelled, noOwner, b.nowMs, []byte(b.Reason), b.ID[:])
	})
}

// PauseBulk pauses a bulk or resumes it, and returns it. ErrBulkOver: it is over.
func (s *Store) PauseBulk(ctx context.Context, id ident.ID, paused bool) (*Bulk, error) {
	return s.changeBulk(ctx, "pause a bulk", id, func(ctx context.Context, tx *sql.Tx, b ownedBulk) error {
		switch {
		case b.State.Over():
			return ErrBulkOver
		case b.Paused == paused:
			return errUnchanged
		}
		was := *b.Bulk
		b.Paused, b.ChangedMs = paused, b.nowMs
		auditlog.Note(ctx, was, *b.Bulk)
		return exec(ctx, tx, pauseBulk, paused, noOwner, b.nowMs, b.ID[:])
	})
}

// changeBulk runs f in a transaction that has the row of a bulk locked. An owner that works on the
// bulk finds at its next step that it has lost it.
func (s *Store) changeBulk(ctx context.Context, name string, id ident.ID, f func(ctx context.Context, tx *sql.Tx,
	b ownedBulk) error) (b *Bulk, err error) {
	err = s.run(ctx, transaction{name: name, harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		b, err = selectBulk(ctx, tx, s.dialect.sql(lockBulk), id[:])
		if errors.Is(err, sql.ErrNoRows) || err == nil && b.State == BulkReceiving {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		return f(ctx, tx, ownedBulk{b, now})
	})
	if errors.Is(err, errUnchanged) {
		err = nil
	}
	return b, err
}

// BulkChunk returns chunk no of the body of a bulk. ErrNotFound: there is none.
func (s *Store) BulkChunk(ctx context.Context, id ident.ID, no int64) (body []byte, err error) {
	err = repeat(ctx, "read a chunk of a bulk", func(ctx context.Context) error {
		return orNotFound(s.reads.QueryRowContext(ctx, selectBulkChunk, id[:], no).Scan(&body))
	})
	return body, err
}
