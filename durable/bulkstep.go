package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A BulkStep is the next rows of a bulk. One transaction stores their messages and schedules, what
// became of each row, and the checkpoint behind them. So a step that is killed anywhere is either
// done or not begun, and the next owner goes on from the checkpoint.
type BulkStep struct {
	By       BulkOwner
	From, To BulkPosition
	// Messages and Later are what the rows became, in the order of the rows, with IDs of one block
	// that has no other messages.
	Messages []*Message
	Later    []*Scheduled
	// Rows are the numbers of the rows: first of Messages, then of Later.
	Rows []int64
	// Bad are rows that became nothing.
	Bad []BadRow
	// Reason tells the producer why the store refuses a row.
	Reason func(error) string
	// Last: To is the end of the body.
	Last  bool
	Speed float64 // rows a second
	// PauseMs is the wait before an owner may expand the next rows: the bulk has a rate.
	PauseMs int64
	// Audience is the largest one of Messages.
	Audience int

	// Results are set by StepBulk, one for each of Messages and Later.
	Results []error
}

// stored are the messages of a step that are stored.
func (step *BulkStep) stored() (ids []ident.ID) {
	for i, m := range step.Messages {
		if step.Results != nil && step.Results[i] == nil {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

const (
	moveBulk = `
UPDATE bulks
SET
    state = ?,
    lease_ms = ?,
    next_ms = ?,
    total = ?,
    row_no = ?,
    byte_pos = ?,
    published = published + ?,
    rejected = rejected + ?,
    duplicates = duplicates + ?,
    speed = ?,
    changed_ms = ?
WHERE id = ?`

	insertBulkStep = `
INSERT INTO bulk_steps (
    bulk_id,
    first_id,
    last_id,
    audience,
    messages,
    jobs,
    complete,
    delivered
)
VALUES (?, ?, ?, ?, ?, ?, 0, 0)`

	insertBulkErrors = `
INSERT INTO bulk_errors (
    bulk_id,
    row_no,
    reason
)
VALUES (?, ...)`

	savepoint = `
SAVEPOINT row_set`

	backToSavepoint = `
ROLLBACK TO SAVEPOINT row_set`
)

// StepBulk stores a step. The results of its messages are those of Insert, those of its schedules
// are those of Schedule. ErrStale: nothing is stored; the caller refreshes what it knows and comes
// with new IDs. ErrBulkLost: nothing is stored, by this owner any more.
func (s *Store) StepBulk(ctx context.Context, node NodeLease, step *BulkStep) error {
	if step.Last {
		step.Results = nil // set by a run of this call
	}
	err := s.owning(ctx, "expand a bulk", step.By, func(ctx context.Context, tx *sql.Tx, b ownedBulk) error {
		if b.At == step.To && step.To != step.From {
			return nil // after a lost answer: the results are those of the run that was committed
		}
		if b.At != step.From || b.State != BulkRunning {
			return ErrBulkLost
		}
		step.Results = make([]error, len(step.Messages)+len(step.Later))
		if err := s.storeBulkRows(ctx, tx, node, step); err != nil {
			return err
		}
		return s.moveBulk(ctx, tx, b, step)
	})
	if err == nil {
		err = s.checkPassed(ctx, step.stored())
	}
	// The last step ends the right: after a lost answer it looks lost to the next run.
	if errors.Is(err, ErrBulkLost) && step.Last && step.Results != nil {
		b, e := s.BulkByID(ctx, step.By.ID)
		if e == nil && b.State == BulkDone && b.At == step.To && b.Owner == step.By.Owner && b.Fence == step.By.Fence {
			return nil
		}
	}
	return err
}

// storeBulkRows stores messages and schedules, and sets their results.
func (s *Store) storeBulkRows(ctx context.Context, tx *sql.Tx, node NodeLease, step *BulkStep) error {
	errs := step.Results
	todo := make([]entry, 0, len(step.Messages))
	for i, m := range step.Messages {
		if errs[i] = storable(m); errs[i] == nil {
			todo = append(todo, entry{m, i})
		}
	}
	for len(todo) > 0 { // one round, unless a key occurs twice in the step
		now, later, first := distinct(todo)
		slices.SortFunc(now, byKey)
		if err := s.insertHere(ctx, tx, node, now, errs); err != nil {
			return err
		}
		again, contested := resolveRepeated(later, first, errs)
		contested, err := s.resolveHere(ctx, tx, contested, errs)
		if err != nil {
			return err
		}
		todo = append(again, contested...)
	}
	for i, m := range step.Later {
		err := s.scheduleHere(ctx, tx, node, m)
		if err != nil && !rowResult(err) {
			return err
		}
		errs[len(step.Messages)+i] = err
	}
	return nil
}

// rowResult reports whether an error is the result of one row, beside which others are stored.
func rowResult(err error) bool {
	return errors.Is(err, ErrDuplicate) || errors.Is(err, ErrConflict) || errors.Is(err, ErrReused) ||
		errors.Is(err, ErrRejected)
}

// insertHere stores a part inside a transaction and sets a result for every entry. After an error
// the transaction must not be committed.
func (s *Store) insertHere(ctx context.Context, tx *sql.Tx, node NodeLease, part []entry, errs []error) error {
	if s.dialect == sqliteDialect {
		err := (&sqliteBatch{store: s, ctx: ctx, tx: tx, node: node}).insert(part, errs)
		if err == nil && slices.ContainsFunc(part, func(e entry) bool { return errors.Is(errs[e.i], ErrStale) }) {
			err = ErrStale
		}
		return err
	}
	rest, err := part, error(nil)
	if slices.ContainsFunc(part, func(e entry) bool { return e.Key != "" }) {
		rest, err = s.resolveHere(ctx, tx, part, errs)
	}
	for try := 0; err == nil && len(rest) > 0; try++ {
		if err = exec(ctx, tx, savepoint); err != nil {
			return err
		}
		w := newBuilder()
		v, e := s.sendRows(ctx, tx, w, node, rest)
		w.release()
		switch {
		case e == nil:
			spread(rest, errs, nil)
			return nil
		case v == stale:
			return ErrStale
		case v != bad && v != exists || try > 8:
			return e
		}
		if err = exec(ctx, tx, backToSavepoint); err != nil {
			return err
		}
		switch {
		case v == exists: // another transaction has stored a key since the read
			rest, err = s.resolveHere(ctx, tx, rest, errs)
		case len(rest) == 1:
			errs[rest[0].i] = fmt.Errorf("%w: %w", ErrRejected, withoutValues(e))
			return nil
		default:
			half := len(rest) / 2
			if err = s.insertHere(ctx, tx, node, rest[:half], errs); err == nil {
				err = s.insertHere(ctx, tx, node, rest[half:], errs)
			}
			return err
		}
	}
	return err
}

// resolveHere is resolve inside a transaction.
func (s *Store) resolveHere(ctx context.Context, tx *sql.Tx, part []entry, errs []error) ([]entry, error) {
	if len(part) == 0 {
		return nil, nil
	}
	if s.dialect == sqliteDialect {
		return (&sqliteBatch{store: s, ctx: ctx, tx: tx}).resolve(part, errs, func(entry) bool { return true })
	}
	rest, err := s.resolve(ctx, tx, part, errs)
	if err == nil && slices.ContainsFunc(part, func(e entry) bool { return errors.Is(errs[e.i], ErrStale) }) {
		err = ErrStale
	}
	return rest, err
}

// moveBulk stores what became of the rows of a step, and the checkpoint.
func (s *Store) moveBulk(ctx context.Context, tx *sql.Tx, b ownedBulk, step *BulkStep) error {
	published, duplicates, messages, jobs := 0, 0, 0, 0
	rejected := slices.Clone(step.Bad)
	for i, err := range step.Results {
		switch {
		case err == nil:
			published++
			if i < len(step.Messages) {
				messages++
				jobs += step.Messages[i].Head().Jobs()
			}
		case errors.Is(err, ErrDuplicate):
			duplicates++
		default:
			rejected = append(rejected, BadRow{step.Rows[i], step.Reason(err)})
		}
	}
	if messages > 0 {
		first, last := step.Messages[0].ID, step.Messages[len(step.Messages)-1].ID
		if err := exec(ctx, tx, insertBulkStep, b.ID[:], first[:], last[:], step.Audience, messages, jobs); err != nil {
			return err
		}
	}
	for _, part := range chunks(rejected, maxInList) {
		args := make([]any, 0, 3*len(part))
		for _, r := range part {
			args = append(args, b.ID[:], r.Row, []byte(cutTo(r.Reason, maxBadRow)))
		}
		if err := insertRows(ctx, tx, insertBulkErrors, args); err != nil {
			return err
		}
	}
	state, total := BulkRunning, max(b.Total, step.To.Row)
	lease, next := b.nowMs+BulkLease.Milliseconds(), b.nowMs+step.PauseMs
	if step.Last {
		state, total, lease, next = BulkDone, step.To.Row, 0, 0
	}
	err := exec(ctx, tx, moveBulk, state, lease, next, total, step.To.Row, step.To.Byte, published, len(rejected),
		duplicates,
		step.Speed, b.nowMs, b.ID[:])
	return err
}

// scheduleHere stores a schedule inside a transaction, or returns what has its Key.
func (s *Store) scheduleHere(ctx context.Context, tx *sql.Tx, node NodeLease, m *Scheduled) error {
	if err := storable(&m.Message); err != nil {
		return err
	}
	if err := exec(ctx, tx, savepoint); err != nil {
		return err
	}
	errs := []error{nil}
	err := s.scheduleRows(ctx, tx, node, []*Scheduled{m}, []int{0}, errs)
	if err == nil {
		return errs[0]
	}
	if !s.refusesRow(err) {
		return err
	}
	if _, e := tx.ExecContext(ctx, backToSavepoint); e != nil {
		return e
	}
	return s.scheduleRefused(ctx, tx, m, err)
}
