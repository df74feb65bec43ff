package durable

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A Due is a schedule whose next message is due.
type Due struct {
	DueLine
	ID    ident.ID
	AtMs  int64
	Bytes int // of its payload and headers
}

// columns are those of a schedule that is due.
func (d *Due) columns() columns {
	return columns{
		{"id", asID{&d.ID}},
		{"producer_no", &d.ProducerNo},
		{"channel_no", &d.ChannelNo},
		{"due_ms", &d.AtMs},
		{"LENGTH(payload) + LENGTH(headers)", &d.Bytes},
	}
}

// A DueLine names the schedules of one producer in one channel.
type DueLine struct{ ProducerNo, ChannelNo uint32 }

// A DueTurn asks for up to Limit schedules of a line that come after another one in the order of time
// and ID.
type DueTurn struct {
	DueLine
	After Due
	Limit int
}

// Compare orders schedules by time and ID.
func (d Due) Compare(e Due) int { return cmp.Or(cmp.Compare(d.AtMs, e.AtMs), d.ID.Compare(e.ID)) }

// selectDueOfLine reads the index of lines alone: that of times has those of everybody.
var selectDueOfLine = statement{
	mysql:  strings.ReplaceAll(selectDueOfLineFrom, "(index)", "FORCE INDEX (scheduled_turns)"),
	sqlite: strings.ReplaceAll(selectDueOfLineFrom, "(index)", "INDEXED BY scheduled_turns"),
}

var selectDueOfLineFrom = `
SELECT` + new(Due).columns().names() + `
FROM scheduled (index)
WHERE status = 0
  AND due_ms <= ?
  AND producer_no = ?
  AND channel_no = ?
  AND due_ms >= ?
  AND (due_ms > ? OR id > ?)
ORDER BY due_ms, id
LIMIT ?`

// selectDueLines visits each line once, however many schedules it has: MySQL by a loose index scan,
// for which status is in the GROUP BY, SQLite by a seek behind the line before. Both read the index
// scheduled_turns alone.
var selectDueLines = statement{
	mysql: `
SELECT
    producer_no,
    channel_no
FROM scheduled
WHERE status = 0
GROUP BY
    status,
    producer_no,
    channel_no
HAVING MIN(due_ms) <= ?
ORDER BY
    producer_no,
    channel_no`,
	sqlite: `
WITH RECURSIVE line (producer_no, channel_no, due_ms) AS (
    SELECT *
    FROM (
        SELECT
            producer_no,
            channel_no,
            due_ms
        FROM scheduled
        WHERE status = 0
        ORDER BY producer_no, channel_no, due_ms
        LIMIT 1
    )
    UNION ALL
    SELECT
        s.producer_no,
        s.channel_no,
        s.due_ms
    FROM line
    JOIN scheduled s
      ON s.rowid = (
          SELECT n.rowid
          FROM scheduled n
          WHERE n.status = 0
            AND (n.producer_no, n.channel_no) > (line.producer_no, line.channel_no)
          ORDER BY n.producer_no, n.channel_no, n.due_ms
          LIMIT 1
      )
)
SELECT
    producer_no,
    channel_no
FROM line
WHERE due_ms <= ?
ORDER BY producer_no, channel_no`,
}

// DueLines returns the lines that have a schedule which is due at nowMs, by their numbers.
func (s *Store) DueLines(ctx context.Context, nowMs int64) (lines []DueLine, err error) {
	return readAll[DueLine](ctx, s, "read whose scheduled messages are due", s.dialect.sql(selectDueLines), nowMs)
}

func (l *DueLine) columns() columns {
	return columns{{"producer_no", &l.ProducerNo}, {"channel_no", &l.ChannelNo}}
}

// dueTurns is the number of turns that one statement reads.
const dueTurns = 50

// DueOfLines returns schedules of some lines that are due at nowMs, in the order of time and ID.
func (s *Store) DueOfLines(ctx context.Context, nowMs int64, turns []DueTurn) (due []Due, err error) {
	for _, part := range chunks(turns, dueTurns) {
		var query strings.Builder
		var args []any
		for i, t := range part {
			if i > 0 {
				query.WriteString("\nUNION ALL")
			}
			fmt.Fprintf(&query, "\nSELECT *\nFROM (%s\n) t%d", s.dialect.sql(selectDueOfLine), i)
			args = append(args, nowMs, t.ProducerNo, t.ChannelNo, t.After.AtMs, t.After.AtMs, t.After.ID[:], t.Limit)
		}
		found, err := s.due(ctx, query.String(), args...)
		if err != nil {
			return nil, err
		}
		due = append(due, found...)
	}
	slices.SortFunc(due, Due.Compare)
	return due, nil
}

func (s *Store) due(ctx context.Context, query string, args ...any) ([]Due, error) {
	return readAll[Due](ctx, s, "read scheduled messages that are due", query, args...)
}
