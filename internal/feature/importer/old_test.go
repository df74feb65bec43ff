package importer

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

// oldSchema has the tables and columns of the older implementation that matter, with its types.
const oldSchema = `
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

// An oldBroker is a database as the older implementation leaves it.
type oldBroker struct {
	t    *testing.T
	dsn  string
	db   *sql.DB
	next uint32
}

func newOldBroker(t *testing.T) *oldBroker {
	t.Helper()
	dsn := servers.MySQL(t)
	c, err := mysqlurl.Parse(dsn)
	require.NoError(t, err)
	c.MultiStatements = true
	db, err := sql.Open("mysql", c.FormatDSN())
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	o := &oldBroker{t: t, dsn: dsn, db: db}
	o.exec(oldSchema)
	return o
}

func (o *oldBroker) exec(query string, args ...any) {
	o.t.Helper()
	_, err := o.db.ExecContext(context.Background(), query, args...)
	require.NoError(o.t, err)
}

// xid returns an ID as the older implementation makes them, the next one of this second.
func (o *oldBroker) xid() string { return o.xidAt(time.Now()) }

func (o *oldBroker) xidAt(at time.Time) string {
	o.next++
	s := uint32(at.Unix())
	id := ident.ID{byte(s >> 24), byte(s >> 16), byte(s >> 8), byte(s), 0x4d, 0xaa, 0xbb, 9: byte(o.next >> 16),
		10: byte(o.next >> 8), 11: byte(o.next)}
	return id.String()
}

func (o *oldBroker) producer(id, token string) {
	o.exec("INSERT INTO producer (id, producerId, name, token) VALUES (?, ?, ?, ?)", o.xid(), id, "Producer "+id, token)
}

func (o *oldBroker) channel(id, token string) {
	o.exec("INSERT INTO channel (id, channelId, name, token) VALUES (?, ?, ?, ?)", o.xid(), id, "Channel "+id, token)
}

// consumer returns the primary key.
func (o *oldBroker) consumer(channel, id string, kind int) string {
	row := o.xid()
	o.exec("INSERT INTO consumer (id, consumerId, name, token, callbackUrl, channelId, type) VALUES (?, ?, ?, ?, ?, ?, ?)",
		row, id, "Consumer "+id, id+"-token", "https://consumers.example/"+id, channel, kind)
	return row
}

// An oldMessage is a row; what it leaves out has a usual value.
type oldMessage struct {
	id, channel, producer string
	payload               any
	mediaType             string
	headers               string
	priority, status      int
	at                    time.Time
}

// message returns the primary key.
func (o *oldBroker) message(m oldMessage) string {
	if m.at.IsZero() {
		m.at = time.Now()
	}
	row := o.xidAt(m.at)
	if m.id == "" {
		m.id = row
	}
	if m.payload == nil {
		m.payload = "payload of " + m.id
	}
	if m.mediaType == "" {
		m.mediaType = "text/plain"
	}
	if m.status == 0 {
		m.status = dispatched
	}
	headers := sql.NullString{String: m.headers, Valid: m.headers != ""}
	o.exec("INSERT INTO message (id, messageId, payload, contentType, priority, status, channelId, producerId, receivedAt, "+
		"outboxedAt, headers, createdAt, updatedAt) VALUES (?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(), UTC_TIMESTAMP(), ?, "+
		"UTC_TIMESTAMP(), UTC_TIMESTAMP())", row, m.id, m.payload, m.mediaType, m.priority, m.status, m.channel, m.producer,
		headers)
	return row
}

// job returns the primary key.
func (o *oldBroker) job(message, consumer string, status, retries int) string {
	row := o.xid()
	o.exec("INSERT INTO job (id, messageId, consumerId, status, retryAttemptCount, statusChangedAt, dispatchReceivedAt, "+
		"earliestNextAttemptAt) VALUES (?, ?, ?, ?, ?, '2026-01-02 03:04:05', '2026-01-02 03:04:05', '2026-01-02 03:05:05')",
		row, message, consumer, status, retries)
	return row
}

func (o *oldBroker) set(job string, status int) {
	o.exec("UPDATE job SET status = ?, statusChangedAt = UTC_TIMESTAMP() WHERE id = ?", status, job)
}

func (o *oldBroker) schedule(id, channel, producer string, due time.Time) {
	o.exec("INSERT INTO scheduled_message (id, messageId, payload, contentType, priority, channelId, producerId, "+
		"dispatchSchedule, status) VALUES (?, ?, ?, 'text/plain', 3, ?, ?, ?, 101)", o.xid(), id, "later "+id, channel, producer,
		due.UTC().Format("2006-01-02 15:04:05"))
}

func (o *oldBroker) open() *Old {
	o.t.Helper()
	old, err := OpenOld(context.Background(), o.dsn)
	require.NoError(o.t, err)
	o.t.Cleanup(func() { _ = old.Close() })
	return old
}

func TestRealServersADatabaseOfAnotherProgramIsRefused(t *testing.T) {
	dsn := servers.MySQL(t)
	_, err := OpenOld(t.Context(), dsn)
	require.ErrorIs(t, err, ErrNoOld)
	_, err = OpenOld(t.Context(), strings.Replace(dsn, "/", "/nothing_of_that_name_", 1))
	require.Error(t, err)
	for _, wrong := range []string{"", "mysql://u:secret@h", "sqlite:/x", "mysql://u:secret@127.0.0.1:1/old"} {
		_, err := OpenOld(t.Context(), wrong)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestTimesOfTheOldDatabase(t *testing.T) {
	for text, want := range map[string]int64{"2026-01-02 03:04:05": 1767323045000, "2026-01-02 03:04:05.250000": 1767323045250,
		"0000-00-00 00:00:00": 0, "": 0, "nonsense": 0, "1969-12-31 23:59:59": 0} {
		require.Equal(t, want, timeOf(sql.NullString{String: text, Valid: true}), text)
	}
}

func TestNamesAreComparedAsTheOldDatabaseDoes(t *testing.T) {
	a, b := "a", "b"
	of := map[string]*string{"Case": &a, fold("Case"): &a, "other": &b}
	for name, want := range map[string]*string{"Case": &a, "case": &a, "CASE ": &a, "other": &b, "x": nil} {
		require.Equal(t, want, named(of, name), fmt.Sprint(name))
	}
}
