//go:build unix

package chaos

import (
	"context"
	"time"
)

// pace sends to due at the given rate until ctx ends. It drops a tick without a receiver, so a
// fault is not followed by a burst.
func pace(ctx context.Context, rate float64, due chan<- struct{}) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	last, owed := time.Now(), 0.0
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			owed += rate * now.Sub(last).Seconds()
			last = now
		}
		for ; owed >= 1; owed-- {
			select {
			case due <- struct{}{}:
			default:
			}
		}
	}
}
