package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-broker/penstock/internal/test/tables"
)

const (
	neighbourPace  = 200 // publishes of the neighbour a second
	neighbourRound = 8 * time.Second
	neighbourRest  = 10 * time.Second // after an attack, until all is as before
)

// BenchmarkDrillNeighbours lets a producer and its consumers take what everybody shares, in one way
// after the other, and measures the neighbour: a producer that publishes 200 messages a second, and
// its push consumer. Each attack has a broker of its own, a round before it, a round beside it, and a
// round that begins ten seconds after its end. Latencies count from the time at which a message is due.
//
//	make drills DRILL=Neighbours
//	make drills DRILL='Neighbours/embedded/unread answers'
//
// It fails when the neighbour loses a message.
func BenchmarkDrillNeighbours(b *testing.B) {
	program := os.Getenv(envProgram)
	if program == "" {
		folder, err := buildPlain()
		if err != nil {
			b.Fatal(err)
		}
		program = filepath.Join(folder, "broker")
	}
	stores := []struct {
		name string
		make func(b *testing.B) *world
	}{
		{"embedded", func(b *testing.B) *world {
			w := &world{t: b, env: []string{"BROKER_DATA_DIR=" + b.TempDir()}}
			tables.SQLite(b, w.setting("BROKER_DATA_DIR"))
			return w
		}},
		{"real", func(b *testing.B) *world { return realWorld(b) }},
	}
	for _, s := range stores {
		b.Run(s.name, func(b *testing.B) {
			for _, a := range neighbourAttacks() {
				b.Run(a.name, func(b *testing.B) {
					for b.Loop() {
						w := s.make(b)
						w.program = program
						newNeighbourDrill(b, w.start("BROKER_DELIVERY_TIMEOUT=2m", fetchInside)).measure(s.name+", "+a.name, a)
					}
				})
			}
		})
	}
}

// envProgram is a broker that was built before, of another commit say.
const envProgram = "PENSTOCK_DRILL_BROKER"

// A neighbourAttack takes what everybody shares until end is called.
type neighbourAttack struct {
	name  string
	begin func(d *neighbourDrill) (end func())
}

// A neighbourDrill is a broker, the neighbour, and its sink.
type neighbourDrill struct {
	*process
	b    *testing.B
	sink *httptest.Server

	mu        sync.Mutex
	delivered map[string]time.Time // when each payload came first
}

// A neighbourSeen is what one round showed.
type neighbourSeen struct {
	rate                float64 // acknowledged publishes a second
	refused             int
	published, arrivals []time.Duration
}

func newNeighbourDrill(b *testing.B, p *process) *neighbourDrill {
	d := &neighbourDrill{process: p, b: b, delivered: map[string]time.Time{}}
	d.sink = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		now := time.Now()
		text, _ := io.ReadAll(r.Body)
		d.mu.Lock()
		defer d.mu.Unlock()
		if _, again := d.delivered[string(text)]; !again {
			d.delivered[string(text)] = now
		}
	}))
	b.Cleanup(d.sink.Close)
	p.sample("k")
	p.put("/producer/other", "token", "o-token")
	p.put("/channel/other", "token", "o-token")
	p.put("/channel/other/consumer/k", "token", "o-token", "callbackUrl", d.sink.URL)
	return d
}

// measure reports the rounds before, beside and after an attack.
func (d *neighbourDrill) measure(name string, a neighbourAttack) {
	d.round("warm", 2*time.Second)
	calm := d.round("calm", neighbourRound)
	memory := d.memory("VmRSS")
	end := a.begin(d)
	beside := d.round("beside", neighbourRound)
	most := d.memory("VmHWM")
	end()
	time.Sleep(neighbourRest)
	rest := d.memory("VmRSS")
	after := d.round("after", neighbourRound)
	p99 := func(of, to []time.Duration) float64 { return quantile(of, .99) / quantile(to, .99) }
	d.b.ReportMetric(0, "ns/op")
	d.b.ReportMetric(beside.rate/calm.rate, "rate-ratio")
	d.b.ReportMetric(p99(beside.published, calm.published), "publish-p99-ratio")
	d.b.ReportMetric(p99(beside.arrivals, calm.arrivals), "delivery-p99-ratio")
	d.b.ReportMetric(after.rate/calm.rate, "after-rate-ratio")
	d.b.ReportMetric(p99(after.published, calm.published), "after-publish-p99-ratio")
	d.b.ReportMetric(float64(most), "most-MiB")
	fmt.Printf("\n%-40s rate %.2f (refused %d)  publish p99 %5.1f -> %5.1f -> %5.1f ms  delivery p99 %5.1f -> %5.1f -> "+
		"%5.1f ms  memory %d -> %d -> %d MiB\n", name,
		beside.rate/calm.rate, beside.refused, quantile(calm.published, .99), quantile(beside.published,
			.99), quantile(after.published, .99),
		quantile(calm.arrivals, .99), quantile(beside.arrivals, .99), quantile(after.arrivals, .99), memory, most, rest)
}

// round publishes at the pace of the neighbour, and waits until all that was acknowledged was delivered.
func (d *neighbourDrill) round(name string, span time.Duration) (seen neighbourSeen) {
	var mu sync.Mutex
	due, begun := make(chan int), time.Now()
	at := func(n int) time.Time { return begun.Add(time.Duration(n) * time.Second / neighbourPace) }
	acked := map[string]int{}
	var workers sync.WaitGroup
	for range 32 {
		workers.Go(func() {
			for n := range due {
				body := fmt.Sprintf("%s-%d-%s", name, n, drillFiller)
				r, err := d.try("POST", "/channel/other/broadcast", body, neighbourTokens...)
				took := time.Since(at(n))
				mu.Lock()
				if seen.published = append(seen.published, took); err == nil && r.status == 201 {
					acked[body] = n
				} else {
					seen.refused++
				}
				mu.Unlock()
			}
		})
	}
	for n := range int(span.Seconds() * neighbourPace) {
		time.Sleep(time.Until(at(n)))
		due <- n
	}
	close(due)
	workers.Wait()
	seen.rate = float64(len(acked)) / max(span, time.Since(begun)).Seconds()
	eventually(d.b, "the deliveries of the neighbour", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		for body := range acked {
			if d.delivered[body].IsZero() {
				return false
			}
		}
		return true
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	for body, n := range acked {
		seen.arrivals = append(seen.arrivals, d.delivered[body].Sub(at(n)))
	}
	clear(d.delivered)
	return seen
}

// neighbourAttacks are the ways to take what is shared.
func neighbourAttacks() []neighbourAttack {
	chunked := func(route, kind, first string) string {
		return "POST /channel/c/" + route + " HTTP/1.1\r\nHost: b\r\nContent-Type: " + kind + "\r\n" + rawTokens +
			"Transfer-Encoding: chunked\r\n\r\n" + strconv.FormatInt(int64(len(first)), 16) + "\r\n" + first + "\r\n"
	}
	return []neighbourAttack{
		{"nothing", func(*neighbourDrill) func() { return func() {} }},
		{"bulks of one byte", crowdOf(1100, chunked("bulk", "application/x-ndjson", "{"))},
		{"batches of one byte", crowdOf(1100, chunked("batch", "application/x-ndjson", "{"))},
		{"large bodies that stop", crowdOf(66, "POST /channel/c/broadcast HTTP/1.1\r\nHost: b\r\n"+rawTokens+
			"Content-Length: 4194304\r\n\r\n"+strings.Repeat("x", 1_100_000))},
		{"long lines that stop", crowdOf(100, chunked("batch", "application/x-ndjson", `{"Payload":"`+strings.Repeat("x",
			2_000_000)))},
		{"connections at rest", crowdOf(1400, "G")},
		{"answers nobody reads", unreadAnswers},
		{"a line with many names", func(d *neighbourDrill) func() {
			line := `{"Payload":"p","Consumers":["k"` + strings.Repeat(`,"k"`, 500_000) + "]}\n"
			return d.again(2, 200*time.Millisecond, func() {
				_, _ = d.try("POST", "/channel/c/batch", line, append([]string{"Content-Type", "application/x-ndjson"},
					producerTokens...)...)
			})
		}},
		{"consumers that hang", hangingConsumers(8)},
		{"responses that hang", hangingConsumers(8, "responses", "store", "responseMaxBytes", "1048576")},
		{"results that hang", hangingConsumers(16, "responses", "store", "async", "true")},
		{"files that drip", drippingFiles},
		{"claims that wait", waitingClaims},
		{"all that two processors give", func(d *neighbourDrill) func() {
			body := strings.Repeat("x", 1000)
			return d.again(16, 0, func() { _, _ = d.try("POST", "/channel/c/broadcast", body, producerTokens...) })
		}},
	}
}

// again calls f from n goroutines, with a pause after each call, until end is called.
func (d *neighbourDrill) again(n int, pause time.Duration, f func()) (end func()) {
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(pause):
					f()
				}
			}
		})
	}
	return func() { close(stop); all.Wait() }
}

func crowdOf(n int, text string) func(d *neighbourDrill) func() {
	return func(d *neighbourDrill) func() {
		c := newCrowd()
		if err := c.add(strings.TrimPrefix(d.base, "http://"), n, text); err != nil {
			d.b.Log(err) // those that are refused are refused
		}
		return c.close
	}
}

// unreadAnswers asks for a message of 4 MiB that becomes 24 MiB as JSON, and reads a line.
func unreadAnswers(d *neighbourDrill) func() {
	r := d.do("POST", "/channel/c/broadcast", strings.Repeat("\x01", 4<<20), producerTokens...)
	c := newCrowd()
	text := "GET " + r.header.Get("Location") + " HTTP/1.1\r\nHost: b\r\n" + rawTokens + "\r\n"
	if err := c.add(strings.TrimPrefix(d.base, "http://"), 60, text); err != nil {
		d.b.Log(err)
	}
	for _, conn := range c.conns {
		_, _ = bufio.NewReaderSize(conn, 64).ReadString('\n')
	}
	return c.close
}

// hangingConsumers are push consumers that hold each request. They answer 202 at once and hold the polls
// where they answer later.
func hangingConsumers(n int, fields ...string) func(d *neighbourDrill) func() {
	return func(d *neighbourDrill) func() {
		release := make(chan struct{})
		later := strings.Contains(strings.Join(fields, " "), "async")
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if later && q.Method == http.MethodPost {
				w.Header().Set("Location", "/result")
				w.WriteHeader(http.StatusAccepted)
				return
			}
			select {
			case <-release:
			case <-q.Context().Done():
			}
		}))
		for i := range n {
			channel := "/channel/hung" + strconv.Itoa(i)
			d.put(channel, "token", "c-token")
			d.put(channel+"/consumer/k", append([]string{"token", "k-token", "callbackUrl", server.URL}, fields...)...)
			d.do("POST", channel+"/batch", strings.Repeat(`{"Payload":"x"}`+"\n", 200),
				append([]string{"Content-Type", "application/x-ndjson"}, producerTokens...)...)
		}
		time.Sleep(time.Second)
		return func() { close(release); server.Close() }
	}
}

// drippingFiles are bulks whose files come byte by byte.
func drippingFiles(d *neighbourDrill) func() {
	ctx, cancel := context.WithCancel(context.Background())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Length", "1000000")
		for ctx.Err() == nil && q.Context().Err() == nil {
			_, _ = w.Write([]byte("a"))
			w.(http.Flusher).Flush()
			time.Sleep(200 * time.Millisecond)
		}
	}))
	for range 30 {
		d.do("POST", "/channel/c/bulk", `{"FileURL":"`+server.URL+`","Format":"csv"}`,
			append([]string{"Content-Type", "application/json"}, producerTokens...)...)
	}
	time.Sleep(time.Second)
	return func() { cancel(); server.Close() }
}

// waitingClaims are claims of a consumer that has no job.
func waitingClaims(d *neighbourDrill) func() {
	ctx, cancel := context.WithCancel(context.Background())
	own := &http.Client{Transport: &http.Transport{}} // the neighbour must not wait for a connection of its client
	var all sync.WaitGroup
	var now atomic.Int64
	for range 300 {
		all.Go(func() {
			for ctx.Err() == nil {
				q, err := http.NewRequestWithContext(ctx, "POST", d.base+"/channel/c/consumer/k/claim?limit=10&wait=20s",
					http.NoBody)
				if err != nil {
					return
				}
				q.Header = headerOf(consumerTokens("k"))
				now.Add(1)
				if r, err := own.Do(q); err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
					_ = r.Body.Close()
				}
			}
		})
	}
	for now.Load() < 300 {
		time.Sleep(10 * time.Millisecond)
	}
	return func() { cancel(); all.Wait(); own.CloseIdleConnections() }
}
