package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A besideBench measures how long new messages take to a consumer that has other work, and to one
// that has none. Both answer after 10 ms, and have 16 slots each. Rounds of 400 messages, one every
// 5 ms, alternate between the two.
type besideBench struct {
	*process
	b       *testing.B
	sink    *httptest.Server
	arrived chan time.Duration
}

const besideMessages = 400

// newBesideBench starts a broker with a channel and a consumer for each name. form is of each consumer. old answers
// a request that is none of a round.
func newBesideBench(b *testing.B, p *process, channels []string, form string,
	old func(http.ResponseWriter)) *besideBench {
	r := &besideBench{process: p, b: b, arrived: make(chan time.Duration, besideMessages)}
	r.sink = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, rq *http.Request) {
		now := time.Now()
		time.Sleep(10 * time.Millisecond)
		if sent, err := strconv.ParseInt(rq.Header.Get("X-Sent"), 10, 64); err == nil &&
			rq.Header.Get("X-Broker-Replay") == "" {
			r.arrived <- now.Sub(time.Unix(0, sent))
			return
		}
		old(w)
	}))
	b.Cleanup(r.sink.Close)
	r.create("/producer/p", "token=p-token")
	for _, ch := range channels {
		r.create("/channel/"+ch, "token=c-token")
		r.create("/channel/"+ch+"/consumer/k", form+"&token=k-token&callbackUrl="+r.sink.URL)
	}
	return r
}

func (r *besideBench) create(path, form string) {
	if a, err := r.try("PUT", path, form, "Content-Type", formType); err != nil || a.status != 201 {
		r.b.Fatalf("PUT %s: %v %s", path, err, a.body)
	}
}

// fill publishes n messages to a channel.
func (r *besideBench) fill(channel string, n int) {
	line := strings.Repeat(`{"Payload":"old"}`+"\n", 5000)
	for range n / 5000 {
		a, err := r.try("POST", "/channel/"+channel+"/batch", line, append([]string{"Content-Type", "application/x-ndjson"},
			producerTokens...)...)
		if err != nil || a.status != 200 {
			r.b.Fatalf("batch: %v %d", err, a.status)
		}
	}
}

// round publishes to a channel, and returns the 99th percentile.
func (r *besideBench) round(channel string) time.Duration {
	for range besideMessages {
		time.Sleep(5 * time.Millisecond)
		a, err := r.try("POST", "/channel/"+channel+"/broadcast", "new",
			append([]string{"X-Sent", fmt.Sprint(time.Now().UnixNano()), "X-Broker-Metadata-Headers", "X-Sent"},
				producerTokens...)...)
		if err != nil || a.status != 201 {
			r.b.Fatalf("publish: %v %d %s", err, a.status, a.body)
		}
	}
	var took []time.Duration
	for range besideMessages {
		select {
		case d := <-r.arrived:
			took = append(took, d)
		case <-time.After(patience):
			r.b.Fatal("messages are missing")
		}
	}
	slices.Sort(took)
	return took[besideMessages*99/100]
}

// compare runs pairs of rounds, and reports the median ratio of the 99th percentile of busy over that
// of calm, and the medians.
func (r *besideBench) compare(calm, busy string) {
	channels := []string{calm, busy}
	for _, ch := range channels {
		r.round(ch)
	}
	var ratios, alone, beside []float64
	for r.b.Loop() {
		p99 := map[string]float64{}
		for i := range channels {
			ch := channels[(i+len(ratios))%2]
			p99[ch] = r.round(ch).Seconds() * 1000
		}
		alone, beside = append(alone, p99[calm]), append(beside, p99[busy])
		ratios = append(ratios, p99[busy]/p99[calm])
	}
	for _, all := range [][]float64{ratios, alone, beside} {
		slices.Sort(all)
	}
	r.b.ReportMetric(ratios[len(ratios)/2], "ratio")
	r.b.ReportMetric(alone[len(alone)/2], calm+"-p99-ms")
	r.b.ReportMetric(beside[len(beside)/2], busy+"-p99-ms")
}
