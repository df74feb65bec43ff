package policy

import (
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/quantity"
)

// MaxWaits is how many waits a backoff lists at most.
const MaxWaits = 16

// maxWait bounds a wait where no cap is set.
const maxWait = 365 * 24 * time.Hour

// A Backoff is the list of waits before retry 1, 2, ...; after the list the last wait
// doubles each time up to a bound, or stays where the backoff is constant. It is comparable.
type Backoff struct {
	waits    [MaxWaits]time.Duration
	n        int
	constant bool
}

// Waits returns the backoff of a list; of a longer list the first 16 count.
func Waits(list ...time.Duration) Backoff {
	var b Backoff
	b.n = copy(b.waits[:], list)
	return b
}

// Constant returns the backoff that always waits as long.
func Constant(wait time.Duration) Backoff {
	b := Waits(wait)
	b.constant = true
	return b
}

const constantPrefix = "constant:"

// parseBackoff reads "5s,30s,60s" or "constant:30s".
func parseBackoff(text string) (Backoff, error) {
	list, constant := strings.CutPrefix(text, constantPrefix)
	parts := strings.Split(list, ",")
	if constant && len(parts) != 1 || len(parts) > MaxWaits {
		return Backoff{}, errBackoff
	}
	var b Backoff
	b.constant = constant
	for i, part := range parts {
		wait, err := quantity.Duration(strings.TrimSpace(part))
		if err != nil || wait <= 0 || wait > maxWait {
			return Backoff{}, errBackoff
		}
		b.waits[i] = wait
	}
	b.n = len(parts)
	return b, nil
}

var errBackoff = errors.New("must be a list of 1 to 16 durations like 5s,30s,60s, each above 0 and at most 8760h, " +
	"or constant:30s")

// short is d without the zeros that Go writes behind it: 1m, not 1m0s.
func short(d time.Duration) string { return Short(d) }

// Short is the text of a duration without parts at its end that are zero: "5m", not "5m0s".
func Short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = text[:len(text)-2]
	}
	if strings.HasSuffix(text, "h0m") {
		text = text[:len(text)-2]
	}
	return text
}

// String is the inverse of parseBackoff.
func (b Backoff) String() string {
	texts := make([]string, b.n)
	for i := range texts {
		texts[i] = short(b.waits[i])
	}
	list := strings.Join(texts, ",")
	if b.constant {
		return constantPrefix + list
	}
	return list
}

// Delay returns the wait after the given failed attempt, 1-based. It saturates: any
// attempt number is safe. MaxDelay bounds the waits behind the list, not those that somebody listed. Jitter only ever
// adds to the wait.
func (p *Policy) Delay(attempt int) time.Duration {
	b := &p.Backoff
	if b.n == 0 {
		return 0
	}
	n := max(attempt, 1) - 1
	listed := b.waits[min(n, b.n-1)]
	wait := listed
	for i := b.n - 1; i < n && !b.constant; i++ {
		if p.MaxDelay > 0 && wait >= p.MaxDelay || wait > maxWait/2 {
			break
		}
		wait *= 2
	}
	if p.MaxDelay > 0 {
		wait = min(wait, max(p.MaxDelay, listed))
	}
	wait = min(max(wait, 0), maxWait)
	if p.Jitter > 0 {
		wait += time.Duration(rand.Float64() * p.Jitter * float64(wait))
	}
	return wait
}
