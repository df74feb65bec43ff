package penstock

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstBackoff = 200 * time.Millisecond
	mostBackoff  = 30 * time.Second
	// patience is how long a call repeats its request.
	patience = 30 * time.Second
)

// A backoff is the waits between tries: random between 0 and a bound that doubles (full jitter).
type backoff struct{ tries int }

// next returns the wait before the next try, at least after.
func (b *backoff) next(after time.Duration) time.Duration {
	most := min(firstBackoff<<min(b.tries, 10), mostBackoff)
	b.tries++
	wait := rand.N(most) + time.Millisecond
	if after > 0 {
		return after + wait/4
	}
	return wait
}

// rest waits, and reports false if the context ends before.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// again calls f until it succeeds, its error is final, tries are used up, or patience would be exceeded.
func again(ctx context.Context, tries int, f func() error) error {
	end := time.Now().Add(patience)
	for b := (backoff{}); ; {
		err := f()
		if err == nil || !temporary(err) || b.tries+1 >= tries {
			return err
		}
		wait := b.next(retryAfter(err))
		if time.Now().Add(wait).After(end) || !rest(ctx, wait) {
			return err
		}
	}
}
