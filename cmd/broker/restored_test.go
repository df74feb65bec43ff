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

// backUp copies the catalogue into tables beside it, as a backup tool would into a file.
func (w *world) backUp(db *sql.DB) (version int64) {
	w.t.Helper()
	for _, table := range catalogueTables {
		w.exec(db, "DROP TABLE IF EXISTS kept_"+table)
		w.exec(db, "CREATE TABLE kept_"+table+" AS SELECT * FROM "+table)
	}
	return w.catalogueVersion(db)
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

// restore sets the catalogue back to the copy, with that version.
func (w *world) restore(db *sql.DB, version int64) {
	w.t.Helper()
	eventually(w.t, "the restoration", func() bool { // a transaction of a broker may be in its way
		tx, err := db.Begin()
		require.NoError(w.t, err)
		defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
		statements := []string{fmt.Sprintf("UPDATE settings SET value = %d WHERE name = 'catalogue'", version)}
		for _, table := range catalogueTables {
			statements = append(statements, "DELETE FROM "+table, "INSERT INTO "+table+" SELECT * FROM kept_"+table)
		}
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

// Brokers that run follow a catalogue that is set back to a backup: its producers, channels and
// consumers count on each of them, what came later has ended, and nothing ends a broker. This is so
// while the version is lower than theirs, and when a change after the restoration has made it higher.
func TestFaultBrokersFollowACatalogueThatIsRestored(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with(quick...).with("BROKER_ALLOW_DELETE=true")
		r := &restoredWorld{brokers: []*process{w.start()}, old: newSink(t, nil), other: newSink(t, nil), late: newSink(t, nil)}
		if w.redis != nil {
			r.brokers = append(r.brokers, w.start())
		}
		db := w.openDatabase("")
		r.stage = r.brokers[0].stage(t, "k="+r.old.URL, "held")
		r.put("/producer/changes", "token", "first")
		r.put("/producer/leaves", "token", "l-token")
		l := startSteady(r.stage, 2, func(n int) *process { return r.brokers[n%len(r.brokers)] })
		for _, higher := range []bool{false, true} {
			version := w.backUp(db)
			r.changeAll()
			if higher {
				version = w.catalogueVersion(db) + 1
			}
			l.progress(20)
			w.restore(db, version)
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
			require.Equal(t, 2, strings.Count(b.log.String(), "the catalogue of the store went back or has other content"), "once for each restoration")
			require.Zero(t, b.stop())
		}
	})
}

// createAgain creates resources that have the numbers of those that were lost.
func (w *restoredWorld) createAgain(t *testing.T) {
	again := newSink(t, nil)
	for _, b := range w.brokers {
		on := w.on(b)
		on.put("/producer/later", "token", "t")
		on.put(w.path()+"-late", "token", "c-token")
		on.put(w.path()+"-late/consumer/n", "token", "n-token", "callbackUrl", again.URL)
		r := on.do("POST", w.path()+"-late/broadcast", "n", "X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID", "later", "X-Broker-Producer-Token", "t")
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
	return s.do("POST", s.path("/broadcast"), "as "+producer, "X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID", producer, "X-Broker-Producer-Token", token)
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
