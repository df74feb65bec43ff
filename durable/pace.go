package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// A PaceMode says how fast an adaptive consumer is delivered to.
type PaceMode uint8

// The modes of a pace.
const (
	PaceNormal    PaceMode = iota // as fast as the consumer keeps up with
	PaceSlow                      // one attempt a second
	PaceHeartbeat                 // one attempt a minute
)

// String returns the name of the mode as clients see it.
func (m PaceMode) String() string {
	switch m {
	case PaceSlow:
		return "SLOW"
	case PaceHeartbeat:
		return "HEARTBEAT"
	default:
		return "NORMAL"
	}
}

// A Pace is how fast an adaptive consumer is delivered to, with the attempts of the present period,
// of all brokers.
type Pace struct {
	ConsumerNo uint32
	Mode       PaceMode
	PerSecond  int   // PaceNormal: most attempts in a second; 0: no bound
	Good       int   // attempts that the consumer coped with
	Strained   int   // the others
	SinceMs    int64 // begin of the period; 0: the consumer has no row yet
}

func (p *Pace) columns() columns {
	return columns{
		{"consumer_no", &p.ConsumerNo},
		{"mode", &p.Mode},
		{"rate", &p.PerSecond},
		{"good", &p.Good},
		{"strained", &p.Strained},
		{"since_ms", &p.SinceMs},
	}
}

// count are the columns that change.
func (p *Pace) count() columns { return p.columns()[1:] }

var (
	// The lock keeps a change of the URL, which ends the pace, from coming in between.
	selectPacedURL = locking(`
SELECT callback_url
FROM consumers
WHERE no = ?
  AND deleted_no = 0`, updateLock)

	selectPace = locking(`
SELECT`+new(Pace).count().names()+`
FROM paces
WHERE consumer_no = ?`, updateLock)

	insertPace = keepFirst(`
INSERT INTO paces (`+new(Pace).columns().names()+`
)
VALUES (?, 0, 0, 0, 0, ?)`, "consumer_no")

	updatePace = `
UPDATE paces
SET` + new(Pace).count().sets() + `
WHERE consumer_no = ?`

	selectPaces = `
SELECT` + new(Pace).columns().names() + `
FROM paces`
)

// CountPace adds attempts at a URL to the present period of a consumer, and then stores what next makes
// of the pace. It returns the pace before and after next. Of several brokers each sees the change of
// the one before, so one of them makes a transition. A consumer that is no longer normal has an
// alert. Attempts at a former URL, or of a deleted consumer, change nothing: both paces are zero.
func (s *Store) CountPace(ctx context.Context, consumerNo uint32, url string, good, strained int, nowMs int64,
	next func(Pace) Pace) (before, after Pace, err error) {
	err = s.run(ctx, transaction{name: "count attempts of an adaptive consumer", harmless: true}, func(ctx context.Context,
		tx *sql.Tx) error {
		before, after = Pace{}, Pace{}
		var now string
		err := tx.QueryRowContext(ctx, s.dialect.sql(selectPacedURL), consumerNo).Scan(asBytes{&now})
		if errors.Is(err, sql.ErrNoRows) || err == nil && now != url {
			return nil
		}
		if err != nil {
			return err
		}
		// The row is created first: two transactions that both found none would overwrite each other.
		if err := exec(ctx, tx, s.dialect.sql(insertPace), consumerNo, nowMs); err != nil {
			return err
		}
		p := Pace{ConsumerNo: consumerNo}
		if err := tx.QueryRowContext(ctx, s.dialect.sql(selectPace), consumerNo).Scan(p.count().fields()...); err != nil {
			return err
		}
		p.Good, p.Strained = p.Good+good, p.Strained+strained
		before, after = p, next(p)
		if err := exec(ctx, tx, updatePace, append(after.count().fields(), consumerNo)...); err != nil {
			return err
		}
		if before.Mode != PaceNormal || after.Mode == PaceNormal {
			return nil
		}
		reason := fmt.Sprintf("%d of %d attempts failed within a period; it gets one attempt a second", p.Strained,
			p.Good+p.Strained)
		err = s.raise(ctx, tx, Alert{Event: ConsumerSlow, ConsumerNo: consumerNo, AtMs: after.SinceMs, Reason: reason})
		if errors.Is(err, ErrNotFound) { // it was deleted
			return nil
		}
		return err
	})
	return before, after, err
}

// Paces returns all stored paces, one for each consumer that was ever adaptive and had an attempt.
func (s *Store) Paces(ctx context.Context) ([]Pace, error) {
	return readAll[Pace](ctx, s, "read paces", selectPaces)
}
