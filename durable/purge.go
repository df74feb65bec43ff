package durable

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// MinRetention is the shortest time for which a message is kept after it has reached the
// rational delay. Readers treat a job of a younger message without an outcome as open.
const MinRetention = time.Minute

// Most messages of a page are over. Each table therefore loses one range of its key, except
// for the rows that stay, which is far cheaper than a list of IDs.
var (
	deleteMessages    = deleteStretch("messages", "channel_no = ?", "id")
	deletePrioritised = deleteStretch("prioritised", "channel_no = ?\n  AND inv_priority = ?", "id")
	deleteDeliveries  = deleteStretch("deliveries", "consumer_no = ?", "message_id")
)

func deleteStretch(table, key, id string) string {
	return `
DELETE FROM ` + table + `
WHERE ` + key + `
  AND ` + id + ` > ?
  AND ` + id + ` <= ?
  AND ` + id + ` NOT IN (?...)`
}

const (
	deleteKeys = `
DELETE FROM message_keys
WHERE channel_no = ?
  AND msg_key IN (?...)`

	selectDeliveredStretch = `
SELECT message_id
FROM deliveries
WHERE consumer_no = ?
  AND message_id > ?
  AND message_id <= ?`
)

var (
	// The lock waits for a row that is inserted but not committed yet, as a scan does.
	takeHeads = locking(`
SELECT`+new(purgeHead).columns().names()+`
FROM messages
WHERE channel_no = ?
  AND id > ?
  AND id <= ?
ORDER BY id
LIMIT ?`, updateLock)

	// Of a purge and a redrive, the one that gets the lock first gets the dead letter.
	takeOldDead = locking(`
SELECT message_id
FROM dead_jobs
WHERE consumer_no = ?
  AND message_id > ?
  AND message_id <= ?
  AND (died_ms < ? OR disposal = 2)`, updateLock)
)

// jobTables are the tables that have rows of few jobs. A purge first reads the rows to remove
// from them, without locks (see deleteFound).
var jobTables = []jobTable{openJobs, deadJobs, newJobTable("attempts"), newJobTable("redrives"),
	newJobTable("exchanges"), newJobTable("awaiting_replies")}

// Purge removes the messages of an ID range whose jobs are all over, with all their rows, in
// one transaction. It also removes rows of jobs whose message is already gone. A message
// with an open job, of a replay for instance, or with a dead letter that must be kept, stays whole. Through must be
// older than any message that can still be inserted. Purge may be repeated, and several
// brokers may run it at once. ErrStale: the caller's copy takes the channel or a consumer for deleted,
// which it is not, has a consumer that the store lacks, as after a restored backup, or lacks one that
// was attached as of a time.
func (s *Store) Purge(ctx context.Context, p Purge) (out Purged, err error) {
	err = s.run(ctx, transaction{name: "purge", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		out, err = s.purge(ctx, tx, p)
		return err
	})
	return out, err
}

func (s *Store) purge(ctx context.Context, tx *sql.Tx, p Purge) (Purged, error) {
	over, keep, repeated, err := s.examine(ctx, tx, &p)
	if err != nil {
		return Purged{}, err
	}
	out := Purged{Last: p.Through, Removed: len(over), Kept: len(keep)}
	if err := p.noteRemoval(ctx, tx, s, over); err != nil {
		return Purged{}, err
	}
	if err := p.subtractStored(ctx, tx, s, keep); err != nil {
		return Purged{}, err
	}
	if err := p.removeMessages(ctx, tx, over, keep); err != nil {
		return Purged{}, err
	}
	for _, k := range p.Consumers {
		if err := p.removeJobs(ctx, tx, s, k.No, keep); err != nil {
			return Purged{}, err
		}
	}
	for i := range repeated {
		if err := p.removeJobs(ctx, tx, s, repeated[i].No, keep); err != nil {
			return Purged{}, err
		}
	}
	return out, nil
}

// Over returns the messages of a page that a Purge would remove, in order, without the rows of jobs whose
// message is gone. It changes nothing; what it returns may have an open job by the time of the Purge.
func (s *Store) Over(ctx context.Context, p Purge) (ids []ident.ID, out Purged, err error) {
	t := transaction{name: "look for messages that are over", harmless: true}
	err = s.run(ctx, t, func(ctx context.Context, tx *sql.Tx) error {
		ids = nil
		over, keep, _, err := s.examine(ctx, tx, &p)
		for _, h := range over {
			ids = append(ids, h.ID)
		}
		out = Purged{Last: p.Through, Removed: len(over), Kept: len(keep)}
		return err
	})
	return ids, out, err
}

// examine takes the messages of a page: those to remove, and those that stay, in order, with the replays
// that the page concerns. p.Through becomes the end of the page.
func (s *Store) examine(ctx context.Context, tx *sql.Tx, p *Purge) (over []purgeHead, keep []ident.ID,
	repeated []Replay, err error) {
	repeated, err = s.replaysOf(ctx, tx, *p)
	if err != nil {
		return nil, nil, nil, err
	}
	heads, err := selectAll[purgeHead](ctx, tx, s.dialect.sql(takeHeads), p.ChannelNo, p.After[:], p.Through[:], p.Limit)
	if err != nil {
		return nil, nil, nil, err
	}
	if len(heads) == p.Limit {
		p.Through = heads[len(heads)-1].ID
	}
	keep, err = s.unfinished(ctx, tx, *p, heads, repeated)
	if err != nil {
		return nil, nil, nil, err
	}
	over = slices.DeleteFunc(heads, func(h purgeHead) bool {
		_, kept := slices.BinarySearchFunc(keep, h.ID, ident.ID.Compare)
		return kept
	})
	return over, keep, repeated, nil
}

// unfinished returns the messages, in order, that have a job which is not over, or wait for a replay.
func (s *Store) unfinished(ctx context.Context, tx *sql.Tx, p Purge, heads []purgeHead, repeated []Replay) ([]ident.ID,
	error) {
	open := map[ident.ID]bool{}
	for _, h := range heads {
		// The caller does not know all its consumers yet, a replay wants it, or it is not to be removed.
		if h.Audience > len(p.Consumers) || replays(repeated, h.ID) || !p.may(h.ID) {
			open[h.ID] = true
		}
	}
	for _, k := range p.Consumers {
		var mine []ident.ID
		for _, h := range heads {
			if !k.Deleted() && k.Concerns(h.Head) && !open[h.ID] {
				mine = append(mine, h.ID)
			}
		}
		left, err := s.notOver(ctx, tx, p, k.No, mine)
		if err != nil {
			return nil, err
		}
		answering, err := s.answering(ctx, tx, p, k)
		if err != nil {
			return nil, err
		}
		left = append(left, answering...)
		for _, id := range left {
			open[id] = true
		}
	}
	var keep []ident.ID
	for _, h := range heads {
		if open[h.ID] {
			keep = append(keep, h.ID)
		}
	}
	return keep, nil
}

// notOver returns the messages whose job for the consumer is not over.
func (s *Store) notOver(ctx context.Context, tx *sql.Tx, p Purge, consumerNo uint32, ids []ident.ID) ([]ident.ID,
	error) {
	if len(ids) == 0 {
		return nil, nil
	}
	over, err := selectIDs(ctx, tx, selectDeliveredStretch, []any{consumerNo, p.After[:], p.Through[:]})
	if err != nil {
		return nil, err
	}
	if ids = without(ids, over); len(ids) == 0 {
		return ids, nil
	}
	over, err = selectIDs(ctx, tx, s.dialect.sql(takeOldDead), []any{consumerNo, p.After[:], p.Through[:], p.DeadBeforeMs})
	return without(ids, over), err
}

const selectAnswering = `
SELECT message_id
FROM exchanges
WHERE consumer_no = ?
  AND message_id > ?
  AND message_id <= ?
  AND (state = 1 OR state = 2 AND goes_back = 1)
  AND delivered_ms >= ?`

// answering returns the messages of the page whose exchange with the consumer is not over. With
// DeadBeforeMs, those that are as old as a dead letter that is removed count as over.
func (s *Store) answering(ctx context.Context, tx *sql.Tx, p Purge, k *Consumer) ([]ident.ID, error) {
	if k.Deleted() {
		return nil, nil
	}
	return selectIDs(ctx, tx, selectAnswering, []any{k.No, p.After[:], p.Through[:], p.DeadBeforeMs})
}

// without returns ids without the elements of others. It reuses the array of ids.
func without(ids, others []ident.ID) []ident.ID {
	gone := make(map[ident.ID]bool, len(others))
	for _, id := range others {
		gone[id] = true
	}
	return slices.DeleteFunc(ids, func(id ident.ID) bool { return gone[id] })
}

// removeMessages removes the rows of the messages themselves.
func (p *Purge) removeMessages(ctx context.Context, tx *sql.Tx, over []purgeHead, keep []ident.ID) error {
	if len(over) == 0 {
		return nil
	}
	n, err := p.removeStretch(ctx, tx, deleteMessages, keep, p.ChannelNo)
	if err != nil {
		return err
	}
	if n != int64(len(over)) { // never remove a message that was not examined
		return fmt.Errorf("%d messages would be removed where %d are over", n, len(over))
	}
	if err := p.removeChain(ctx, tx, over); err != nil {
		return err
	}
	var keys []any
	levels := map[int]bool{}
	for _, h := range over {
		if len(h.key) > 0 {
			keys = append(keys, h.key)
		}
		if h.Priority > 0 {
			levels[h.Priority] = true
		}
	}
	for _, part := range chunks(keys, deletedAtOnce) {
		if err := exec(ctx, tx, list(deleteKeys, len(part)), append([]any{p.ChannelNo}, part...)...); err != nil {
			return err
		}
	}
	for level := range levels {
		if _, err := p.removeStretch(ctx, tx, deletePrioritised, keep, p.ChannelNo, maxPriority-level); err != nil {
			return err
		}
	}
	return nil
}

// removeJobs removes the rows of a consumer's jobs, even if their message is already gone.
func (p *Purge) removeJobs(ctx context.Context, tx *sql.Tx, s *Store, consumerNo uint32, keep []ident.ID) error {
	for _, table := range jobTables {
		found, err := selectIDs(ctx, tx, table.stretch, []any{consumerNo, p.After[:], p.Through[:]})
		if err != nil {
			return err
		}
		for _, ids := range chunks(without(slices.Compact(found), keep), deletedAtOnce) {
			if err := s.removeRows(ctx, tx, table, consumerNo, ids); err != nil {
				return err
			}
		}
	}
	_, err := p.removeStretch(ctx, tx, deleteDeliveries, keep, consumerNo)
	return err
}

// removeStretch runs a DELETE over the page, except for the messages in keep, and returns
// the number of removed rows.
func (p *Purge) removeStretch(ctx context.Context, tx *sql.Tx, query string, keep []ident.ID,
	key ...any) (int64, error) {
	if len(keep) == 0 {
		keep = []ident.ID{p.After} // outside of every range that begins after it
	}
	args := append(slices.Clone(key), p.After[:], p.Through[:])
	for i := range keep {
		args = append(args, keep[i][:])
	}
	res, err := tx.ExecContext(ctx, list(query, len(keep)), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
