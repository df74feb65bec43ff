package durable

import (
	"context"
	"database/sql"
	"errors"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A channel may have limits of its own on what is kept. Where the number or the size of its messages is
// limited, its messages are counted, in the order of their IDs, as stretches. A count moves counted_id in
// its transaction, so each message is counted once, whichever broker counts. Removals change no count: a
// limit is about the newest messages, and what is removed is older than these.

// A Limit is what a channel limits. The numbers are stored.
type Limit uint8

// The limits.
const (
	NoLimit Limit = iota
	AgeLimit
	MessagesLimit
	BytesLimit
)

// String is the field of the channel.
func (l Limit) String() string {
	return [...]string{"none", "retention", "retentionMessages", "retentionBytes"}[min(l, BytesLimit)]
}

// A Stretch is the count of the messages after the end of the stretch before it.
type Stretch struct {
	Through  ident.ID
	Messages int64
	Bytes    int64 // of payloads and headers
}

func (r *Stretch) columns() columns {
	return columns{
		{"through_id", asID{&r.Through}},
		{"messages", &r.Messages},
		{"bytes", &r.Bytes},
	}
}

// A Removal is what the limits of a channel have removed.
type Removal struct {
	Through  ident.ID // the newest message that is removed; zero: none is
	Messages int64
	By       Limit // the last one that removed a message
	AtMs     int64 // when, Unix ms
}

// EndMs is the time after the newest message that is removed, Unix ms. 0: none is.
func (r *Removal) EndMs() int64 {
	if r.Through.IsZero() {
		return 0
	}
	return r.Through.Millis() + 1
}

func (r *Removal) columns() columns {
	return columns{
		{"removed_id", asID{&r.Through}},
		{"removed", &r.Messages},
		{"limit_code", &r.By},
		{"at_ms", &r.AtMs},
	}
}

var (
	insertKeptChannel = keepFirst(`
INSERT INTO kept_channels (
    channel_no,
    counted_id,
    removed_id
)
VALUES (?, ?, ?)`, "channel_no")

	// The lock excludes another count of the channel.
	lockCounted = locking(`
SELECT counted_id
FROM kept_channels
WHERE channel_no = ?`, updateLock)

	selectRemoval = `
SELECT` + new(Removal).columns().names() + `
FROM kept_channels
WHERE channel_no = ?`

	selectStretches = `
SELECT` + new(Stretch).columns().names() + `
FROM kept_stretches
WHERE channel_no = ?
ORDER BY through_id`

	selectStretch = `
SELECT` + new(Stretch).columns().names() + `
FROM kept_stretches
WHERE channel_no = ?
  AND through_id = ?`

	// A Stretch of one message each.
	selectNewestSizes = `
SELECT
    id,
    1,
    LENGTH(payload) + LENGTH(headers)
FROM messages
WHERE channel_no = ?
  AND id > ?
  AND id <= ?
ORDER BY id DESC
LIMIT ?`
)

const (
	moveCounted = `
UPDATE kept_channels
SET counted_id = ?
WHERE channel_no = ?`

	// The assignments are made from left to right on MySQL; none reads what another one sets.
	noteRemoval = `
UPDATE kept_channels
SET
    removed_id = CASE WHEN removed_id < ? THEN ? ELSE removed_id END,
    removed = removed + ?,
    limit_code = ?,
    at_ms = ?
WHERE channel_no = ?`

	insertStretch = `
INSERT INTO kept_stretches (
    channel_no,
    through_id,
    messages,
    bytes
)
VALUES (?, ?, ?, ?)`

	growStretch = `
UPDATE kept_stretches
SET
    through_id = ?,
    messages = ?,
    bytes = ?
WHERE channel_no = ?
  AND through_id = ?`

	deleteStretches = `
DELETE FROM kept_stretches
WHERE channel_no = ?
  AND through_id <= ?`
)

// Stretches returns the counts of a channel, the oldest one first.
func (s *Store) Stretches(ctx context.Context, channelNo uint32) ([]Stretch, error) {
	return readAll[Stretch](ctx, s, "read the counts of a channel", selectStretches, channelNo)
}

// NewestSizes returns up to limit messages of a channel with After < ID <= through, the newest first,
// each as a Stretch of its own.
func (s *Store) NewestSizes(ctx context.Context, channelNo uint32, after, through ident.ID, limit int) ([]Stretch,
	error) {
	return readAll[Stretch](ctx, s, "read sizes of the newest messages", selectNewestSizes, channelNo, after[:],
		through[:], limit)
}

// CountMessages counts up to limit messages of a channel that are not counted yet, with an ID of at most
// through, which must be older than any message that can still be inserted. A stretch that is full is
// followed by another one. more reports whether there may be other messages.
func (s *Store) CountMessages(ctx context.Context, channelNo uint32, through ident.ID, limit int,
	full func(Stretch) bool) (more bool, err error) {
	// A repeat after a lost answer goes on from the mark.
	err = s.run(ctx, transaction{name: "count the messages of a channel", harmless: true}, func(ctx context.Context,
		tx *sql.Tx) error {
		more = false
		if err := s.keepChannel(ctx, tx, channelNo); err != nil {
			return err
		}
		var mark ident.ID
		if err := tx.QueryRowContext(ctx, s.dialect.sql(lockCounted), channelNo).Scan(asID{&mark}); err != nil {
			return err
		}
		if mark.Compare(through) >= 0 {
			return nil
		}
		last, err := selectOne[Stretch](ctx, tx, selectStretch, channelNo, mark[:])
		found := err == nil && !full(last)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if !found {
			last = Stretch{}
		}
		n := 0
		err = each(ctx, tx, selectUncounted, []any{channelNo, mark[:], through[:], limit}, func(r *sql.Rows) error {
			var producer uint32
			var size int64
			err := r.Scan(asID{&last.Through}, &producer, &size)
			last.Messages, last.Bytes = last.Messages+1, last.Bytes+size
			n++
			return err
		})
		if err != nil || n == 0 {
			return err
		}
		more = n == limit
		if found {
			err = exec(ctx, tx, growStretch, last.Through[:], last.Messages, last.Bytes, channelNo, mark[:])
		} else {
			err = exec(ctx, tx, insertStretch, channelNo, last.Through[:], last.Messages, last.Bytes)
		}
		if err != nil {
			return err
		}
		return exec(ctx, tx, moveCounted, last.Through[:], channelNo)
	})
	return more, err
}

// TrimStretches removes the counts of stretches that end at an ID or before it.
func (s *Store) TrimStretches(ctx context.Context, channelNo uint32, through ident.ID) error {
	return repeat(ctx, "remove counts of a channel", func(ctx context.Context) error {
		return exec(ctx, s.db, deleteStretches, channelNo, through[:])
	})
}

// Removal returns what the limits of a channel have removed.
func (s *Store) Removal(ctx context.Context, channelNo uint32) (out Removal, err error) {
	err = repeat(ctx, "read what a channel has removed", func(ctx context.Context) error {
		out, err = selectOne[Removal](ctx, s.reads, selectRemoval, channelNo)
		return orNothing(err)
	})
	return out, err
}

// noteRemoval stores what a page of a purge removes because of a limit of the channel. The books and the
// answers about messages that are gone begin after it, so it is written with the removal.
func (p *Purge) noteRemoval(ctx context.Context, tx *sql.Tx, s *Store, over []purgeHead) error {
	if p.By == NoLimit || len(over) == 0 {
		return nil
	}
	if err := s.keepChannel(ctx, tx, p.ChannelNo); err != nil {
		return err
	}
	last := over[len(over)-1].ID
	return exec(ctx, tx, noteRemoval, last[:], last[:], len(over), p.By, p.AtMs, p.ChannelNo)
}

func (s *Store) keepChannel(ctx context.Context, tx *sql.Tx, channelNo uint32) error {
	return exec(ctx, tx, s.dialect.sql(insertKeptChannel), channelNo, bytesOf(ident.ID{}), bytesOf(ident.ID{}))
}
