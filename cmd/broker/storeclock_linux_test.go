package main

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/servers"
)

// settleAfter publishes a message, finishes its only job, and waits until the settled watermark of
// the consumer is there.
func (s *stage) settleAfter(db *sql.DB, consumer, body string) {
	s.t.Helper()
	id, err := ident.Parse(s.message(s.publish(body)).ID)
	require.NoError(s.t, err)
	s.finish(consumer, s.awaitQueued(consumer, 1)[0].ID)
	eventually(s.t, "the watermark", func() bool {
		var mark []byte
		err := db.QueryRow("SELECT message_id FROM marks WHERE consumer_no = (SELECT no FROM consumers WHERE id = ? AND "+
			"deleted_no = 0)", []byte(consumer)).Scan(&mark)
		if !errors.Is(err, sql.ErrNoRows) {
			require.NoError(s.t, err)
		}
		return string(mark) == string(id[:])
	})
}

// The clock of MySQL goes back by six seconds, under running brokers and between two starts, and
// once by an hour. Messages that are accepted from then on, and that only Redis knows as jobs, are
// found in the store when Redis forgets them: none lies behind a watermark.
func TestFaultClockOfMySQLGoesBackAndRedisIsEmptied(t *testing.T) {
	parallel(t)
	mysql, redis := servers.StartMySQLClocked(t), servers.StartRedis(t)
	w := &world{t: t, redis: redis, env: []string{"BROKER_MYSQL_DSN=" + mysql.DSN(), "BROKER_REDIS_URL=" + redis.URL()}}
	w.with("BROKER_RATIONAL_DELAY=500ms")
	brokers := []*process{w.start(), w.start()}
	s := brokers[0].stage(t, "held")
	db := w.openDatabase("")
	off := time.Duration(0)
	want := 0
	for i, by := range []time.Duration{6 * time.Second, time.Hour, 6 * time.Second} {
		s.settleAfter(db, "held", fmt.Sprint("settled ", i))
		off -= by
		mysql.Jump(off)
		if i != 1 { // brokers restart, and know nothing of the time before
			for j, b := range brokers {
				require.Zero(t, b.stop())
				brokers[j] = w.start()
			}
		}
		for j := range 20 {
			s = s.on(brokers[j%2])
			s.publish(fmt.Sprint("message ", i, " ", j))
		}
		want += 20
		s.awaitQueued("held", want)
		// Redis forgets them when the scans have passed their time.
		time.Sleep(2 * time.Second)
		w.flushall()
		s.awaitQueued("held", want)
		require.Greater(t, brokers[0].gauge(t, "penstock_store_clock_ahead_seconds"), 3.0)
		if i == 1 {
			eventually(t, "a line in the log", func() bool {
				return strings.Contains(brokers[0].log.String(), "the clock of the store's server went back")
			})
		}
		for _, job := range s.queued("held", "limit=100") {
			lease := s.claim("held", job.ID)
			require.Equal(t, 202, s.move("held", job.ID, to("DELIVERED"), "X-Broker-Lease", lease).status)
		}
		want = 0
	}
}
