package durable

import (
	"context"
	"database/sql"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A jobTable has the statements of one table of jobs. find and stretch select rows of a
// consumer, in order, by their IDs or in an ID range; remove deletes rows.
type jobTable struct{ find, stretch, remove string }

var (
	openJobs = newJobTable("open_jobs")
	deadJobs = newJobTable("dead_jobs")
)

func newJobTable(name string) jobTable {
	const some = `
WHERE consumer_no = ?
  AND message_id IN (?...)`
	return jobTable{
		find: `
SELECT message_id
FROM ` + name + some + `
ORDER BY message_id`,
		stretch: `
SELECT message_id
FROM ` + name + `
WHERE consumer_no = ?
  AND message_id > ?
  AND message_id <= ?
ORDER BY message_id`,
		remove: `
DELETE FROM ` + name + some,
	}
}

// deletedAtOnce bounds one DELETE. The server looks each row of a short list up by its key.
// For a long list it may read, and lock, all rows of the consumer.
const deletedAtOnce = 50

// deleteFound deletes the rows of jobs that are over. Few jobs have a row, so it first reads
// the existing ones without locks. A DELETE for all the jobs would wait for rows that other
// brokers are writing, and they would wait for it. A row that another broker commits after the
// read stays and has no effect, because deliveries and dead_jobs outrank it.
func (s *Store) deleteFound(ctx context.Context, tx *sql.Tx, table jobTable, outcomes []Outcome) error {
	for _, part := range byConsumer(outcomes) {
		found, err := selectIDs(ctx, tx, list(table.find, len(part)), jobArgs(part))
		if err != nil {
			return err
		}
		for _, ids := range chunks(found, deletedAtOnce) {
			if err := s.removeRows(ctx, tx, table, part[0].ConsumerNo, ids); err != nil {
				return err
			}
		}
	}
	return nil
}

const selectRedrives = `
SELECT
    message_id,
    redrives,
    leases_lost,
    given_back
FROM open_jobs
WHERE consumer_no = ?
  AND message_id IN (?...)
ORDER BY message_id`

// A jobKey names a job.
type jobKey struct {
	consumerNo uint32
	id         ident.ID
}

// counts are what open_jobs counts of a job beside its attempts.
type counts struct {
	redrives              int // by the broker itself
	leasesLost, givenBack int
}

// deleteOpen is deleteFound for the open_jobs rows of jobs that die. It returns what they counted.
func deleteOpen(ctx context.Context, tx *sql.Tx, outcomes []Outcome) (map[jobKey]counts, error) {
	counted := map[jobKey]counts{}
	for _, part := range byConsumer(outcomes) {
		k := jobKey{consumerNo: part[0].ConsumerNo}
		var found []ident.ID
		err := each(ctx, tx, list(selectRedrives, len(part)), jobArgs(part), func(r *sql.Rows) error {
			var n counts
			err := r.Scan(asID{&k.id}, &n.redrives, &n.leasesLost, &n.givenBack)
			found = append(found, k.id)
			counted[k] = n
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, ids := range chunks(found, deletedAtOnce) {
			if err := exec(ctx, tx, list(openJobs.remove, len(ids)), inArgs(k.consumerNo, ids)...); err != nil {
				return nil, err
			}
		}
	}
	return counted, nil
}

// write runs an INSERT with a row of placeholders per outcome.
func write(ctx context.Context, q querier, insert string, outcomes []Outcome, row func(*Outcome) []any) error {
	for _, part := range chunks(outcomes, maxInList) {
		args := make([]any, 0, width(insert)*len(part))
		for i := range part {
			args = append(args, row(&part[i])...)
		}
		if err := insertRows(ctx, q, insert, args); err != nil {
			return err
		}
	}
	return nil
}

// byConsumer cuts sorted outcomes into pieces of one consumer. For `(a, b) IN (...)` some
// servers read a whole table; for `a = ? AND b IN (...)` none does.
func byConsumer(outcomes []Outcome) [][]Outcome {
	var out [][]Outcome
	for start := 0; start < len(outcomes); {
		end := start + 1
		for end < len(outcomes) && end-start < maxInList && outcomes[end].ConsumerNo == outcomes[start].ConsumerNo {
			end++
		}
		out = append(out, outcomes[start:end])
		start = end
	}
	return out
}

func jobArgs(part []Outcome) []any {
	args := make([]any, 0, 1+len(part))
	args = append(args, part[0].ConsumerNo)
	for i := range part {
		args = append(args, part[i].ID[:])
	}
	return args
}
