package durable

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A Purge is a request to remove one page of messages whose jobs are over. All jobs of deleted
// consumers are over.
type Purge struct {
	ChannelNo      uint32
	Consumers      []*Consumer // all consumers of the channel, by position, with the deleted ones
	Deleted        bool        // the channel is deleted: no other retention protects its messages
	After, Through ident.ID    // messages with After < ID <= Through
	// Dead letters that died before DeadBeforeMs, Unix ms, count as over. With 0 no dead
	// letter does.
	DeadBeforeMs int64
	Limit        int // messages to examine
	// Only, if not nil, are the messages that may be removed, in order. The others count as kept.
	Only []ident.ID
	// By is the limit of the channel that removes messages, AtMs the time, Unix ms: both are stored.
	By   Limit
	AtMs int64
}

// may reports whether the request lets a message go.
func (p *Purge) may(id ident.ID) bool {
	if p.Only == nil {
		return true
	}
	_, listed := slices.BinarySearchFunc(p.Only, id, ident.ID.Compare)
	return listed
}

// A Purged is the result of one Purge.
type Purged struct {
	Last    ident.ID // After of the next page: the last message examined, or Through
	Removed int      // number of removed messages
	Kept    int      // number of messages with a job that is not over
}

// A purgeHead has the fields of a message that its removal needs.
type purgeHead struct {
	Head
	key   []byte
	start []byte // of its headers
}

func (h *purgeHead) columns() columns {
	return append(h.Head.columns(), column{"msg_key", &h.key}, column{"SUBSTR(headers, 1, 22)", &h.start})
}

// keyed reports whether the message has an ordering key.
func (h *purgeHead) keyed() bool { return bytes.Equal(h.start, orderingPrefix) }

var selectReplaysWithin = fromReplays + `
WHERE channel_no = ?
  AND after_id < ?
  AND through_id > ?
ORDER BY no`

// The lock waits for the creation of a replay: one that is created later has read what this page
// removes, or sees that it is gone.
var shareChannel = locking(`
SELECT deleted_no <> 0
FROM channels
WHERE no = ?`, shareLock)

// replaysOf returns the replays of the channel with messages in the page. It reads them in the
// transaction: the caller may not know the newest one.
func (s *Store) replaysOf(ctx context.Context, tx *sql.Tx, p Purge) ([]Replay, error) {
	var deleted bool
	err := tx.QueryRowContext(ctx, s.dialect.sql(shareChannel), p.ChannelNo).Scan(&deleted)
	if errors.Is(err, sql.ErrNoRows) || err == nil && p.Deleted && !deleted {
		return nil, ErrStale
	}
	if err != nil {
		return nil, err
	}
	if err := p.ended(ctx, tx); err != nil {
		return nil, err
	}
	return selectAll[Replay](ctx, tx, selectReplaysWithin, p.ChannelNo, p.Through[:], p.After[:])
}

const selectEnded = `
SELECT
    no,
    deleted_no <> 0,
    since_id IS NOT NULL
FROM consumers
WHERE channel_no = ?`

// ended returns ErrStale unless the store has the consumers of the request, those that it takes
// for deleted are deleted, and the request lacks no consumer of older messages. The channel is
// locked, so that neither a restoration nor a new consumer comes between.
func (p *Purge) ended(ctx context.Context, tx *sql.Tx) error {
	type ending struct{ deleted, since bool }
	stored := make(map[uint32]ending, len(p.Consumers))
	err := each(ctx, tx, selectEnded, []any{p.ChannelNo}, func(r *sql.Rows) error {
		var no uint32
		var e ending
		err := r.Scan(&no, &e.deleted, &e.since)
		stored[no] = e
		return err
	})
	if err != nil {
		return err
	}
	for _, k := range p.Consumers {
		if e, known := stored[k.No]; !known || k.Deleted() && !e.deleted {
			return ErrStale
		}
		delete(stored, k.No)
	}
	for _, e := range stored { // that the request lacks
		if e.since && !e.deleted {
			return ErrStale
		}
	}
	return nil
}

// replays reports whether the message belongs to a replay that has not ended and has not passed it.
func replays(all []Replay, id ident.ID) bool {
	for i := range all {
		if r := &all[i]; !r.State.Ended() && id.Compare(r.Settled) > 0 && id.Compare(r.Through) <= 0 {
			return true
		}
	}
	return false
}

const selectDigests = `
SELECT digest
FROM ordered
WHERE channel_no = ?
  AND message_id IN (?...)`

// A row of a key goes with its last message.
const deleteOrderingKeys = `
DELETE FROM ordering_keys
WHERE channel_no = ?
  AND digest IN (?...)`

const deleteOrdered = `
DELETE FROM ordered
WHERE channel_no = ?
  AND message_id IN (?...)`

// removeChain removes the links of removed messages, and the rows of keys that end with them.
func (p *Purge) removeChain(ctx context.Context, tx *sql.Tx, over []purgeHead) error {
	var keyed []ident.ID
	for _, h := range over {
		if h.keyed() {
			keyed = append(keyed, h.ID)
		}
	}
	for _, ids := range chunks(keyed, deletedAtOnce) {
		args := inArgs(p.ChannelNo, ids)
		digests := []any{p.ChannelNo}
		err := each(ctx, tx, list(selectDigests, len(ids)), args, func(r *sql.Rows) error {
			var digest []byte
			err := r.Scan(&digest)
			digests = append(digests, digest)
			return err
		})
		if err != nil {
			return err
		}
		if n := len(digests) - 1; n > 0 {
			query := list(deleteOrderingKeys, n) + list("\n  AND last_id IN (?...)", len(ids))
			if err := exec(ctx, tx, query, append(digests, args[1:]...)...); err != nil {
				return err
			}
		}
		if err := exec(ctx, tx, list(deleteOrdered, len(ids)), args...); err != nil {
			return err
		}
	}
	return nil
}
