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
// answers costs the other ninety-nine of its channel. See besideOthers. Run it on a
// quiet machine and without the race detector:
//
//	go test ./cmd/broker -run '^$' -bench OneHangingConsumer -benchtime 20x
func BenchmarkOneHangingConsumerOf100(b *testing.B) {
	over := make(chan struct{})
	defer close(over)
	besideOthers(b, 1, func() { <-over })
}

// BenchmarkTenSlowConsumersOf100 measures the same of ten consumers that take a second
// for each request:
//
//	go test ./cmd/broker -run '^$' -bench TenSlowConsumers -benchtime 20x
func BenchmarkTenSlowConsumersOf100(b *testing.B) {
	besideOthers(b, 10, func() { time.Sleep(time.Second) })
}

// besideOthers measures what some bad consumers of a hundred cost the good ones of their
// channel. One broker on real servers has two channels with the good consumers, one of them with
// the bad ones, too. Rounds alternate between the two, so that both see the same minutes of the
// machine; a round is over when its good ones have everything. The metric ratio is the throughput
// beside the bad consumers over that without them, the median of the pairs of rounds.
func besideOthers(b *testing.B, bad int, wait func()) {
	const messages = 100
	good := 100 - bad
	p := realWorld(b).with("BROKER_DELIVERY_TIMEOUT=10m").start()
	var held, delivered atomic.Int64
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		held.Add(1)
		wait()
	}))
	b.Cleanup(hanging.CloseClientConnections)
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
	for i := range bad {
		put(fmt.Sprintf("/channel/hung/consumer/bad%d", i), "callbackUrl="+hanging.URL)
	}

	round := func(ch string) time.Duration {
		start, want := time.Now(), delivered.Load()+int64(good*messages)
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
		round(ch) // connections, caches, and the bad consumers have their share
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
		b.Fatal("no bad consumer was called")
	}
	deliveries := float64(len(ratios) * good * messages)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(deliveries/took["calm"].Seconds(), "calm-deliveries/s")
	b.ReportMetric(deliveries/took["hung"].Seconds(), "hung-deliveries/s")
	b.ReportMetric(float64(held.Load()), "bad-requests")
}
