package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// bookExchanges are the books of a channel, and of one of whose consumers a message is gone.
func bookExchanges(w *world, k *durable.Consumer) []wired {
	const route, path = "GET /channel/{channel}/reconcile", "/channel/c/reconcile"
	w.record(durable.Outcome{Kind: durable.OutcomeDelivered, ConsumerNo: k.No, ID: w.ids.Next(), Attempts: 1,
		AtMs: time.Now().UnixMilli()})
	const none = path + "?from=2020-01-01T00:00:00Z&to=2020-01-02T00:00:00Z"
	return []wired{{route, "GET " + path, w.get(path).is(200)}, {route, "GET " + none, w.get(none).is(200)}}
}

func TestOneQuestionForTheBooksAtATime(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Retention = time.Hour })
	w.channel()
	w.api.books <- struct{}{}
	r := w.get("/channel/c/reconcile")
	r.problem(429, "books_busy")
	require.Equal(t, "1", r.Header("Retry-After"))
	<-w.api.books
	w.get("/channel/c/reconcile?from=2000-01-01T00:00:00Z").is(200)
	w.api.o.OpenManagement = false
	w.get("/channel/c/reconcile").problem(401, "token_missing")
}
