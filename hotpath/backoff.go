package hotpath

import (
	"math/rand/v2"
	"time"
)

// A Backoff is the wait before each retry.
type Backoff struct {
	Waits    []time.Duration // before retry 1, 2, ...; the last one doubles from then on
	MaxDelay time.Duration   // cap, jitter excluded; 0: none
	Jitter   float64         // fraction of the wait added at random: never earlier than configured
}

// Delay returns the wait after the given failed attempt, 1-based. It saturates:
// any attempt number is safe.
func (b Backoff) Delay(attempt int) time.Duration {
	if len(b.Waits) == 0 {
		return 0
	}
	n := max(attempt, 1) - 1
	wait := b.Waits[min(n, len(b.Waits)-1)]
	for i := len(b.Waits) - 1; i < n; i++ {
		if b.MaxDelay > 0 && wait >= b.MaxDelay || wait > maxWait/2 {
			break
		}
		wait *= 2
	}
	if b.MaxDelay > 0 {
		wait = min(wait, b.MaxDelay)
	}
	wait = min(max(wait, 0), maxWait)
	if b.Jitter > 0 {
		wait += time.Duration(rand.Float64() * b.Jitter * float64(wait))
	}
	return wait
}

// maxWait bounds a wait where no cap is configured.
const maxWait = 365 * 24 * time.Hour
