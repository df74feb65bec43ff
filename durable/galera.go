package durable

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A Galera cluster takes writes on each of its nodes. Three things that hold on one server do not hold
// there, and each has its remedy here:
//
//   - A node may answer a read before it has the commits of others. wsrep_sync_wait makes each statement wait
//     for them: session.go sets it on every connection.
//   - Locks are those of one node. A commit is refused where another node has changed a row that it writes
//     (error 1213, which is repeated), but not where another one has changed a row that it only reads. A
//     raise of the clock therefore does not wait for the inserts of other nodes: see checkPassed.
//   - GET_LOCK is of one node too: see leaseMigration.
//
// One broker uses one node. After an unknown outcome it asks where the statement was sent, and the row locks of
// that node say whether it is still under way.

// writesElsewhere reports whether the server is one of several that take writes.
func writesElsewhere(vars map[string]string) bool {
	return vars["wsrep_on"] == "ON" || vars["wsrep_on"] == "1"
}

// checkPassed is called with the messages that were found stored, before anybody is told. The guard of an
// insert has read the store's clock, and on one server a raise of the clock waits for that insert. On another
// node it does not: the insert may be ordered behind a raise that it did not see, and the scans may have
// passed its ID. Every such raise is seen now, since this node has all that was ordered before the insert. Then
// the settled watermarks go back to before the messages, and the clock tells all brokers to scan again, as after
// a step of the server's clock.
//
// An error means that the messages are stored, and that their producer must not be told yet.
func (s *Store) checkPassed(ctx context.Context, stored []ident.ID) error {
	if !s.clustered || len(stored) == 0 {
		return nil
	}
	oldest := slices.MinFunc(stored, ident.ID.Compare)
	return repeat(ctx, "check that no scan has passed", func(ctx context.Context) error {
		for {
			r, err := s.readClock(ctx, s.reads)
			if err != nil || oldest.Millis() >= r.FloorMs-MaxIDAge.Milliseconds() {
				return err
			}
			if err := s.RewindWatermarks(ctx, oldest.Previous()); err != nil {
				return err
			}
			next, _ := r.raised(0)
			next.Steps++
			if set, err := s.setClock(ctx, r, next); set || err != nil {
				s.tell("a commit was ordered so late that scans may have passed it; they go back", "late_ms",
					r.FloorMs-oldest.Millis())
				return err
			}
			if ctx.Err() != nil { // another broker raises the clock again and again
				return ctx.Err()
			}
		}
	})
}

// sendInTurn is sendPart with a round trip for each statement. A node rolls a transaction back where another
// one's commit conflicts with it, also between two statements. In a packet of several statements it carries on
// with the next one then, as if that were a transaction of its own: a message would be stored without its key.
func (s *Store) sendInTurn(ctx context.Context, conn *sql.Conn, w *builder, node NodeLease,
	part []entry) (verdict, error) {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return classify(err), err
	}
	if v, err := s.sendRows(ctx, tx, w, node, part); err != nil {
		_ = tx.Rollback() // the error of the rows is the cause
		return v, err
	}
	if err := tx.Commit(); err != nil {
		return classify(err), err
	}
	return 0, nil
}

// checkBatch is checkPassed for the results of an insert: those that it cannot check are unknown.
func (s *Store) checkBatch(ctx context.Context, batch []*Message, errs []error) {
	if !s.clustered {
		return
	}
	var ids []ident.ID
	for i, m := range batch {
		if errs[i] == nil {
			ids = append(ids, m.ID)
		}
	}
	if err := s.checkPassed(ctx, ids); err != nil {
		err = errors.Join(ErrOutcomeUnknown, err)
		for i := range batch {
			if errs[i] == nil {
				errs[i] = failedTo("insert", err)
			}
		}
	}
}

// The lease of the migrations, one row. Its table is made where it is first needed, since it is there before
// any migration.
const (
	createMigrationLease = `
CREATE TABLE IF NOT EXISTS migration_lease (
    no TINYINT UNSIGNED NOT NULL PRIMARY KEY,
    token BINARY(16) NOT NULL,
    expires_ms BIGINT NOT NULL
) ENGINE = InnoDB`

	insertMigrationLease = `
INSERT IGNORE INTO migration_lease (
    no,
    token,
    expires_ms
)
VALUES (0, '', 0)`

	takeMigrationLease = `
UPDATE migration_lease
SET
    token = ?,
    expires_ms = CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED) + ?
WHERE no = 0
  AND (token = ? OR expires_ms < CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED))`

	endMigrationLease = `
UPDATE migration_lease
SET expires_ms = 0
WHERE no = 0
  AND token = ?`
)

const (
	// migrationLease is how long others wait for a broker that died during a migration.
	migrationLease = 30 * time.Second
	// renewMigration is far more often, because the change of a large table holds all writes up.
	renewMigration = 3 * time.Second
)

// errMigrationLost means that another broker migrates, since this one did not renew its lease for too long.
var errMigrationLost = errors.New("durable: another broker has taken the migration over")

// leaseMigration waits until no broker of another node migrates. The context that it returns ends where the
// lease is lost; release ends the lease.
func (s *Store) leaseMigration(ctx context.Context) (leased context.Context, release func() error, err error) {
	if !s.clustered { // GET_LOCK is enough
		return ctx, func() error { return nil }, nil
	}
	var token [16]byte
	_, _ = rand.Read(token[:]) // never fails
	for _, statement := range []string{createMigrationLease, insertMigrationLease} {
		if err := repeat(ctx, "make the lease of migrations", func(ctx context.Context) error {
			return exec(ctx, s.db, statement)
		}); err != nil {
			return nil, nil, err
		}
	}
	for tries := 1; ; tries++ {
		held, err := s.takeMigration(ctx, token[:])
		if err != nil {
			return nil, nil, err
		}
		if held {
			break
		}
		if tries == 1 {
			s.tell("another broker brings the tables up to date; this one waits for it")
		}
		if err := wait(ctx, time.Second); err != nil {
			return nil, nil, err
		}
	}
	leased, lose := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for wait(leased, renewMigration) == nil {
			// Where the store does not answer, the change of the tables does not go on either.
			if held, err := s.takeMigration(leased, token[:]); err == nil && !held {
				lose(errMigrationLost)
			}
		}
	}()
	return leased, func() error {
		lost := context.Cause(leased)
		lose(nil)
		<-done
		if errors.Is(lost, errMigrationLost) {
			return lost
		}
		return exec(context.WithoutCancel(ctx), s.db, endMigrationLease, token[:])
	}, nil
}

// takeMigration takes or renews the lease.
func (s *Store) takeMigration(ctx context.Context, token []byte) (held bool, err error) {
	err = repeat(ctx, "lease the migration", func(ctx context.Context) error {
		held, err = s.affects(ctx, takeMigrationLease, token, migrationLease.Milliseconds(), token)
		return err
	})
	return held, err
}

// syncWait is what each session of a cluster has: reads (1), updates and deletes (2), inserts (4) wait for the
// commits of other nodes.
const (
	setSyncWait = `SET SESSION wsrep_sync_wait = 7`
	syncWait    = 7
)

// syncs reports whether the statements of a session wait for the commits of other nodes.
func syncs(vars map[string]string) bool {
	n, _ := strconv.Atoi(vars["wsrep_sync_wait"])
	return n&syncWait == syncWait
}
