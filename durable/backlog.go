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

const (
	selectSettled = `
SELECT message_id
FROM marks
WHERE consumer_no = ?`

	countOpenJobs = `
SELECT
    COUNT(*),
    MIN(id)
FROM (
    SELECT message_id AS id
    FROM open_jobs
    WHERE consumer_no = ?
    ORDER BY message_id
    LIMIT ?
) o
WHERE NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.consumer_no = ? AND d.message_id = o.id)
  AND NOT EXISTS (SELECT 1 FROM dead_jobs x WHERE x.consumer_no = ? AND x.message_id = o.id)`

	countDeadJobs = `
SELECT COUNT(*)
FROM (
    SELECT message_id
    FROM dead_jobs
    WHERE consumer_no = ?
      AND disposal <> 2
    LIMIT ?
) x`
)

// The inner query bounds what is read, whatever became of the jobs.
var countWaitingJobs = `
SELECT
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
  AND NOT EXISTS (SELECT 1 FROM dead_jobs x WHERE x.consumer_no = ? AND x.message_id = m.id)`

// selectBehind has the first message behind those that countWaitingJobs reads.
var selectBehind = `
SELECT id
FROM messages
WHERE channel_no = ?
  AND id > ?
  AND ` + concernsIn("") + `
ORDER BY id
LIMIT 1 OFFSET ?`

// Backlog counts the jobs of a consumer. It reads at most limit messages above the settled
// watermark, limit open jobs and limit dead letters.
func (s *Store) Backlog(ctx context.Context, k Consumer, limit int) (b Backlog, err error) {
	err = repeat(ctx, "count the jobs of a consumer", func(ctx context.Context) error {
		b = Backlog{}
		var settled ident.ID
		err := s.reads.QueryRowContext(ctx, selectSettled, k.No).Scan(asID{&settled})
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if err := s.countBacklog(ctx, &b, countOpenJobs, k.No, limit, k.No, k.No); err != nil {
			return err
		}
		args := append(k.appendConcerns([]any{k.ChannelNo, settled[:]}), limit, k.No, k.No, k.No)
		err = s.countBacklog(ctx, &b, countWaitingJobs, args...)
		if err != nil {
			return err
		}
		var behind ident.ID
		err = s.reads.QueryRowContext(ctx, selectBehind, args[:len(args)-3]...).Scan(asID{&behind})
		if b.More = err == nil; err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		return s.reads.QueryRowContext(ctx, countDeadJobs, k.No, limit).Scan(&b.Dead)
	})
	return b, err
}

// countBacklog adds the jobs that a query counts.
func (s *Store) countBacklog(ctx context.Context, b *Backlog, query string, args ...any) error {
	var n int
	var oldest []byte
	if err := s.reads.QueryRowContext(ctx, query, args...).Scan(&n, &oldest); err != nil {
		return err
	}
	b.Open += n
	if len(oldest) == ident.Size {
		if id := ident.ID(oldest); b.Oldest == (ident.ID{}) || id.Compare(b.Oldest) < 0 {
			b.Oldest = id
		}
	}
	return nil
}
