package durable

import (
	"context"
	"database/sql"
	"errors"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// An original is the message that has a key, with the size of its payload instead of the
// payload.
type original struct {
	Message
	size int
}

// alike reports whether m and the message of the original can differ only in the payload, or are events,
// which only a reader of the payload can compare. A schedule that has the key has no message yet.
func (h *original) alike(m *Message) bool {
	return m.Event() && h.size >= 0 || h.size == len(m.Payload) && sameHead(&h.Message, m)
}

const (
	// The locking reads wait for a transaction that is about to commit such a row. A key and
	// its message are inserted and removed together.
	selectOriginals = `
SELECT
    k.id,
    k.msg_key,
    COALESCE(m.producer_no, 0),
    COALESCE(m.priority, 0),
    COALESCE(m.content_type, ''),
    m.headers,
    COALESCE(LENGTH(m.payload), -1)
FROM message_keys k
LEFT JOIN messages m
  ON m.channel_no = k.channel_no
  AND m.id = k.id
WHERE k.channel_no = ?
  AND k.msg_key IN (?...)
LOCK IN SHARE MODE`

	selectStored = `
SELECT
    id,
    producer_no,
    priority,
    msg_key,
    content_type,
    headers,
    payload,
    ttl_ms,
    addressed
FROM messages
WHERE channel_no = ?
  AND id IN (?...)
LOCK IN SHARE MODE`
)

func (s *Store) originals(ctx context.Context, q querier, part []entry) (map[string]*original, error) {
	args := []any{part[0].ChannelNo}
	for _, e := range part {
		if e.Key != "" && !e.Idempotent() {
			args = append(args, []byte(e.Key))
		}
	}
	if len(args) == 1 {
		return nil, nil
	}
	out := map[string]*original{}
	err := each(ctx, q, list(selectOriginals, len(args)-1), args, func(r *sql.Rows) error {
		var h original
		err := r.Scan(asID{&h.ID}, &h.Key, &h.ProducerNo, &h.Priority, &h.ContentType, &h.Headers, &h.size)
		out[h.Key] = &h
		return err
	})
	return out, err
}

func (s *Store) stored(ctx context.Context, q querier, channelNo uint32, ids []ident.ID) (map[ident.ID]Message, error) {
	out := map[ident.ID]Message{}
	err := each(ctx, q, list(selectStored, len(ids)), inArgs(channelNo, ids), func(r *sql.Rows) error {
		var m Message
		err := r.Scan(asID{&m.ID}, &m.ProducerNo, &m.Priority, &m.Key, &m.ContentType, &m.Headers, &m.Payload, &m.TTLMs,
			asPositions{&m.Addressed})
		out[m.ID] = m
		return err
	})
	return out, err
}

// Returns the payload only if its size equals that of the argument.
const sqliteSame = `
SELECT
    producer_no,
    priority,
    msg_key,
    content_type,
    headers,
    ttl_ms,
    addressed,
    LENGTH(payload) = ?1 OR ?4,
    CASE WHEN LENGTH(payload) = ?1 OR ?4 THEN payload END
FROM messages
WHERE channel_no = ?2
  AND id = ?3`

// taken returns the result of a message whose key belongs to the stored message original.
func (b *sqliteBatch) taken(e entry, original ident.ID) (answer, err error) {
	var m Message
	var sameSize bool // or an event, of which the size may differ
	err = b.tx.QueryRowContext(b.ctx, sqliteSame, len(e.Payload), e.ChannelNo, original[:], e.Event()).
		Scan(&m.ProducerNo, &m.Priority, &m.Key, &m.ContentType, &m.Headers, &m.TTLMs, asPositions{&m.Addressed}, &sameSize,
			&m.Payload)
	repeats := false
	switch {
	case err == nil && sameSize:
		repeats, err = b.store.repeats(b.ctx, b.tx, &m, e.Message)
	case errors.Is(err, sql.ErrNoRows):
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return takenBy(original, e, repeats), nil
}
