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
	"cmp"
	"strconv"
	"sync"
	"time"
)

// A Policy is how one consumer is delivered to. It is comparable.
type Policy struct {
	Timeout    time.Duration // whole exchange of one push attempt
	MaxRetries int           // retries after the first attempt
	LossBudget int           // 1 + the leases of a job that may be lost; 0: not set, see MaxLost
	Backoff    Backoff       // waits before the retries
	RetryOn    RetryOn       // answers that are retried
	TTL        time.Duration // age at which a job is a dead letter; 0: never
	MaxAge     time.Duration // objective for the oldest waiting job; 0: none

	RateLimit   Rate // most attempts in a window, of all brokers
	Concurrency int  // most attempts in flight, of all brokers; 0: no limit
	RetryShare  int  // percent of slots and rate for retries while first attempts wait

	Filter   Filter // messages that it refuses are left out
	Adaptive bool   // slower while attempts fail

	Ordered   bool      // one message of an ordering key at a time
	OnBlocked OnBlocked // what happens behind a dead letter

	TombstoneAfter  int           // more failures than this in the window: DEAD; 0: never
	TombstoneWindow time.Duration // sliding window of TombstoneAfter
	StatusURL       StatusURL     // asked before an attempt is repeated that may have been processed

	SigningSecret         Secret        // signs each attempt
	SigningSecretPrevious Secret        // signs too until SigningPreviousUntil
	SigningPreviousUntil  int64         // Unix ms
	SigningOverlap        time.Duration // from a change of SigningSecret to SigningPreviousUntil
	Headers               Headers       // sent with each attempt
	Authorization         Authorization // of each attempt
	Identity              Disclosure    // what an attempt tells of the broker
	DLQ                   DLQ           // what becomes of dead letters

	Responses        Responses     // what becomes of answers
	ResponseMaxBytes int           // bytes of a response that are kept
	ResponseHeaders  HeaderNames   // headers of a response that are kept
	ResponseTTL      time.Duration // age at which a response is dropped; 0: with its message
	Async            bool          // some answers say that the result comes later
	AsyncStatus      Statuses      // of these answers
	ResultURL        StatusURL     // where the result is, if the answer has no Location
	ResultDeadline   time.Duration // from the answer to the result

	SQSDelay time.Duration // of messages that SQS clients send without one
	SQSWait  time.Duration // of receives of SQS clients without one

	Subject, Body Template // of mails
	Collect       Rate     // most jobs of one mail, and how long the first one waits for others; N 0: each has its own

	// Lease is the length of a lease of a pull consumer: its own Timeout, or else that of the
	// installation; 0: neither is set.
	Lease time.Duration

	// Of the installation alone; no consumer sets them.
	MaxDelay time.Duration // longest wait that the backoff does not list, jitter excluded; 0: no cap
	Jitter   float64       // fraction of the wait that is added at random
}

// MaxAttempts is the number of attempts after which a job is dead.
func (p *Policy) MaxAttempts() int { return p.MaxRetries + 1 }

// MaxLost is how many leases of a job may end without a word: the next one ends the job. Where it is not
// set it is MaxRetries, and lost leases are attempts as others are.
func (p *Policy) MaxLost() int {
	if p.LossBudget > 0 {
		return p.LossBudget - 1
	}
	return p.MaxRetries
}

// Counted is how many of the attempts of a job count against MaxRetries, of which lost ended without a
// word: a policy that sets how many may be lost counts those apart.
func (p *Policy) Counted(attempts, lost int) int {
	if p.LossBudget > 0 {
		return attempts - min(lost, attempts)
	}
	return attempts
}

// LostFrom is the number of attempts from which on the loss of a lease may be the end of its job.
func (p *Policy) LostFrom() int {
	if p.LossBudget > 0 {
		return p.LossBudget
	}
	return p.MaxAttempts()
}

// A Book resolves records to policies. It is safe for concurrent use.
type Book struct {
	defaults Policy

	mu       sync.RWMutex
	resolved map[string]*Policy // by record
}

// NewBook returns a book with the defaults of the installation. Fields whose zero value no
// consumer can set have a default here.
func NewBook(defaults Policy) *Book {
	if defaults.RetryShare == 0 {
		defaults.RetryShare = 25
	}
	if defaults.TombstoneWindow == 0 {
		defaults.TombstoneWindow = 24 * time.Hour
	}
	if defaults.SigningOverlap == 0 {
		defaults.SigningOverlap = 24 * time.Hour
	}
	if defaults.ResponseMaxBytes == 0 {
		defaults.ResponseMaxBytes = defaultResponse
	}
	if defaults.ResponseHeaders == "" {
		defaults.ResponseHeaders = defaultResponseHeaders
	}
	if defaults.AsyncStatus == "" {
		defaults.AsyncStatus = defaultAsyncStatus
	}
	if defaults.ResultDeadline == 0 {
		defaults.ResultDeadline = 24 * time.Hour
	}
	defaults.Subject, defaults.Body = cmp.Or(defaults.Subject, defaultSubject), cmp.Or(defaults.Body, defaultBody)
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
	p = b.resolve(decode(record))
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.resolved) >= maxResolved {
		clear(b.resolved)
	}
	b.resolved[record] = p
	return p
}

// resolve lays the members of a record over the defaults.
func (b *Book) resolve(set map[string]string) *Policy {
	p := fields.lay(b.defaults, set)
	if _, own := set["timeout"]; own {
		p.Lease = p.Timeout
	}
	p.SigningPreviousUntil, _ = strconv.ParseInt(set[previousUntil], 10, 64)
	return &p
}
