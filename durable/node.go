package durable

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// Node numbers make the IDs of two brokers different. Each number has a row that is never
// deleted, so the numbers in use stay low and dense.

const (
	// The row lock serialises LeaseNode calls.
	lockNodes = `
UPDATE settings
SET value = value + 1
WHERE name = 'nodes'`

	selectExpiredNode = `
SELECT no
FROM nodes
WHERE expires_ms <= ?
ORDER BY no
LIMIT 1`

	selectNextNode = `
SELECT COALESCE(MAX(no) + 1, 0)
FROM nodes`

	insertNode = `
INSERT INTO nodes (
    no,
    name,
    token,
    expires_ms,
    least_version
)
SELECT
    ?,
    ?,
    ?,
    ?,
    COALESCE(MAX(least_version), 0)
FROM nodes`

	takeNode = `
UPDATE nodes
SET
    name = ?,
    token = ?,
    expires_ms = ?
WHERE no = ?
  AND expires_ms <= ?`

	renewNode = `
UPDATE nodes
SET expires_ms = ?
WHERE no = ?
  AND token = ?`

	selectNodes = `
SELECT
    no,
    name,
    token,
    expires_ms
FROM nodes
ORDER BY no`
)

// LeaseNode takes the lowest node number that is free or whose lease has expired. Insert
// accepts messages only with the returned lease, and only while it lasts. name is a label
// for readers of Nodes.
func (s *Store) LeaseNode(ctx context.Context, name string, ttl time.Duration) (NodeLease, error) {
	var lease NodeLease
	_, _ = rand.Read(lease.Token[:]) // never fails, says its documentation
	name = clip(strings.ToValidUTF8(name, "?"), 255)
	for {
		err := s.leaseOnce(ctx, name, ttl, &lease)
		if err == nil {
			return lease, nil
		}
		if !errors.Is(err, errRenewed) {
			return NodeLease{}, err
		}
	}
}

// errRenewed means that an expired lease was renewed before takeExpired could take it.
var errRenewed = errors.New("lease was renewed")

func (s *Store) leaseOnce(ctx context.Context, name string, ttl time.Duration, lease *NodeLease) error {
	return s.run(ctx, transaction{name: "lease a node number"}, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, lockNodes); err != nil {
			return err
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		lease.Expires = fromMillis(now + ttl.Milliseconds())
		err = tx.QueryRowContext(ctx, selectExpiredNode, now).Scan(&lease.No)
		if err == nil {
			return s.takeExpired(ctx, tx, name, ttl, lease, now)
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		var next int
		if err := tx.QueryRowContext(ctx, selectNextNode).Scan(&next); err != nil {
			return err
		}
		if next > math.MaxUint16 {
			return fmt.Errorf("all %d node numbers are leased", next)
		}
		lease.No = uint16(next)
		_, err = tx.ExecContext(ctx, insertNode, next, name, lease.Token[:], lease.Expires.UnixMilli())
		return err
	})
}

// takeExpired takes an expired number. If its owner has renewed it in the meantime,
// takeExpired returns errRenewed and the transaction starts again. An owner that stalls
// during an insert has the row locked, perhaps for longer than a lease lasts. The new lease
// therefore starts when the row lock is acquired.
func (s *Store) takeExpired(ctx context.Context, tx *sql.Tx, name string, ttl time.Duration, lease *NodeLease, nowMs int64) error {
	res, err := tx.ExecContext(ctx, takeNode, name, lease.Token[:], lease.Expires.UnixMilli(), lease.No, nowMs)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil {
		return err
	} else if n != 1 {
		return errRenewed
	}
	now, err := s.now(ctx, tx)
	if err != nil {
		return err
	}
	lease.Expires = fromMillis(now + ttl.Milliseconds())
	_, err = tx.ExecContext(ctx, renewNode, lease.Expires.UnixMilli(), lease.No, lease.Token[:])
	return err
}

// RenewNode extends a lease to ttl from now, even an expired one that no other broker has
// taken. ErrStale: another broker has the number; the caller leases a new one.
func (s *Store) RenewNode(ctx context.Context, lease NodeLease, ttl time.Duration) (NodeLease, error) {
	err := repeat(ctx, "renew a node lease", func(ctx context.Context) error {
		now, err := s.now(ctx, s.reads)
		if err != nil {
			return err
		}
		lease.Expires = fromMillis(now + ttl.Milliseconds())
		return s.setNode(ctx, lease, lease.Expires.UnixMilli())
	})
	if err != nil {
		return NodeLease{}, err
	}
	return lease, nil
}

// ReleaseNode ends a lease, so that the next broker can take the number at once. It returns
// nil for a lease that is already lost.
func (s *Store) ReleaseNode(ctx context.Context, lease NodeLease) error {
	err := repeat(ctx, "release a node lease", func(ctx context.Context) error {
		return s.setNode(ctx, lease, 0)
	})
	if errors.Is(err, ErrStale) {
		return nil
	}
	return err
}

func (s *Store) setNode(ctx context.Context, lease NodeLease, expiresMs int64) error {
	res, err := s.db.ExecContext(ctx, renewNode, expiresMs, lease.No, lease.Token[:])
	if err != nil {
		return err
	}
	found, err := res.RowsAffected()
	if err == nil && found == 0 {
		return ErrStale
	}
	return err
}

// Nodes returns all brokers that ever had a number, by number.
func (s *Store) Nodes(ctx context.Context) ([]Node, error) {
	var out []Node
	err := repeat(ctx, "list the nodes", func(ctx context.Context) error {
		out = nil
		now, err := s.now(ctx, s.reads)
		if err != nil {
			return err
		}
		return each(ctx, s.reads, selectNodes, nil, func(r *sql.Rows) error {
			var n Node
			var token []byte
			var ms int64
			if err := r.Scan(&n.No, &n.Name, &token, &ms); err != nil {
				return err
			}
			copy(n.Token[:], token)
			n.Expires, n.Alive = fromMillis(ms), ms > now
			out = append(out, n)
			return nil
		})
	})
	return out, err
}

const expireNodes = `
UPDATE nodes
SET expires_ms = 0`

// ForgetNodes ends every node lease. It may be called only if no other process can use the
// store, as with a locked SQLite folder, whose former owner is dead.
func (s *Store) ForgetNodes(ctx context.Context) error {
	return repeat(ctx, "forget nodes", func(ctx context.Context) error {
		_, err := s.db.ExecContext(ctx, expireNodes)
		return err
	})
}
