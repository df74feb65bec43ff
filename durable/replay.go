package durable

import (
	"context"
	"database/sql"
	"errors"

	"github.com/penstock-broker/penstock/internal/ident"
)

// A replay gives a consumer jobs of the past once more. Its number is from the sequence of consumer
// numbers, and every table of outcomes takes it as a consumer: the outcomes of the consumer itself
// stay as they are. Its jobs have no row while they wait; see docs/decisions/029.

// A ReplayState says whether a replay makes jobs. The order counts: what is at least ReplayDone
// has ended.
type ReplayState uint8

// The states of a replay.
const (
	ReplayRunning ReplayState = iota
	ReplayPaused
	ReplayDone
	ReplayCancelled
)

// String returns the name of the state as clients see it.
func (s ReplayState) String() string {
	return [...]string{"RUNNING", "PAUSED", "DONE", "CANCELLED"}[min(s, ReplayCancelled)]
}

// Ended reports whether the replay makes no jobs any more.
func (s ReplayState) Ended() bool { return s >= ReplayDone }

// A ReplayOf says which jobs of the consumer a replay repeats.
type ReplayOf uint8

// The values of ReplayOf.
const (
	ReplayDelivered ReplayOf = iota
	ReplayDead
	ReplayAll // both
)

// String returns the name as clients see it.
func (o ReplayOf) String() string { return [...]string{"delivered", "dead", "all"}[min(o, ReplayAll)] }

// Matches reports whether a replay repeats a job of that state. A job that is open is delivered
// anyway, so it matches nothing.
func (o ReplayOf) Matches(s JobStatus) bool {
	return s == Delivered && o != ReplayDead || s == Dead && o != ReplayDelivered
}

// A Replay is the messages of a time, delivered to a consumer once more. All but its progress and
// state is fixed when it is created.
type Replay struct {
	No             uint32
	ChannelNo      uint32
	ConsumerNo     uint32
	After, Through ident.ID // messages with After < ID <= Through
	Of             ReplayOf
	Filter         string // "": all messages
	Rate           string // of package policy, "": no rate of its own
	State          ReplayState
	CreatedMs      int64
	StateMs        int64 // Unix ms of the last change of the state
	RemovedMs      int64 // messages before that time may have been removed, Unix ms; 0: none
	Matched, Bytes int64 // counted at the begin
	Estimated      bool  // Matched and Bytes
	// Settled is the progress: each message up to it is not repeated, or its job has an outcome or
	// a row in open_jobs. Jobs and JobBytes are those jobs and the bytes of their messages.
	Settled         ident.ID
	Jobs, JobBytes  int64
	Delivered, Dead int64 // of a replay that has ended; see ReplayCounts
	Version         int64
}

// ErrReplayRunning means that the consumer has a replay which has not ended.
var ErrReplayRunning = errors.New("durable: the consumer has a replay")

// ErrReplayEnded means that a replay has ended, so its state does not change any more.
var ErrReplayEnded = errors.New("durable: the replay has ended")

// replaysKept is the number of replays that are kept for one consumer.
const replaysKept = 100

// columns are those of the table replays.
func (r *Replay) columns() columns {
	return columns{
		{"no", &r.No},
		{"channel_no", &r.ChannelNo},
		{"consumer_no", &r.ConsumerNo},
		{"after_id", scanID{&r.After}},
		{"through_id", scanID{&r.Through}},
		{"selected", &r.Of},
		{"filter", asBytes{&r.Filter}},
		{"rate", asBytes{&r.Rate}},
		{"state", &r.State},
		{"created_ms", &r.CreatedMs},
		{"state_ms", &r.StateMs},
		{"removed_ms", &r.RemovedMs},
		{"matched", &r.Matched},
		{"bytes", &r.Bytes},
		{"estimated", &r.Estimated},
		{"settled_id", scanID{&r.Settled}},
		{"jobs", &r.Jobs},
		{"job_bytes", &r.JobBytes},
		{"delivered", &r.Delivered},
		{"dead", &r.Dead},
		{"version", &r.Version},
	}
}

// end are the columns that may change with the state.
func (r *Replay) end() columns {
	return r.columns().only("state", "state_ms", "matched", "bytes", "estimated", "delivered", "dead", "version")
}

var (
	fromReplays = `
SELECT` + new(Replay).columns().names() + `
FROM replays`

	selectReplay = fromReplays + `
WHERE no = ?`

	// The newest ones first.
	selectReplays = fromReplays + `
WHERE channel_no = ?
  AND consumer_no = ?
  AND no <= ?
ORDER BY no DESC
LIMIT ?`

	selectReplaysSince = fromReplays + `
WHERE version > ?
  AND (state < 2 OR state_ms > ?)
ORDER BY no`

	insertReplay = new(Replay).columns().insert("replays")

	updateReplayState = `
UPDATE replays
SET` + new(Replay).end().sets() + `
WHERE no = ?`
)

const (
	// Purge finds the rows of a job by the replay, which stays until the last one is gone.
	deleteOldReplays = `
DELETE FROM replays
WHERE channel_no = ?
  AND consumer_no = ?
  AND no < ?
  AND state >= 2
  AND NOT EXISTS (SELECT 1 FROM deliveries v WHERE v.consumer_no = replays.no)
  AND NOT EXISTS (SELECT 1 FROM dead_jobs d WHERE d.consumer_no = replays.no)
  AND NOT EXISTS (SELECT 1 FROM open_jobs o WHERE o.consumer_no = replays.no)
  AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.consumer_no = replays.no)`

	cancelReplays = `
UPDATE replays
SET
    state = 3,
    state_ms = ?,
    version = ?
WHERE channel_no = ?
  AND consumer_no = ?
  AND state < 2`

	// The condition makes one of two brokers count, if both repair the replay at that moment.
	advanceReplay = `
UPDATE replays
SET
    settled_id = ?,
    jobs = jobs + ?,
    job_bytes = job_bytes + ?
WHERE no = ?
  AND settled_id = ?
  AND state < 2`
)

// The lock orders the creation of a replay and the pages of retention, see Purge.
var lockChannel = locking(`
SELECT no
FROM channels
WHERE no = ?`, updateLock)

// CreateReplay stores a running replay, with a number, from the message after r.After. Retention
// keeps the messages of the replay from then on. ErrReplayRunning: the consumer has one that has
// not ended, which is returned. ErrNotFound: there is no such consumer.
func (s *Store) CreateReplay(ctx context.Context, r Replay) (out Replay, err error) {
	err = s.put(ctx, "create a replay", func(ctx context.Context, c change) error {
		k, err := selectOne[Consumer](ctx, c.tx, selectConsumerByNo, r.ConsumerNo)
		if err != nil {
			return orNotFound(err)
		}
		if k.Deleted() {
			return ErrNotFound
		}
		last, err := selectAll[Replay](ctx, c.tx, selectReplays, r.ChannelNo, r.ConsumerNo, 1<<32-1, replaysKept)
		if err != nil {
			return err
		}
		if len(last) > 0 && !last[0].State.Ended() {
			out = last[0]
			return ErrReplayRunning
		}
		var no uint32
		if err := c.tx.QueryRowContext(ctx, s.dialect.sql(lockChannel), r.ChannelNo).Scan(&no); err != nil {
			return err
		}
		out = r
		if out.No, err = c.next(ctx, selectConsumerMax, usedConsumer); err != nil {
			return err
		}
		out.State, out.Settled, out.CreatedMs, out.StateMs, out.Version = ReplayRunning, r.After, c.nowMs, c.nowMs, c.version
		if len(last) == replaysKept {
			oldest := last[replaysKept-1].No
			if _, err := c.tx.ExecContext(ctx, deleteOldReplays, r.ChannelNo, r.ConsumerNo, oldest+1); err != nil {
				return err
			}
		}
		_, err = c.tx.ExecContext(ctx, insertReplay, out.columns().fields()...)
		return err
	})
	return out, err
}

// Replay returns a replay by its number. ErrNotFound: there is none.
func (s *Store) Replay(ctx context.Context, no uint32) (out Replay, err error) {
	err = repeat(ctx, "read a replay", func(ctx context.Context) error {
		out, err = selectOne[Replay](ctx, s.reads, selectReplay, no)
		return orNotFound(err)
	})
	return out, err
}

// Replays returns up to limit replays of a consumer with a number up to from, the newest first.
func (s *Store) Replays(ctx context.Context, k Consumer, from uint32, limit int) ([]Replay, error) {
	return readAll[Replay](ctx, s, "list replays", selectReplays, k.ChannelNo, k.No, from, limit)
}

// SetReplayState changes the state of a replay that has not ended. For a state that ends it, all its
// outcomes are counted, which costs one range of an index. The replay in the same state is returned
// unchanged. ErrReplayEnded: it has ended.
func (s *Store) SetReplayState(ctx context.Context, no uint32, to ReplayState) (out Replay, err error) {
	var n ReplayCounts
	if to.Ended() { // before the transaction, which holds up other changes of the catalogue
		if n, err = s.countReplay(ctx, no, true); err != nil {
			return out, err
		}
	}
	err = s.put(ctx, "change the state of a replay", func(ctx context.Context, c change) error {
		if out, err = selectOne[Replay](ctx, c.tx, selectReplay, no); err != nil {
			return orNotFound(err)
		}
		switch {
		case out.State == to:
			return errUnchanged
		case out.State.Ended():
			return ErrReplayEnded
		}
		if to.Ended() {
			out.Delivered, out.Dead = n.Delivered, n.Dead
			if to == ReplayDone { // what was counted at the begin may have changed since
				out.Matched, out.Bytes, out.Estimated = n.Delivered+n.Dead, out.JobBytes, false
			}
		}
		out.State, out.StateMs, out.Version = to, c.nowMs, c.version
		_, err = c.tx.ExecContext(ctx, updateReplayState, append(out.end().fields(), no)...)
		return err
	})
	return out, err
}

// AdvanceReplay moves the progress of a replay over jobs jobs of that many bytes. It changes
// nothing and returns false if another broker has moved it, or if the replay has ended.
func (s *Store) AdvanceReplay(ctx context.Context, no uint32, from, to ident.ID, jobs, bytes int64) (moved bool, err error) {
	err = s.run(ctx, transaction{name: "advance a replay"}, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, advanceReplay, to[:], jobs, bytes, no, from[:])
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		moved = n == 1
		return err
	})
	return moved, err
}
