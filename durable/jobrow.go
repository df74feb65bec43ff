package durable

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A JobRow is a message, without headers and payload, with what is stored about its job for one consumer.
type JobRow struct {
	Message
	Found bool // the payload has the bytes that SearchRows looks for; true elsewhere
	// State is without Reason, Discarded and GivenBack. Of a job that is over it has the status, and of one that is
	// dead the error.
	State JobState
}

func (j *JobRow) columns() columns {
	return append(j.bare().of("m"),
		column{"m.found", &j.Found},
		column{endedIn, &j.State.Status},
		column{"COALESCE(o.attempts, 0)", &j.State.Attempts},
		column{"COALESCE(o.changed_ms, 0)", &j.State.ChangedMs},
		column{"COALESCE(o.next_ms, 0)", &j.State.NextMs},
		column{"COALESCE(o.redriven_ms, 0)", &j.State.RedrivenMs},
		column{"COALESCE(o.status_code, 0)", &j.State.StatusCode},
		column{"COALESCE(d.reason, o.error)", asBytes{&j.State.Error}},
	)
}

// endedIn is the JobStatus of the job of a message m in a statement with joinEnds.
const endedIn = "CASE WHEN v.message_id IS NOT NULL THEN 3 WHEN d.message_id IS NOT NULL THEN 2 " +
	"WHEN o.message_id IS NOT NULL THEN 1 ELSE 0 END"

// joinEnds joins what is stored of the job of a message m for a consumer: its delivery v, its dead letter d
// and its open row o.
func joinEnds(consumer string) string {
	return strings.ReplaceAll(`
LEFT JOIN deliveries v
  ON v.consumer_no = ?
  AND v.message_id = m.id
LEFT JOIN dead_jobs d
  ON d.consumer_no = ?
  AND d.message_id = m.id
LEFT JOIN open_jobs o
  ON o.consumer_no = ?
  AND o.message_id = m.id`, "?", consumer)
}

// rowsOf selects JobRows of the messages of a derived table. Its first three arguments, after those of the
// table, are the number of the consumer.
func rowsOf(table, order string) string {
	return `
SELECT` + new(JobRow).columns().names() + `
FROM (` + table + `
) m` + joinEnds("?") + `
ORDER BY m.id` + order
}

// The derived tables bound what is read, whatever became of the jobs.
var (
	selectJobRows     = rowsOf(messageRange("1", ""), "")
	selectJobRowsBack = rowsOf(messageRange("1", " DESC"), " DESC")

	searchRows     = rowsOf(messageRange("INSTR(payload, ?) > 0", ""), "")
	searchRowsBack = rowsOf(messageRange("INSTR(payload, ?) > 0", " DESC"), " DESC")

	selectJobRowsOf = rowsOf(`
    SELECT`+new(Message).bare().names()+`,
    1 AS found
    FROM messages
    WHERE channel_no = ?
      AND id IN (?...)`, "")

	selectOpenRows = rowsOf(openRange+`
        ORDER BY message_id
        LIMIT ?`+openJoin, "")

	selectOpenRowsBack = rowsOf(openRange+`
        ORDER BY message_id DESC
        LIMIT ?`+openJoin, " DESC")

	openJoin = `
    ) r
    JOIN messages b
      ON b.channel_no = ?
      AND b.id = r.message_id`

	openRange = `
    SELECT` + new(Message).bare().of("b").names() + `,
    1 AS found
    FROM (
        SELECT message_id
        FROM open_jobs
        WHERE consumer_no = ?
          AND message_id >= ?
          AND message_id <= ?`
)

// messageRange selects the messages of a channel in a range of IDs. found is an expression.
func messageRange(found, order string) string {
	return `
    SELECT` + new(Message).bare().names() + `,
    ` + found + ` AS found
    FROM messages
    WHERE channel_no = ?
      AND id >= ?
      AND id <= ?
    ORDER BY id` + order + `
    LIMIT ?`
}

// An IDRange is the IDs from From to To, both included, or from To to From where it goes Back.
type IDRange struct {
	From, To ident.ID // From is the smaller one
	Back     bool     // the newest first
}

// way returns the statement for the direction of r.
func (r IDRange) way(forth, back string) string {
	if r.Back {
		return back
	}
	return forth
}

// JobRows returns up to limit messages of a range of the channel of a consumer, with their jobs for it,
// in the order of the range. Not all of them concern the consumer.
func (s *Store) JobRows(ctx context.Context, k *Consumer, r IDRange, limit int) ([]JobRow, error) {
	return s.jobRows(ctx, k, r.way(selectJobRows, selectJobRowsBack), k.ChannelNo, r.From[:], r.To[:], limit, k.No, k.No,
		k.No)
}

// SearchRows is JobRows with Found: whether the payload has these bytes. It reads the payloads.
func (s *Store) SearchRows(ctx context.Context, k *Consumer, r IDRange, find []byte, limit int) ([]JobRow, error) {
	return s.jobRows(ctx, k, r.way(searchRows, searchRowsBack), find, k.ChannelNo, r.From[:], r.To[:], limit, k.No, k.No,
		k.No)
}

// OpenRows is JobRows for messages whose job has a row of open_jobs.
func (s *Store) OpenRows(ctx context.Context, k *Consumer, r IDRange, limit int) ([]JobRow, error) {
	return s.jobRows(ctx, k, r.way(selectOpenRows, selectOpenRowsBack), k.No, r.From[:], r.To[:], limit, k.ChannelNo, k.No,
		k.No, k.No)
}

// JobRowsOf is JobRows for the existing messages among ids, in order of the IDs.
func (s *Store) JobRowsOf(ctx context.Context, k *Consumer, ids []ident.ID) ([]JobRow, error) {
	var out []JobRow
	for _, part := range chunks(ids, maxInList) {
		rows, err := s.jobRows(ctx, k, list(selectJobRowsOf, len(part)), append(inArgs(k.ChannelNo, part), k.No, k.No,
			k.No)...)
		if err != nil {
			return nil, err
		}
		out = append(out, rows...)
	}
	return out, nil
}

func (s *Store) jobRows(ctx context.Context, k *Consumer, query string, args ...any) ([]JobRow, error) {
	out, err := readAll[JobRow](ctx, s, "list jobs", query, args...)
	for i := range out {
		out[i].ChannelNo = k.ChannelNo
	}
	return out, err
}

// Settled returns the settled watermark of a consumer, the zero ID where it has none.
func (s *Store) Settled(ctx context.Context, consumerNo uint32) (id ident.ID, err error) {
	err = repeat(ctx, "read a watermark", func(ctx context.Context) error {
		id = ident.ID{}
		err := s.reads.QueryRowContext(ctx, selectSettled, consumerNo).Scan(asID{&id})
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return id, err
}
