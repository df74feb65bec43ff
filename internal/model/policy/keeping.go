package policy

import (
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/quantity"
)

// An Age is how long something is kept. The zero value is that of the installation.
type Age struct {
	set bool
	d   time.Duration // 0: for ever
}

// The bounds of an Age. The lower one is the shortest time for which the store keeps a message.
const (
	leastAge = time.Minute
	mostAge  = 100 * 365 * 24 * time.Hour
)

func parseAge(text string) (Age, error) {
	d, err := quantity.Duration(text)
	if err != nil || d != 0 && (d < leastAge || d > mostAge) {
		return Age{}, fmt.Errorf("must be 0, or a duration from %s to %s", short(leastAge), short(mostAge))
	}
	return Age{true, d}, nil
}

// Or returns the age, usual where none is set. 0: for ever.
func (a Age) Or(usual time.Duration) time.Duration {
	if a.set {
		return a.d
	}
	return usual
}

// String is the inverse of parseAge, "" where none is set.
func (a Age) String() string {
	if !a.set {
		return ""
	}
	return short(a.d)
}

// A Keeping is how long the messages of a channel are kept. The zero value is that of the installation.
type Keeping struct {
	Retention Age // of a message whose jobs are all over
	// Messages and Bytes bound the newest messages of the channel: older ones are removed once their jobs
	// are over.
	Messages, Bytes Most
	DeadRetention   Age // how long a dead letter keeps its message
	// AttemptRetention is how long a failed attempt of a job that is over is kept.
	AttemptRetention Age
}

// Sized reports whether the number or the size of messages is bounded.
func (k *Keeping) Sized() bool { return k.Messages.Or(0) > 0 || k.Bytes.Or(0) > 0 }

// Kept returns the time before which messages may have been removed, Unix ms: those that are over and
// older than the retention, or that a bound on the number or the size has removed, up to removedMs. 0: none.
func (k *Keeping) Kept(nowMs int64, usual time.Duration, removedMs int64) int64 {
	if age := k.Retention.Or(usual); age > 0 {
		return max(nowMs-age.Milliseconds(), removedMs)
	}
	return removedMs
}
