//go:build linux

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/servers"
)

// The disk of MySQL becomes slow. Messages share its flushes; who cannot be stored in
// time is refused, at the latest where one flush takes longer than a producer is kept
// waiting; and a disk that is well again is all that is needed.
func TestMySQLDiskIsSlow(t *testing.T) {
	parallel(t)
	mysql := servers.StartMySQLOnSlowDisk(t)
	f := faultOn(t, mysql.MySQLServer)
	l, sink := f.load(t, 32)
	for _, flush := range []struct {
		delay time.Duration
		share float64 // messages a transaction; fewer come during a short flush
	}{{50 * time.Millisecond, 2}, {500 * time.Millisecond, 4}} {
		delay := flush.delay
		mysql.Slow(delay)
		begun := time.Now()
		commits, stored := f.p.gauge(t, "penstock_commit_duration_seconds_count"), f.p.gauge(t,
			"penstock_commit_batch_messages_sum")
		l.progress(100)
		commits = f.p.gauge(t, "penstock_commit_duration_seconds_count") - commits
		batch := (f.p.gauge(t, "penstock_commit_batch_messages_sum") - stored) / commits
		slow := 0
		for _, a := range l.since(begun) {
			if a.took >= delay {
				slow++
			}
		}
		t.Logf("flushes of %v: %.1f messages a transaction, %d of %d answers took as long, %d refused", delay, batch, slow,
			len(l.since(begun)), l.refused(begun))
		require.Positive(t, slow, "the disk is slow")
		require.Greater(t, batch, flush.share, "messages share a flush")
	}
	mysql.Slow(6 * time.Second)
	begun := time.Now()
	l.awaitRefusal(begun)
	mysql.Slow(0)
	f.requireWhole(t, l, sink, time.Now())
}
