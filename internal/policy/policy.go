// Package policy says how a consumer is delivered to: how long an attempt may take,
// how often and when it is repeated, and what an answer means.
//
// A Policy is a value with an effective setting for every field. What a consumer sets
// itself is a record: text in one column of its row, empty where it sets nothing. A Book
// lays records over the defaults of the installation; nothing else knows the defaults.
// The fields stand in one table (fields.go), which parses, validates, stores and shows
// them, so a new field is one entry there and one member here.
package policy

import (
	"sync"
	"time"
)

// A Policy is how one consumer is delivered to. It is comparable.
type Policy struct {
	Timeout    time.Duration // whole exchange of one push attempt
	MaxRetries int           // retries after the first attempt
	Backoff    Backoff       // waits before the retries
	RetryOn    RetryOn       // answers that are retried

	// Of the installation alone; no consumer sets them.
	MaxDelay time.Duration // longest wait before a retry, jitter excluded; 0: no cap
	Jitter   float64       // fraction of the wait that is added at random
}

// MaxAttempts is the number of attempts after which a job is dead.
func (p *Policy) MaxAttempts() int { return p.MaxRetries + 1 }

// A Book resolves records to policies. It is safe for concurrent use.
type Book struct {
	defaults Policy

	mu       sync.RWMutex
	resolved map[string]*Policy // by record
}

// NewBook returns a book with the defaults of the installation.
func NewBook(defaults Policy) *Book {
	return &Book{defaults: defaults, resolved: map[string]*Policy{}}
}

// maxResolved bounds the remembered records: a consumer whose policy changes all the
// time must not fill the memory.
const maxResolved = 4096

// Of returns the effective policy of a record. The result is shared and never changes:
// equal records have the same pointer as long as the book remembers them. A member that
// this program does not know, or whose value it cannot read, counts as not set; a newer
// program wrote it.
func (b *Book) Of(record string) *Policy {
	if record == "" {
		return &b.defaults
	}
	b.mu.RLock()
	p := b.resolved[record]
	b.mu.RUnlock()
	if p != nil {
		return p
	}
	p = b.resolve(record)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.resolved) >= maxResolved {
		clear(b.resolved)
	}
	b.resolved[record] = p
	return p
}

func (b *Book) resolve(record string) *Policy {
	p := b.defaults
	set := decode(record)
	for _, f := range fields {
		text, ok := set[f.name]
		if !ok {
			continue
		}
		if q := p; f.parse(&q, text) == nil {
			p = q
		}
	}
	return &p
}
