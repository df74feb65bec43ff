package main

import (
	"bufio"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// crowdMost is how many connections BenchmarkProducersInACrowd opens where the
// limit of open files allows it.
const crowdMost = 50_000

// BenchmarkProducersInACrowd measures what connections that never send a whole
// request cost 32 healthy producers. Half of the crowd has said nothing, the
// others wait after an answer, but a twentieth drips headers and a twentieth
// bodies, a byte every two seconds. One broker on real servers; rounds with and
// without the crowd alternate. The metric ratio is the throughput with it over
// that without, the median of the pairs; B/silent and B/kept are the memory of
// the broker (resident) for a connection that has never sent anything and for
// one that has been answered. Run it on a quiet machine and without the race detector:
//
//	go test ./cmd/broker -run '^$' -bench ProducersInACrowd -benchtime 10x
func BenchmarkProducersInACrowd(b *testing.B) {
	const producers, messages = 32, 4000
	size := crowdSize()
	silent, kept := perConnection(b, size/2, 0), perConnection(b, 0, size/2)
	p := realWorld(b).with("BROKER_DELIVERY_TIMEOUT=10m").start()
	for path, form := range map[string]string{"/producer/p": "token=p-token", "/channel/c": "token=c-token"} {
		if r, err := p.try("PUT", path, form, "Content-Type", formType); err != nil || r.status != 201 {
			b.Fatalf("PUT %s: %v %s", path, err, r.body)
		}
	}
	round := func() time.Duration {
		start := time.Now()
		var group sync.WaitGroup
		var next atomic.Int64
		for range producers {
			group.Go(func() {
				for next.Add(1) <= messages {
					if r, err := p.try("POST", "/channel/c/broadcast", strings.Repeat("x", 1024), producerTokens...); err != nil ||
						r.status != 201 {
						b.Errorf("publish: %v %d %s", err, r.status, r.body)
						return
					}
				}
			})
		}
		group.Wait()
		return time.Since(start)
	}
	round() // connections and caches
	var ratios []float64
	var calm, crowded time.Duration
	for b.Loop() {
		var without, with time.Duration
		for i := range 2 { // the order changes from pair to pair
			if i == len(ratios)%2 {
				without = round()
				continue
			}
			c := gather(b, p, size/2, size/2-size/10, size/20)
			with = round()
			if n := p.gauge(b, "process_open_fds"); n < float64(size) {
				b.Fatalf("the broker has only %.0f descriptors left open", n)
			}
			leave(b, p, c)
		}
		calm, crowded = calm+without, crowded+with
		ratios = append(ratios, without.Seconds()/with.Seconds())
	}
	slices.Sort(ratios)
	n := float64(len(ratios) * messages)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(n/calm.Seconds(), "calm-messages/s")
	b.ReportMetric(n/crowded.Seconds(), "crowded-messages/s")
	b.ReportMetric(float64(size), "connections")
	b.ReportMetric(silent, "B/silent")
	b.ReportMetric(kept, "B/kept")
}

// crowdSize is how many connections this process and a broker can have, at most
// crowdMost. Only root may raise the hard limit of open files, and not everywhere.
func crowdSize() int {
	const rest = 2000
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: crowdMost + rest, Max: crowdMost + rest})
	return min(crowdMost, maxDescriptors()-rest)
}

// gather connects a crowd to p: silent connections, kept ones that have been
// answered, and twice as many as dripping that drip headers or a body.
func gather(b *testing.B, p *process, silent, kept, dripping int) *crowd {
	c := newCrowd()
	post := "POST /channel/c/broadcast HTTP/1.1\r\nHost: b\r\n" + rawTokens
	for _, part := range []struct {
		n    int
		text string
	}{{silent, ""}, {kept, "GET /livez HTTP/1.1\r\nHost: b\r\n\r\n"}, {dripping, post + "X-A: "},
		{dripping, post + "Content-Length: 60000\r\n\r\n"}} {
		if err := c.add(strings.TrimPrefix(p.base, "http://"), part.n, part.text); err != nil {
			b.Fatal(err)
		}
	}
	for _, conn := range c.conns[silent : silent+kept] {
		if r, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || r.StatusCode != http.StatusOK {
			b.Fatal("a connection of the crowd is not served: ", err)
		}
	}
	c.drip(c.conns[silent+kept:], 2*time.Second)
	return c
}

// leave disconnects a crowd and waits until the broker has noticed.
func leave(b *testing.B, p *process, c *crowd) {
	c.close()
	for deadline := time.Now().Add(patience); p.gauge(b, "process_open_fds") > 500; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatal("the crowd does not go away")
		}
	}
}

// perConnection is the resident memory of a new broker for each of as many
// connections, bytes.
func perConnection(b *testing.B, silent, kept int) float64 {
	p := realWorld(b).with("BROKER_DELIVERY_TIMEOUT=10m").start()
	before := p.gauge(b, "process_resident_memory_bytes")
	c := gather(b, p, silent, kept, 0)
	defer leave(b, p, c)
	return (p.gauge(b, "process_resident_memory_bytes") - before) / float64(silent+kept)
}
