package main

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// Deliveries are which of the numbered messages were delivered, a bit each, and
// which came again.
type deliveries struct {
	mu      sync.Mutex
	bits    []uint64
	seen    int
	repeats []ident.ID
	foreign error // a delivery that nobody sent
}

func newDeliveries(size int) *deliveries { return &deliveries{bits: make([]uint64, size/64+1)} }

// deliver records a delivery by the ID of its job and reports whether it is the
// first of its message.
func (l *deliveries) deliver(job, body string) (message ident.ID, first bool) {
	id, err := ident.Parse(job)
	message, _, _ = id.Split()
	n, e := drillNumber(body)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err = errors.Join(err, e); err != nil || n < 0 || n/64 >= len(l.bits) || body != drillBody(n) {
		l.foreign = fmt.Errorf("job %q with body %q: %w", job, body, err)
		return message, false
	}
	if l.bits[n/64]&(1<<(n%64)) != 0 {
		l.repeats = append(l.repeats, message)
		return message, false
	}
	l.bits[n/64] |= 1 << (n % 64)
	l.seen++
	return message, true
}

func (l *deliveries) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen
}

func (l *deliveries) has(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bits[n/64]&(1<<(n%64)) != 0
}

// requireWhole ends the drill unless all of the first n messages were delivered
// and none twice but those held at a flush.
func (r *rig) requireWhole(l *deliveries, n int, held ...map[ident.ID]bool) {
	r.b.Helper()
	if l.foreign != nil {
		r.b.Fatal(l.foreign)
	}
	for i := range n {
		if !l.has(i) {
			r.b.Fatalf("message %d was never delivered", i)
		}
	}
	for _, id := range l.repeats {
		if !slices.ContainsFunc(held, func(h map[ident.ID]bool) bool { return h[id] }) {
			r.b.Fatalf("message %s was delivered twice and was not in flight at a flush", id)
		}
	}
}

// requireOver waits until the store has n jobs delivered: no more, and none open.
func (r *rig) requireOver(n int) {
	r.b.Helper()
	db, err := sql.Open("mysql", r.dsn())
	if err != nil {
		r.b.Fatal(err)
	}
	defer db.Close()
	var delivered int
	for deadline := time.Now().Add(patience); delivered < n &&
		time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err := db.QueryRow("SELECT COUNT(*) FROM deliveries").Scan(&delivered); err != nil {
			r.b.Fatal(err)
		}
	}
	if delivered != n {
		r.b.Fatalf("%d jobs are delivered by the store, not %d", delivered, n)
	}
}
