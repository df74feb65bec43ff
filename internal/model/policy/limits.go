package policy

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/quantity"
)

// A Rate is the most attempts in any window of that length. The zero value is no limit.
type Rate struct {
	N   int
	Per time.Duration
}

// Bounds of a rate. Redis counts the attempts of a window, so its length is bounded.
const (
	maxRateN   = 1_000_000
	minRatePer = 100 * time.Millisecond
	maxRatePer = 24 * time.Hour
)

var errRate = errors.New("must be none, or N/duration like 100/1s, with N from 1 to 1000000 and a duration from " +
	"100ms to 24h")

// parseRate reads "100/1s" or "none".
func parseRate(text string) (Rate, error) {
	if text == "none" {
		return Rate{}, nil
	}
	count, per, ok := strings.Cut(text, "/")
	n, err := strconv.Atoi(strings.TrimSpace(count))
	if !ok || err != nil || n < 1 || n > maxRateN || strings.Contains(count, "+") {
		return Rate{}, errRate
	}
	d, err := quantity.Duration(strings.TrimSpace(per))
	if err != nil || d < minRatePer || d > maxRatePer {
		return Rate{}, errRate
	}
	return Rate{N: n, Per: d}, nil
}

var errCollect = errors.New("must be none, or N/duration like 20/5s, with N from 2 to 100 and a duration from 100ms " +
	"to 1h")

// parseCollect reads how many jobs may share a mail, and how long the first of them waits.
func parseCollect(text string) (Rate, error) {
	c, err := parseRate(text)
	if err != nil || c != (Rate{}) && (c.N < 2 || c.N > 100 || c.Per > time.Hour) {
		return Rate{}, errCollect
	}
	return c, nil
}

// ParseRate reads a rate as the policy field rateLimit has it. An empty text is no limit.
func ParseRate(text string) (Rate, error) {
	if text == "" {
		return Rate{}, nil
	}
	return parseRate(text)
}

// String is the inverse of parseRate.
func (r Rate) String() string {
	if r == (Rate{}) {
		return "none"
	}
	return strconv.Itoa(r.N) + "/" + short(r.Per)
}

// An OnBlocked says what becomes of the messages of an ordering key behind a dead letter.
type OnBlocked uint8

// The values of OnBlocked.
const (
	Block         OnBlocked = iota // they wait until the dead letter is delivered after a redrive, deleted or expired
	Skip                           // they are delivered
	DeadLetterKey                  // they become dead letters too
)

var blockedNames = []string{"block", "skip", "dead-letter-key"}

func parseOnBlocked(text string) (OnBlocked, error) { return oneOf[OnBlocked](text, blockedNames) }

// oneOf returns the index of a name.
func oneOf[T ~uint8](text string, names []string) (T, error) {
	for i, name := range names {
		if text == name {
			return T(i), nil
		}
	}
	last := len(names) - 1
	return 0, errors.New("must be " + strings.Join(names[:last], ", ") + " or " + names[last])
}

// String is the inverse of parseOnBlocked.
func (o OnBlocked) String() string { return blockedNames[min(int(o), len(blockedNames)-1)] }

// A DLQKind says what becomes of dead letters.
type DLQKind uint8

// The kinds of DLQ.
const (
	DLQKeep    DLQKind = iota
	DLQRedrive         // after a later success of the consumer
	DLQForward         // to another channel
	DLQExpire          // removed after a time
)

// A DLQ is what becomes of the dead letters of a consumer. The zero value keeps them.
type DLQ struct {
	Kind    DLQKind
	Channel string        // of DLQForward
	After   time.Duration // of DLQExpire
}

var errDLQ = errors.New("must be keep, redrive, forward:CHANNEL, or expire:DURATION from 1s to 8760h")

var errForward = errors.New("must not forward to a channel of the broker")

func parseDLQ(text string) (DLQ, error) {
	kind, rest, _ := strings.Cut(text, ":")
	switch {
	case text == "keep":
		return DLQ{}, nil
	case text == "redrive":
		return DLQ{Kind: DLQRedrive}, nil
	case kind == "forward" && ident.Reserved(rest):
		return DLQ{}, errForward
	case kind == "forward" && validChannel(rest):
		return DLQ{Kind: DLQForward, Channel: rest}, nil
	case kind == "expire":
		if d, err := quantity.Duration(rest); err == nil && d >= time.Second && d <= maxWait {
			return DLQ{Kind: DLQExpire, After: d}, nil
		}
	}
	return DLQ{}, errDLQ
}

// String is the inverse of parseDLQ.
func (d DLQ) String() string {
	switch d.Kind {
	case DLQRedrive:
		return "redrive"
	case DLQForward:
		return "forward:" + d.Channel
	case DLQExpire:
		return "expire:" + short(d.After)
	}
	return "keep"
}
