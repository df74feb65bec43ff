package durable

import "context"

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

	insertSQSKey = new(SQSKey).columns().insert("sqs_keys")
)

const (
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

// CreateSQSKey stores an access key of a channel. ErrNotFound: there is no such channel.
func (s *Store) CreateSQSKey(ctx context.Context, channelID string, k SQSKey) (SQSKey, error) {
	err := s.put(ctx, "create an access key", func(ctx context.Context, c change) error {
		ch, err := selectOne[Channel](ctx, c.tx, selectChannel, []byte(channelID))
		if err != nil {
			return orNotFound(err)
		}
		k.ChannelNo, k.CreatedMs = ch.No, c.nowMs
		if err := exec(ctx, c.tx, touchChannel, c.version, ch.No); err != nil {
			return err
		}
		return exec(ctx, c.tx, insertSQSKey, k.columns().fields()...)
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

// SQSKey returns an access key. ErrNotFound: there is none, or it has ended.
func (s *Store) SQSKey(ctx context.Context, id string) (k SQSKey, err error) {
	err = repeat(ctx, "read an access key", func(ctx context.Context) error {
		k, err = selectOne[SQSKey](ctx, s.reads, selectSQSKey, []byte(id))
		return orNotFound(err)
	})
	return k, err
}
