package main

import (
	"bufio"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// drillWaiters is how many clients wait for responses at one broker.
	drillWaiters = 10_000
	// drillWaitedFor is the number of messages that they wait for.
	drillWaitedFor = 100
	// drillPending is how many results are pending at the same time.
	drillPending = 100_000
)

// BenchmarkDrillResponses measures what clients cost that wait for responses, and what results cost
// that are not there yet.
func BenchmarkDrillResponses(b *testing.B) {
	for b.Loop() {
		r := newRig(b)
		p := r.start()
		r.waiters(p)
		if code := p.stop(); code != 0 {
			b.Fatal(p.log)
		}
		r.pendingResults(r.start())
	}
}

// waiters has clients wait at a broker, then posts the responses.
func (r *rig) waiters(p *process) {
	r.b.Helper()
	p.sample("pull")
	p.put("/channel/c/consumer/pull", "responses", "store")
	var messages []string
	for i := range drillWaitedFor {
		messages = append(messages, p.publish(fmt.Sprint("m-", i)))
	}
	before, goroutines := p.gauge(r.b, "process_resident_memory_bytes"), p.gauge(r.b, "go_goroutines")
	conns := make([]net.Conn, drillWaiters)
	for i := range conns {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.base, "http://"))
		if err != nil {
			r.b.Fatal(err)
		}
		defer conn.Close()
		_, err = fmt.Fprintf(conn, "GET %s/responses?wait=60s&until=first HTTP/1.1\r\nHost: localhost\r\n%s: %s\r\n%s: "+
			"%s\r\n%s: %s\r\n\r\n", messages[i%drillWaitedFor],
			producerTokens[0], producerTokens[1], producerTokens[2], producerTokens[3], producerTokens[4], producerTokens[5])
		if err != nil {
			r.b.Fatal(err)
		}
		conns[i] = conn
	}
	eventually(r.b, "all clients to wait", func() bool {
		return p.gauge(r.b, "penstock_response_waiters") == drillWaiters
	})
	r.report("waiters-MB", (p.gauge(r.b, "process_resident_memory_bytes")-before)/1e6,
		fmt.Sprintf("more memory with %d clients that wait (goal: 300)", drillWaiters))
	r.report("waiters-goroutines", p.gauge(r.b, "go_goroutines")-goroutines, "more goroutines")
	asked := r.questions()
	time.Sleep(5 * time.Second)
	r.report("waiters-statements", float64(r.questions()-asked)/5,
		"statements of MySQL in a second meanwhile, everything included")

	began := time.Now()
	var wg sync.WaitGroup
	wrong := make(chan string, drillWaiters)
	for _, conn := range conns {
		wg.Go(func() {
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				wrong <- err.Error()
				return
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusOK {
				wrong <- res.Status
			}
		})
	}
	for _, at := range messages {
		if a := p.do("POST", at+"/response", "done", consumerTokens("pull")...); a.status != http.StatusAccepted {
			r.b.Fatal(a.body)
		}
	}
	wg.Wait()
	if len(wrong) > 0 {
		r.b.Fatalf("%d clients got no response; one: %s", len(wrong), <-wrong)
	}
	r.report("waiters-answered-s", time.Since(began).Seconds(),
		fmt.Sprintf("from the first of %d responses to the last answer", drillWaitedFor))
}

// pendingResults has a receiver accept messages whose results do not come for an hour.
func (r *rig) pendingResults(p *process) {
	r.b.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Location", "/result/"+q.Header.Get("X-Broker-Message-ID"))
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusAccepted)
	}))
	defer s.Close()
	p.put("/channel/slow", "token", "c-token")
	p.put("/channel/slow/consumer/k", "token", "k-token", "callbackUrl", s.URL, "responses", "store", "async", "true")
	var lines strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&lines, "{\"Payload\":\"%d\"}\n", i)
	}
	published := 0
	publish := func(n int) {
		for range n / 1000 {
			if a := p.do("POST", "/channel/slow/batch", lines.String(), append([]string{"Content-Type", "application/x-ndjson"},
				producerTokens...)...); a.status != http.StatusOK {
				r.b.Fatal(a.body)
			}
		}
		published += n
		r.awaitExchanges(published)
	}
	publish(1000) // the connections and buffers of a busy broker
	before, goroutines := p.gauge(r.b, "process_resident_memory_bytes"), p.gauge(r.b, "go_goroutines")
	publish(drillPending)
	time.Sleep(5 * time.Second)
	r.report("pending-MB", (p.gauge(r.b, "process_resident_memory_bytes")-before)/1e6,
		fmt.Sprintf("more memory with %d pending results", drillPending))
	r.report("pending-goroutines", p.gauge(r.b, "go_goroutines")-goroutines, "more goroutines")
	asked := r.questions()
	time.Sleep(5 * time.Second)
	r.report("pending-statements", float64(r.questions()-asked)/5,
		"statements of MySQL in a second meanwhile, everything included")
}

// awaitExchanges waits until so many results are pending, or more.
func (r *rig) awaitExchanges(n int) {
	r.b.Helper()
	eventually(r.b, fmt.Sprint(n, " pending results"), func() bool {
		var got int
		r.query("SELECT COUNT(*) FROM exchanges WHERE state = 1", &got)
		return got >= n
	})
}

// questions is how many statements the server of the rig has got.
func (r *rig) questions() (n int) {
	r.b.Helper()
	r.query("SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'QUESTIONS'", &n)
	return n
}

func (r *rig) query(query string, into *int) {
	r.b.Helper()
	db, err := sql.Open("mysql", r.dsn())
	if err != nil {
		r.b.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow(query).Scan(into); err != nil {
		r.b.Fatal(err)
	}
}
