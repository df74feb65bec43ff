package durable

import (
	"context"
	"database/sql"
	"errors"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// What ends with a resource, in the transaction of its deletion. The rest follows from the row of the
// deleted resource: open jobs (Derive), replies that wait and schedules, which a sweep ends. The
// table of docs/explain/lifecycle.md has the whole of it.

// ofConsumer are the statements that remove what the store knows of a consumer alone.
var ofConsumer = [...]string{
	deleteOf("marks"), deleteOf("books"), deleteOf("failures"), deletePace, deleteHold,
	deleteOf("consumer_facts"),
	deleteOf("redriving_jobs"), deleteOf("redrivings"),
}

// ofURL are those that remove what was learnt about the address of a consumer.
var ofURL = [...]string{deleteOf("failures"), deletePace}

var deletePace = deleteOf("paces")

const (
	selectBulksOfProducer = `
SELECT id
FROM bulks
WHERE state IN (0, 1, 2)
  AND producer_no = ?`

	selectBulksOfChannel = `
SELECT id
FROM bulks
WHERE state IN (0, 1, 2)
  AND channel_no = ?`

	endBulkOf = `
UPDATE bulks
SET
    state = ?,
    owner = ?,
    paused = 0,
    lease_ms = 0,
    next_ms = 0,
    changed_ms = ?,
    reason = ?
WHERE id = ?
  AND state IN (0, 1, 2)`
)

func (c change) run(ctx context.Context, statements []string, no uint32) error {
	for _, statement := range statements {
		if err := exec(ctx, c.tx, statement, no); err != nil {
			return err
		}
	}
	return nil
}

const deleteConsumer = `
UPDATE consumers
SET
    deleted_no = no,
    until_id = ?,
    token = ?,
    policy = ?,
    state = ?,
    state_reason = ?,
    state_ms = ?,
    version = ?
WHERE no = ?`

const selectLastMessage = `
SELECT MAX(id)
FROM messages
WHERE channel_no = ?`

// endConsumer deletes a consumer with what belongs to it alone.
func (c change) endConsumer(ctx context.Context, k *Consumer) (err error) {
	if k.Until, err = c.lastID(ctx, k.ChannelNo); err != nil {
		return err
	}
	k.Token, k.Policy, k.Version = "", "", c.version
	k.State, k.StateReason, k.StateMs = StateDeleted, "deleted by a request", max(c.nowMs, k.StateMs+1)
	err = exec(ctx, c.tx, deleteConsumer, k.Until[:], []byte{}, []byte{}, k.State, []byte(k.StateReason), k.StateMs,
		c.version, k.No)
	if err != nil {
		return err
	}
	if err := exec(ctx, c.tx, growShape, c.version, k.ChannelNo); err != nil { // no message is addressed to it
		return err
	}
	if err := exec(ctx, c.tx, cancelReplays, c.nowMs, c.version, k.ChannelNo, k.No); err != nil {
		return err
	}
	return c.run(ctx, ofConsumer[:], k.No)
}

// endBulks ends bulks that are under way. It comes before the other rows of the change: a step of a
// bulk locks the bulk first as well. The bulks are read without locks, so none of others is waited for.
func (c change) endBulks(ctx context.Context, query string, no uint32, reason string) error {
	found, err := selectIDs(ctx, c.tx, query, []any{no})
	if err != nil {
		return err
	}
	for _, id := range found {
		if err := exec(ctx, c.tx, endBulkOf, BulkFailed, noOwner, c.nowMs, []byte(reason), id[:]); err != nil {
			return err
		}
	}
	return nil
}

// senderOf returns the consumer that posts replies to a producer. ErrNotFound: there is none yet.
func (c change) senderOf(ctx context.Context, producerNo uint32) (k Consumer, err error) {
	ch, err := selectOne[Channel](ctx, c.tx, selectChannel, []byte(ident.Replies(producerNo)))
	if err == nil {
		k, err = selectOne[Consumer](ctx, c.tx, selectConsumer, ch.No, []byte(ident.Sender))
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	return k, err
}

// endReplies ends the replies to a producer: its consumer is deleted, and no reply is published any
// more. Package exchange ends the exchanges, and then deletes the channel.
func (c change) endReplies(ctx context.Context, producerNo uint32) error {
	k, err := c.senderOf(ctx, producerNo)
	if err == nil {
		err = c.endConsumer(ctx, &k)
	}
	if err == nil {
		err = exec(ctx, c.tx, updateChannelPaused, pausedItself, c.version, k.ChannelNo)
	}
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// followSettings changes the consumer that posts replies to a producer with the settings of the
// producer, in one transaction: no crash leaves it posting to a URL that the producer has no more.
func (s *Store) followSettings(ctx context.Context, c change, p Put, producerNo uint32, settings string) error {
	if p.Replies == nil {
		return nil
	}
	old, err := c.senderOf(ctx, producerNo)
	if errors.Is(err, ErrNotFound) {
		return nil // the first reply makes it
	}
	if err != nil {
		return err
	}
	k, err := p.Replies(settings, old)
	if err != nil || k == old {
		return err
	}
	k.ChangedAt, k.Version = fromMillis(c.stamp(Put{}, true, old.ChangedAt)), c.version
	return s.updateConsumer(ctx, c, &old, &k)
}

// moved ends what was learnt about the former address of a consumer: GONE, DEAD, the failures and the
// pace are about it. A pause is the word of a person and stays.
func (s *Store) moved(ctx context.Context, c change, k *Consumer) error {
	if err := c.run(ctx, ofURL[:], k.No); err != nil {
		return err
	}
	switch k.State {
	case StateProbing:
		k.State = StateDead // no probe was answered: the alert must not say so
		fallthrough
	case StateGone, StateDead:
		return s.setState(ctx, c, k, StateChange{To: StateActive, Forget: true})
	}
	return exec(ctx, c.tx, forgetFailures, c.nowMs, k.No)
}

// lastID returns an ID that is not before any message of the channel, and not before now.
func (c change) lastID(ctx context.Context, channelNo uint32) (ident.ID, error) {
	last := ident.AtMillis(c.nowMs)
	var newest []byte
	if err := c.tx.QueryRowContext(ctx, selectLastMessage, channelNo).Scan(&newest); err != nil {
		return last, err
	}
	if len(newest) == ident.Size && ident.ID(newest).Compare(last) > 0 {
		last = ident.ID(newest)
	}
	return last, nil
}
