package schedule

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/quantity"
)

// errDelay is the reason why a text is no delay.
var errDelay = errors.New("it must be a duration such as 10s, 1h30m or 2d, or whole seconds")

// beyond is a delay that is too long.
const beyond = Horizon + time.Millisecond

// ParseDelay reads how much later a message is sent: a duration, or whole seconds, as claims and updates
// of jobs have them. It is in whole milliseconds, rounded up: no message comes before its time. A delay
// beyond Horizon is a little more than that, however long.
func ParseDelay(text string) (time.Duration, error) {
	if text == "" || strings.ContainsAny(text, "+-") {
		return 0, errDelay
	}
	if strings.Trim(text, "0123456789") == "" {
		seconds, err := strconv.ParseUint(text, 10, 64)
		if err != nil || seconds > uint64(Horizon/time.Second) {
			return beyond, nil
		}
		return time.Duration(seconds) * time.Second, nil
	}
	d, err := quantity.Duration(text)
	if err != nil {
		return 0, errDelay
	}
	return (min(d, beyond) + time.Millisecond - 1).Truncate(time.Millisecond), nil
}
