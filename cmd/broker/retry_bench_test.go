package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkNewMessagesBesideRetries measures how long new messages take to a consumer that has
// 100 000 retries due, and to one without. Both answer after 10 ms, and have 16 slots each. Rounds
// of 400 messages, one every 5 ms, alternate between the two. The metric ratio is the 99th percentile
// beside the retries over that without, the median of the pairs. Run it on a quiet machine and
// without the race detector:
//
//	go test ./cmd/broker -run '^$' -bench NewMessagesBesideRetries -benchtime 10x
func BenchmarkNewMessagesBesideRetries(b *testing.B) {
	const due, messages, every = 100_000, 400, 5 * time.Millisecond
	p := realWorld(b).with("BROKER_CONSUMER_CONCURRENCY=16", "BROKER_QUEUE_WINDOW=100000", "BROKER_RETRY_JITTER=0").start()
	arrived := make(chan time.Duration, messages)
	var failed atomic.Int64
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := time.Now()
		time.Sleep(10 * time.Millisecond)
		if sent, err := strconv.ParseInt(r.Header.Get("X-Sent"), 10, 64); err == nil {
			arrived <- now.Sub(time.Unix(0, sent))
			return
		}
		failed.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer sink.Close()
	channels := []string{"calm", "retrying"}
	put := func(path, form string) {
		if r, err := p.try("PUT", path, form, "Content-Type", formType); err != nil || r.status != 201 {
			b.Fatalf("PUT %s: %v %s", path, err, r.body)
		}
	}
	put("/producer/p", "token=p-token")
	for _, ch := range channels {
		put("/channel/"+ch, "token=c-token")
		put("/channel/"+ch+"/consumer/k", "backoff=constant:1s&maxRetries=1000&callbackUrl="+sink.URL)
	}
	line := strings.Repeat(`{"Payload":"old"}`+"\n", 5000)
	for range due / 5000 {
		r, err := p.try("POST", "/channel/retrying/batch", line, append([]string{"Content-Type", "application/x-ndjson"}, producerTokens...)...)
		if err != nil || r.status != 200 {
			b.Fatalf("batch: %v %d", err, r.status)
		}
	}
	for deadline := time.Now().Add(10 * patience); failed.Load() < due; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("only %d first attempts", failed.Load())
		}
	}
	round := func(ch string) time.Duration {
		for range messages {
			time.Sleep(every)
			r, err := p.try("POST", "/channel/"+ch+"/broadcast", "new", append([]string{"X-Sent", fmt.Sprint(time.Now().UnixNano()), "X-Broker-Metadata-Headers", "X-Sent"}, producerTokens...)...)
			if err != nil || r.status != 201 {
				b.Fatalf("publish: %v %d %s", err, r.status, r.body)
			}
		}
		var took []time.Duration
		for range messages {
			select {
			case d := <-arrived:
				took = append(took, d)
			case <-time.After(patience):
				b.Fatal("messages are missing")
			}
		}
		slices.Sort(took)
		return took[messages*99/100]
	}
	for _, ch := range channels {
		round(ch)
	}
	var ratios, calm, beside []float64
	for b.Loop() {
		p99 := map[string]time.Duration{}
		for i := range channels {
			ch := channels[(i+len(ratios))%2]
			p99[ch] = round(ch)
		}
		calm, beside = append(calm, p99["calm"].Seconds()*1000), append(beside, p99["retrying"].Seconds()*1000)
		ratios = append(ratios, p99["retrying"].Seconds()/p99["calm"].Seconds())
	}
	for _, all := range [][]float64{ratios, calm, beside} {
		slices.Sort(all)
	}
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(calm[len(calm)/2], "calm-p99-ms")
	b.ReportMetric(beside[len(beside)/2], "retrying-p99-ms")
	b.ReportMetric(float64(failed.Load()-due), "retries")
}
