package main

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// catalogueTables are the tables of producers, channels and consumers.
var catalogueTables = []string{"producers", "channels", "consumers"}

// allTables lists the tables of the store.
func (w *world) allTables(db *sql.DB) (tables []string) {
	w.t.Helper()
	query := "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
	if w.setting("BROKER_MYSQL_DSN") != "" {
		query = "SELECT CAST(table_name AS CHAR) FROM information_schema.tables WHERE table_schema = DATABASE()"
	}
	rows, err := db.Query(query)
	require.NoError(w.t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		require.NoError(w.t, rows.Scan(&name))
		if !strings.HasPrefix(name, "kept_") && !strings.HasPrefix(name, "goose") {
			tables = append(tables, name)
		}
	}
	require.NoError(w.t, rows.Err())
	return tables
}

// backUp copies tables into tables beside them, as a backup tool would into a file.
func (w *world) backUp(db *sql.DB, tables []string) (version int64) {
	w.t.Helper()
	w.copyTables(db, "kept_", tables)
	return w.catalogueVersion(db)
}

func (w *world) copyTables(db *sql.DB, prefix string, tables []string) {
	w.t.Helper()
	for _, table := range tables {
		w.exec(db, "DROP TABLE IF EXISTS "+prefix+table)
		w.exec(db, "CREATE TABLE "+prefix+table+" AS SELECT * FROM "+table)
	}
}

func (w *world) exec(db *sql.DB, statement string) {
	w.t.Helper()
	_, err := db.Exec(statement)
	require.NoError(w.t, err, statement)
}

func (w *world) catalogueVersion(db *sql.DB) (version int64) {
	w.t.Helper()
	require.NoError(w.t, db.QueryRow("SELECT value FROM settings WHERE name = 'catalogue'").Scan(&version))
	return version
}

// restore sets tables back to their copies, and the catalogue to that version.
func (w *world) restore(db *sql.DB, tables []string, version int64) {
	w.t.Helper()
	w.restoreFrom(db, "kept_", tables, version)
}

func (w *world) restoreFrom(db *sql.DB, prefix string, tables []string, version int64) {
	w.t.Helper()
	eventually(w.t, "the restoration", func() bool { // a transaction of a broker may be in its way
		tx, err := db.Begin()
		require.NoError(w.t, err)
		defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
		var statements []string
		for _, table := range tables {
			statements = append(statements, "DELETE FROM "+table, "INSERT INTO "+table+" SELECT * FROM "+prefix+table)
		}
		statements = append(statements, fmt.Sprintf("UPDATE settings SET value = %d WHERE name = 'catalogue'", version))
		for _, statement := range statements {
			if _, err := tx.Exec(statement); err != nil {
				w.t.Log("restore:", err)
				return false
			}
		}
		return tx.Commit() == nil
	})
}

// A restoredWorld is brokers whose catalogue is backed up, changed and restored.
type restoredWorld struct {
	*stage
	brokers          []*process
	old, other, late *sink // callbacks: of the backup; set after it; of consumers made after it
}

func newRestoredWorld(t *testing.T, w *world) *restoredWorld {
	w.with(quick...).with("BROKER_ALLOW_DELETE=true")
	r := &restoredWorld{brokers: []*process{w.start()}, old: newSink(t, nil), other: newSink(t, nil),
		late: newSink(t, nil)}
	if w.redis != nil {
		r.brokers = append(r.brokers, w.start())
	}
	r.stage = r.brokers[0].stage(t, "k="+r.old.URL, "held")
	r.put("/producer/changes", "token", "first")
	r.put("/producer/leaves", "token", "l-token")
	return r
}

// Brokers that run follow a catalogue that is set back to a backup: its producers, channels and
// consumers count on each of them, what came later has ended, and nothing ends a broker. This is so
// while the version is lower than theirs, and when a change after the restoration has made it higher.
func TestFaultBrokersFollowACatalogueThatIsRestored(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		r, db := newRestoredWorld(t, w), w.openDatabase("")
		l := startSteady(r.stage, 2, func(n int) *process { return r.brokers[n%len(r.brokers)] })
		for _, higher := range []bool{false, true} {
			version := w.backUp(db, catalogueTables)
			r.changeAll()
			if higher {
				version = w.catalogueVersion(db) + 1
			}
			l.progress(20)
			w.restore(db, catalogueTables, version)
			r.requireRestored()
			l.progress(40)
			time.Sleep(1500 * time.Millisecond) // polls that must not bring the former state back
			r.requireRestored()
			body := fmt.Sprint("after, higher: ", higher)
			at := r.publish(body)
			eventually(t, "the delivery", func() bool { return r.message(at).Jobs[0].Status == "DELIVERED" })
			require.Equal(t, 1, r.old.times(body), "at the callback of the backup")
		}
		l.finish()
		bodies := l.bodies()
		eventually(t, "all messages", func() bool {
			return !slices.ContainsFunc(bodies, func(body string) bool { return r.old.times(body)+r.other.times(body) == 0 })
		})
		r.createAgain(t)
		for _, b := range r.brokers {
			require.Equal(t, 2, strings.Count(b.log.String(), "the catalogue of the store went back or has other content"),
				"once for each restoration")
			require.Zero(t, b.stop())
		}
	})
}

// Brokers that run go on after the whole database was set back under load: messages and outcomes since
// the backup are gone, jobs of them that Redis still has are not delivered, and whatever is accepted
// from then on is.
func TestFaultBrokersGoOnAfterTheWholeDatabaseIsRestored(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		r, db := newRestoredWorld(t, w), w.openDatabase("")
		kept := r.publish("before the backup")
		r.awaitQueued("held", 1)
		tables := w.allTables(db)
		require.Subset(t, tables, append([]string{"settings", "nodes", "messages", "deliveries"}, catalogueTables...))
		version := w.backUp(db, tables)
		r.settleOnly(db, "held")
		r.changeAll()
		l := startSteady(r.stage, 2, func(n int) *process { return r.brokers[n%len(r.brokers)] })
		l.progress(40)
		lost := r.publish("after the backup")
		w.restore(db, tables, version)
		r.requireRestored()
		l.progress(40)
		l.finish()
		require.Equal(t, 404, r.do("GET", lost, "").status)
		for i, b := range r.brokers {
			body := fmt.Sprint("after the restoration ", i)
			at := r.on(b).publish(body)
			eventually(t, "the delivery", func() bool { return r.message(at).Jobs[0].Status == "DELIVERED" })
			require.Positive(t, r.old.times(body))
		}
		require.Equal(t, "QUEUED", r.message(kept).Jobs[1].Status)
		eventually(t, "the job that was delivered after the backup", func() bool {
			jobs := r.queued("held", "limit=1")
			return len(jobs) == 1 && jobs[0].Message.Payload == "before the backup"
		})
		require.Equal(t, "before the backup", r.queued("held", "limit=1")[0].Message.Payload)
		r.createAgain(t)
		for _, b := range r.brokers {
			require.Zero(t, b.stop())
		}
	})
}

// settleOnly delivers the only job of a consumer, and waits until its settled watermark is past it.
func (w *restoredWorld) settleOnly(db *sql.DB, consumer string) {
	s := w.stage
	job := s.awaitQueued(consumer, 1)[0].ID
	lease := s.claim(consumer, job)
	require.Equal(s.t, 202, s.move(consumer, job, to("DELIVERED"), "X-Broker-Lease", lease).status)
	eventually(s.t, "the watermark", func() bool {
		var n int
		require.NoError(s.t, db.QueryRow("SELECT COUNT(*) FROM marks WHERE consumer_no = (SELECT no FROM consumers WHERE "+
			"id = ? AND deleted_no = 0)", []byte(consumer)).Scan(&n))
		return n == 1
	})
}

// createAgain creates resources as they were before, which get other numbers.
func (w *restoredWorld) createAgain(t *testing.T) {
	again := newSink(t, nil)
	for _, b := range w.brokers {
		on := w.on(b)
		on.put("/producer/later", "token", "t")
		on.put(w.path()+"-late", "token", "c-token")
		on.put(w.path()+"-late/consumer/n", "token", "n-token", "callbackUrl", again.URL)
		r := on.do("POST", w.path()+"-late/broadcast", "n", "X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID",
			"later", "X-Broker-Producer-Token", "t")
		require.Equal(t, 201, r.status, r.body)
		on.awaitStatus(r.header.Get("Location"), "DELIVERED")
	}
}

// changeAll changes, creates and deletes resources, and waits until each broker works by it.
func (w *restoredWorld) changeAll() {
	s := w.stage
	s.put("/producer/changes", "token", "second")
	s.put("/producer/later", "token", "later-token")
	s.delete("/producer/leaves")
	s.put(s.path()+"-late", "token", "c-token")
	s.put(s.path()+"-late/consumer/x", "token", "x-token", "callbackUrl", w.late.URL)
	s.put(s.path("/consumer/k"), "callbackUrl", w.other.URL)
	s.join("new=" + w.late.URL)
	s.change("held", "pause")
	for _, b := range w.brokers {
		on := s.on(b)
		require.Equal(s.t, "PAUSED", on.consumer("held").State)
		require.Equal(s.t, 201, on.postAs("later", "later-token").status)
		require.Equal(s.t, 401, on.postAs("leaves", "l-token").status)
	}
}

// postAs publishes to the stage as a producer.
func (s *stage) postAs(producer, token string) reply {
	s.t.Helper()
	return s.do("POST", s.path("/broadcast"), "as "+producer, "X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID",
		producer, "X-Broker-Producer-Token", token)
}

// requireRestored waits until each broker works by the backup, whichever routes are asked.
func (w *restoredWorld) requireRestored() {
	for _, b := range w.brokers {
		s := w.on(b)
		eventually(s.t, "the tokens of the backup", func() bool {
			return s.postAs("changes", "first").status == 201 && s.postAs("changes", "second").status == 403
		})
		eventually(s.t, "the end of what came later", func() bool { return s.postAs("later", "later-token").status == 401 })
		require.Equal(s.t, 201, s.postAs("leaves", "l-token").status, "its deletion is undone")
		require.Equal(s.t, "ACTIVE", s.consumer("held").State)
		for _, path := range []string{s.path("/consumer/new"), "/producer/later", s.path() + "-late"} {
			require.Equal(s.t, 404, s.do("GET", path, "").status, path)
		}
		requireProblem(s.t, s.do("POST", s.path()+"-late/broadcast", "body", producerTokens...), 404, "channel_not_found")
	}
}
