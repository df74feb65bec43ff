package durable

import (
	"context"
	"database/sql"
	"errors"

	"github.com/penstock-broker/penstock/ident"
)

// maxInList bounds the IDs of one statement; longer lists are read in turns.
const maxInList = 500

const (
	selectMessages = `
SELECT
    id,
    producer_no,
    priority,
    audience,
    msg_key,
    content_type,
    headers,
    payload
FROM messages
WHERE channel_no = ?
  AND id IN (?...)`

	selectMessageList = `
SELECT
    id,
    producer_no,
    priority,
    audience,
    msg_key,
    content_type
FROM messages
WHERE channel_no = ?
  AND id >= ?
ORDER BY id
LIMIT ?`

	selectMessageByKey = `
SELECT id
FROM message_keys
WHERE channel_no = ?
  AND msg_key = ?`
)

// Messages returns those of the messages that exist, in any order, with payload.
// Memory is the size of all of them: ask for as many as you can hold.
func (s *Store) Messages(ctx context.Context, channelNo uint32, ids []ident.ID) ([]Message, error) {
	out := make([]Message, 0, len(ids))
	for _, part := range chunks(ids, maxInList) {
		had := len(out)
		err := repeat(ctx, "read messages", func(ctx context.Context) error {
			out = out[:had]
			return each(ctx, s.reads, list(selectMessages, len(part)), inArgs(channelNo, part), func(r *sql.Rows) error {
				m := Message{ChannelNo: channelNo}
				err := r.Scan(scanID{&m.ID}, &m.ProducerNo, &m.Priority, &m.Audience, &m.Key, &m.ContentType, &m.Headers, &m.Payload)
				out = append(out, m)
				return err
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// MessageByKey returns the message of a channel that has this producer's message
// ID, or ErrNotFound.
func (s *Store) MessageByKey(ctx context.Context, channelNo uint32, key string) (ident.ID, error) {
	var id ident.ID
	err := repeat(ctx, "find a message by its producer's ID", func(ctx context.Context) error {
		err := s.reads.QueryRowContext(ctx, selectMessageByKey, channelNo, []byte(key)).Scan(scanID{&id})
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		return err
	})
	return id, err
}

// ListMessages returns up to limit messages of a channel in order of their IDs,
// beginning with from, without headers and payload.
func (s *Store) ListMessages(ctx context.Context, channelNo uint32, from ident.ID, limit int) ([]Message, error) {
	var out []Message
	err := repeat(ctx, "list messages", func(ctx context.Context) error {
		out = nil
		return each(ctx, s.reads, selectMessageList, []any{channelNo, from[:], limit}, func(r *sql.Rows) error {
			m := Message{ChannelNo: channelNo}
			err := r.Scan(scanID{&m.ID}, &m.ProducerNo, &m.Priority, &m.Audience, &m.Key, &m.ContentType)
			out = append(out, m)
			return err
		})
	})
	return out, err
}
