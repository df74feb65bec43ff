package publish

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/hotpath/cluster"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/test/memstore"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// publisherOn returns a publisher that runs on a store until the test ends. It knows the channel c and the producer p.
func publisherOn(t testing.TB, store accept.Store) *Publisher {
	f := &memstore.Store{Version: 1, Channels: []durable.Channel{{No: 1, ID: "c", Token: "t", Audience: 1, Version: 1}},
		Producers: []durable.Producer{{No: 1, ID: "p", Token: "t", Version: 1}}}
	cat := catalogue.New(f, slog.New(slog.DiscardHandler))
	require.NoError(t, cat.Refresh(t.Context()))
	node, err := cluster.New(t.Context(), f, "bench", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	bodies, counts := share.New(share.Options{Most: 1 << 30}), metrics.New(prometheus.NewRegistry())
	p := New(Options{Submitter: accept.New(accept.Options{Store: store, Catalogue: cat, Node: node,
		Admission: accept.NewAdmission(1 << 20), Committed: func([]*durable.Message) {}, Bodies: bodies, Metrics: counts,
		Log: slog.New(slog.DiscardHandler)}), Catalogue: cat, MaxBody: 1 << 20, TokenHeader: "X-Broker-Consumer-Token",
		Bodies: bodies, Metrics: counts})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { p.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return p
}

// noStore takes every message.
type noStore struct{}

func (noStore) ChangeScheduled(context.Context, durable.ScheduleChange) (*durable.Scheduled, error) {
	return nil, durable.ErrNotFound
}

func (noStore) Schedule(context.Context, durable.NodeLease, []*durable.Scheduled) []error { return nil }

func (noStore) Insert(_ context.Context, _ durable.NodeLease, batch []*durable.Message) []error {
	return make([]error, len(batch))
}

// admitted are the headers that the producer p is admitted with.
var admitted = [][2]string{{"X-Broker-Channel-Token", "t"}, {"X-Broker-Producer-ID", "p"},
	{"X-Broker-Producer-Token", "t"}}

// What one publish allocates, from the request that was read to its answer.
func BenchmarkBroadcast(b *testing.B) {
	for name, more := range map[string][][2]string{
		"plain": nil,
		"rich": {{"Content-Type", "application/json"}, {"X-Broker-Message-ID", "order-1"}, {"X-Broker-Message-Priority",
			"7"}, {"X-Broker-Message-TTL", "90s"}, {"X-Broker-Ordering-Key", "k"}, {"X-Broker-Metadata-Headers", "Traceparent"},
			{"Traceparent", "x"}},
	} {
		b.Run(name, func(b *testing.B) {
			p := publisherOn(b, noStore{})
			var rc fasthttp.RequestCtx
			rc.Init(&fasthttp.Request{}, nil, nil)
			rc.Request.Header.SetMethod("POST")
			for _, h := range slices.Concat(admitted, more) {
				rc.Request.Header.Set(h[0], h[1])
			}
			rc.Request.SetBody(bytes.Repeat([]byte("x"), 1024))
			b.ReportAllocs()
			for b.Loop() {
				rc.Response.Reset()
				rc.ResetUserValues()
				p.Broadcast(&rc, "c")
				if s := rc.Response.StatusCode(); s != 201 {
					b.Fatal(s, string(rc.Response.Body()))
				}
			}
		})
	}
}

// What one line of a batch costs, from its text to its answer.
func BenchmarkBatch(b *testing.B) {
	for name, line := range map[string]string{
		"plain": `{"Payload":"` + strings.Repeat("x", 1024) + `"}`,
		"rich":  `{"MessageID":"m-1","Priority":7,"TTL":"90s","ContentType":"application/json","OrderingKey":"k","Headers":{"X-Tenant":"a"},"Payload":"` + strings.Repeat("x", 1024) + `"}`,
	} {
		b.Run(name, func(b *testing.B) {
			p := publisherOn(b, noStore{})
			const lines = 1024
			body := strings.Repeat(line+"\n", lines)
			client, server := net.Pipe()
			defer client.Close()
			defer server.Close()
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				var rc fasthttp.RequestCtx
				rc.Init2(server, nil, false)
				h := &rc.Request.Header
				h.SetMethod("POST")
				h.SetContentType("application/x-ndjson")
				for _, one := range admitted {
					h.Set(one[0], one[1])
				}
				rc.Request.SetBodyStream(strings.NewReader(body), len(body))
				rc.SetUserValue("channel", "c")
				p.BroadcastBatch(&rc)
				if s := rc.Response.StatusCode(); s != 200 {
					b.Fatal(s, string(rc.Response.Body()))
				}
				require.NoError(b, rc.Response.BodyWriteTo(io.Discard))
			}
		})
	}
}
