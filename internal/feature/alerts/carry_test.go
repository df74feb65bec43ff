package alerts

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the driver of the store

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// left stores an alert as an older release had stored it for a sink, claimed until a time.
func (w *world) left(sink durable.Sink, atMs, nextMs int64) durable.Alert {
	w.t.Helper()
	a := durable.Alert{Event: durable.ConsumerSlow, ConsumerNo: w.k.No, ChannelID: "c", ConsumerID: "k", AtMs: atMs,
		Reason: "why", Sink: sink}
	require.NoError(w.t, w.store.RaiseAlert(context.Background(), a))
	files, err := filepath.Glob(filepath.Join(w.dir, "*.db"))
	require.NoError(w.t, err)
	require.Len(w.t, files, 1)
	db, err := sql.Open("sqlite", files[0]+"?_pragma=busy_timeout(10000)")
	require.NoError(w.t, err)
	defer db.Close()
	res, err := db.Exec("UPDATE alerts SET sink = ?, next_ms = ? WHERE sink = 0 AND at_ms = ?", sink, nextMs, atMs)
	require.NoError(w.t, err)
	n, err := res.RowsAffected()
	require.NoError(w.t, err)
	require.EqualValues(w.t, 1, n)
	return a
}

// What an older release had for a mail server and a webhook is a message for the consumer that is in its place
// alone, once, however many brokers look. What an old broker has claimed is left to it.
func TestRowsOfAnOlderReleaseBecomeJobsOnce(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	pull := durable.Pull
	positions := map[string]int{}
	for _, id := range []string{"ops", MailConsumer, WebhookConsumer} {
		k, _, err := w.store.PutConsumer(ctx, durable.ConsumerPut{Put: durable.Put{ID: id, NewToken: "t"},
			ChannelID: ident.AlertsChannel, Type: &pull})
		require.NoError(t, err)
		positions[id] = k.Position
	}
	require.NoError(t, w.cat.Refresh(ctx))
	now := time.Now().UnixMilli()
	alert := w.left(durable.AlertMail, now-1, 0)
	w.left(durable.AlertWebhook, now-1, 0)
	w.left(durable.AlertWebhook, now, now+time.Hour.Milliseconds())
	for range 3 {
		w.broker(nil)
	}
	w.eventually("two messages", func() bool { return w.count() == 2 })
	time.Sleep(200 * time.Millisecond)
	require.Equal(t, 2, w.count())
	for _, m := range w.published {
		id := MailConsumer
		if m.Key != key(&alert)+"-mail" {
			require.Equal(t, key(&alert)+"-webhook", m.Key)
			id = WebhookConsumer
		}
		for other, position := range positions {
			require.Equal(t, other == id, m.Addressed.Has(position), "%s for %s", m.Key, other)
		}
		require.JSONEq(t, `{"Event":"consumer.slow","ChannelID":"c","ConsumerID":"k","At":"`+
			time.UnixMilli(now-1).UTC().Format("2006-01-02T15:04:05.000Z")+`","Reason":"why"}`, string(m.Payload))
	}
	due, _, err := w.store.DueAlerts(ctx, durable.AlertWebhook, 1<<60, 10)
	require.NoError(t, err)
	require.Len(t, due, 1, "an old broker has it")
}

// Rows of a sink without a consumer are forgotten when they are old.
func TestOldRowsWithoutAConsumerAreForgotten(t *testing.T) {
	w := newWorld(t)
	now := time.Now().UnixMilli()
	w.left(durable.AlertMail, now-oldest.Milliseconds()-60_000, 0)
	w.left(durable.AlertMail, now, 0)
	w.broker(nil)
	w.eventually("one row", func() bool {
		due, _, err := w.store.DueAlerts(context.Background(), durable.AlertMail, 1<<60, 10)
		return err == nil && len(due) == 1 && due[0].AtMs == now
	})
	require.Zero(t, w.count())
}
