package main

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkNewMessagesBesideRetries measures how long new messages take to a consumer that has
// 100 000 retries due, over how long they take to one without. Run it on a quiet machine and without
// the race detector:
//
//	go test ./cmd/broker -run '^$' -bench NewMessagesBesideRetries -benchtime 10x
func BenchmarkNewMessagesBesideRetries(b *testing.B) {
	const due = 100_000
	var failed atomic.Int64
	p := realWorld(b).with("BROKER_CONSUMER_CONCURRENCY=16", "BROKER_QUEUE_WINDOW=100000", "BROKER_RETRY_JITTER=0").start()
	r := newBesideBench(b, p, []string{"calm", "retrying"}, "backoff=constant:1s&maxRetries=1000",
		func(w http.ResponseWriter) {
			failed.Add(1)
			w.WriteHeader(http.StatusInternalServerError)
		})
	r.fill("retrying", due)
	for deadline := time.Now().Add(10 * patience); failed.Load() < due; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("only %d first attempts", failed.Load())
		}
	}
	r.compare("calm", "retrying")
	b.ReportMetric(float64(failed.Load()-due), "retries")
}
