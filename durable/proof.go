package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// What is found stored proves nothing about a second server: the commit that stored it may still
// wait for a replica, or may have given up. The proof is a write of its own, after the look and on
// the same connection. Replicas get commits in the order of the log, so the one that confirms this
// write has all that was found before it. The connection is the same because another one may lead
// to another server: after a failover that one has the write, and not what was found.

const (
	// proofRows is the number of rows that the proofs share: one waits for another only where both
	// have drawn the same row.
	proofRows = 64

	upsertProof = `
INSERT INTO proofs (
    no,
    writes
)
VALUES (?, 1)
ON DUPLICATE KEY UPDATE writes = writes + 1`
)

// proveFound proves the results of messages that demand a second server and were found stored. A
// result without proof becomes ErrNotReplicated.
func (s *Store) proveFound(ctx context.Context, batch []*Message, errs []error) {
	var found []entry
	for i, m := range batch {
		if m.Replicated && errs[i] != nil && saysStored(errs[i]) {
			found = append(found, entry{m, i})
		}
	}
	if len(found) == 0 {
		return
	}
	slices.SortFunc(found, byKey)
	again := make([]error, len(batch))
	var rest []entry
	err := s.confirm(ctx, func(ctx context.Context, conn *sql.Conn) (err error) {
		rest, err = s.resolve(ctx, conn, found, again)
		return err
	})
	if err != nil {
		spread(found, errs, err)
		return
	}
	for _, e := range found {
		if errs[e.i] = again[e.i]; !saysStored(errs[e.i]) {
			errs[e.i] = errMissing
		}
	}
	spread(rest, errs, errMissing)
}

// errMissing means that the server of the proof does not have what was found.
var errMissing = fmt.Errorf("%w: what was found stored is not there any more", ErrNotReplicated)

// confirm calls look on a connection and returns nil where the server confirms that a second one has
// all that look has found there. Every other result is ErrNotReplicated. Nothing depends on the
// row that it writes, so a crash leaves nothing to repair.
func (s *Store) confirm(ctx context.Context, look func(ctx context.Context, conn *sql.Conn) error) error {
	prove := func(ctx context.Context, conn *sql.Conn) error {
		before, err := s.replication(ctx, conn)
		switch {
		case err != nil:
			return err
		case !before.on:
			return errNoSecond
		}
		if err := look(ctx, conn); err != nil {
			return err
		}
		if err := exec(ctx, conn, upsertProof, rand.IntN(proofRows)); err != nil {
			return err
		}
		after, err := s.replication(ctx, conn)
		if err == nil && after != before {
			err = errors.New("no replica has answered in time")
		}
		return err
	}
	return s.onInserts(ctx, prove)
}

var errNoSecond = errors.New("no second server confirms commits now")

// onInserts calls f with a connection for inserts. Its errors are ErrNotReplicated.
func (s *Store) onInserts(ctx context.Context, f func(ctx context.Context, conn *sql.Conn) error) error {
	if s.dialect == sqliteDialect {
		return fmt.Errorf("%w: the embedded store has no replica", ErrNotReplicated)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	conn, err := s.inserts.Conn(ctx)
	if err == nil {
		defer func() { _ = conn.Close() }() // returns it to the pool, which drops a broken one
		err = f(ctx, conn)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotReplicated, withoutValues(err))
	}
	return nil
}

// Replicates returns nil where the store confirms now that a second server has what it commits, and
// ErrNotReplicated otherwise.
func (s *Store) Replicates(ctx context.Context) error {
	return s.onInserts(ctx, func(ctx context.Context, conn *sql.Conn) error {
		now, err := s.replication(ctx, conn)
		if err == nil && !now.on {
			err = errNoSecond
		}
		return err
	})
}

// ConfirmBulk returns nil where a second server has a bulk with all of its body, which this store
// has committed before. Else it returns ErrNotReplicated.
func (s *Store) ConfirmBulk(ctx context.Context, id ident.ID) error {
	return s.confirm(ctx, func(ctx context.Context, conn *sql.Conn) error {
		b, err := selectBulk(ctx, conn, selectBulkByID, id[:])
		if err == nil && b.State == BulkReceiving {
			err = errors.New("the body of the bulk is not whole")
		}
		return err
	})
}

// ConfirmReceipt returns nil where a second server has a receipt, and with it the message: it was
// stored before. Else it returns ErrNotReplicated.
func (s *Store) ConfirmReceipt(ctx context.Context, id ReceiptID) error {
	return s.confirm(ctx, func(ctx context.Context, conn *sql.Conn) error {
		found, err := receiptsIn(ctx, conn, []ReceiptID{id})
		if err == nil && len(found) == 0 {
			err = ErrNotFound
		}
		return err
	})
}

// proveScheduled proves the results of schedules that demand a second server. A result without
// proof becomes ErrNotReplicated.
func (s *Store) proveScheduled(ctx context.Context, batch []*Scheduled, errs []error) {
	var found []int
	for i, m := range batch {
		if m.Replicated && saysStored(errs[i]) {
			found = append(found, i)
		}
	}
	if len(found) == 0 {
		return
	}
	there := make([]bool, len(batch))
	err := s.confirm(ctx, func(ctx context.Context, conn *sql.Conn) (err error) {
		for _, i := range found {
			if there[i], err = s.findScheduled(ctx, conn, batch[i], errs[i]); err != nil {
				return err
			}
		}
		return nil
	})
	for _, i := range found {
		switch {
		case err != nil:
			errs[i] = err
		case !there[i]:
			errs[i] = errMissing
		}
	}
}

const selectHasScheduled = `
SELECT COUNT(*)
FROM scheduled
WHERE id = ?`

// findScheduled reports whether the result of a schedule is true on a connection: it is there, or its
// Key is that of the one that it repeats.
func (s *Store) findScheduled(ctx context.Context, conn *sql.Conn, m *Scheduled, result error) (bool, error) {
	var dup *DuplicateError
	switch {
	case !errors.As(result, &dup):
		var n int
		err := conn.QueryRowContext(ctx, selectHasScheduled, m.ID[:]).Scan(&n)
		return n > 0, err
	case m.Idempotent():
		again := []error{nil}
		rest, err := s.resolveUses(ctx, conn, []entry{{m.planned(), 0}}, again)
		return len(rest) == 0 && errors.Is(again[0], ErrDuplicate), err
	}
	row, err := s.scheduledRow(ctx, conn, selectScheduledByKey, m.ChannelNo, []byte(m.Key))
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil && row.ID == dup.ID, err
}
