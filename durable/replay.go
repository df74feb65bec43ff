package durable

import (
	"context"
	"database/sql"
	"errors"

	"github.com/penstock-broker/penstock/internal/model/auditlog"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A replay gives a consumer jobs of the past once more. Its number is from the sequence of consumer
// numbers, and every table of outcomes takes it as a consumer: the outcomes of the consumer itself
// stay as they are. Its jobs have no row while they wait; see docs/decisions/029.

// ErrReplayRunning means that the consumer has a replay which has not ended.
var ErrReplayRunning = errors.New("durable: the consumer has a replay")

// ErrReplayEnded means that a replay has ended, so its state does not change any more.
var ErrReplayEnded = errors.New("durable: the replay has ended")

// replaysKept is the number of replays that are kept for one consumer.
const replaysKept = 100

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
			if err := exec(ctx, c.tx, deleteOldReplays, r.ChannelNo, r.ConsumerNo, oldest+1); err != nil {
				return err
			}
		}
		auditlog.Note(ctx, nil, out)
		return exec(ctx, c.tx, insertReplay, out.columns().fields()...)
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
		was := out
		if to.Ended() {
			out.Delivered, out.Dead = n.Delivered, n.Dead
			if to == ReplayDone { // what was counted at the begin may have changed since
				out.Matched, out.Bytes, out.Estimated = n.Delivered+n.Dead, out.JobBytes, false
			}
		}
		out.State, out.StateMs, out.Version = to, c.nowMs, c.version
		auditlog.Note(ctx, was, out)
		return exec(ctx, c.tx, updateReplayState, append(out.end().fields(), no)...)
	})
	return out, err
}

// AdvanceReplay moves the progress of a replay over jobs jobs of that many bytes. It changes
// nothing and returns false if another broker has moved it, or if the replay has ended.
func (s *Store) AdvanceReplay(ctx context.Context, no uint32, from, to ident.ID, jobs, bytes int64) (moved bool,
	err error) {
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

// A ReplayCounts is how far a replay is.
type ReplayCounts struct {
	Replayed  int64 // jobs of which a copy was sent
	Delivered int64
	Dead      int64
}

const (
	// The jobs of a replay that are dead, or wait for another attempt: all of them, and those of
	// messages up to the settled one.
	countReplayDead = `
SELECT
    COUNT(*),
    COALESCE(SUM(d.message_id <= ?), 0)` + deadIn

	countReplayOpen = `
SELECT
    COUNT(*),
    COALESCE(SUM(o.message_id <= ?), 0)` + openIn
)

// ReplayCounts counts the outcomes of a replay. The cost follows the jobs above the settled one, and
// the jobs that failed.
func (s *Store) ReplayCounts(ctx context.Context, r *Replay) (out ReplayCounts, err error) {
	if r.State.Ended() {
		return ReplayCounts{Replayed: r.Delivered + r.Dead, Delivered: r.Delivered, Dead: r.Dead}, nil
	}
	return s.countReplay(ctx, r.No, false)
}

// countReplay counts the outcomes of a replay; with all, each of them anew. Its progress counts the
// jobs of the broker that moved it, and a broker that looked after the replay before may have offered
// others. Retention removes messages below the progress with their outcomes, which then only the
// progress counts.
func (s *Store) countReplay(ctx context.Context, no uint32, all bool) (out ReplayCounts, err error) {
	err = s.run(ctx, transaction{
		name: "count a replay", options: &sql.TxOptions{Isolation: sql.LevelRepeatableRead,
			ReadOnly: true}, reads: true, harmless: true,
	}, func(ctx context.Context, tx *sql.Tx) error {
		r, err := selectOne[Replay](ctx, tx, selectReplay, no) // of the same moment as the counts
		if err != nil {
			return orNotFound(err)
		}
		if out, err = s.replayCounts(ctx, tx, &r); err != nil || !all {
			return err
		}
		r.Settled, r.Jobs = r.After, 0
		anew, err := s.replayCounts(ctx, tx, &r)
		if anew.Delivered > out.Delivered {
			out = anew
		}
		return err
	})
	return out, err
}

// replayCounts counts: below the settled message each job is delivered, dead or open.
func (s *Store) replayCounts(ctx context.Context, tx *sql.Tx, r *Replay) (out ReplayCounts, err error) {
	var above, dead, deadBelow, open, openBelow int64
	if err := tx.QueryRowContext(ctx, countDelivered, r.No, r.Settled[:], r.Through[:]).Scan(&above); err != nil {
		return out, err
	}
	args := []any{r.Settled[:], r.No, r.After[:], r.Through[:]}
	if err := tx.QueryRowContext(ctx, countReplayDead, args...).Scan(&dead, &deadBelow); err != nil {
		return out, err
	}
	if err := tx.QueryRowContext(ctx, countReplayOpen, args...).Scan(&open, &openBelow); err != nil {
		return out, err
	}
	out.Delivered, out.Dead = r.Jobs-deadBelow-openBelow+above, dead
	out.Replayed = out.Delivered + dead + open
	return out, nil
}

// A Sized is the head of a message with the bytes of its payload.
type Sized struct {
	Head
	Bytes int64
}

func (m *Sized) columns() columns {
	return append(m.Head.columns(), column{"LENGTH(payload)", &m.Bytes})
}

var selectSizes = `
SELECT` + new(Sized).columns().names() + `
FROM messages
WHERE channel_no = ?
  AND id > ?
  AND id <= ?
ORDER BY id
LIMIT ?`

// Sizes is Heads with the sizes of the messages, which must be older than the horizon of the
// reconciler. It takes no locks.
func (s *Store) Sizes(ctx context.Context, channelNo uint32, after, through ident.ID, limit int) ([]Sized, error) {
	return readAll[Sized](ctx, s, "read sizes of messages", selectSizes, channelNo, after[:], through[:], limit)
}
