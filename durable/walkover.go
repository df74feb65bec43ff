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

// countOver looks at the messages of one level of a table: the last of them, how
// many they are, and how many have nothing left to do for the consumer.
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

// AllDelivered reports whether every job that messages with after < ID <= through
// gave the consumer is delivered. It compares two counts and sends no rows, so
// where nothing is amiss a walk costs a tenth of reading it. Like Heads it waits
// for messages that are being inserted.
func (s *Store) AllDelivered(ctx context.Context, k Consumer, after, through ident.ID) (bool, error) {
	var owed, delivered int64
	err := repeat(ctx, "compare deliveries", func(ctx context.Context) error {
		if err := s.barrier(ctx); err != nil {
			return err
		}
		// The messages first: a delivery that is stored in between can only be one
		// of a message that is counted already.
		if err := s.reads.QueryRowContext(ctx, s.dialect.sql(countHeads), k.ChannelNo, after[:], through[:], k.Position).Scan(&owed); err != nil {
			return err
		}
		return s.reads.QueryRowContext(ctx, countDelivered, k.No, after[:], through[:]).Scan(&delivered)
	})
	return err == nil && owed == delivered, err
}

// LevelDelivered looks at up to limit messages of one priority of the consumer's
// channel with after < ID <= through, in order, and reports whether every job that
// they gave the consumer is delivered; last is the last of them, or through when
// there are no more. It sends no rows. Like Heads it waits for messages that are
// being inserted.
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
