package durable

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"slices"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A Link is the place of a message in the chain of its ordering key. The order of the chain is
// the order of the commits: the insert holds a lock on the row of the key until it commits.
type Link struct {
	Prev ident.ID // the message before, zero if there was none
	// Audience is that of the message before, -1 if retention has removed that message. Addressed
	// and LeftOut are those of the message before, too.
	Audience           int
	Addressed, LeftOut Positions
}

// Before returns the head of the message before, without its priority.
func (l Link) Before() Head {
	return Head{ID: l.Prev, Audience: l.Audience, Addressed: l.Addressed, LeftOut: l.LeftOut}
}

// Passes reports whether the message before is of the time of the consumer but has no job for it:
// the chain of the consumer's jobs goes on behind that message.
func (l Link) Passes(k *Consumer) bool {
	before := l.Before()
	return !l.Prev.IsZero() && (before.covers(k.Position) || k.Joined(before)) && !k.Concerns(before)
}

// A keyed is a message with the digest of its ordering key, and the message before it in the
// same batch.
type keyed struct {
	entry
	digest [16]byte
	prev   *entry // nil: the first of its key in the batch
	last   bool   // of its key in the batch
}

// chained returns the entries that have an ordering key, sorted by channel, digest and the
// order of the batch, so that concurrent inserts lock the rows of keys in the same order.
func chained(part []entry) []keyed {
	if !slices.ContainsFunc(part, func(e entry) bool { return e.Keyed() }) {
		return nil
	}
	var out []keyed
	for _, e := range part {
		if e.Keyed() {
			sum := sha256.Sum256(e.OrderingKey())
			out = append(out, keyed{entry: e, digest: [16]byte(sum[:16])})
		}
	}
	slices.SortFunc(out, func(a, b keyed) int {
		return cmp.Or(cmp.Compare(a.ChannelNo, b.ChannelNo), bytes.Compare(a.digest[:], b.digest[:]), a.ID.Compare(b.ID))
	})
	for i := range out {
		if i > 0 && out[i].ChannelNo == out[i-1].ChannelNo && out[i].digest == out[i-1].digest {
			out[i].prev = &out[i-1].entry
			out[i-1].last = false
		}
		out[i].last = true
	}
	return out
}

// orderingKeys builds the statement that makes the last message of each key the newest one and
// locks the row of the key. The server evaluates the assignments from left to right.
func (w *builder) orderingKeys(part []keyed) string {
	b := w.begin(`INSERT INTO ordering_keys (channel_no, digest, last_id, prev_id) VALUES `)
	first := true
	for _, e := range part {
		if !e.last {
			continue
		}
		if !first {
			b = append(b, ",\n"...)
		}
		first = false
		b = append(b, '(')
		b = appendUint(b, uint64(e.ChannelNo))
		b = append(b, ',')
		b = appendHex(b, e.digest[:])
		b = append(b, ',')
		b = appendID(b, e.ID)
		b = append(b, ',')
		b = appendID(b, ident.ID{})
		b = append(b, ')')
	}
	b = append(b, ` ON DUPLICATE KEY UPDATE prev_id = last_id, last_id = VALUES(last_id)`...)
	w.b = b
	return w.text()
}

// ordered builds the insert of the links. It follows orderingKeys in the same transaction.
func (w *builder) ordered(part []keyed) string {
	b := w.begin(`INSERT INTO ordered (channel_no, message_id, digest, prev_id) VALUES `)
	for i, e := range part {
		if i > 0 {
			b = append(b, ",\n"...)
		}
		b = append(b, '(')
		b = appendUint(b, uint64(e.ChannelNo))
		b = append(b, ',')
		b = appendID(b, e.ID)
		b = append(b, ',')
		b = appendHex(b, e.digest[:])
		b = append(b, ',')
		if e.prev != nil {
			b = appendID(b, e.prev.ID)
		} else {
			b = append(b, `(SELECT k.prev_id FROM ordering_keys k WHERE k.channel_no = `...)
			b = appendUint(b, uint64(e.ChannelNo))
			b = append(b, ` AND k.digest = `...)
			b = appendHex(b, e.digest[:])
			b = append(b, ')')
		}
		b = append(b, ')')
	}
	w.b = b
	return w.text()
}

const (
	sqliteLastOfKey = `
SELECT last_id
FROM ordering_keys
WHERE channel_no = ?
  AND digest = ?`

	sqlitePutLastOfKey = `
INSERT INTO ordering_keys (
    channel_no,
    digest,
    last_id,
    prev_id
)
VALUES (?, ?, ?, ?)
ON CONFLICT (channel_no, digest) DO UPDATE
SET last_id = excluded.last_id,
    prev_id = excluded.prev_id`

	sqliteInsertOrdered = `
INSERT INTO ordered (
    channel_no,
    message_id,
    prev_id,
    digest
)
VALUES (?, ?, ?, ?)`

	selectLinks = `
SELECT
    o.message_id,
    o.prev_id,
    p.audience,
    p.addressed,
    p.left_out
FROM ordered o
LEFT JOIN messages p
  ON p.channel_no = o.channel_no
  AND p.id = o.prev_id
WHERE o.channel_no = ?
  AND o.message_id IN (?...)`
)

var selectSuccessors = `
SELECT` + new(Head).columns().of("m").names() + `
FROM ordered o
JOIN messages m
  ON m.channel_no = o.channel_no
  AND m.id = o.message_id
WHERE o.channel_no = ?
  AND o.prev_id IN (?...)`

// chain stores the link of one message.
func (b *sqliteBatch) chain(e entry) error {
	sum := sha256.Sum256(e.OrderingKey())
	digest := sum[:16]
	var prev ident.ID
	err := b.tx.QueryRowContext(b.ctx, sqliteLastOfKey, e.ChannelNo, digest).Scan(asID{&prev})
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if _, err = b.tx.ExecContext(b.ctx, sqlitePutLastOfKey, e.ChannelNo, digest, e.ID[:], prev[:]); err != nil {
		return err
	}
	_, err = b.tx.ExecContext(b.ctx, sqliteInsertOrdered, e.ChannelNo, e.ID[:], prev[:], digest)
	return err
}

// Links returns the links of messages of a channel. A message without an ordering key is not
// in the map.
func (s *Store) Links(ctx context.Context, channelNo uint32, ids []ident.ID) (map[ident.ID]Link, error) {
	out := make(map[ident.ID]Link, len(ids))
	for _, part := range chunks(ids, maxInList) {
		err := repeat(ctx, "read the chain of keys", func(ctx context.Context) error {
			return each(ctx, s.reads, list(selectLinks, len(part)), inArgs(channelNo, part), func(r *sql.Rows) error {
				var id ident.ID
				var l Link
				var audience sql.NullInt64
				err := r.Scan(asID{&id}, asID{&l.Prev}, &audience, asPositions{&l.Addressed}, asPositions{&l.LeftOut})
				if l.Audience = -1; audience.Valid {
					l.Audience = int(audience.Int64)
				}
				out[id] = l
				return err
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Successors returns the messages that directly follow the given ones in the chains of their
// keys.
func (s *Store) Successors(ctx context.Context, channelNo uint32, ids []ident.ID) ([]Head, error) {
	var out []Head
	for _, part := range chunks(ids, maxInList) {
		var got []Head
		err := repeat(ctx, "read the chain of keys", func(ctx context.Context) error {
			var err error
			got, err = selectAll[Head](ctx, s.reads, list(selectSuccessors, len(part)), inArgs(channelNo, part)...)
			return err
		})
		if err != nil {
			return nil, err
		}
		out = append(out, got...)
	}
	return out, nil
}
