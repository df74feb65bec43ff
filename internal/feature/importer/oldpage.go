package importer

import (
	"context"
	"database/sql"
	"encoding/binary"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

const (
	// pageRows is the number of messages that are read at once, without payload.
	pageRows = 200
	// pageBytes bounds the payloads that are read at once, and one more.
	pageBytes = 8 << 20
)

// The statuses of the older implementation.
const (
	acknowledged, dispatched          = 101, 102
	queued, inFlight, delivered, dead = 1001, 1002, 1003, 1004
	scheduledWaiting                  = 101
)

// A message is one of the older implementation.
type message struct {
	row       string // its primary key
	id        sql.NullString
	channel   sql.NullString
	producer  sql.NullString
	priority  sql.NullInt64
	status    sql.NullInt64
	size      sql.NullInt64 // of the payload, bytes
	jobs      []job
	whole     bool // the following are read
	payload   []byte
	mediaType sql.NullString
	headers   []byte // JSON
	dueMs     int64  // of a scheduled message
}

// A job is one of the older implementation.
type job struct {
	row       string
	consumer  string // primary key of its consumer
	status    int64
	retries   int64
	changedMs int64
	nextMs    int64
}

const (
	messageHead = `
SELECT
    id,
    messageId,
    channelId,
    producerId,
    priority,
    status,
    LENGTH(payload)
FROM message`

	nextMessages = `
WHERE id > ?
ORDER BY id
LIMIT ?`

	firstMessages = `
ORDER BY id
LIMIT ?`

	messagesFrom = `
WHERE id >= ?
ORDER BY id
LIMIT ?`

	selectJobs = `
SELECT
    messageId,
    id,
    consumerId,
    COALESCE(status, 0),
    COALESCE(retryAttemptCount, 0),
    statusChangedAt,
    earliestNextAttemptAt
FROM job
WHERE messageId IN (?...)
ORDER BY messageId, id`

	selectContents = `
SELECT
    id,
    payload,
    contentType,
    headers
FROM message
WHERE id IN (?...)`

	selectScheduled = `
SELECT
    id,
    messageId,
    channelId,
    producerId,
    priority,
    status,
    LENGTH(payload),
    payload,
    contentType,
    headers,
    dispatchSchedule
FROM scheduled_message
WHERE status = ?
  AND id > ?
ORDER BY id
LIMIT 1`

	selectNow = `
SELECT UTC_TIMESTAMP()`
)

// A place is where a page begins. The zero value is the beginning.
type place struct {
	row   string
	at    bool // the row itself is of the page
	after bool
}

// page reads the messages behind a place, with their jobs as of the same moment.
func (o *Old) page(ctx context.Context, p place) (out []*message, err error) {
	query, args := messageHead+firstMessages, []any{pageRows}
	switch {
	case p.at:
		query, args = messageHead+messagesFrom, []any{p.row, pageRows}
	case p.after:
		query, args = messageHead+nextMessages, []any{p.row, pageRows}
	}
	err = o.reading(ctx, func(ctx context.Context, tx *sql.Tx) error {
		out = out[:0]
		err := rowsOf(ctx, tx, query, args, func(r *sql.Rows) error {
			m := &message{}
			out = append(out, m)
			return r.Scan(&m.row, &m.id, &m.channel, &m.producer, &m.priority, &m.status, &m.size)
		})
		if err != nil || len(out) == 0 {
			return err
		}
		return jobsOf(ctx, tx, out)
	})
	return out, err
}

// jobsOf reads the jobs of messages.
func jobsOf(ctx context.Context, tx *sql.Tx, page []*message) error {
	of, rows := byRow(page)
	query, args := in(selectJobs, rows)
	return rowsOf(ctx, tx, query, args, func(r *sql.Rows) error {
		var row string
		var j job
		var changed, next sql.NullString
		if err := r.Scan(&row, &j.row, &j.consumer, &j.status, &j.retries, &changed, &next); err != nil {
			return err
		}
		j.changedMs, j.nextMs = timeOf(changed), timeOf(next)
		if m := named(of, row); m != nil {
			m.jobs = append(m.jobs, j)
		}
		return nil
	})
}

// contents reads payload and headers of messages. A message that was removed meanwhile stays without.
func (o *Old) contents(ctx context.Context, page []*message) error {
	of, rows := byRow(page)
	query, args := in(selectContents, rows)
	if !o.headers {
		query = strings.Replace(query, "    headers\n", "    NULL\n", 1)
	}
	return o.reading(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return rowsOf(ctx, tx, query, args, func(r *sql.Rows) error {
			var m message
			if err := r.Scan(&m.row, &m.payload, &m.mediaType, &m.headers); err != nil {
				return err
			}
			if to := named(of, m.row); to != nil {
				to.payload, to.mediaType, to.headers, to.whole = m.payload, m.mediaType, m.headers, true
			}
			return nil
		})
	})
}

// nextScheduled reads the scheduled message behind a row that waits for its time; nil: there is none.
func (o *Old) nextScheduled(ctx context.Context, after string) (out *message, err error) {
	if !o.scheduled {
		return nil, nil
	}
	err = o.reading(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return rowsOf(ctx, tx, selectScheduled, []any{scheduledWaiting, after}, func(r *sql.Rows) error {
			m, due := &message{whole: true}, sql.NullString{}
			out = m
			err := r.Scan(&m.row, &m.id, &m.channel, &m.producer, &m.priority, &m.status, &m.size, &m.payload, &m.mediaType,
				&m.headers, &due)
			m.dueMs = timeOf(due)
			return err
		})
	})
	return out, err
}

// since returns the place of the messages of the last time that long, by the clock of the old database. Its
// primary keys are IDs of rs/xid, which begin with their second.
func (o *Old) since(ctx context.Context, long time.Duration) (p place, err error) {
	var now sql.NullString
	err = o.reading(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, selectNow).Scan(&now)
	})
	var id ident.ID // of the same form
	binary.BigEndian.PutUint32(id[:4], uint32(max(timeOf(now)-long.Milliseconds(), 0)/1000))
	return place{row: id.String(), at: true}, err
}

// in completes a statement with a list of rows.
func in(query string, rows []string) (string, []any) {
	args := make([]any, len(rows))
	for i, row := range rows {
		args[i] = row
	}
	return strings.Replace(query, "?...", strings.Repeat(", ?", len(rows))[2:], 1), args
}

// byRow returns messages by their primary keys, and these.
func byRow(page []*message) (of map[string]*message, rows []string) {
	of, rows = make(map[string]*message, 2*len(page)), make([]string, len(page))
	for i, m := range page {
		rows[i] = m.row
		of[fold(m.row)] = m
	}
	for _, m := range page {
		of[m.row] = m
	}
	return of, rows
}

// fold returns equal texts for those that are one to the old database: its collation looks at neither case nor
// blanks at the end.
func fold(text string) string { return strings.ToLower(strings.TrimRight(text, " ")) }

// named returns what has a name as it is written, or else as the old database compares names.
func named[T any](of map[string]*T, name string) *T {
	if one := of[name]; one != nil {
		return one
	}
	return of[fold(name)]
}
