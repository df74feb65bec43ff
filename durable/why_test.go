package durable_test

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/why"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/redisq"
)

// Each question why takes at most three statements, also where a job waits for another one. A message
// that is named by its producer's ID takes one more to be found, of two in all.
func TestWhyTakesAtMostThreeStatements(t *testing.T) {
	store := openSQLite(t)
	var sent atomic.Int64
	var last atomic.Value
	store.Tap(func(text string) {
		if text = strings.TrimSpace(text); strings.HasPrefix(text, "SELECT") || strings.HasPrefix(text, "WITH") {
			sent.Add(1)
			last.Store(text)
		}
	})
	ctx := t.Context()
	node, err := store.LeaseNode(ctx, "test", time.Hour)
	require.NoError(t, err)
	_, _, err = store.PutChannel(ctx, durable.Put{ID: "c", NewToken: "t"})
	require.NoError(t, err)
	url := "http://127.0.0.1:1/"
	_, _, err = store.PutConsumer(ctx, durable.ConsumerPut{Put: durable.Put{ID: "k", NewToken: "t"}, ChannelID: "c",
		CallbackURL: &url, Policy: func(string) (string, error) { return `{"ordered":"true"}`, nil }})
	require.NoError(t, err)
	cat := catalogue.New(store, slog.New(slog.DiscardHandler))
	require.NoError(t, cat.Refresh(ctx))
	ch, k := cat.Channel("c"), cat.Consumer("c", "k")
	ids := ident.NewGenerator(node.No, func() int64 { return time.Now().UnixMilli() })
	var batch []*durable.Message
	for range 3 {
		batch = append(batch, &durable.Message{ID: ids.Next(), ChannelNo: ch.No, Audience: 1, Shape: ch.Shape,
			ContentType: "text/plain", Headers: durable.OrderingLine("one", nil)})
	}
	for _, err := range store.Insert(ctx, node, batch) {
		require.NoError(t, err)
	}
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	defer client.Close()
	queue := redisq.New(client, redisq.Options{Logger: slog.New(slog.DiscardHandler)})
	for _, m := range batch {
		_, err = queue.Enqueue(ctx, k.No, []redisq.Job{{ID: m.ID}}, redisq.Repeated)
		require.NoError(t, err)
	}
	c, err := queue.Claim(ctx, k.No, 3, time.Hour, redisq.Limits{})
	require.NoError(t, err)
	_, err = queue.Park(ctx, k.No, c.Leases[1:], []time.Duration{time.Hour, time.Hour})
	require.NoError(t, err)
	e := why.New(why.Options{Store: store, Queue: queue, Catalogue: cat, Policies: policy.NewBook(policy.Policy{}),
		NowMs: func() int64 { return time.Now().UnixMilli() }, NoWorkerAfter: time.Minute, RationalDelay: time.Second})
	for name, ask := range map[string]func() int{
		"consumer": func() int { return len(e.Consumer(ctx, ch, k).Reasons) },
		"job": func() int {
			w, _, _, err := e.Job(ctx, ch, k, batch[2].ID)
			require.NoError(t, err)
			require.Equal(t, string(why.OrderingKeyBlocked), w.Reasons[0].Code)
			require.Equal(t, batch[0].ID.Job(0).String(), w.Reasons[0].By)
			return len(w.Reasons)
		},
		"message": func() int {
			w, _, _, err := e.Message(ctx, ch, batch[2].ID)
			require.NoError(t, err)
			return len(w.Reasons)
		},
	} {
		ask() // prepares what is sent
		sent.Store(0)
		require.Positive(t, ask(), name)
		require.LessOrEqual(t, sent.Load(), int64(3), "%s: %v", name, last.Load())
		t.Log(name, sent.Load())
	}
}
