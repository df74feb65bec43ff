package policy

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What an answer to a push attempt means. docs/delivery.md has the same table, which a test checks:
//
//	2xx, complete                        delivered
//	410                                  the consumer is gone: it is held, the job stays queued
//	no complete answer                   retried
//	408, 425, 429, 503                   retried; Retry-After of 429 and 503 holds the whole
//	                                     consumer back, for at most MaxDelay
//	another status that RetryOn names    retried
//	another status                       dead at once
//
// An answer that is Deferred is retried, and one that is Refused is dead at once, whatever its status.
// A redirect is an answer like any other: it is never followed. A retry that is over
// the attempts of the policy is a dead letter. No complete answer, 408, 425, 429 and 5xx strain
// the consumer: they slow an adaptive one down.

// An Answer is the end of one push attempt.
type Answer struct {
	Status     int           // HTTP status; 0: none came
	Complete   bool          // the whole exchange succeeded
	RetryAfter time.Duration // asked for by the consumer; 0 or below: it was not
	// Deferred and Refused are of answers whose status is not one of HTTP: a repetition may help, or none does.
	Deferred, Refused bool
}

// A Meaning is what becomes of the job.
type Meaning uint8

// The meanings of an answer.
const (
	Delivered Meaning = iota
	Retry
	Exhausted // dead: it was the last attempt
	Rejected  // dead: the answer is not retried
	Gone      // the consumer wants no more; the attempt is not charged
)

// A Verdict is a Meaning with the wait before the next attempt.
type Verdict struct {
	Meaning Meaning
	Delay   time.Duration // of Retry
	Hold    time.Duration // in which the consumer wants no attempt of any job; 0: it has not said so
	Strains bool          // the consumer is overloaded or broken: Adaptive slows down
}

// Judge says what an answer to the given attempt, 1-based, means.
func (p *Policy) Judge(a Answer, attempt int) Verdict {
	v := p.judge(a, attempt)
	if a.Complete && a.RetryAfter > 0 && (a.Status == 429 || a.Status == 503) {
		v.Hold = min(a.RetryAfter, max(p.MaxDelay, time.Second))
	}
	v.Strains = a.Deferred || !a.Complete || !a.Refused && a.strains()
	return v
}

// strains reports whether the status says that the consumer is overloaded or broken.
func (a *Answer) strains() bool {
	return a.Status == 408 || a.Status == 425 || a.Status == 429 || a.Status/100 == 5
}

func (p *Policy) judge(a Answer, attempt int) Verdict {
	switch {
	case a.Deferred && attempt < p.MaxAttempts():
		return Verdict{Meaning: Retry, Delay: p.Delay(attempt)}
	case a.Deferred:
		return Verdict{Meaning: Exhausted}
	case a.Refused:
		return Verdict{Meaning: Rejected}
	case a.Complete && a.Status/100 == 2:
		return Verdict{Meaning: Delivered}
	case a.Complete && a.Status == 410:
		return Verdict{Meaning: Gone}
	case a.Complete && !p.RetryOn.Has(a.Status):
		return Verdict{Meaning: Rejected}
	case attempt >= p.MaxAttempts():
		return Verdict{Meaning: Exhausted}
	}
	// a Retry-After is a hold: whatever ends that frees this job, too
	return Verdict{Meaning: Retry, Delay: p.Delay(attempt)}
}

// alwaysRetried are the answers that say nothing about the message.
var alwaysRetried = []int{408, 425, 429, 503}

// A RetryOn is the set of statuses that are retried. The zero value is all of them. It
// is comparable.
type RetryOn struct {
	some  bool
	codes [10]uint64 // bit per status 0..639
}

// Has reports whether an answer with that status is retried.
func (r *RetryOn) Has(status int) bool {
	if !r.some || slices.Contains(alwaysRetried, status) {
		return true
	}
	return status >= 0 && status < 640 && r.codes[status/64]&(1<<(status%64)) != 0
}

var errRetryOn = errors.New("must be all, or a list of status codes and classes like 5xx,404,409")

// parseRetryOn reads "all" or a list of codes (100..599) and classes (1xx..5xx).
func parseRetryOn(text string) (RetryOn, error) {
	if text == "all" {
		return RetryOn{}, nil
	}
	r := RetryOn{some: true}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.ToLower(strings.TrimSpace(part))
		first, last := 0, 0
		if class, ok := strings.CutSuffix(part, "xx"); ok && len(class) == 1 {
			first = int(class[0]-'0') * 100
			last = first + 99
		} else if n, err := strconv.Atoi(part); err == nil && len(part) == 3 {
			first, last = n, n
		}
		if first < 100 || last > 599 {
			return RetryOn{}, errRetryOn
		}
		for code := first; code <= last; code++ {
			r.codes[code/64] |= 1 << (code % 64)
		}
	}
	return r, nil
}

// String is the inverse of parseRetryOn, in ascending order.
func (r RetryOn) String() string {
	if !r.some {
		return "all"
	}
	in := func(code int) bool { return r.codes[code/64]&(1<<(code%64)) != 0 }
	var out []string
	for class := 1; class <= 5; class++ {
		var codes []string
		for code := class * 100; code < class*100+100; code++ {
			if in(code) {
				codes = append(codes, strconv.Itoa(code))
			}
		}
		if len(codes) == 100 {
			codes = []string{strconv.Itoa(class) + "xx"}
		}
		out = append(out, codes...)
	}
	return strings.Join(out, ",")
}
