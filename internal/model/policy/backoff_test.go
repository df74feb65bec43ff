package policy

import (
	"testing"
	"time"
)

// The bound of the installation is for what doubles behind a list: what a consumer lists, it gets.
func TestTheBoundOfWaitsKeepsWhatIsListed(t *testing.T) {
	p := Policy{Backoff: Waits(5*time.Second, 2*time.Hour, 10*time.Second), MaxDelay: time.Minute}
	for attempt, want := range map[int]time.Duration{1: 5 * time.Second, 2: 2 * time.Hour, 3: 10 * time.Second,
		4: 20 * time.Second, 6: time.Minute, 1000: time.Minute} {
		if got := p.Delay(attempt); got != want {
			t.Errorf("attempt %d waits %s, not %s", attempt, got, want)
		}
	}
	for _, p := range []Policy{{Backoff: Constant(3 * time.Hour), MaxDelay: time.Hour},
		{Backoff: Waits(3 * time.Hour), MaxDelay: time.Hour}} {
		if got := p.Delay(9); got != 3*time.Hour {
			t.Errorf("%s waits %s", p.Backoff, got)
		}
	}
}
