package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

const (
	bulkKills = 10
	bulkCalm  = 10 * time.Second
)

// BenchmarkDrillBulk posts JOBS rows of 200 bytes as one CSV body to the only broker, which is killed
// ten times while it expands them. Two pull workers drain the rows meanwhile. Before and during the
// expansion, clients publish to another channel; nothing is killed while their answers are timed.
//
// It fails when a row became no message, or two.
func BenchmarkDrillBulk(b *testing.B) {
	for b.Loop() {
		rows := min(drillJobs(b), 500_000)
		r := newRig(b)
		p := r.start()
		p.sample("k")
		p.put("/channel/live", "token", "c-token")
		d := &bulkDrill{rig: r, rows: rows, first: make([]string, rows)}
		d.now.Store(p)

		d.live(2 * time.Second) // connections and code get warm
		alone := d.live(bulkCalm)
		begun := time.Now()
		at := d.post(rows)
		r.report("accept-s", time.Since(begun).Seconds(), fmt.Sprintf("seconds until the 202 for %d rows", rows))
		drained := make(chan error, 1)
		go func() { drained <- sideBySide(2, d.drain) }()
		beside := d.live(bulkCalm)
		for range bulkKills {
			published := d.bulk(at).Published
			for d.bulk(at).Published < min(published+int64(rows)/(2*bulkKills), int64(rows)) {
				time.Sleep(20 * time.Millisecond)
			}
			d.kill()
		}
		for d.bulk(at).State != apitype.BulkDone {
			time.Sleep(100 * time.Millisecond)
		}
		expanded := time.Since(begun)
		if err := <-drained; err != nil {
			b.Fatal(err)
		}
		took := time.Since(begun)
		d.require(at)
		d.seeMemory(d.now.Load())
		r.report("expanded-rows/s", float64(rows)/expanded.Seconds(), fmt.Sprintf("%d kills included", bulkKills))
		r.report("delivered-rows/s", float64(rows)/took.Seconds(), fmt.Sprintf("%d jobs were handed out again after a kill",
			d.again.Load()))
		r.report("broker-most-MB", float64(d.memory), "most resident memory of a broker (goal < 150)")
		r.report("publish-p99-ms", quantile(beside, .99), fmt.Sprintf("of %d publishes beside the bulk", len(beside)))
		r.report("publish-alone-p99-ms", quantile(alone, .99), "the same without a bulk")
		r.report("publish-p99-ratio", quantile(beside, .99)/quantile(alone, .99), "(goal <= 2)")
	}
}

// A bulkDrill is the state of one run.
type bulkDrill struct {
	*rig
	rows   int
	now    atomic.Pointer[process]
	memory int // MiB, of the broker that used most
	rowsMu sync.Mutex
	first  []string // job of each row
	seen   atomic.Int64
	again  atomic.Int64 // jobs that came a second time
	twice  atomic.Int64 // rows with two jobs
}

// post sends the rows as one body.
func (d *bulkDrill) post(rows int) (location string) {
	var body bytes.Buffer
	body.WriteString("Payload\n")
	for n := range rows {
		fmt.Fprintf(&body, "m-%010d%s\n", n, strings.Repeat("y", 200-13))
	}
	r, err := d.now.Load().try("POST", "/channel/c/bulk", body.String(), append([]string{"Content-Type", "text/csv"},
		producerTokens...)...)
	if err != nil || r.status != http.StatusAccepted {
		d.b.Fatalf("bulk: %d %s %v", r.status, r.body, err)
	}
	return r.header.Get("Location")
}

func (d *bulkDrill) bulk(at string) (v apitype.Bulk) {
	r, err := d.now.Load().try("GET", at, "")
	if err == nil && r.status == 200 {
		err = json.Unmarshal([]byte(r.body), &v)
	}
	if err != nil || r.status != 200 {
		d.b.Fatalf("bulk: %d %s %v", r.status, r.body, err)
	}
	return v
}

func (d *bulkDrill) seeMemory(p *process) { d.memory = max(d.memory, p.memory("VmHWM")) }

// kill replaces the broker.
func (d *bulkDrill) kill() {
	p := d.now.Load()
	d.seeMemory(p)
	p.kill()
	d.now.Store(d.start())
}

// live publishes to another channel for a time and returns how long the answers took.
func (d *bulkDrill) live(span time.Duration) []time.Duration { return d.rig.live(d.now.Load(), span) }

// drain claims and finishes until each row came. What a kill cuts off comes again.
func (d *bulkDrill) drain() error {
	for last := time.Now(); d.seen.Load() < int64(d.rows); {
		n, err := d.claim()
		if err != nil {
			return err
		}
		if n > 0 {
			last = time.Now()
		}
		if time.Since(last) > patience {
			return fmt.Errorf("%d of %d rows came, and no more for %v", d.seen.Load(), d.rows, patience)
		}
	}
	return nil
}

// claim claims once, finishes what came, and returns its number.
func (d *bulkDrill) claim() (n int, err error) {
	p := d.now.Load()
	r, err := p.try("POST", "/channel/c/consumer/k/claim?limit=500&wait=1s&timeout=5", "", consumerTokens("k")...)
	var page apitype.ClaimedJobs
	if err != nil || r.status != 200 || json.Unmarshal([]byte(r.body), &page) != nil {
		time.Sleep(50 * time.Millisecond)
		return 0, nil
	}
	if len(page.Result) == 0 {
		return 0, nil
	}
	updates := apitype.UpdatesRequest{}
	for _, j := range page.Result {
		if err := d.came(j); err != nil {
			return 0, err
		}
		updates.Updates = append(updates.Updates, apitype.Update{ID: j.ID, Lease: j.Lease, NextState: "DELIVERED"})
	}
	body, err := json.Marshal(updates)
	if err == nil {
		_, _ = p.try("POST", "/channel/c/consumer/k/jobs", string(body), append(consumerTokens("k"), "Content-Type",
			"application/json")...)
	}
	return len(page.Result), err
}

func (d *bulkDrill) came(j apitype.ClaimedJob) error {
	n, err := drillNumber(j.Message.Payload)
	if err != nil || n < 0 || n >= d.rows {
		return fmt.Errorf("a job has the payload %.40q", j.Message.Payload)
	}
	d.rowsMu.Lock()
	defer d.rowsMu.Unlock()
	switch d.first[n] {
	case "":
		d.first[n] = j.ID
		d.seen.Add(1)
	case j.ID:
		d.again.Add(1)
	default:
		d.twice.Add(1)
	}
	return nil
}

// require ends the drill unless each row is one message.
func (d *bulkDrill) require(at string) {
	v := d.bulk(at)
	if d.twice.Load() > 0 || v.Published != int64(d.rows) || v.Total != int64(d.rows) || v.Rejected+v.Duplicates > 0 {
		d.b.Fatalf("%d rows came as two jobs; %+v", d.twice.Load(), v)
	}
	for end := time.Now().Add(patience); v.Delivered < int64(d.rows) && time.Now().Before(end); v = d.bulk(at) {
		if _, err := d.claim(); err != nil { // a job whose end a kill cut off comes again after its lease
			d.b.Fatal(err)
		}
	}
	if v.Open > 0 || v.Delivered != int64(d.rows) {
		d.b.Fatalf("of %d rows %d are delivered by the store, %d open", d.rows, v.Delivered, v.Open)
	}
}
