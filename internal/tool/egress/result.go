package egress

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/quantity"
)

// ErrTimeout says that the exchange was not over when its time was.
var ErrTimeout = errors.New("egress: timeout")

// ErrClosed says that the client was closed before or during the exchange.
var ErrClosed = errors.New("egress: client closed")

// ErrBusy says that MaxConnsPerHost exchanges with the host are under way.
var ErrBusy = errors.New("egress: all connections to the host are busy")

// ErrNoAnswer says that the consumer closed the connection without an answer.
var ErrNoAnswer = errors.New("egress: connection closed before an answer")

// ErrIncomplete says that the answer broke off inside its body.
var ErrIncomplete = errors.New("egress: answer broke off")

// maxAnswerBytes is how much of an answer's body is read; what Result.Answer
// keeps of it is keepAnswerBytes.
const (
	maxAnswerBytes  = 64 << 10
	keepAnswerBytes = 1 << 10
)

// maxRetryAfter caps what a consumer may ask for.
const maxRetryAfter = 24 * time.Hour

// A Result is the end of one Post.
type Result struct {
	Status     int           // of the final answer; 0 when there was none
	Answer     []byte        // first KiB of its body, owned by the caller
	RetryAfter time.Duration // asked for by the consumer, within [0, 24h]; -1 when it was not
	Took       time.Duration
	// Err is nil when the answer was complete or its status sufficed because its
	// body was larger than the limit. With an error Status may still be set: the
	// head of the answer came and its body broke off.
	Err error
	// Local says that nothing was sent for a reason in the broker: no free
	// connection, descriptor or port, or the client is closed. Not an attempt.
	Local bool
	// Reply is not ByStatus where the status is not one of HTTP. Words are then the answer, in place of
	// "status N". With an error they are what is said of it.
	Reply Reply
	Words string
	// Response is the answer of PostKeeping with a status of 2xx; nil: there is none.
	Response *Response
	// Sent says that bytes of the request may have reached the consumer.
	Sent bool
}

// A Reply is what an answer of another protocol than HTTP means for the attempt.
type Reply uint8

// The replies.
const (
	ByStatus Reply = iota // as the status says in HTTP
	Deferred              // a repetition may help
	Refused               // no repetition helps
)

// A Response is what was kept of an answer, as it came: no content coding is undone.
type Response struct {
	Headers   []byte // "Name:value\n" each; several values of a name are joined
	Body      []byte
	Truncated bool   // the body was longer
	Location  string // "" or the header Location
	// RetryAfter is that of Result without its bound.
	RetryAfter time.Duration
}

// Add adds a header if it is kept.
func (r *Response) Add(keep *Keep, name, value string) {
	switch name {
	case "Location":
		r.Location = value
	case "Retry-After":
		r.RetryAfter = ParseRetryAfter(value, time.Now(), 365*24*time.Hour)
	}
	if !keep.Headers(name) || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
		return
	}
	line := []byte("\n" + name + ":")
	first := bytes.HasPrefix(r.Headers, line[1:])
	at := 0
	if !first {
		at = bytes.Index(r.Headers, line) + 1
	}
	if first || at > 0 { // of several lines of a name one is made, wherever they stand
		end := at + bytes.IndexByte(r.Headers[at:], '\n')
		r.Headers = slices.Insert(r.Headers, end, []byte(", "+value)...)
		return
	}
	r.Headers = append(append(append(append(r.Headers, name...), ':'), value...), '\n')
}

// OK reports whether the consumer accepted the delivery: a complete exchange
// with a status of 200 to 299.
func (r Result) OK() bool { return r.Err == nil && r.Status >= 200 && r.Status <= 299 }

// failed returns the Result of an exchange that ended before its answer's head.
func failed(err error, sent bool) Result {
	return Result{RetryAfter: -1, Err: err, Sent: sent, Local: !sent && local(err)}
}

// parseRetryAfter reads the header's seconds or date (RFC 9110, 10.2.3); -1 when
// it is absent or neither.
func parseRetryAfter(s string, now time.Time) time.Duration {
	return ParseRetryAfter(s, now, maxRetryAfter)
}

// ParseRetryAfter reads a Retry-After of at most most; -1 where there is none. Besides whole seconds
// and dates it takes what has one meaning only, with or without quotes: a decimal fraction of
// seconds, which is rounded up, and seconds or a duration with units (5s, 5 seconds, 1m30s).
func ParseRetryAfter(s string, now time.Time, most time.Duration) time.Duration {
	s = strings.TrimSpace(s)
	if n := len(s); n > 1 && s[0] == s[n-1] && (s[0] == '"' || s[0] == '\'') {
		s = strings.TrimSpace(s[1 : n-1])
	}
	if n, ok := seconds(s, int64(most/time.Second)); ok {
		return time.Duration(n) * time.Second
	}
	if d, err := quantity.Duration(strings.ToLower(s)); err == nil && d >= 0 {
		return min(d, most)
	}
	if t, ok := parseDate(s); ok {
		return min(max(t.Sub(now), 0), most)
	}
	return -1
}

// seconds reads a decimal number of seconds, with or without their unit, as a whole number of at most
// most.
func seconds(s string, most int64) (n int64, ok bool) {
	unit := strings.TrimLeft(s, "0123456789.")
	number := s[:len(s)-len(unit)]
	switch strings.ToLower(strings.TrimSpace(unit)) {
	case "", "s", "sec", "secs", "second", "seconds":
	default:
		return 0, false
	}
	whole, fraction, _ := strings.Cut(number, ".")
	if whole+fraction == "" || strings.Contains(fraction, ".") {
		return 0, false
	}
	n, err := strconv.ParseInt("0"+whole, 10, 64)
	if err != nil || n >= most {
		return most, true
	}
	if strings.Trim(fraction, "0") != "" {
		n++
	}
	return n, true
}
