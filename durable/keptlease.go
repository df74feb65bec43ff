package durable

import (
	"context"
	"database/sql"

	"github.com/penstock-broker/penstock/internal/ident"
)

// A KeptLease is the lease of a pull job that a broker with an embedded Redis had when it stopped.
type KeptLease struct {
	ConsumerNo uint32
	ID         ident.ID // of the message
	Priority   int
	Attempt    int
	Token      string
	UntilMs    int64 // Unix ms of its end, by the clock of the broker's machine
}

const (
	insertKeptLeases = `
INSERT INTO kept_leases (
    consumer_no,
    message_id,
    priority,
    attempt,
    token,
    until_ms
)
VALUES (?, ...)`

	selectKeptLeases = `
SELECT
    consumer_no,
    message_id,
    priority,
    attempt,
    token,
    until_ms
FROM kept_leases
ORDER BY
    consumer_no,
    message_id`

	deleteKeptLeases = `
DELETE FROM kept_leases`
)

// KeepLeases stores leases for the next start, in place of those that are stored. Each job may have
// one.
func (s *Store) KeepLeases(ctx context.Context, leases []KeptLease) error {
	return s.run(ctx, transaction{name: "keep leases", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, deleteKeptLeases); err != nil {
			return err
		}
		for _, part := range chunks(leases, maxInList) {
			args := make([]any, 0, 6*len(part))
			for i := range part {
				l := &part[i]
				args = append(args, l.ConsumerNo, l.ID[:], l.Priority, l.Attempt, []byte(l.Token), l.UntilMs)
			}
			if _, err := tx.ExecContext(ctx, rows(insertKeptLeases, len(part), 6), args...); err != nil {
				return err
			}
		}
		return nil
	})
}

// TakeLeases returns the leases that KeepLeases stored last, and removes them: a second start must
// not restore leases that ended since the first. A broker that dies between TakeLeases and the
// restoration forgets them, as it forgets its leases when it is killed.
func (s *Store) TakeLeases(ctx context.Context) (leases []KeptLease, err error) {
	err = s.run(ctx, transaction{name: "take leases", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		var found []KeptLease
		err := each(ctx, tx, selectKeptLeases, nil, func(r *sql.Rows) error {
			var l KeptLease
			var token []byte
			err := r.Scan(&l.ConsumerNo, scanID{&l.ID}, &l.Priority, &l.Attempt, &token, &l.UntilMs)
			l.Token = string(token)
			found = append(found, l)
			return err
		})
		if err != nil {
			return err
		}
		if len(found) > 0 { // a transaction that is repeated after its commit finds none
			leases = found
		}
		_, err = tx.ExecContext(ctx, deleteKeptLeases)
		return err
	})
	if err != nil {
		return nil, err
	}
	return leases, nil
}
