package durable

import (
	"context"

	"github.com/penstock-broker/penstock/internal/ident"
)

const selectConcernedCount = `
SELECT COUNT(*)
FROM messages
WHERE channel_no = ?
  AND id > ?
  AND id <= ?
  AND ` + concerns

var countHeads = statement{mysql: selectConcernedCount + `
LOCK IN SHARE MODE`, sqlite: selectConcernedCount}

var (
	countPlainOver = countOver("messages", "priority")
	countLevelOver = countOver("prioritised", "inv_priority")
)

// countOver examines messages of one priority in a table. It selects the last ID, the number
// of messages, and how many of them have no undelivered job for the consumer.
func countOver(table, level string) statement {
	query := func(lock string) string {
		return `
SELECT
    MAX(m.id),
    COUNT(*),
    COALESCE(SUM(NOT (m.` + concerns + `) OR v.message_id IS NOT NULL), 0)
FROM (
    SELECT
        id,
        audience
    FROM ` + table + `
    WHERE channel_no = ?
      AND ` + level + ` = ?
      AND id > ?
      AND id <= ?
    ORDER BY id
    LIMIT ?` + lock + `
) m
LEFT JOIN deliveries v
    ON v.consumer_no = ?
   AND v.message_id = m.id`
	}
	return statement{mysql: query(`
    LOCK IN SHARE MODE`), sqlite: query("")}
}

const countDelivered = `
SELECT COUNT(*)
FROM deliveries
WHERE consumer_no = ?
  AND message_id > ?
  AND message_id <= ?`

// AllDelivered reports whether all jobs of the consumer for messages with after < ID <= through
// are delivered. It compares two counts and transfers no rows, so where all is delivered it
// costs a tenth of a scan. Like Heads it waits for uncommitted messages.
func (s *Store) AllDelivered(ctx context.Context, k Consumer, after, through ident.ID) (bool, error) {
	var owed, delivered int64
	err := repeat(ctx, "compare deliveries", func(ctx context.Context) error {
		if err := s.barrier(ctx); err != nil {
			return err
		}
		// The messages are counted first. A delivery that is stored in between then belongs
		// to a message that is already counted.
		if err := s.reads.QueryRowContext(ctx, s.dialect.sql(countHeads), k.ChannelNo, after[:], through[:], k.Position).Scan(&owed); err != nil {
			return err
		}
		return s.reads.QueryRowContext(ctx, countDelivered, k.No, after[:], through[:]).Scan(&delivered)
	})
	return err == nil && owed == delivered, err
}

// LevelDelivered examines up to limit messages of one priority of the consumer's channel with
// after < ID <= through, in order. It reports whether all jobs of the consumer for them are
// delivered. last is the last message examined, or through if there are no more. Like
// AllDelivered it transfers no rows, and like Heads it waits for uncommitted messages.
func (s *Store) LevelDelivered(ctx context.Context, k Consumer, priority int, after, through ident.ID, limit int) (last ident.ID, all bool, err error) {
	query, level := countLevelOver, maxPriority-priority
	if priority == 0 {
		query, level = countPlainOver, 0
	}
	args := []any{k.Position, k.ChannelNo, level, after[:], through[:], limit, k.No}
	err = repeat(ctx, "compare deliveries of a priority", func(ctx context.Context) error {
		if err := s.barrier(ctx); err != nil {
			return err
		}
		var id []byte
		var seen, over int
		if err := s.reads.QueryRowContext(ctx, s.dialect.sql(query), args...).Scan(&id, &seen, &over); err != nil {
			return err
		}
		last, all = through, seen == over
		if seen == limit {
			copy(last[:], id)
		}
		return nil
	})
	return last, err == nil && all, err
}
