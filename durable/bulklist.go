package durable

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

var (
	selectBulks = fromBulks + `WHERE channel_no = ?
  AND id >= ?
  AND state > 0
  AND (? = 0 OR producer_no = ?)
ORDER BY id
LIMIT ?`

	selectBadRows = `
SELECT` + new(BadRow).columns().names() + `
FROM bulk_errors
WHERE bulk_id = ?
  AND row_no > ?
ORDER BY row_no
LIMIT ?`

	selectBulkSteps = `
SELECT` + new(block).columns().names() + `
FROM bulk_steps
WHERE bulk_id = ?
  AND complete = 0
  AND first_id > ?
ORDER BY first_id
LIMIT ?`
)

const (
	selectBulkSums = `
SELECT COALESCE(SUM(delivered), 0)
FROM bulk_steps
WHERE bulk_id = ?
  AND complete = 1`

	completeBulkStep = `
UPDATE bulk_steps
SET
    complete = 1,
    delivered = ?
WHERE bulk_id = ?
  AND first_id = ?`

	countBlockDelivered = `
SELECT COUNT(*)
FROM deliveries
WHERE consumer_no = ?
  AND message_id BETWEEN ? AND ?`

	countBlockDead = `
SELECT COUNT(*)
FROM dead_jobs d
WHERE d.consumer_no = ?
  AND d.message_id BETWEEN ? AND ?
  AND NOT EXISTS (
      SELECT 1
      FROM deliveries v
      WHERE v.consumer_no = d.consumer_no
        AND v.message_id = d.message_id
  )`

	selectOverBulks = `
SELECT id
FROM bulks
WHERE state > 2
  AND changed_ms < ?
  AND (? > 0 OR chunks > 0)
ORDER BY id
LIMIT ?`

	selectLostBulks = `
SELECT id
FROM bulks
WHERE state = 0
  AND lease_ms < ?
LIMIT ?`

	deleteBulk = `
DELETE FROM bulks
WHERE id = ?`

	forgetBulkBody = `
UPDATE bulks
SET chunks = 0
WHERE id = ?`
)

var countBlockOwed = `
SELECT COUNT(*)
FROM messages
WHERE channel_no = ?
  AND id BETWEEN ? AND ?
  AND ` + concernsIn("")

// Bulks returns up to limit bulks of a channel from an ID on; of one producer, if producerNo is not
// 0.
func (s *Store) Bulks(ctx context.Context, channelNo, producerNo uint32, from ident.ID, limit int) ([]*Bulk, error) {
	found, err := readAll[Bulk](ctx, s, "list bulks", selectBulks, channelNo, from[:], producerNo, producerNo, limit)
	return pointersTo(found), err
}

func (b *BadRow) columns() columns {
	return columns{{"row_no", &b.Row}, {"reason", asBytes{&b.Reason}}}
}

// BadRows returns up to limit bad rows of a bulk with a number above after, in order.
func (s *Store) BadRows(ctx context.Context, id ident.ID, after int64, limit int) ([]BadRow, error) {
	return readAll[BadRow](ctx, s, "list the bad rows of a bulk", selectBadRows, id[:], after, limit)
}

// BulkJobs counts the jobs of a bulk's messages.
type BulkJobs struct {
	Delivered, Open, Dead int64
	Partly                bool // the count was stopped: delivered and dead jobs may be counted as open
}

// bulkStepPage is the number of steps that CountBulkJobs reads at once.
const bulkStepPage = 256

// A block is the messages of a step that is not complete.
type block struct {
	first, last        ident.ID
	audience, messages int
	jobs               int64
}

// selective reports whether some of its messages are not for the whole audience.
func (b *block) selective() bool { return b.jobs != int64(b.audience)*int64(b.messages) }

// CountBulkJobs counts the jobs of a bulk among the consumers of its channel, by position; those of
// deleted consumers count only once they are delivered. Of a step whose jobs are all delivered the
// sum is stored, so it is counted once. The others cost two index ranges for each consumer, which
// contain the delivered and dead jobs of the step only. The count ends after a time.
func (s *Store) CountBulkJobs(ctx context.Context, id ident.ID, consumers []*Consumer,
	most time.Duration) (jobs BulkJobs, err error) {
	end := time.Now().Add(most)
	err = repeat(ctx, "count the jobs of a bulk", func(ctx context.Context) error {
		return s.reads.QueryRowContext(ctx, selectBulkSums, id[:]).Scan(&jobs.Delivered)
	})
	var after ident.ID
	for err == nil {
		var page []block
		if page, err = readAll[block](ctx, s, "read the steps of a bulk", selectBulkSteps, id[:], after[:],
			bulkStepPage); err != nil || len(page) == 0 {
			break
		}
		for _, b := range page {
			after = b.first
			if time.Now().After(end) {
				jobs.Partly = true
			}
			if err = s.countBlock(ctx, id, b, consumers, &jobs); err != nil {
				break
			}
		}
	}
	return jobs, err
}

func (b *block) columns() columns {
	return columns{
		{"first_id", asID{&b.first}},
		{"last_id", asID{&b.last}},
		{"audience", &b.audience},
		{"messages", &b.messages},
		{"jobs", &b.jobs},
	}
}

// countJobsOf counts the jobs that a consumer has of a step, those delivered, and those dead.
func (s *Store) countJobsOf(ctx context.Context, k *Consumer, b *block, owed, done, gone *int64) error {
	err := s.reads.QueryRowContext(ctx, countBlockDelivered, k.No, b.first[:], b.last[:]).Scan(done)
	if err == nil && b.selective() && *done < *owed {
		err = s.reads.QueryRowContext(ctx, countBlockOwed, k.appendConcerns([]any{k.ChannelNo, b.first[:],
			b.last[:]})...).Scan(owed)
	}
	if err == nil && *done < *owed {
		err = s.reads.QueryRowContext(ctx, countBlockDead, k.No, b.first[:], b.last[:]).Scan(gone)
	}
	return err
}

// countBlock adds the jobs of a step. In a count that was stopped they all count as open.
func (s *Store) countBlock(ctx context.Context, id ident.ID, b block, consumers []*Consumer, jobs *BulkJobs) error {
	var delivered, dead, all int64
	for _, k := range consumers[:min(b.audience, len(consumers))] {
		if k.Deleted() {
			continue
		}
		owed, done, gone := int64(b.messages), int64(0), int64(0)
		if !jobs.Partly {
			err := repeat(ctx, "count the jobs of a bulk", func(ctx context.Context) error {
				return s.countJobsOf(ctx, k, &b, &owed, &done, &gone)
			})
			if err != nil {
				return err
			}
		}
		all, delivered, dead = all+owed, delivered+done, dead+gone
	}
	jobs.Delivered, jobs.Dead, jobs.Open = jobs.Delivered+delivered, jobs.Dead+dead, jobs.Open+all-delivered-dead
	if jobs.Partly || delivered < all || all == 0 {
		return nil
	}
	return repeat(ctx, "complete a step of a bulk", func(ctx context.Context) error {
		return exec(ctx, s.db, completeBulkStep, delivered, id[:], b.first[:])
	})
}
