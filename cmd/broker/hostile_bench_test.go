package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkOneHangingConsumerOf100 measures what one consumer that never
// answers costs the other ninety-nine of its channel. One broker on real
// servers has two channels with 99 good consumers each, one of them with a
// hundredth that hangs. Rounds alternate between the two, so that both see the
// same minutes of the machine; a round is over when its ninety-nine have
// everything. The metric ratio is the throughput beside the hanging consumer
// over that without it, the median of the pairs of rounds. Run it on a quiet
// machine and without the race detector:
//
//	go test ./cmd/broker -run '^$' -bench OneHangingConsumer -benchtime 20x
func BenchmarkOneHangingConsumerOf100(b *testing.B) {
	const good, messages = 99, 100
	p := realWorld(b).with("BROKER_DELIVERY_TIMEOUT=10m").start()
	over := make(chan struct{})
	var held, delivered atomic.Int64
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		held.Add(1)
		<-over
	}))
	defer hanging.Close()
	defer hanging.CloseClientConnections()
	defer close(over)
	sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		delivered.Add(1)
	}))
	defer sink.Close()

	channels := []string{"calm", "hung"}
	put := func(path, form string) {
		if r, err := p.try("PUT", path, form, "Content-Type", formType); err != nil || r.status != 201 {
			b.Fatalf("PUT %s: %v %s", path, err, r.body)
		}
	}
	put("/producer/p", "token=p-token")
	for _, ch := range channels {
		put("/channel/"+ch, "token=c-token")
		for i := range good {
			put(fmt.Sprintf("/channel/%s/consumer/k%d", ch, i), "callbackUrl="+sink.URL)
		}
	}
	put("/channel/hung/consumer/hanging", "callbackUrl="+hanging.URL)

	round := func(ch string) time.Duration {
		start, want := time.Now(), delivered.Load()+good*messages
		var senders sync.WaitGroup
		var next atomic.Int64
		for range 8 {
			senders.Go(func() {
				for next.Add(1) <= messages {
					r, err := p.try("POST", "/channel/"+ch+"/broadcast", strings.Repeat("x", 1024), producerTokens...)
					if err != nil || r.status != 201 {
						b.Errorf("publish: %v %d", err, r.status)
						return
					}
				}
			})
		}
		senders.Wait()
		for deadline := start.Add(patience); delivered.Load() < want; time.Sleep(time.Millisecond) {
			if b.Failed() || time.Now().After(deadline) {
				b.Fatalf("%d deliveries missing", want-delivered.Load())
			}
		}
		return time.Since(start)
	}
	for _, ch := range channels {
		round(ch) // connections, caches, and the hanging consumer has its share
	}
	took := map[string]time.Duration{}
	var ratios []float64
	for b.Loop() {
		pair := map[string]time.Duration{}
		for i := range channels { // the order changes from pair to pair
			ch := channels[(i+len(ratios))%2]
			pair[ch] = round(ch)
			took[ch] += pair[ch]
		}
		ratios = append(ratios, pair["calm"].Seconds()/pair["hung"].Seconds())
	}
	slices.Sort(ratios)
	if held.Load() == 0 {
		b.Fatal("nobody hangs")
	}
	deliveries := float64(len(ratios) * good * messages)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(deliveries/took["calm"].Seconds(), "calm-deliveries/s")
	b.ReportMetric(deliveries/took["hung"].Seconds(), "hung-deliveries/s")
	b.ReportMetric(float64(held.Load()), "hanging-requests")
}
