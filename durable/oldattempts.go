package durable

import (
	"context"
	"database/sql"
	"slices"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A channel may keep the failed attempts of its jobs for a shorter time than its messages. Only attempts of
// jobs that are over are removed: those of an open job tell a repeated outcome from a new one. The channel keeps the
// time before which some were removed, which is written with the removal.

// OldAttempts is a request to remove one page of failed attempts.
type OldAttempts struct {
	ChannelNo, ConsumerNo uint32
	After, Through        ident.ID // of jobs of messages with After < ID <= Through
	BeforeMs              int64    // attempts that ended before it, Unix ms
	Limit                 int      // attempts to examine
}

const (
	selectAttemptStretch = `
SELECT
    message_id,
    at_ms
FROM attempts
WHERE consumer_no = ?
  AND message_id > ?
  AND message_id <= ?
ORDER BY message_id, at_ms
LIMIT ?`

	deleteOldAttempts = `
DELETE FROM attempts
WHERE consumer_no = ?
  AND message_id IN (?...)
  AND at_ms < ?`

	noteOldAttempts = `
UPDATE kept_channels
SET attempts_ms = ?
WHERE channel_no = ?
  AND attempts_ms < ?`

	selectAttemptsMs = `
SELECT attempts_ms
FROM kept_channels
WHERE channel_no = ?`
)

// RemoveOldAttempts removes a page of failed attempts of a consumer whose jobs are over, in one transaction. It
// returns After of the next page, Through after the last one, and the number of attempts that it removed. Of
// the last message of a page all old attempts go, so a page may remove more than it examines: at most those of
// one job.
func (s *Store) RemoveOldAttempts(ctx context.Context, p OldAttempts) (last ident.ID, removed int64, err error) {
	t := transaction{name: "remove old attempts", harmless: true}
	err = s.run(ctx, t, func(ctx context.Context, tx *sql.Tx) error {
		last, removed, err = s.removeOldAttempts(ctx, tx, p)
		return err
	})
	return last, removed, err
}

func (s *Store) removeOldAttempts(ctx context.Context, tx *sql.Tx, p OldAttempts) (last ident.ID, removed int64,
	err error) {
	last = p.Through
	var old []ident.ID
	examined := 0
	args := []any{p.ConsumerNo, p.After[:], p.Through[:], p.Limit}
	err = each(ctx, tx, selectAttemptStretch, args, func(r *sql.Rows) error {
		var id ident.ID
		var atMs int64
		err := r.Scan(asID{&id}, &atMs)
		if examined++; examined == p.Limit {
			last = id
		}
		if atMs < p.BeforeMs && (len(old) == 0 || old[len(old)-1] != id) {
			old = append(old, id)
		}
		return err
	})
	if err != nil || len(old) == 0 {
		return last, 0, err
	}
	for _, ids := range chunks(old, deletedAtOnce) {
		open, err := selectIDs(ctx, tx, list(openJobs.find, len(ids)), inArgs(p.ConsumerNo, ids))
		if err != nil {
			return last, 0, err
		}
		if ids = without(slices.Clone(ids), open); len(ids) == 0 {
			continue
		}
		res, err := tx.ExecContext(ctx, list(deleteOldAttempts, len(ids)), append(inArgs(p.ConsumerNo, ids), p.BeforeMs)...)
		if err != nil {
			return last, 0, err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return last, 0, err
		}
		removed += n
	}
	if removed == 0 {
		return last, 0, nil
	}
	if err := s.keepChannel(ctx, tx, p.ChannelNo); err != nil {
		return last, 0, err
	}
	return last, removed, exec(ctx, tx, noteOldAttempts, p.BeforeMs, p.ChannelNo, p.BeforeMs)
}

// AttemptsRemovedMs returns the time before which failed attempts of jobs of a channel that were over may have
// been removed, Unix ms. 0: none were.
func (s *Store) AttemptsRemovedMs(ctx context.Context, channelNo uint32) (ms int64, err error) {
	err = repeat(ctx, "read which attempts were removed", func(ctx context.Context) error {
		return orNothing(s.reads.QueryRowContext(ctx, selectAttemptsMs, channelNo).Scan(&ms))
	})
	return ms, err
}

// RemovedAttempts returns the time before which failed attempts of a job were removed, Unix ms, where fewer are there
// than the job had. 0: none is missing. over says whether the job is; removedMs is that of AttemptsRemovedMs.
func RemovedAttempts(id ident.ID, over bool, attempts, there int, removedMs int64) int64 {
	if !over || there >= attempts || removedMs <= id.Millis() {
		return 0
	}
	return removedMs
}
