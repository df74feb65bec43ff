package durable

import (
	"context"
	"database/sql"
	"errors"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// head are the columns of the table messages that every list of messages has.
func (m *Message) head() columns {
	return columns{
		{"id", asID{&m.ID}},
		{"producer_no", &m.ProducerNo},
		{"priority", &m.Priority},
		{"audience", &m.Audience},
		{"addressed", asPositions{&m.Addressed}},
		{"left_out", asPositions{&m.LeftOut}},
		{"msg_key", &m.Key},
		{"content_type", &m.ContentType},
	}
}

func (m *Message) columns() columns {
	return append(m.head(), column{"headers", &m.Headers}, column{"payload", &m.Payload}, column{"ttl_ms", &m.TTLMs})
}

// bare are the columns without headers and payload.
func (m *Message) bare() columns { return append(m.head(), column{"ttl_ms", &m.TTLMs}) }

// columns are those of a message whose payload is selected up to a size, which is the first argument.
func (m *sizedMessage) columns() columns {
	return append(m.head(), column{"headers", &m.Headers}, column{"LENGTH(payload)", &m.size},
		column{"CASE WHEN LENGTH(payload) <= ? THEN payload END", &m.Payload}, column{"ttl_ms", &m.TTLMs})
}

var (
	selectMessages = `
SELECT` + new(Message).columns().names() + `
FROM messages
WHERE channel_no = ?
  AND id IN (?...)`

	selectMessagesUpTo = `
SELECT` + new(sizedMessage).columns().names() + `
FROM messages
WHERE channel_no = ?
  AND id IN (?...)`

	selectMessageList = `
SELECT` + new(Message).bare().names() + `
FROM messages
WHERE channel_no = ?
  AND id >= ?
ORDER BY id
LIMIT ?`
)

const (
	selectMessageByKey = `
SELECT id
FROM message_keys
WHERE channel_no = ?
  AND msg_key = ?`

	// A schedule that has a key has no message yet.
	selectMessagesByKeys = `
SELECT
    k.msg_key,
    k.id
FROM message_keys k
JOIN messages m
  ON m.channel_no = k.channel_no
  AND m.id = k.id
WHERE k.channel_no = ?
  AND k.msg_key IN (?...)`
)

// Messages returns the existing messages among ids, in any order, with payload. All of them
// are in memory at once, so the caller bounds the number of IDs.
func (s *Store) Messages(ctx context.Context, channelNo uint32, ids []ident.ID) ([]Message, error) {
	out := make([]Message, 0, len(ids))
	for _, part := range chunks(ids, maxInList) {
		had := len(out)
		err := repeat(ctx, "read messages", func(ctx context.Context) error {
			out = out[:had]
			return eachOf(ctx, s.reads, (*Message).columns, list(selectMessages, len(part)), inArgs(channelNo, part),
				func(m *Message) {
					m.ChannelNo = channelNo
					out = append(out, *m)
				})
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// MessagesUpTo reads messages in the order of ids, as long as their payloads and headers fit
// into budget bytes together; the first message is read whatever its size. It returns the
// existing messages of ids[:read], in that order, and read no message of ids[read:]. read is
// at least 1 and at most maxInList. Small messages take one statement. Payloads larger than
// their share of the budget take a second statement, after their sizes are known.
func (s *Store) MessagesUpTo(ctx context.Context, channelNo uint32, ids []ident.ID, budget int) (msgs []Message,
	read int, err error) {
	ids = ids[:min(len(ids), maxInList)]
	if len(ids) <= 1 {
		msgs, err = s.Messages(ctx, channelNo, ids)
		return msgs, len(ids), err
	}
	share := max(budget, 0) / len(ids)
	found, err := s.sizedMessages(ctx, channelNo, ids, share)
	if err != nil {
		return nil, 0, err
	}
	var large []ident.ID
	msgs = make([]Message, 0, len(found))
	for left := budget; read < len(ids); read++ {
		m, exists := found[ids[read]]
		if !exists {
			continue
		}
		if left -= m.size + len(m.Headers); left < 0 && len(msgs) > 0 {
			break
		}
		if m.size > share {
			large = append(large, m.ID)
		}
		msgs = append(msgs, m.Message)
	}
	if len(large) == 0 {
		return msgs, read, nil
	}
	payloads, err := s.Messages(ctx, channelNo, large)
	if err != nil {
		return nil, 0, err
	}
	byID := make(map[ident.ID]Message, len(payloads))
	for _, m := range payloads {
		byID[m.ID] = m
	}
	kept := msgs[:0]
	for _, m := range msgs {
		if found[m.ID].size > share {
			var exists bool
			if m, exists = byID[m.ID]; !exists { // removed since the first statement
				continue
			}
		}
		kept = append(kept, m)
	}
	return kept, read, nil
}

// A sizedMessage has no payload if the payload is larger than the requested share.
type sizedMessage struct {
	Message
	size int // of the payload, bytes
}

func (s *Store) sizedMessages(ctx context.Context, channelNo uint32, ids []ident.ID,
	share int) (found map[ident.ID]sizedMessage, err error) {
	args := append([]any{share}, inArgs(channelNo, ids)...)
	err = repeat(ctx, "read messages", func(ctx context.Context) error {
		found = make(map[ident.ID]sizedMessage, len(ids))
		return eachOf(ctx, s.reads, (*sizedMessage).columns, list(selectMessagesUpTo, len(ids)), args, func(m *sizedMessage) {
			m.ChannelNo = channelNo
			found[m.ID] = *m
		})
	})
	return found, err
}

// MessageByKey returns the ID of the message of a channel that has this producer's message
// ID, or ErrNotFound.
func (s *Store) MessageByKey(ctx context.Context, channelNo uint32, key string) (ident.ID, error) {
	var id ident.ID
	err := repeat(ctx, "find a message by its producer's ID", func(ctx context.Context) error {
		err := s.reads.QueryRowContext(ctx, selectMessageByKey, channelNo, []byte(key)).Scan(asID{&id})
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		return err
	})
	return id, err
}

// MessagesByKeys returns the IDs of the messages of a channel that have one of the keys, by key.
func (s *Store) MessagesByKeys(ctx context.Context, channelNo uint32, keys []string) (map[string]ident.ID, error) {
	out := make(map[string]ident.ID, len(keys))
	for _, part := range chunks(keys, maxInList) {
		args := []any{channelNo}
		for _, key := range part {
			args = append(args, []byte(key))
		}
		err := repeat(ctx, "find messages by their producers' IDs", func(ctx context.Context) error {
			return each(ctx, s.reads, list(selectMessagesByKeys, len(part)), args, func(r *sql.Rows) error {
				var key []byte
				var id ident.ID
				if err := r.Scan(&key, asID{&id}); err != nil {
					return err
				}
				out[string(key)] = id
				return nil
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ListMessages returns up to limit messages of a channel with IDs from from on, in order of
// the IDs, without headers and payload.
func (s *Store) ListMessages(ctx context.Context, channelNo uint32, from ident.ID, limit int) ([]Message, error) {
	out, err := readOf(ctx, s, "list messages", (*Message).bare, selectMessageList, channelNo, from[:], limit)
	for i := range out {
		out[i].ChannelNo = channelNo
	}
	return out, err
}
