package durable

import (
	"context"
	"database/sql"
	"errors"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A Backlog is what the store knows about the jobs of a consumer that are not delivered. Each
// number stops at the limit of the question.
type Backlog struct {
	Open   int      // jobs without outcome, or with a failed attempt; those in flight included
	Dead   int      // dead letters
	Oldest ident.ID // the oldest message of Open; zero: there is none
	More   bool     // there are messages behind those that were read: more jobs may be open
}

const selectSettled = `
SELECT message_id
FROM marks
WHERE consumer_no = ?`

// countBacklog has a row for the open jobs, one for the jobs of messages that are in no table of jobs, one for the
// messages behind those that it reads (0 or 1), and one for the dead letters: kind, number and the oldest message. The
// inner queries bound what is read, whatever became of the jobs.
var countBacklog = `
SELECT
    0 AS kind,
    COUNT(*) AS jobs,
    MIN(o.id) AS oldest
FROM (
    SELECT message_id AS id
    FROM open_jobs
    WHERE consumer_no = ?
    ORDER BY message_id
    LIMIT ?
) o
WHERE NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.consumer_no = ? AND d.message_id = o.id)
  AND NOT EXISTS (SELECT 1 FROM dead_jobs x WHERE x.consumer_no = ? AND x.message_id = o.id)
UNION ALL
SELECT
    1,
    COUNT(*),
    MIN(m.id)
FROM (
    SELECT id
    FROM messages
    WHERE channel_no = ?
      AND id > ?
      AND ` + concernsIn("") + `
    ORDER BY id
    LIMIT ?
) m
WHERE NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.consumer_no = ? AND d.message_id = m.id)
  AND NOT EXISTS (SELECT 1 FROM open_jobs o WHERE o.consumer_no = ? AND o.message_id = m.id)
  AND NOT EXISTS (SELECT 1 FROM dead_jobs x WHERE x.consumer_no = ? AND x.message_id = m.id)
UNION ALL
SELECT
    2,
    COUNT(*),
    MIN(b.id)
FROM (
    SELECT id
    FROM messages
    WHERE channel_no = ?
      AND id > ?
      AND ` + concernsIn("") + `
    ORDER BY id
    LIMIT 1 OFFSET ?
) b
UNION ALL
SELECT
    3,
    COUNT(*),
    MIN(x.message_id)
FROM (
    SELECT message_id
    FROM dead_jobs
    WHERE consumer_no = ?
      AND disposal <> 2
    LIMIT ?
) x`

// Backlog counts the jobs of a consumer. It reads at most limit messages above the settled
// watermark, limit open jobs and limit dead letters, in two statements.
func (s *Store) Backlog(ctx context.Context, k Consumer, limit int) (b Backlog, err error) {
	err = repeat(ctx, "count the jobs of a consumer", func(ctx context.Context) error {
		b = Backlog{}
		var settled ident.ID
		err := s.reads.QueryRowContext(ctx, selectSettled, k.No).Scan(asID{&settled})
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		args := []any{k.No, limit, k.No, k.No}
		args = append(k.appendConcerns(append(args, k.ChannelNo, settled[:])), limit, k.No, k.No, k.No)
		args = append(k.appendConcerns(append(args, k.ChannelNo, settled[:])), limit, k.No, limit)
		rows, err := s.reads.QueryContext(ctx, countBacklog, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var kind, n int
			var oldest []byte
			if err := rows.Scan(&kind, &n, &oldest); err != nil {
				return err
			}
			b.add(kind, n, oldest)
		}
		return rows.Err()
	})
	return b, err
}

// add takes a row of countBacklog.
func (b *Backlog) add(kind, n int, oldest []byte) {
	switch kind {
	case 2:
		b.More = n > 0
		return
	case 3:
		b.Dead = n
		return
	}
	b.Open += n
	if len(oldest) == ident.Size {
		if id := ident.ID(oldest); b.Oldest == (ident.ID{}) || id.Compare(b.Oldest) < 0 {
			b.Oldest = id
		}
	}
}
