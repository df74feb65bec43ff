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

// A NodeLease is a broker's right to a node number until a time.
type NodeLease struct {
	No      uint16
	Token   [16]byte
	Expires time.Time // by the store's clock
	// Known is the version of the catalogue from which the broker has authorised messages.
	Known int64
	// Clock is the store's clock at the renewal. Where its History changed, the store went back, and
	// what the broker remembers of it is no longer true.
	Clock Clock
	// PassedMs is a time that the store's clock has passed by then, as the broker knows; 0: none.
	PassedMs int64
}

// A Node is a node number with the broker that last leased it.
type Node struct {
	No      uint16
	Name    string
	Token   [16]byte
	Expires time.Time
	Alive   bool // by the store's clock
}

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

	// The end of a lease only grows, but for one that was given back.
	renewWitnessed = `
UPDATE nodes
SET expires_ms = ?
WHERE no = ?
  AND token = ?
  AND (expires_ms >= ? OR expires_ms = 0)`

	selectNode = `
SELECT
    token,
    expires_ms
FROM nodes
WHERE no = ?`
)

func (n *Node) columns() columns {
	return columns{
		{"no", &n.No},
		{"name", &n.Name},
		{"token", asFixed(n.Token[:])},
		{"expires_ms", asMillis{&n.Expires}},
	}
}

var (
	insertNode = `
INSERT INTO nodes (` + new(Node).columns().names() + `,
    least_version
)
SELECT
    ?,
    ?,
    ?,
    ?,
    COALESCE(MAX(least_version), 0)
FROM nodes`

	selectNodes = `
SELECT` + new(Node).columns().names() + `
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
	err := repeat(ctx, "raise the clock", func(ctx context.Context) error {
		least, err := s.leastClock(ctx)
		if err == nil {
			lease.Clock, err = s.raiseClock(ctx, Clock{}, least)
		}
		return err
	})
	if err != nil {
		return NodeLease{}, err
	}
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
		if err := exec(ctx, tx, lockNodes); err != nil {
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
		return exec(ctx, tx, insertNode, next, name, lease.Token[:], lease.Expires.UnixMilli())
	})
}

// takeExpired takes an expired number. If its owner has renewed it in the meantime,
// takeExpired returns errRenewed and the transaction starts again. An owner that stalls
// during an insert has the row locked, perhaps for longer than a lease lasts. The new lease
// therefore starts when the row lock is acquired.
func (s *Store) takeExpired(ctx context.Context, tx *sql.Tx, name string, ttl time.Duration, lease *NodeLease,
	nowMs int64) error {
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
	return exec(ctx, tx, renewNode, lease.Expires.UnixMilli(), lease.No, lease.Token[:])
}

// RenewNode extends a lease to ttl from now, even an expired one that no other broker has
// taken, and raises the store's clock. ErrStale: another broker has the number; the caller leases a
// new one. Where the row of the lease shows that the store went back, its history has a new name
// afterwards.
func (s *Store) RenewNode(ctx context.Context, lease NodeLease, ttl time.Duration) (NodeLease, error) {
	var renewed NodeLease
	err := repeat(ctx, "renew a node lease", func(ctx context.Context) (err error) {
		renewed = lease
		if renewed.Clock, err = s.raiseClock(ctx, lease.Clock, lease.PassedMs); err != nil {
			return err
		}
		now, err := s.now(ctx, s.reads)
		if err != nil {
			return err
		}
		renewed.Expires = fromMillis(now + ttl.Milliseconds())
		found, err := s.affects(ctx, renewWitnessed, renewed.Expires.UnixMilli(), lease.No, lease.Token[:],
			lease.Expires.UnixMilli())
		if err != nil || found {
			return err
		}
		older, err := s.olderNode(ctx, lease)
		if err != nil {
			return err
		}
		if older && renewed.Clock.History == lease.Clock.History {
			if renewed.Clock, err = s.renameHistory(ctx, renewed.Clock); err != nil {
				return err
			}
		}
		return s.setNode(ctx, renewed, renewed.Expires.UnixMilli())
	})
	if err != nil {
		return NodeLease{}, err
	}
	return renewed, nil
}

// olderNode reports whether the row of a number is one from before the lease was renewed last.
// Whoever takes the number of an expired lease writes a later end, and no row is ever removed.
func (s *Store) olderNode(ctx context.Context, lease NodeLease) (bool, error) {
	var token []byte
	var expires int64
	err := s.reads.QueryRowContext(ctx, selectNode, lease.No).Scan(&token, &expires)
	if errors.Is(err, sql.ErrNoRows) {
		return true, nil
	}
	return expires < lease.Expires.UnixMilli() && expires != 0, err
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
	found, err := s.affects(ctx, renewNode, expiresMs, lease.No, lease.Token[:])
	if err == nil && !found {
		return ErrStale
	}
	return err
}

// affects reports whether a statement found a row to change.
func (s *Store) affects(ctx context.Context, statement string, args ...any) (bool, error) {
	res, err := s.db.ExecContext(ctx, statement, args...)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// Nodes returns all brokers that ever had a number, by number.
func (s *Store) Nodes(ctx context.Context) ([]Node, error) {
	var out []Node
	err := repeat(ctx, "list the nodes", func(ctx context.Context) error {
		now, err := s.now(ctx, s.reads)
		if err != nil {
			return err
		}
		out, err = selectAll[Node](ctx, s.reads, selectNodes)
		for i := range out {
			out[i].Alive = out[i].Expires.UnixMilli() > now
		}
		return err
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
		return exec(ctx, s.db, expireNodes)
	})
}
