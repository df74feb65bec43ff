package durable

import (
	"context"
	"database/sql"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A KeptLease is the lease of a pull job that a broker with an embedded Redis had when it stopped.
type KeptLease struct {
	ConsumerNo uint32
	ID         ident.ID // of the message
	Priority   int
	Attempt    int
	Token      string
	UntilMs    int64  // Unix ms of its end, by the clock of the broker's machine
	Worker     string // name;version of the worker that has it; empty: it did not say
}

func (l *KeptLease) columns() columns {
	return columns{
		{"consumer_no", &l.ConsumerNo},
		{"message_id", asID{&l.ID}},
		{"priority", &l.Priority},
		{"attempt", &l.Attempt},
		{"token", asBytes{&l.Token}},
		{"until_ms", &l.UntilMs},
		{"worker", asBytes{&l.Worker}},
	}
}

var (
	insertKeptLeases = new(KeptLease).columns().inserts("kept_leases")

	selectKeptLeases = `
SELECT` + new(KeptLease).columns().names() + `
FROM kept_leases
ORDER BY
    consumer_no,
    message_id`
)

const deleteKeptLeases = `
DELETE FROM kept_leases`

// KeepLeases stores leases for the next start, in place of those that are stored. Each job may have
// one.
func (s *Store) KeepLeases(ctx context.Context, leases []KeptLease) error {
	return s.run(ctx, transaction{name: "keep leases", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		if err := exec(ctx, tx, deleteKeptLeases); err != nil {
			return err
		}
		for _, part := range chunks(leases, maxInList) {
			var args []any
			for _, l := range part {
				args = append(args, l.columns().fields()...)
			}
			if err := insertRows(ctx, tx, insertKeptLeases, args); err != nil {
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
		found, err := selectAll[KeptLease](ctx, tx, selectKeptLeases)
		if err != nil {
			return err
		}
		if len(found) > 0 { // a transaction that is repeated after its commit finds none
			leases = found
		}
		return exec(ctx, tx, deleteKeptLeases)
	})
	if err != nil {
		return nil, err
	}
	return leases, nil
}
