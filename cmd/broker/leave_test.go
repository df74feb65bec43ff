package main

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A broker that is stopped leaves watermarks behind which all is settled, also when it lived shorter
// than their period. The next start would read all messages since then once more.
func TestAStopLeavesTheNextStartNothingToRead(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with(quick...)
		sink := newSink(t, nil)
		p := w.start()
		s := p.stage(t, "k="+sink.URL)
		for n := range 50 {
			s.publish(strconv.Itoa(n))
		}
		eventually(t, "all deliveries", func() bool { return sink.distinct() == 50 })
		time.Sleep(2500 * time.Millisecond) // the last one is as old as repair may look at
		require.Equal(t, exitClean, p.stop())

		var open int
		require.NoError(t, w.openStore().QueryRow(`
SELECT COUNT(*)
FROM messages m
JOIN consumers k
  ON k.channel_no = m.channel_no
LEFT JOIN marks w
  ON w.consumer_no = k.no
WHERE k.id = 'k'
  AND (w.message_id IS NULL OR w.message_id < m.id)`).Scan(&open))
		require.Zero(t, open, "messages above the settled watermark")
	})
}
