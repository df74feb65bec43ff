package durable

import (
	"context"
	"database/sql"
	"errors"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A response that goes back and whose producer has no reply URL waits: its exchange is due at its end,
// and a row of awaiting_replies names the producer. While nothing changes, nobody reads either.

// An Awaiting is a response that rests. ProducerNo is the producer whose reply URL it waits for; 0: its
// reply is published, and it waits for nothing but the delivery.
type Awaiting struct {
	ID         ident.ID
	ProducerNo uint32
}

const (
	// The end is responseTTL after the response came, or else the retention. An exchange that has
	// passed it and goes on, because its reply is under way, is looked at again when it is twice as old.
	restReplies = `
UPDATE exchanges
SET due_ms = CASE
    WHEN keep_ms = 0 AND ? = 0 THEN ?
    WHEN received_ms + (CASE WHEN keep_ms > 0 THEN keep_ms ELSE ? END) > ?
      THEN received_ms + (CASE WHEN keep_ms > 0 THEN keep_ms ELSE ? END)
    ELSE ? + ? - received_ms + 60000
  END
WHERE consumer_no = ?
  AND state = 2
  AND message_id IN (?...)`

	wakeReplies = `
UPDATE exchanges
SET due_ms = 1
WHERE consumer_no = ?
  AND state = 2
  AND message_id IN (?...)`

	selectAwaited = `
SELECT producer_no
FROM awaiting_replies
WHERE producer_no > ?
ORDER BY producer_no
LIMIT 1`

	selectAwaiting = `
SELECT
    consumer_no,
    message_id
FROM awaiting_replies
WHERE producer_no = ?
ORDER BY consumer_no, message_id
LIMIT ?`

	deleteAwaiting = `
DELETE FROM awaiting_replies
WHERE consumer_no = ?
  AND message_id IN (?...)`
)

var insertAwaiting = keepFirst(`
INSERT INTO awaiting_replies (
    consumer_no,
    message_id,
    producer_no
)
VALUES (?, ...)`, "consumer_no")

// EndOfWait returns when a response that came at receivedMs and is kept for keepMs waits no longer for a
// reply URL: after keepMs, or else after the retention; Never where neither is set.
func EndOfWait(receivedMs, keepMs, retentionMs int64) int64 {
	switch {
	case keepMs > 0:
		return receivedMs + keepMs
	case retentionMs > 0:
		return receivedMs + retentionMs
	}
	return Never
}

// RestReplies makes exchanges of a consumer due at their end, EndOfWait, and notes in the same
// transaction which of them wait for a reply URL.
func (s *Store) RestReplies(ctx context.Context, consumerNo uint32, rest []Awaiting, nowMs, retentionMs int64) error {
	for _, part := range chunks(rest, maxInList) {
		err := s.run(ctx, transaction{name: "rest replies", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
			args := []any{retentionMs, int64(Never), retentionMs, nowMs, retentionMs, nowMs, nowMs, consumerNo}
			var waits []any
			for i := range part {
				args = append(args, part[i].ID[:])
				if part[i].ProducerNo != 0 {
					waits = append(waits, consumerNo, part[i].ID[:], part[i].ProducerNo)
				}
			}
			err := exec(ctx, tx, list(restReplies, len(part)), args...)
			if err != nil || len(waits) == 0 {
				return err
			}
			return insertRows(ctx, tx, s.dialect.sql(insertAwaiting), waits)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// NextAwaited returns the producer with the lowest number above after for whose reply URL responses
// wait; 0: there is none.
func (s *Store) NextAwaited(ctx context.Context, after uint32) (producerNo uint32, err error) {
	err = repeat(ctx, "find replies that wait", func(ctx context.Context) error {
		err := s.reads.QueryRowContext(ctx, selectAwaited, after).Scan(&producerNo)
		if errors.Is(err, sql.ErrNoRows) {
			producerNo, err = 0, nil
		}
		return err
	})
	return producerNo, err
}

// WakeReplies makes up to limit responses due now that wait for the reply URL of a producer. It returns
// their consumers, each once; none: nothing waits any more.
func (s *Store) WakeReplies(ctx context.Context, producerNo uint32, limit int) (consumers []uint32, err error) {
	err = s.run(ctx, transaction{name: "wake replies", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		consumers = nil
		found := map[uint32][]ident.ID{}
		err := each(ctx, tx, selectAwaiting, []any{producerNo, limit}, func(r *sql.Rows) error {
			var no uint32
			var id ident.ID
			err := r.Scan(&no, asID{&id})
			if found[no] == nil {
				consumers = append(consumers, no)
			}
			found[no] = append(found[no], id)
			return err
		})
		if err != nil {
			return err
		}
		for _, no := range consumers {
			for _, part := range chunks(found[no], maxInList) {
				if err := exec(ctx, tx, list(wakeReplies, len(part)), inArgs(no, part)...); err != nil {
					return err
				}
			}
			if err := forgetAwaiting(ctx, tx, no, found[no]); err != nil {
				return err
			}
		}
		return nil
	})
	return consumers, err
}

// ForgetAwaiting removes the notes of responses that wait no longer.
func (s *Store) ForgetAwaiting(ctx context.Context, consumerNo uint32, ids []ident.ID) error {
	return repeat(ctx, "forget replies that wait", func(ctx context.Context) error {
		return forgetAwaiting(ctx, s.db, consumerNo, ids)
	})
}

func forgetAwaiting(ctx context.Context, q querier, consumerNo uint32, ids []ident.ID) error {
	for _, part := range chunks(ids, deletedAtOnce) {
		if err := exec(ctx, q, list(deleteAwaiting, len(part)), inArgs(consumerNo, part)...); err != nil {
			return err
		}
	}
	return nil
}
