package main

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkNewMessagesBesideAReplay measures how long new messages take to a consumer of which
// 100 000 messages are replayed meanwhile, over how long they take to one without a replay. Run it on
// a quiet machine and without the race detector:
//
//	./scripts/servers.sh -exec go test ./cmd/broker -run '^$' -bench NewMessagesBesideAReplay -benchtime 10x
func BenchmarkNewMessagesBesideAReplay(b *testing.B) {
	const past = 100_000
	var old, had atomic.Int64
	p := realWorld(b).with("BROKER_CONSUMER_CONCURRENCY=16").start()
	r := newBesideBench(b, p, []string{"calm", "replaying"}, "", func(http.ResponseWriter) { old.Add(1) })
	r.fill("replaying", past)
	for deadline := time.Now().Add(10 * patience); old.Load() < past; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("only %d deliveries", old.Load())
		}
	}
	time.Sleep(2 * time.Second) // for the last outcomes
	a, err := r.try("POST", "/channel/replaying/consumer/k/replay", `{`+everSince+`}`)
	if err != nil || a.status != 202 {
		b.Fatalf("replay: %v %d %s", err, a.status, a.body)
	}
	had.Store(old.Load())
	r.compare("calm", "replaying")
	if n := old.Load() - had.Load(); n >= past {
		b.Fatal("the replay was over before the rounds were")
	} else {
		b.ReportMetric(float64(n), "replayed")
	}
}
