// Package oldbroker makes databases as the older implementation, webhook-broker, leaves them.
package oldbroker

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/servers"
	"github.com/penstock-broker/penstock/internal/tool/mysqlurl"
)

// schema has the tables and columns of the older implementation that matter, with its types.
const schema = `
CREATE TABLE producer (id VARCHAR(255) PRIMARY KEY, producerId VARCHAR(255), name VARCHAR(255), token VARCHAR(255),
  createdAt DATETIME, updatedAt DATETIME);
CREATE TABLE channel (id VARCHAR(255) PRIMARY KEY, channelId VARCHAR(255), name VARCHAR(255), token VARCHAR(255),
  createdAt DATETIME, updatedAt DATETIME);
CREATE TABLE consumer (id VARCHAR(255) PRIMARY KEY, consumerId VARCHAR(255), name VARCHAR(255), token VARCHAR(255),
  callbackUrl TEXT(1000), channelId VARCHAR(255), type INTEGER DEFAULT 1, createdAt DATETIME, updatedAt DATETIME);
CREATE TABLE message (id VARCHAR(255) PRIMARY KEY, messageId VARCHAR(255), payload MEDIUMTEXT,
  contentType VARCHAR(255), priority INTEGER, status INTEGER, channelId VARCHAR(255), producerId VARCHAR(255),
  receivedAt DATETIME, outboxedAt DATETIME, headers JSON DEFAULT '{}', createdAt DATETIME, updatedAt DATETIME);
CREATE TABLE job (id VARCHAR(255) PRIMARY KEY, messageId VARCHAR(255), consumerId VARCHAR(255), status INTEGER,
  retryAttemptCount INTEGER DEFAULT 0, statusChangedAt DATETIME, dispatchReceivedAt DATETIME,
  earliestNextAttemptAt DATETIME, priority INTEGER DEFAULT 0, incrementalTimeout INTEGER DEFAULT 0, createdAt DATETIME,
  updatedAt DATETIME, UNIQUE (messageId, consumerId), KEY jobs_by_message (messageId, id));
CREATE TABLE scheduled_message (id VARCHAR(255) PRIMARY KEY, messageId VARCHAR(255), payload MEDIUMTEXT,
  contentType VARCHAR(255), priority INTEGER, channelId VARCHAR(255), producerId VARCHAR(255), headers JSON,
  dispatchSchedule DATETIME, dispatchedAt DATETIME, status INTEGER, createdAt DATETIME, updatedAt DATETIME)`

// An Broker is a database as the older implementation leaves it.
type Broker struct {
	t    testing.TB
	DSN  string
	db   *sql.DB
	tx   *sql.Tx // of Together; nil: each statement is alone
	next uint32
}

// New returns an empty one in a database of its own.
func New(t testing.TB) *Broker {
	t.Helper()
	return At(t, servers.MySQL(t))
}

// At returns one in a database that is empty.
func At(t testing.TB, dsn string) *Broker {
	t.Helper()
	c, err := mysqlurl.Parse(dsn)
	require.NoError(t, err)
	c.MultiStatements = true
	db, err := sql.Open("mysql", c.FormatDSN())
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	o := &Broker{t: t, DSN: dsn, db: db}
	o.Exec(schema)
	return o
}

// Exec runs a statement.
func (o *Broker) Exec(query string, args ...any) {
	o.t.Helper()
	exec := o.db.ExecContext
	if o.tx != nil {
		exec = o.tx.ExecContext
	}
	_, err := exec(context.Background(), query, args...)
	require.NoError(o.t, err)
}

// Together makes the rows of f visible at once, as the older implementation does with the jobs of a message and its
// status.
func (o *Broker) Together(f func()) {
	o.t.Helper()
	tx, err := o.db.BeginTx(context.Background(), nil)
	require.NoError(o.t, err)
	o.tx = tx
	f()
	o.tx = nil
	require.NoError(o.t, tx.Commit())
}

// Xid returns an ID as the older implementation makes them, the next one of this second.
func (o *Broker) Xid() string { return o.XidAt(time.Now()) }

// XidAt is Xid of a time.
func (o *Broker) XidAt(at time.Time) string {
	o.next++
	s := uint32(at.Unix())
	id := ident.ID{byte(s >> 24), byte(s >> 16), byte(s >> 8), byte(s), 0x4d, 0xaa, 0xbb, 9: byte(o.next >> 16),
		10: byte(o.next >> 8), 11: byte(o.next)}
	return id.String()
}

// Producer inserts a producer.
func (o *Broker) Producer(id, token string) {
	o.Exec("INSERT INTO producer (id, producerId, name, token) VALUES (?, ?, ?, ?)", o.Xid(), id, "Producer "+id, token)
}

// Channel inserts a channel.
func (o *Broker) Channel(id, token string) {
	o.Exec("INSERT INTO channel (id, channelId, name, token) VALUES (?, ?, ?, ?)", o.Xid(), id, "Channel "+id, token)
}

// Consumer inserts one of type 0 (pull) or 1 (push), and returns the primary key.
func (o *Broker) Consumer(channel, id string, kind int) string {
	row := o.Xid()
	o.Exec("INSERT INTO consumer (id, consumerId, name, token, callbackUrl, channelId, type) VALUES (?, ?, ?, ?, ?, ?, ?)",
		row, id, "Consumer "+id, id+"-token", "https://consumers.example/"+id, channel, kind)
	return row
}

// An Message is a row; what it leaves out has a usual value.
type Message struct {
	ID, Channel, Producer string
	Payload               any
	MediaType             string
	Headers               string
	Priority, Status      int
	At                    time.Time
}

// Message inserts a message and returns the primary key.
func (o *Broker) Message(m Message) string {
	if m.At.IsZero() {
		m.At = time.Now()
	}
	row := o.XidAt(m.At)
	if m.ID == "" {
		m.ID = row
	}
	if m.Payload == nil {
		m.Payload = "payload of " + m.ID
	}
	if m.MediaType == "" {
		m.MediaType = "text/plain"
	}
	if m.Status == 0 {
		m.Status = 102
	}
	headers := sql.NullString{String: m.Headers, Valid: m.Headers != ""}
	o.Exec("INSERT INTO message (id, messageId, payload, contentType, priority, status, channelId, producerId, "+
		"receivedAt, outboxedAt, headers, createdAt, updatedAt) "+
		"VALUES (?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(), UTC_TIMESTAMP(), ?, "+
		"UTC_TIMESTAMP(), UTC_TIMESTAMP())", row, m.ID, m.Payload, m.MediaType, m.Priority, m.Status, m.Channel, m.Producer,
		headers)
	return row
}

// Job inserts a job and returns the primary key.
func (o *Broker) Job(message, consumer string, status, retries int) string {
	row := o.Xid()
	o.Exec("INSERT INTO job (id, messageId, consumerId, status, retryAttemptCount, statusChangedAt, dispatchReceivedAt, "+
		"earliestNextAttemptAt) VALUES (?, ?, ?, ?, ?, '2026-01-02 03:04:05', '2026-01-02 03:04:05', '2026-01-02 03:05:05')",
		row, message, consumer, status, retries)
	return row
}

// fillRows is how many rows a statement of Fill has.
const fillRows = 500

// Fill inserts n messages of 100 bytes, a thousand of them a second up to now, each with a job of a consumer: of a
// hundred the first is dead, the second is open, and the others are delivered.
func (o *Broker) Fill(n int, channel, producer, consumer string) {
	o.t.Helper()
	begun := time.Now().Add(-time.Duration(n) * time.Millisecond)
	for from := 0; from < n; from += fillRows {
		var messages, jobs []any
		rows := min(fillRows, n-from)
		for i := from; i < from+rows; i++ {
			at := begun.Add(time.Duration(i) * time.Millisecond)
			id, stamp, status := o.XidAt(at), at.UTC().Format("2006-01-02 15:04:05"), 1003
			switch i % 100 {
			case 0:
				status = 1004
			case 1:
				status = 1001
			}
			messages = append(messages, id, id, fmt.Sprintf("%0100d", i), channel, producer, stamp, stamp, stamp, stamp)
			jobs = append(jobs, o.XidAt(at), id, consumer, status, stamp, stamp, stamp)
		}
		values := func(row string) string { return strings.TrimSuffix(strings.Repeat(row+", ", rows), ", ") }
		o.Exec("INSERT INTO message (id, messageId, payload, contentType, priority, status, channelId, producerId, "+
			"receivedAt, outboxedAt, createdAt, updatedAt) VALUES "+values("(?, ?, ?, 'text/plain', 0, 102, ?, ?, ?, ?, ?, ?)"),
			messages...)
		o.Exec("INSERT INTO job (id, messageId, consumerId, status, statusChangedAt, dispatchReceivedAt, "+
			"earliestNextAttemptAt) VALUES "+values("(?, ?, ?, ?, ?, ?, ?)"), jobs...)
	}
}

// Set changes the status of a job.
func (o *Broker) Set(job string, status int) {
	o.Exec("UPDATE job SET status = ?, statusChangedAt = UTC_TIMESTAMP() WHERE id = ?", status, job)
}

// Schedule inserts a scheduled message.
func (o *Broker) Schedule(id, channel, producer string, due time.Time) {
	o.Exec("INSERT INTO scheduled_message (id, messageId, payload, contentType, priority, channelId, producerId, "+
		"dispatchSchedule, status) VALUES (?, ?, ?, 'text/plain', 3, ?, ?, ?, 101)", o.Xid(), id, "later "+id, channel,
		producer, due.UTC().Format("2006-01-02 15:04:05"))
}
