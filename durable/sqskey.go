package durable

import (
	"context"
	"errors"

	"github.com/penstock-broker/penstock/internal/model/auditlog"
)

// ErrTooManySQSKeys means that a channel has as many access keys as it may have.
var ErrTooManySQSKeys = errors.New("durable: the channel has too many access keys")

// MaxSQSKeys is the number of access keys of one channel. Two are enough to change from one to the other.
const MaxSQSKeys = 20

// An SQSKey is an access key of SQS clients of a channel.
type SQSKey struct {
	ID        string
	ChannelNo uint32
	Secret    string
	CreatedMs int64
}

func (k *SQSKey) columns() columns {
	return columns{
		{"id", asBytes{&k.ID}},
		{"channel_no", &k.ChannelNo},
		{"secret", asBytes{&k.Secret}},
		{"created_ms", &k.CreatedMs},
	}
}

var (
	selectSQSKey = `
SELECT` + new(SQSKey).columns().names() + `
FROM sqs_keys
WHERE id = ?`

	selectSQSKeys = `
SELECT` + new(SQSKey).columns().names() + `
FROM sqs_keys
WHERE channel_no = ?
  AND id >= ?
ORDER BY id
LIMIT ?`

	insertSQSKey = new(SQSKey).columns().insert("sqs_keys")
)

const (
	countSQSKeys = `
SELECT COUNT(*)
FROM sqs_keys
WHERE channel_no = ?`

	deleteSQSKey = `
DELETE FROM sqs_keys
WHERE id = ?
  AND channel_no = ?`

	deleteSQSKeys = `
DELETE FROM sqs_keys
WHERE channel_no = ?`

	// Brokers that remember a key look it up again when the catalogue has changed; changed_ms stays.
	touchChannel = `
UPDATE channels
SET version = ?
WHERE no = ?`
)

// CreateSQSKey stores an access key of a channel. ErrNotFound: there is no such channel. ErrTooManySQSKeys: it
// has MaxSQSKeys.
func (s *Store) CreateSQSKey(ctx context.Context, channelID string, k SQSKey) (SQSKey, error) {
	err := s.put(ctx, "create an access key", func(ctx context.Context, c change) error {
		ch, err := selectOne[Channel](ctx, c.tx, selectChannel, []byte(channelID))
		if err != nil {
			return orNotFound(err)
		}
		var have int
		if err := c.tx.QueryRowContext(ctx, countSQSKeys, ch.No).Scan(&have); err != nil {
			return err
		}
		if have >= MaxSQSKeys {
			return ErrTooManySQSKeys
		}
		k.ChannelNo, k.CreatedMs = ch.No, c.nowMs
		if err := exec(ctx, c.tx, touchChannel, c.version, ch.No); err != nil {
			return err
		}
		auditlog.Note(ctx, nil, k)
		return exec(ctx, c.tx, insertSQSKey, seal(ctx, &k).columns().fields()...)
	})
	return k, err
}

// EndSQSKeys ends an access key of a channel, all of them if id is empty. ErrNotFound: there is no such channel,
// or no such key.
func (s *Store) EndSQSKeys(ctx context.Context, channelID, id string) error {
	return s.put(ctx, "end access keys", func(ctx context.Context, c change) error {
		ch, err := selectOne[Channel](ctx, c.tx, selectChannel, []byte(channelID))
		if err != nil {
			return orNotFound(err)
		}
		if id == "" {
			err = exec(ctx, c.tx, deleteSQSKeys, ch.No)
		} else {
			var found SQSKey
			if found, err = selectOne[SQSKey](ctx, c.tx, selectSQSKey, []byte(id)); err == nil && found.ChannelNo == ch.No {
				auditlog.Note(ctx, found, nil)
				err = exec(ctx, c.tx, deleteSQSKey, []byte(id), ch.No)
			} else if err == nil {
				err = ErrNotFound
			}
		}
		if err != nil {
			return orNotFound(err)
		}
		return exec(ctx, c.tx, touchChannel, c.version, ch.No)
	})
}

// SQSKeys returns up to limit access keys of a channel, by ID, from one on.
func (s *Store) SQSKeys(ctx context.Context, channelNo uint32, from string, limit int) ([]SQSKey, error) {
	return readAll[SQSKey](ctx, s, "list access keys", selectSQSKeys, channelNo, []byte(from), limit)
}

// SQSKey returns an access key. ErrNotFound: there is none, or it has ended.
func (s *Store) SQSKey(ctx context.Context, id string) (k SQSKey, err error) {
	err = repeat(s.withKeys(ctx), "read an access key", func(ctx context.Context) error {
		k, err = selectOne[SQSKey](ctx, s.reads, selectSQSKey, []byte(id))
		return orNotFound(err)
	})
	return k, err
}
