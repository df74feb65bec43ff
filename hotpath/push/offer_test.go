package push

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/cluster"
	"github.com/penstock-broker/penstock/hotpath/fanout"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/test/memstore"
)

// A taker lets a dispatcher take jobs on their way.
type taker struct{ *Dispatcher }

func (t taker) Reserve(consumer uint32, n int) fanout.Reservation {
	if b := t.Dispatcher.Reserve(consumer, n); b != nil {
		return b
	}
	return nil
}

// oneToPush returns a fan-out that has one message for consumer 1, which the dispatcher may take
// on its way.
func oneToPush(t *testing.T, q fanout.Queue, push *Dispatcher, wake func(uint32)) (*fanout.Fanout, *durable.Message) {
	log := slog.New(slog.DiscardHandler)
	store := memstore.Subscribed()
	cat := catalogue.New(store, log)
	require.NoError(t, cat.Refresh(t.Context()))
	node, err := cluster.New(t.Context(), store, "test", log)
	require.NoError(t, err)
	f := fanout.New(fanout.Options{Queue: q, Push: taker{push}, Catalogue: cat, Cache: push.verifier.Cache, Node: node,
		Wake:    wake,
		Metrics: metrics.New(prometheus.NewRegistry()), Log: log})
	msg := &durable.Message{ID: node.IDs().Next(), ChannelNo: 1, Audience: 1}
	f.Add([]*durable.Message{msg})
	return f, msg
}

// verifierOf returns a verifier for which every message is stored.
func verifierOf(store verify.Store, cacheBytes int) *verify.Verifier {
	return &verify.Verifier{Store: store, Cache: verify.NewCache(cacheBytes), NowMs: func() int64 {
		return 0
	}, Kept: 1 << 62, Policies: policy.NewBook(policy.Policy{})}
}

// noPace is told of delays and forgets them.
type noPace struct{}

func (noPace) Observe(delay, took time.Duration) {}
