package durable

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"

	"github.com/penstock-broker/penstock/internal/model/auditlog"
	"github.com/penstock-broker/penstock/internal/model/cause"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A redrive of selected dead letters is a row with a cursor, which moves in steps: a step opens letters
// again, in the order of their messages, and moves the cursor over them in one transaction. So a crash
// repeats no letter and leaves none out, and of two brokers that do a step at once, one finds another
// cursor and does nothing. The jobs that it has opened have rows of redriving_jobs until they are over;
// the transaction that removes such a row counts its outcome.
//
// A redrive to another consumer opens no letter. It is a replay of that consumer, of the messages that are
// letters of the redrive when the replay comes to them; the redrive has the counts of the replay.

// ErrRedriveEnded means that a redrive is done or cancelled, so its state does not change any more.
var ErrRedriveEnded = errors.New("durable: the redrive has ended")

// ErrTooManyRedrives means that a consumer has as many redrives that have not ended as it may have.
var ErrTooManyRedrives = errors.New("durable: the consumer has too many redrives")

const (
	// MaxRedrives is the number of redrives of one consumer that have not ended.
	MaxRedrives = 16
	// MaxRedrivePicks is the number of single jobs that one redrive is asked for.
	MaxRedrivePicks = 1000
	// redrivesKept is the number of redrives that are kept for one consumer.
	redrivesKept = 100
	// clockSlack is how much later than the request a letter may have died by the clock of another broker.
	clockSlack = 1000
)

// A RedrivingState says whether a redrive goes on.
type RedrivingState uint8

// The states of a redrive. The numbers are stored.
const (
	RedriveRunning RedrivingState = iota
	RedrivePaused
	RedriveStopped // by its canary
	RedriveDone    // all letters are open again; their outcomes are still counted
	RedriveCancelled
)

// String returns the name of the state as clients see it.
func (s RedrivingState) String() string {
	return [...]string{"RUNNING", "PAUSED", "STOPPED", "DONE", "CANCELLED"}[min(s, RedriveCancelled)]
}

// Ended reports whether the redrive opens no letters any more.
func (s RedrivingState) Ended() bool { return s >= RedriveDone }

// A Redriving is a redrive of selected dead letters of a consumer.
type Redriving struct {
	DeadSelection
	No                 uint32 // of the redrives of the consumer
	Busy               bool   // a broker has something to do for it
	State              RedrivingState
	Most               int64 // letters; 0: all that are meant
	Picked             bool  // of the meant ones, those with a row of redriving_jobs only
	Rate               string
	Canary             bool
	TargetNo           uint32 // the consumer that gets the letters as a replay; 0: they are opened again
	ReplayNo           uint32 // that replay; 0: there is none yet
	CreatedMs, StateMs int64
	Reason             string // of the state
	Matched            int64  // counted at the begin
	Approximate        bool   // Matched
	Cursor             ident.ID
	Redriven           int64
	Delivered, Dead    int64
	Stage              int   // of a canary, from 0
	StageMs            int64 // of the last step in the stage
	// StageJobs are the jobs of the stage, StageOver those that are over, and StageAgain those that are
	// dead by the same cause again.
	StageJobs, StageOver, StageAgain int64
}

// ID is the ID of the redrive for clients.
func (r *Redriving) ID() string { return strconv.FormatUint(uint64(r.No), 10) }

// columns are those of the table redrivings.
func (r *Redriving) columns() columns {
	return append(columns{
		{"consumer_no", &r.ConsumerNo},
		{"no", &r.No},
		{"has_fingerprint", &r.HasFingerprint},
		{"fingerprint", &r.Fingerprint},
		{"reasons", &r.Reasons},
		{"from_ms", &r.FromMs},
		{"to_ms", &r.ToMs},
		{"most", &r.Most},
		{"picked", &r.Picked},
		{"rate", asBytes{&r.Rate}},
		{"canary", &r.Canary},
		{"target_no", &r.TargetNo},
		{"created_ms", &r.CreatedMs},
		{"matched", &r.Matched},
		{"approximate", &r.Approximate},
	}, r.progress()...)
}

// progress are the columns that change.
func (r *Redriving) progress() columns {
	return columns{
		{"busy", &r.Busy},
		{"state", &r.State},
		{"replay_no", &r.ReplayNo},
		{"state_ms", &r.StateMs},
		{"reason", asNote{&r.Reason}},
		{"cursor_id", asID{&r.Cursor}},
		{"redriven", &r.Redriven},
		{"delivered", &r.Delivered},
		{"dead", &r.Dead},
		{"stage", &r.Stage},
		{"stage_ms", &r.StageMs},
		{"stage_jobs", &r.StageJobs},
		{"stage_over", &r.StageOver},
		{"stage_again", &r.StageAgain},
	}
}

// A RedrivenJob is a row of redriving_jobs.
type RedrivenJob struct {
	ID          ident.ID
	MovedMs     int64 // 0: it is still to be opened
	Stage       int
	Fingerprint cause.Fingerprint // of the letter
}

func (j *RedrivenJob) columns() columns {
	return columns{
		{"message_id", asID{&j.ID}},
		{"moved_ms", &j.MovedMs},
		{"stage", &j.Stage},
		{"fingerprint", &j.Fingerprint},
	}
}

var (
	fromRedrivings = `
SELECT` + new(Redriving).columns().names() + `
FROM redrivings`

	selectRedriving = fromRedrivings + `
WHERE consumer_no = ?
  AND no = ?`

	takeRedriving = locking(selectRedriving, updateLock)

	// The newest ones first.
	selectRedrivings = fromRedrivings + `
WHERE consumer_no = ?
  AND no <= ?
ORDER BY no DESC
LIMIT ?`

	selectBusyRedrivings = fromRedrivings + `
WHERE busy = 1
  AND consumer_no >= ?
  AND (consumer_no > ? OR no > ?)
ORDER BY consumer_no, no
LIMIT ?`

	insertRedriving = new(Redriving).columns().insert("redrivings")

	updateRedriving = `
UPDATE redrivings
SET` + new(Redriving).progress().sets() + `
WHERE consumer_no = ?
  AND no = ?`

	fromRedrivingJobs = `
SELECT` + new(RedrivenJob).columns().names() + `
FROM redriving_jobs
WHERE consumer_no = ?
  AND no = ?`

	selectRedrivingJobs = fromRedrivingJobs + `
  AND message_id > ?
  AND moved_ms > 0
ORDER BY message_id
LIMIT ?`

	selectPicks = fromRedrivingJobs + `
  AND message_id > ?
  AND moved_ms = 0
ORDER BY message_id
LIMIT ?`

	takeRedrivingJobs = locking(fromRedrivingJobs+`
  AND message_id IN (?...)`, updateLock)

	putRedrivingJobs = statement{
		mysql: insertRedrivingJobs + `
ON DUPLICATE KEY UPDATE
    moved_ms = VALUES(moved_ms),
    stage = VALUES(stage),
    fingerprint = VALUES(fingerprint)`,
		sqlite: insertRedrivingJobs + `
ON CONFLICT DO UPDATE SET
    moved_ms = excluded.moved_ms,
    stage = excluded.stage,
    fingerprint = excluded.fingerprint`,
	}

	lockConsumer = locking(`
SELECT deleted_no <> 0
FROM consumers
WHERE no = ?`, updateLock)
)

const (
	insertRedrivingJobs = `
INSERT INTO redriving_jobs (
    consumer_no,
    no,
    message_id,
    moved_ms,
    stage,
    fingerprint
)
VALUES (?, ...)`

	selectRedrivingMax = `
SELECT
    COALESCE(MAX(no), 0),
    COALESCE(SUM(state < 3), 0)
FROM redrivings
WHERE consumer_no = ?`

	deleteOldRedrivings = `
DELETE FROM redrivings
WHERE consumer_no = ?
  AND no <= ?
  AND busy = 0
  AND state >= 3`

	deleteRedrivingJobs = `
DELETE FROM redriving_jobs
WHERE consumer_no = ?
  AND no = ?
  AND message_id IN (?...)`

	deletePicks = `
DELETE FROM redriving_jobs
WHERE consumer_no = ?
  AND no = ?
  AND moved_ms = 0`
)

// CreateRedriving stores a running redrive, with a number, of the letters that are dead by now; with
// picks, of those among them. ErrNotFound: there is no such consumer.
func (s *Store) CreateRedriving(ctx context.Context, r Redriving, picks []ident.ID) (out Redriving, err error) {
	err = s.run(ctx, transaction{name: "create a redrive"}, func(ctx context.Context, tx *sql.Tx) error {
		var deleted bool
		err := tx.QueryRowContext(ctx, s.dialect.sql(lockConsumer), r.ConsumerNo).Scan(&deleted)
		if err != nil {
			return orNotFound(err)
		}
		if deleted {
			return ErrNotFound
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		out = r
		var last uint32
		var running int
		if err := tx.QueryRowContext(ctx, selectRedrivingMax, r.ConsumerNo).Scan(&last, &running); err != nil {
			return err
		}
		if running >= MaxRedrives {
			return ErrTooManyRedrives
		}
		out.No, out.State, out.Busy, out.Picked = last+1, RedriveRunning, true, picks != nil
		out.CreatedMs, out.StateMs, out.StageMs = now, now, now
		if out.ToMs == 0 || out.ToMs > now {
			out.ToMs = now + clockSlack
		}
		if last >= redrivesKept {
			if err := exec(ctx, tx, deleteOldRedrivings, r.ConsumerNo, last+1-redrivesKept); err != nil {
				return err
			}
		}
		if err := s.putJobs(ctx, tx, &out, picks, 0, nil); err != nil {
			return err
		}
		auditlog.Note(ctx, nil, out)
		return exec(ctx, tx, insertRedriving, out.columns().fields()...)
	})
	return out, err
}

// putJobs writes rows of redriving_jobs.
func (s *Store) putJobs(ctx context.Context, tx *sql.Tx, r *Redriving, ids []ident.ID, movedMs int64,
	prints map[ident.ID]cause.Fingerprint) error {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, ident.ID.Compare)
	for _, part := range chunks(slices.Compact(ids), maxInList) {
		var args []any
		for _, id := range part {
			args = append(args, r.ConsumerNo, r.No, bytesOf(id), movedMs, r.Stage, prints[id])
		}
		if err := insertRows(ctx, tx, s.dialect.sql(putRedrivingJobs), args); err != nil {
			return err
		}
	}
	return nil
}

// A RedriveStep is a step of a redrive, from the cursor that the caller knows.
type RedriveStep struct {
	ConsumerNo, No uint32
	From, Through  ident.ID
	IDs            []ident.ID // letters that are meant, with From < ID <= Through
	NowMs          int64
}

// AdvanceRedriving opens letters again and moves the cursor over them. It returns the jobs that it has
// opened, due at NowMs, and the redrive after that. If the redrive is not running, or another broker has
// moved the cursor, it changes nothing. After ErrOutcomeUnknown the letters may be open.
func (s *Store) AdvanceRedriving(ctx context.Context, p RedriveStep) (moved []OpenJob, out Redriving, err error) {
	err = s.changeRedriving(ctx, p.ConsumerNo, p.No, func(ctx context.Context, tx *sql.Tx, r *Redriving) error {
		moved = nil
		if r.State != RedriveRunning || r.Cursor != p.From {
			return errUnchanged
		}
		prints := map[ident.ID]cause.Fingerprint{}
		for _, part := range chunks(p.IDs, maxInList) {
			found, err := s.takeDead(ctx, tx, r.ConsumerNo, part)
			if err != nil {
				return err
			}
			var meant []ident.ID
			for _, d := range found {
				if d.Disposal != Discarded && (!r.HasFingerprint || d.Fingerprint == r.Fingerprint) {
					meant, prints[d.ID] = append(meant, d.ID), d.Fingerprint
				}
			}
			if len(meant) == 0 {
				continue
			}
			jobs, err := s.reopenPart(ctx, tx, r.ConsumerNo, meant, p.NowMs, ByRequest)
			if err != nil {
				return err
			}
			moved = append(moved, jobs...)
		}
		ids := make([]ident.ID, len(moved))
		for i, j := range moved {
			ids[i] = j.ID
		}
		r.Cursor = p.Through
		if n := int64(len(moved)); n > 0 {
			r.Redriven, r.StageJobs, r.StageMs = r.Redriven+n, r.StageJobs+n, p.NowMs
		}
		return s.putJobs(ctx, tx, r, ids, p.NowMs, prints)
	}, &out)
	return moved, out, err
}

// A RedriveEnd is the outcome of a job that a redrive has opened.
type RedriveEnd struct {
	ID    ident.ID
	Dead  bool
	Again bool // dead, by the same cause
}

// SettleRedriving counts outcomes of jobs that a redrive has opened, each once.
func (s *Store) SettleRedriving(ctx context.Context, consumerNo, no uint32, ends []RedriveEnd) (out Redriving,
	err error) {
	err = s.changeRedriving(ctx, consumerNo, no, func(ctx context.Context, tx *sql.Tx, r *Redriving) error {
		of := make(map[ident.ID]RedriveEnd, len(ends))
		ids := make([]ident.ID, len(ends))
		for i, e := range ends {
			of[e.ID], ids[i] = e, e.ID
		}
		for _, part := range chunks(ids, maxInList) {
			args := append([]any{consumerNo}, inArgs(no, part)...)
			found, err := selectAll[RedrivenJob](ctx, tx, list(s.dialect.sql(takeRedrivingJobs), len(part)), args...)
			if err != nil {
				return err
			}
			if err := exec(ctx, tx, list(deleteRedrivingJobs, len(part)), args...); err != nil {
				return err
			}
			for _, j := range found {
				r.count(j, of[j.ID])
			}
		}
		return nil
	}, &out)
	return out, err
}

// count adds an outcome.
func (r *Redriving) count(j RedrivenJob, e RedriveEnd) {
	if e.Dead {
		r.Dead++
	} else {
		r.Delivered++
	}
	if j.Stage == r.Stage {
		r.StageOver++
		if e.Again {
			r.StageAgain++
		}
	}
}

// ChangeRedriving changes a redrive that has not ended, as f says: f gets the stored one, and may be
// called again. f returns false for no change. ErrRedriveEnded: it has ended. ErrNotFound: there is none.
func (s *Store) ChangeRedriving(ctx context.Context, consumerNo, no uint32, f func(r *Redriving) bool) (out Redriving,
	err error) {
	err = s.changeRedriving(ctx, consumerNo, no, func(ctx context.Context, tx *sql.Tx, r *Redriving) error {
		old, was := *r, r.State
		if !f(r) {
			return errUnchanged
		}
		auditlog.Note(ctx, old, *r)
		if was.Ended() {
			return ErrRedriveEnded
		}
		if was != r.State {
			now, err := s.now(ctx, tx)
			if err != nil {
				return err
			}
			r.StateMs = max(now, r.StateMs)
		}
		if r.State.Ended() {
			return exec(ctx, tx, deletePicks, consumerNo, no)
		}
		return nil
	}, &out)
	return out, err
}

// changeRedriving runs f with the locked row of a redrive in a transaction, and then stores the row.
func (s *Store) changeRedriving(ctx context.Context, consumerNo, no uint32, f func(context.Context, *sql.Tx,
	*Redriving) error, out *Redriving) error {
	err := s.run(ctx, transaction{name: "change a redrive"}, func(ctx context.Context, tx *sql.Tx) error {
		r, err := selectOne[Redriving](ctx, tx, s.dialect.sql(takeRedriving), consumerNo, no)
		if err != nil {
			return orNotFound(err)
		}
		*out = r
		if err := f(ctx, tx, &r); err != nil {
			return err
		}
		r.Busy = r.State == RedriveRunning || r.TargetNo == 0 && r.Redriven > r.Delivered+r.Dead
		*out = r
		return exec(ctx, tx, updateRedriving, append(r.progress().fields(), consumerNo, no)...)
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// Redriving returns a redrive. ErrNotFound: there is none.
func (s *Store) Redriving(ctx context.Context, consumerNo, no uint32) (out Redriving, err error) {
	err = repeat(ctx, "read a redrive", func(ctx context.Context) error {
		out, err = selectOne[Redriving](ctx, s.reads, selectRedriving, consumerNo, no)
		return orNotFound(err)
	})
	return out, err
}

// Redrivings returns up to limit redrives of a consumer with a number up to from, the newest first.
func (s *Store) Redrivings(ctx context.Context, consumerNo, from uint32, limit int) ([]Redriving, error) {
	return readAll[Redriving](ctx, s, "list redrives", selectRedrivings, consumerNo, from, limit)
}

// BusyRedrivings returns up to limit redrives for which there is something to do, by the numbers of consumer and
// redrive, after the redrive no of a consumer.
func (s *Store) BusyRedrivings(ctx context.Context, consumerNo, no uint32, limit int) ([]Redriving, error) {
	return readAll[Redriving](ctx, s, "find redrives", selectBusyRedrivings, consumerNo, consumerNo, no, limit)
}

// RedrivenJobs returns up to limit jobs that a redrive has opened and that are not counted as over, of
// messages after after.
func (s *Store) RedrivenJobs(ctx context.Context, r *Redriving, after ident.ID, limit int) ([]RedrivenJob, error) {
	return readAll[RedrivenJob](ctx, s, "list jobs of a redrive", selectRedrivingJobs, r.ConsumerNo, r.No, after[:], limit)
}

// RedrivePicks returns up to limit jobs that a redrive was asked for and has not opened, of messages
// after after.
func (s *Store) RedrivePicks(ctx context.Context, r *Redriving, after ident.ID, limit int) ([]ident.ID, error) {
	rows, err := readAll[RedrivenJob](ctx, s, "list the letters of a redrive", selectPicks, r.ConsumerNo, r.No, after[:],
		limit)
	ids := make([]ident.ID, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	return ids, err
}

// RedriveLetters returns those of the messages that are letters of a redrive: dead letters that it means and
// that are not discarded since. A redrive that was cancelled, or is not kept any more, has none.
func (s *Store) RedriveLetters(ctx context.Context, consumerNo, no uint32, ids []ident.ID) ([]ident.ID, error) {
	r, err := s.Redriving(ctx, consumerNo, no)
	if errors.Is(err, ErrNotFound) || err == nil && r.State == RedriveCancelled {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if r.Picked {
		picks, err := s.RedrivePicks(ctx, &r, ident.ID{}, MaxRedrivePicks)
		if err != nil {
			return nil, err
		}
		ids = slices.DeleteFunc(slices.Clone(ids), func(id ident.ID) bool { return !slices.Contains(picks, id) })
	}
	dead, err := s.DeadAmong(ctx, r.DeadSelection, ids)
	letters := make([]ident.ID, len(dead))
	for i, d := range dead {
		letters[i] = d.ID
	}
	return letters, err
}
