package durable

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
)

// Each upsert keeps the newer outcome, so a repeated or late outcome changes nothing. MySQL
// deprecates VALUES(), but MariaDB lacks its successor, and both support VALUES().
var (
	// attempts comes last, because the conditions before it need its stored value.
	upsertOpenJobs = statement{
		mysql: insertOpenJobs + `
ON DUPLICATE KEY UPDATE
    next_ms = IF(VALUES(attempts) > attempts, VALUES(next_ms), next_ms),
    changed_ms = IF(VALUES(attempts) > attempts, VALUES(changed_ms), changed_ms),
    status_code = IF(VALUES(attempts) > attempts, VALUES(status_code), status_code),
    error = IF(VALUES(attempts) > attempts, VALUES(error), error),
    leases_lost = IF(VALUES(attempts) > attempts, leases_lost + VALUES(leases_lost), leases_lost),
    attempts = GREATEST(attempts, VALUES(attempts))`,
		sqlite: insertOpenJobs + `
ON CONFLICT DO UPDATE SET
    next_ms = excluded.next_ms,
    changed_ms = excluded.changed_ms,
    status_code = excluded.status_code,
    error = excluded.error,
    leases_lost = leases_lost + excluded.leases_lost,
    attempts = excluded.attempts
WHERE excluded.attempts > attempts`,
	}

	// A give-back that is older than a stored attempt changes nothing, and no failure is forgotten.
	upsertGivenBack = statement{
		mysql: insertGivenBack + `
ON DUPLICATE KEY UPDATE
    next_ms = IF(VALUES(attempts) >= attempts, VALUES(next_ms), next_ms),
    changed_ms = IF(VALUES(attempts) >= attempts, VALUES(changed_ms), changed_ms),
    given_back = IF(VALUES(attempts) >= attempts, given_back + 1, given_back),
    attempts = GREATEST(attempts, VALUES(attempts))`,
		sqlite: insertGivenBack + `
ON CONFLICT DO UPDATE SET
    next_ms = excluded.next_ms,
    changed_ms = excluded.changed_ms,
    given_back = given_back + 1,
    attempts = excluded.attempts
WHERE excluded.attempts >= attempts`,
	}

	insertDeadJobs = ignoring(`
INSERT INTO dead_jobs (
    consumer_no,
    message_id,
    priority,
    attempts,
    died_ms,
    status_code,
    reason,
    answer,
    reason_code,
    redrives,
    disposal,
    leases_lost,
    given_back,
    worker,
    fingerprint
)
VALUES (?, ...)`)
)

const (
	openJobColumns = `
    consumer_no,
    message_id,
    priority,
    attempts,
    next_ms,
    changed_ms,
    status_code,
    error`

	insertOpenJobs = `
INSERT INTO open_jobs (` + openJobColumns + `,
    leases_lost
)
VALUES (?, ...)`

	insertGivenBack = `
INSERT INTO open_jobs (` + openJobColumns + `,
    given_back
)
VALUES (?, ...)`

	// For MySQL the builder writes it.
	insertDeliveriesSQLite = `
INSERT INTO deliveries (
    consumer_no,
    message_id,
    attempts,
    at_ms,
    status_code,
    node,
    duration_ms,
    worker
)
VALUES (?, ...)
ON CONFLICT DO NOTHING`
)

// Record stores the ends of attempts, all of them or none. It may be called with the same
// outcomes again and repeats itself after broken connections; recorded outcomes do not
// change. A batch of untracked successes takes one statement. Record neither changes nor
// keeps outcomes.
func (s *Store) Record(ctx context.Context, outcomes []Outcome) error {
	if len(outcomes) == 0 {
		return nil
	}
	for i := range outcomes {
		if o := &outcomes[i]; o.Kind > OutcomeGivenBack || o.Attempts < 0 || o.Priority < 0 || o.Priority > maxPriority {
			return fmt.Errorf("durable: record: %w: outcome of message %s", ErrRejected, o.ID)
		}
	}
	l := sortOutcomes(outcomes)
	if s.dialect == mysqlDialect && len(l.delivered) == len(outcomes) && !l.tracked && !l.noticed && !l.answered &&
		len(outcomes) <= maxBatchRows {
		return repeat(ctx, "record deliveries", func(ctx context.Context) error {
			return s.recordDeliveries(ctx, s.db, l.delivered)
		})
	}
	err := s.recordBatch(ctx, l)
	if errors.Is(err, errDiedBefore) { // rare: two ends of one job
		l.singly = true
		err = s.recordBatch(ctx, l)
	}
	return err
}

func (s *Store) recordBatch(ctx context.Context, l outcomeBatch) error {
	return s.run(ctx, transaction{name: "record outcomes", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		return s.record(ctx, tx, l)
	})
}

// An outcomeBatch has outcomes by kind. Each kind is sorted by key, so two brokers that
// record the same jobs take the locks in the same order.
type outcomeBatch struct {
	delivered, retry, dead, back []Outcome
	tracked                      bool // some delivered job may have rows to remove
	noticed                      bool // some outcome has events to store
	answered                     bool // some delivered job has an exchange, or ends one
	singly                       bool // see buryAll
}

func sortOutcomes(outcomes []Outcome) outcomeBatch {
	all := slices.Clone(outcomes)
	slices.SortStableFunc(all, func(a, b Outcome) int {
		return cmp.Or(cmp.Compare(a.ConsumerNo, b.ConsumerNo), a.ID.Compare(b.ID), cmp.Compare(a.Attempts, b.Attempts))
	})
	var l outcomeBatch
	only := true // deliveries
	for i := range all {
		o := &all[i]
		l.noticed = l.noticed || o.Notices != 0
		if o.Kind != OutcomeDelivered {
			only = false
			continue
		}
		l.tracked = l.tracked || o.Tracked
		l.answered = l.answered || o.Exchange != nil || o.ReplyTo.ConsumerNo != 0
	}
	if only { // the usual case
		l.delivered = all
		return l
	}
	for _, o := range all {
		switch o.Kind {
		case OutcomeDelivered:
			l.delivered = append(l.delivered, o)
		case OutcomeRetry:
			l.retry = append(l.retry, o)
		case OutcomeDead:
			l.dead = append(l.dead, o)
		case OutcomeGivenBack:
			l.back = append(l.back, o)
		}
	}
	return l
}

func (s *Store) record(ctx context.Context, tx *sql.Tx, l outcomeBatch) (err error) {
	var died map[groupKey]*DeadGroup
	if len(l.retry)+len(l.dead)+len(l.back) > 0 {
		if died, err = s.recordFailures(ctx, tx, l); err != nil {
			return err
		}
	}
	if l.tracked {
		if err := s.recordTracked(ctx, tx, l.delivered); err != nil {
			return err
		}
	}
	for _, part := range chunks(l.delivered, maxBatchRows) {
		if err := s.recordDeliveries(ctx, tx, part); err != nil {
			return err
		}
	}
	if l.answered {
		if err := s.recordExchanges(ctx, tx, l.delivered); err != nil {
			return err
		}
	}
	if l.noticed {
		if err := s.recordStatus(ctx, tx, slices.Concat(l.delivered, l.retry, l.dead)); err != nil {
			return err
		}
	}
	return s.joinGroups(ctx, tx, died)
}

// recordTracked removes the rows of jobs that are delivered, and stores the notes of their deliveries.
func (s *Store) recordTracked(ctx context.Context, tx *sql.Tx, delivered []Outcome) error {
	tracked := slices.DeleteFunc(slices.Clone(delivered), func(o Outcome) bool { return !o.Tracked })
	if err := s.deleteFound(ctx, tx, openJobs, tracked); err != nil {
		return err
	}
	if err := s.deleteFound(ctx, tx, deadJobs, tracked); err != nil {
		return err
	}
	noted := slices.DeleteFunc(tracked, func(o Outcome) bool { return o.Note == "" })
	for i := range noted {
		noted[i].Error = noted[i].Note
	}
	return s.recordAttempts(ctx, tx, noted)
}

func (s *Store) recordDeliveries(ctx context.Context, q querier, part []Outcome) error {
	if s.dialect == mysqlDialect {
		w := newBuilder()
		defer w.release()
		return exec(ctx, q, w.deliveries(part))
	}
	return write(ctx, q, insertDeliveriesSQLite, part, func(o *Outcome) []any {
		return []any{o.ConsumerNo, o.ID[:], o.Attempts, o.AtMs, o.StatusCode, orNull(o.node()), orNull(o.duration()),
			asOptional{&o.Worker}}
	})
}

// recordFailures stores the failures and give-backs that are not recorded yet. An outcome whose attempt is
// recorded is a repetition, and must not end a job that was redriven since. It returns how groups of
// dead letters grow.
func (s *Store) recordFailures(ctx context.Context, tx *sql.Tx, l outcomeBatch) (map[groupKey]*DeadGroup, error) {
	retry, dead, back := l.retry, l.dead, l.back
	known, err := recorded(ctx, tx, retry, dead, back)
	if err != nil {
		return nil, err
	}
	isKnown := func(o Outcome) bool { return known[attemptKey{o.ConsumerNo, o.ID, o.AtMs, o.attempt()}] }
	retry = slices.DeleteFunc(slices.Clone(retry), isKnown)
	dead = slices.DeleteFunc(slices.Clone(dead), isKnown)
	back = slices.DeleteFunc(slices.Clone(back), isKnown)

	all := slices.Concat(retry, dead, back)
	slices.SortStableFunc(all, func(a, b Outcome) int {
		return cmp.Or(cmp.Compare(a.ConsumerNo, b.ConsumerNo), a.ID.Compare(b.ID))
	})
	if err := s.countFailures(ctx, tx, all); err != nil {
		return nil, err
	}
	if err := s.recordAttempts(ctx, tx, all); err != nil {
		return nil, err
	}
	if err := s.upsertOpen(ctx, tx, retry, back); err != nil {
		return nil, err
	}
	counts, err := deleteOpen(ctx, tx, dead)
	if err != nil || len(dead) == 0 {
		return nil, err
	}
	return s.buryAll(ctx, tx, dead, counts, l.singly)
}

// upsertOpen stores the rows of jobs that are to be tried again.
func (s *Store) upsertOpen(ctx context.Context, tx *sql.Tx, retry, back []Outcome) error {
	err := write(ctx, tx, s.dialect.sql(upsertOpenJobs), retry, func(o *Outcome) []any {
		return []any{o.ConsumerNo, o.ID[:], o.Priority, o.Attempts, o.NextMs, o.AtMs, o.StatusCode, note(o.Error),
			o.lost()}
	})
	if err != nil {
		return err
	}
	return write(ctx, tx, s.dialect.sql(upsertGivenBack), back, func(o *Outcome) []any {
		return []any{o.ConsumerNo, o.ID[:], o.Priority, o.Attempts, o.NextMs, o.AtMs, 0, []byte{}, 1}
	})
}
