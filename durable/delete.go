package durable

import (
	"context"
	"errors"
	"strings"

	"github.com/penstock-broker/penstock/internal/model/auditlog"
)

// Deleted resources keep their rows, because messages and outcomes name their numbers. Their
// IDs are free at once. No row of a job is written: Consumer.Derive says what became of the
// open jobs of a deleted consumer.

// ErrHasConsumers means that a channel has consumers and is therefore not deleted.
var ErrHasConsumers = errors.New("durable: the channel has consumers")

const (
	countConsumers = `
SELECT COUNT(*)
FROM consumers
WHERE channel_no = ?
  AND deleted_no = 0`

	// The guard of the insert sees the pause.
	deleteChannel = `
UPDATE channels
SET
    deleted_no = no,
    paused = 1,
    version = ?
WHERE no = ?`

	deleteProducer = `
UPDATE producers
SET
    deleted_no = no,
    publish_secret = ?,
    settings = NULL,
    version = ?
WHERE no = ?`

	requireVersion = `
UPDATE nodes
SET least_version = ?`
)

// DeleteConsumer deletes a consumer if the preconditions of p hold. Its position is never given
// away again. Its jobs that are open are dead from then on, see Derive, and it has none of
// later messages. ErrNotFound: the channel or the consumer does not exist.
func (s *Store) DeleteConsumer(ctx context.Context, channelID string, p Put) (out Consumer, err error) {
	err = s.put(ctx, "delete a consumer", func(ctx context.Context, c change) error {
		ch, err := selectOne[Channel](ctx, c.tx, selectChannel, []byte(channelID))
		if err != nil {
			return orNotFound(err)
		}
		if out, err = selectOne[Consumer](ctx, c.tx, selectConsumer, ch.No, []byte(p.ID)); err != nil {
			return orNotFound(err)
		}
		if err := p.check(true, out.ChangedAt); err != nil {
			return err
		}
		auditlog.Note(ctx, out, nil)
		if err := s.endScopes(ctx, c, scopesOf(channelID, p.ID)); err != nil {
			return err
		}
		return c.endConsumer(ctx, &out)
	})
	if err != nil {
		return Consumer{}, err
	}
	return out, nil
}

// DeleteChannel deletes a channel without consumers if the preconditions of p hold. After it
// has returned, no message is inserted into the channel. ErrHasConsumers: there are consumers.
// ErrNotFound: there is no such channel.
func (s *Store) DeleteChannel(ctx context.Context, p Put) (out Channel, err error) {
	err = s.put(ctx, "delete a channel", func(ctx context.Context, c change) error {
		if out, err = selectOne[Channel](ctx, c.tx, selectChannel, []byte(p.ID)); err != nil {
			return orNotFound(err)
		}
		if err := p.check(true, out.ChangedAt); err != nil {
			return err
		}
		var consumers int
		if err := c.tx.QueryRowContext(ctx, countConsumers, out.No).Scan(&consumers); err != nil {
			return err
		}
		if consumers > 0 {
			return ErrHasConsumers
		}
		auditlog.Note(ctx, out, nil)
		if err := c.endBulks(ctx, selectBulksOfChannel, out.No, "the channel was deleted"); err != nil {
			return err
		}
		if err := exec(ctx, c.tx, deleteSQSKeys, out.No); err != nil {
			return err
		}
		if err := s.endScopes(ctx, c, scopesOf(p.ID, "")); err != nil {
			return err
		}
		out.Paused, out.Deleted, out.Version = true, true, c.version
		return exec(ctx, c.tx, deleteChannel, c.version, out.No)
	})
	if err != nil {
		return Channel{}, err
	}
	return out, nil
}

// scopesOf are the scopes of a consumer; "": of a channel and of all its consumers.
func scopesOf(channelID, consumerID string) func(word string) bool {
	if consumerID != "" {
		scope := "consumer:" + channelID + "/" + consumerID
		return func(word string) bool { return word == scope }
	}
	return func(word string) bool {
		return word == "channel:"+channelID || strings.HasPrefix(word, "consumer:"+channelID+"/")
	}
}

// DeleteProducer deletes a producer if the preconditions of p hold, with what ends with it. After it
// has returned, Insert takes messages only from brokers that know of it. ErrNotFound: there is no
// such producer.
func (s *Store) DeleteProducer(ctx context.Context, p Put) (out Producer, err error) {
	err = s.put(ctx, "delete a producer", func(ctx context.Context, c change) error {
		if out, err = selectOne[Producer](ctx, c.tx, selectProducer, []byte(p.ID)); err != nil {
			return orNotFound(err)
		}
		if err := p.check(true, out.ChangedAt); err != nil {
			return err
		}
		auditlog.Note(ctx, out, nil)
		return c.endProducer(ctx, &out)
	})
	if err != nil {
		return Producer{}, err
	}
	return out, nil
}

// endProducer deletes a producer, with what ends with it.
func (c change) endProducer(ctx context.Context, p *Producer) error {
	if err := c.endBulks(ctx, selectBulksOfProducer, p.No, "the producer was deleted"); err != nil {
		return err
	}
	if err := c.endReplies(ctx, p.No); err != nil {
		return err
	}
	p.PublishSecret, p.Settings, p.Deleted, p.Version = "", "", true, c.version
	if err := exec(ctx, c.tx, deleteProducer, []byte{}, c.version, p.No); err != nil {
		return err
	}
	if err := exec(ctx, c.tx, lockNodes); err != nil { // a number that is new is not missed
		return err
	}
	return exec(ctx, c.tx, requireVersion, c.version)
}

// Derive returns what became of a job of the consumer: the open jobs of a deleted one are dead.
// A job that was in flight at that time may still end in another way, which counts then.
func (k *Consumer) Derive(stored JobState) JobState {
	if !k.Deleted() || k.Replay != nil || stored.Status.Over() {
		return stored
	}
	return JobState{Status: Dead, Attempts: stored.Attempts, ChangedMs: k.StateMs, StatusCode: stored.StatusCode,
		Error: "the consumer was deleted", Reason: ConsumerDeleted}
}
