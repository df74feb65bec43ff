package durable

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/internal/ident"
)

// MinRetention is how long a message is kept at least, counted from the age at which
// the fail-safe steps in: readers take what is younger and has no outcome for open.
const MinRetention = time.Minute

// A Purge asks for one page of a walk that removes what is over.
type Purge struct {
	ChannelNo      uint32
	Consumers      []*Consumer // all of the channel, by position
	After, Through ident.ID    // messages with After < ID <= Through
	// DeadBeforeMs: dead letters that died before that time, Unix ms, count as
	// over. 0: none does.
	DeadBeforeMs int64
	Limit        int // messages to look at
}

// A Purged is what one page came to.
type Purged struct {
	Last    ident.ID // go on behind it: the last message looked at, or Through
	Removed int      // messages
	Kept    int      // messages with a job that is not over
}

// Most of a page is over, so its rows are removed as one stretch of each key, without
// those that stay: by far cheaper than by a list of IDs.
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
	// The lock waits for a row that is inserted and not committed yet, as a walk does.
	takeHeads = statement{mysql: selectPurgeHeads + `
FOR UPDATE`, sqlite: selectPurgeHeads}

	// The lock makes one of a removal and a redrive the one that gets the dead letter.
	takeDead = statement{mysql: selectDeadBefore + `
FOR UPDATE`, sqlite: selectDeadBefore}
)

const (
	selectPurgeHeads = `
SELECT
    id,
    audience,
    priority,
    msg_key
FROM messages
WHERE channel_no = ?
  AND id > ?
  AND id <= ?
ORDER BY id
LIMIT ?`

	selectDeadBefore = `
SELECT message_id
FROM dead_jobs
WHERE consumer_no = ?
  AND message_id > ?
  AND message_id <= ?
  AND died_ms < ?`
)

// jobTables are the tables with rows of few jobs: what is to be removed from them is
// looked for first, without locks (see deleteFound).
var jobTables = []jobTable{openJobs, deadJobs, newJobTable("attempts")}

// Purge removes those messages of a stretch whose jobs are all over, with everything
// that is stored about them, all of it or nothing; rows of jobs whose message is gone
// already go too. A message with one job that is open, or a dead letter that is to be
// kept, stays whole. Through must be older than anything that can still be inserted.
// It may run again, and at several brokers at once.
func (s *Store) Purge(ctx context.Context, p Purge) (out Purged, err error) {
	err = s.run(ctx, transaction{name: "purge", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		out, err = s.purge(ctx, tx, p)
		return err
	})
	return out, err
}

// A purgeHead is what the removal of a message needs to know of it.
type purgeHead struct {
	Head
	key []byte
}

func (s *Store) purge(ctx context.Context, tx *sql.Tx, p Purge) (Purged, error) {
	var heads []purgeHead
	err := each(ctx, tx, s.dialect.sql(takeHeads), []any{p.ChannelNo, p.After[:], p.Through[:], p.Limit}, func(r *sql.Rows) error {
		var h purgeHead
		err := r.Scan(scanID{&h.ID}, &h.Audience, &h.Priority, &h.key)
		heads = append(heads, h)
		return err
	})
	if err != nil {
		return Purged{}, err
	}
	if len(heads) == p.Limit {
		p.Through = heads[len(heads)-1].ID
	}
	keep, err := s.unfinished(ctx, tx, p, heads)
	if err != nil {
		return Purged{}, err
	}
	out := Purged{Last: p.Through, Removed: len(heads) - len(keep), Kept: len(keep)}
	over := slices.DeleteFunc(heads, func(h purgeHead) bool {
		_, kept := slices.BinarySearchFunc(keep, h.ID, ident.ID.Compare)
		return kept
	})
	if err := p.removeMessages(ctx, tx, over, keep); err != nil {
		return Purged{}, err
	}
	for _, k := range p.Consumers {
		if err := p.removeJobs(ctx, tx, k.No, keep); err != nil {
			return Purged{}, err
		}
	}
	return out, nil
}

// unfinished returns the messages, in order, that have a job which is not over.
func (s *Store) unfinished(ctx context.Context, tx *sql.Tx, p Purge, heads []purgeHead) ([]ident.ID, error) {
	open := map[ident.ID]bool{}
	for _, h := range heads {
		if h.Audience > len(p.Consumers) { // we do not know all of them yet
			open[h.ID] = true
		}
	}
	for _, k := range p.Consumers {
		var mine []ident.ID
		for _, h := range heads {
			if k.Concerns(h.Head) && !open[h.ID] {
				mine = append(mine, h.ID)
			}
		}
		left, err := s.notOver(ctx, tx, p, k.No, mine)
		if err != nil {
			return nil, err
		}
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

// notOver returns those of the messages whose job of the consumer is not over.
func (s *Store) notOver(ctx context.Context, tx *sql.Tx, p Purge, consumerNo uint32, ids []ident.ID) ([]ident.ID, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	over, err := selectIDs(ctx, tx, selectDeliveredStretch, []any{consumerNo, p.After[:], p.Through[:]})
	if err != nil {
		return nil, err
	}
	if ids = without(ids, over); len(ids) == 0 || p.DeadBeforeMs == 0 {
		return ids, nil
	}
	over, err = selectIDs(ctx, tx, s.dialect.sql(takeDead), []any{consumerNo, p.After[:], p.Through[:], p.DeadBeforeMs})
	return without(ids, over), err
}

// without returns ids without those of others, in ids' place.
func without(ids, others []ident.ID) []ident.ID {
	gone := make(map[ident.ID]bool, len(others))
	for _, id := range others {
		gone[id] = true
	}
	return slices.DeleteFunc(ids, func(id ident.ID) bool { return gone[id] })
}

// removeMessages removes what is stored about the messages themselves.
func (p *Purge) removeMessages(ctx context.Context, tx *sql.Tx, over []purgeHead, keep []ident.ID) error {
	if len(over) == 0 {
		return nil
	}
	n, err := p.removeStretch(ctx, tx, deleteMessages, keep, p.ChannelNo)
	if err != nil {
		return err
	}
	if n != int64(len(over)) { // rather nothing than a message that nobody has looked at
		return fmt.Errorf("%d messages would be removed where %d are over", n, len(over))
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
		if _, err := tx.ExecContext(ctx, list(deleteKeys, len(part)), append([]any{p.ChannelNo}, part...)...); err != nil {
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

// removeJobs removes what is stored about jobs of a consumer, also where the message
// is gone already.
func (p *Purge) removeJobs(ctx context.Context, tx *sql.Tx, consumerNo uint32, keep []ident.ID) error {
	for _, table := range jobTables {
		found, err := selectIDs(ctx, tx, table.stretch, []any{consumerNo, p.After[:], p.Through[:]})
		if err != nil {
			return err
		}
		for _, ids := range chunks(without(slices.Compact(found), keep), deletedAtOnce) {
			if _, err := tx.ExecContext(ctx, list(table.remove, len(ids)), inArgs(consumerNo, ids)...); err != nil {
				return err
			}
		}
	}
	_, err := p.removeStretch(ctx, tx, deleteDeliveries, keep, consumerNo)
	return err
}

// removeStretch runs a DELETE over the page but for what stays, and returns how many
// rows it removed.
func (p *Purge) removeStretch(ctx context.Context, tx *sql.Tx, query string, keep []ident.ID, key ...any) (int64, error) {
	if len(keep) == 0 {
		keep = []ident.ID{p.After} // in no stretch that begins behind it
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
