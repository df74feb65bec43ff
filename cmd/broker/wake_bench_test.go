package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// BenchmarkWakeOfAClaimAtAnotherBroker measures how soon a claim that waits at
// one broker has the job of a message that is posted to another one, from the
// post's 201 to the claim's answer, with nothing else to do. Run it on a quiet
// machine and without the race detector:
//
//	go test ./cmd/broker -run '^$' -bench WakeOfAClaim -benchtime 300x
func BenchmarkWakeOfAClaimAtAnotherBroker(b *testing.B) {
	w := realWorld(b)
	there, here := w.start(), w.start()
	for _, put := range [][2]string{{"/producer/p", "token=p-token"}, {"/channel/c", "token=c-token"},
		{"/channel/c/consumer/k", "type=pull&token=k-token"}} {
		if r, err := here.try("PUT", put[0], put[1], "Content-Type", formType); err != nil || r.status != 201 {
			b.Fatalf("PUT %s: %v %s", put[0], err, r.body)
		}
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if r, err := there.try("GET", "/metrics", ""); err == nil && strings.Contains(r.body, "penstock_brokers 2") {
			break
		}
		if time.Now().After(deadline) {
			b.Fatal("the brokers do not see each other")
		}
	}
	type claim struct {
		jobs []apitype.ClaimedJob
		at   time.Time
	}
	var woken, whole []time.Duration
	for i := 0; b.Loop(); i++ {
		got := make(chan claim, 1)
		go func() {
			var page apitype.ClaimedJobs
			r, err := there.try("POST", "/channel/c/consumer/k/claim?wait=20s", "", consumerTokens("k")...)
			at := time.Now()
			if err == nil && r.status == http.StatusOK {
				_ = json.Unmarshal([]byte(r.body), &page)
			}
			got <- claim{page.Result, at}
		}()
		time.Sleep(50 * time.Millisecond) // it is waiting now
		start := time.Now()
		r, err := here.try("POST", "/channel/c/broadcast", strconv.Itoa(i), producerTokens...)
		acknowledged := time.Now()
		if err != nil || r.status != http.StatusCreated {
			b.Fatalf("publish: %v %d %s", err, r.status, r.body)
		}
		c := <-got
		if len(c.jobs) != 1 || c.jobs[0].Message.Payload != strconv.Itoa(i) {
			b.Fatalf("round %d: claimed %v", i, c.jobs)
		}
		woken, whole = append(woken, c.at.Sub(acknowledged)), append(whole, c.at.Sub(start))
		body := `{"Updates":[{"ID":"` + c.jobs[0].ID + `","Lease":"` + c.jobs[0].Lease + `","NextState":"DELIVERED"}]}`
		if r, err := there.try("POST", "/channel/c/consumer/k/jobs", body, consumerTokens("k")...); err != nil ||
			!strings.Contains(r.body, `"Status":202`) {
			b.Fatalf("end: %v %s", err, r.body)
		}
	}
	for name, times := range map[string][]time.Duration{"woken": woken, "whole": whole} {
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, name+"-p50-ms")
		b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, name+"-p99-ms")
	}
}
