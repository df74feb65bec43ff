package durable

import (
	"context"
	"strings"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

var selectMeantCount = `
SELECT
    COUNT(*),
    COALESCE(SUM(` + leftOutIn("") + `), 0)
FROM messages
WHERE channel_no = ?
  AND id > ?
  AND id <= ?
  AND ` + meantIn("")

var countHeads = locking(selectMeantCount, shareLock)

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
    COALESCE(SUM(NOT (` + concernsIn("m.") + `) OR v.message_id IS NOT NULL), 0)
FROM (
    SELECT` + strings.ReplaceAll(new(Head).scope().names(), "\n", "\n    ") + `
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

// A Tally counts messages for one consumer.
type Tally struct {
	Owed     int64 // that concern the consumer
	Filtered int64 // that its filter left out
}

// AllDelivered counts the messages with after < ID <= through, and reports whether all jobs of the
// consumer for them are delivered. It compares two counts and transfers no rows, so where all is
// delivered it costs a tenth of a scan. Like Heads it waits for uncommitted messages.
func (s *Store) AllDelivered(ctx context.Context, k Consumer, after, through ident.ID) (t Tally, all bool, err error) {
	var meant, delivered int64
	args := k.appendMeant(append(appendHasPosition(nil, k.Position), k.ChannelNo, after[:], through[:]))
	err = repeat(ctx, "compare deliveries", func(ctx context.Context) error {
		if err := s.barrier(ctx); err != nil {
			return err
		}
		// The messages are counted first. A delivery that is stored in between then belongs
		// to a message that is already counted.
		if err := s.reads.QueryRowContext(ctx, s.dialect.sql(countHeads), args...).Scan(&meant, &t.Filtered); err != nil {
			return err
		}
		t.Owed = meant - t.Filtered
		return s.reads.QueryRowContext(ctx, countDelivered, k.No, after[:], through[:]).Scan(&delivered)
	})
	return t, err == nil && t.Owed == delivered, err
}

// LevelDelivered examines up to limit messages of one priority of the consumer's channel with
// after < ID <= through, in order. It reports whether all jobs of the consumer for them are
// delivered. last is the last message examined, or through if there are no more. Like
// AllDelivered it transfers no rows, and like Heads it waits for uncommitted messages.
func (s *Store) LevelDelivered(ctx context.Context, k Consumer, priority int, after, through ident.ID,
	limit int) (last ident.ID, all bool, err error) {
	query, level := countLevelOver, maxPriority-priority
	if priority == 0 {
		query, level = countPlainOver, 0
	}
	args := append(k.appendConcerns(nil), k.ChannelNo, level, after[:], through[:], limit, k.No)
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
