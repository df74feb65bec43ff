package penstock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// An Error is a request that did not succeed.
type Error struct {
	Method, Path string        // of the request
	Status       int           // HTTP status of the answer; 0: there was no answer that could be read
	Code         string        // of the broker, such as "channel_not_found"; "": the answer is none of the broker
	Detail       string        // a sentence for people
	RetryAfter   time.Duration // that the answer asked for; 0: it did not
	RequestID    string        // of the broker's log
	Err          error         // why there is no answer

	location string // of a message that is stored already
}

func (e *Error) Error() string {
	what := e.Detail
	switch {
	case e.Status == 0 && what == "":
		what = fmt.Sprint(e.Err)
	case e.Code != "":
		what = fmt.Sprintf("%d %s: %s", e.Status, e.Code, what)
	case e.Status != 0:
		what = fmt.Sprintf("%d %s %s", e.Status, http.StatusText(e.Status), what)
	}
	return fmt.Sprintf("penstock: %s %s: %s", e.Method, e.Path, what)
}

func (e *Error) Unwrap() error { return e.Err }

// Temporary reports whether the same request may succeed later: there was no answer, or one that says so.
func (e *Error) Temporary() bool {
	switch {
	case e.Code == "response_failed" || e.Code == "response_late":
		return false
	case e.Status == 0:
		return !errors.Is(e.Err, context.Canceled)
	case e.Code == "": // no answer of a broker: of a proxy, perhaps during a deployment
		return true
	case e.Status == http.StatusNotImplemented || e.Status == http.StatusHTTPVersionNotSupported:
		return false
	}
	return e.Status == http.StatusRequestTimeout || e.Status == http.StatusTooEarly ||
		e.Status == http.StatusTooManyRequests || e.Status >= 500
}

// CodeOf returns the code of the broker in an error, "" if there is none.
func CodeOf(err error) string {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func temporary(err error) bool {
	e := (*Error)(nil)
	return errors.As(err, &e) && e.Temporary()
}

func retryAfter(err error) time.Duration {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.RetryAfter
	}
	return 0
}

// Causes of the end of a handler's context, see context.Cause.
var (
	// ErrLeaseLost: the broker has given the job to another worker, or may have. What the handler does
	// from then on is done twice. It should end; what it returns is not counted, except success, which
	// is reported and accepted if the broker has not given the job away yet.
	ErrLeaseLost = errors.New("penstock: the lease of the job is lost")
	// ErrStopped: the worker ends now (Abort, or a second signal). The job goes back, and the attempt does
	// not count.
	ErrStopped = errors.New("penstock: the worker stops now")
)

// A verdict is what a handler may return instead of any other error, to say what becomes of its job.
type verdict struct {
	state  string // DEAD or QUEUED
	failed bool
	delay  time.Duration
	reason string
}

func (v *verdict) Error() string { return v.reason }

// Reject returns an error by which a handler ends its job for good: it becomes a dead letter. reason has
// few words that are the same for the same cause.
func Reject(reason string) error { return &verdict{state: "DEAD", reason: reason} }

// RetryIn returns an error by which a handler fails its attempt, which counts, and says when the next one
// is due, in whole seconds. Any other error is retried after the backoff of the consumer.
func RetryIn(delay time.Duration, reason string) error {
	return &verdict{state: "QUEUED", failed: true, delay: delay, reason: reason}
}

// GiveBack returns an error by which a handler gives its job back: the attempt does not count, and the job
// is due after delay.
func GiveBack(delay time.Duration, reason string) error {
	return &verdict{state: "QUEUED", delay: delay, reason: reason}
}
