//go:build unix

package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"sync"
)

// The metadata headers that go with each body.
const (
	eventHeader    = "X-GitHub-Event"
	deliveryHeader = "X-GitHub-Delivery"
)

// An arrival is one delivery, as a consumer saw it.
type arrival struct {
	id          string // message ID
	event       string
	delivery    string
	contentType string
	attempt     string
	body        []byte
}

// A ledger compares what a consumer receives with what was published.
type ledger struct {
	consumer string
	want     map[string]example // by message ID; not changed

	mu         sync.Mutex
	times      map[string]int
	identical  int // first arrivals that were right in every respect
	bytes      int
	deviations []string
}

func newLedger(consumer string, examples []example) *ledger {
	l := &ledger{consumer: consumer, want: map[string]example{}, times: map[string]int{}}
	for _, e := range examples {
		l.want[e.id] = e
	}
	return l
}

// add books one arrival.
func (l *ledger) add(a arrival) {
	l.mu.Lock()
	defer l.mu.Unlock()
	deviations := len(l.deviations)
	e, known := l.want[a.id]
	switch l.times[a.id]++; {
	case !known:
		l.deviate("message %q was never published", a.id)
		return
	case l.times[a.id] > 1:
		l.deviate("%s came %d times", a.id, l.times[a.id])
		return
	}
	l.bytes += len(a.body)
	if !bytes.Equal(a.body, e.body) {
		l.deviate("%s: body of %d bytes, SHA-256 %x, became one of %d bytes, SHA-256 %x",
			a.id, len(e.body), sha256.Sum256(e.body), len(a.body), sha256.Sum256(a.body))
	}
	for _, c := range []struct{ what, got, want string }{
		{eventHeader, a.event, e.event},
		{deliveryHeader, a.delivery, e.delivery},
		{"Content-Type", a.contentType, contentType},
		{"attempt", a.attempt, "1"},
	} {
		if c.got != c.want {
			l.deviate("%s: %s is %q, not %q", a.id, c.what, c.got, c.want)
		}
	}
	if len(l.deviations) == deviations {
		l.identical++
	}
}

// arrived is how many different messages have come.
func (l *ledger) arrived() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.times)
}

// close books what never came and returns the totals.
func (l *ledger) close() tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := tally{}
	for id := range l.want {
		if l.times[id] == 0 {
			l.deviate("%s never came", id)
		}
	}
	for _, n := range l.times {
		t.arrived++
		t.extra += n - 1
	}
	t.identical, t.bytes, t.deviations = l.identical, l.bytes, l.deviations
	return t
}

func (l *ledger) deviate(format string, args ...any) {
	l.deviations = append(l.deviations, l.consumer+": "+fmt.Sprintf(format, args...))
}

// A tally is what a consumer got in the end.
type tally struct {
	arrived, identical, extra, bytes int
	deviations                       []string
}
